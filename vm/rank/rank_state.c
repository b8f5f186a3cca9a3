/* rank_state.c - initial values, and copies of pieces of parameters and state between a
 * rank's arena and the host. */
#include "interp.h"

#include "vm/base/dynamic8.h"
#include "vm/base/f16.h"
#include "vm/base/rng.h"

/* ---- initial values ---- */

static void init_values(const CompiledParam *cp, const Rng *rng, uint64_t from, int64_t n,
                        float *to) {
  if (cp->init == INIT_NORMAL) {
    rng_normals(rng, from, (uint64_t)n, cp->std, to);
    return;
  }
  if (cp->init == INIT_UNIFORM) {
    for (int64_t k = 0; k < n; k++)
      to[k] = (float)((2 * rng_uniform(rng, from + (uint64_t)k) - 1) * cp->std);
    return;
  }
  float all = cp->init == INIT_NUMBER ? cp->std : cp->init == INIT_ONES ? 1.0f : 0.0f;
  for (int64_t k = 0; k < n; k++) to[k] = all;
}

void param_init(const CompiledParam *cp, uint64_t seed, int64_t from, int64_t n,
                float *to) {
  Rng rng = rng_make(seed, cp->like);
  init_values(cp, &rng, (uint64_t)from, n, to);
}

void piece_init(const Piece *p, const CompiledParam *cp, uint64_t seed, float *local) {
  Rng rng = rng_make(seed, cp->like);
  for (int64_t i = 0, spans = piece_spans(p); i < spans; i++) {
    Span s = piece_span(p, i);
    float *to = local + s.local;
    init_values(cp, &rng, (uint64_t)s.global, s.n, to);
    for (int64_t k = s.n; k < s.n + s.padding; k++) to[k] = 0;
  }
}

/* ---- arenas ---- */

int state_pieces(const Compiled *c, int rank, StateKind k, int param, Piece out[2]) {
  static const RegionKind kind[STATE_N] = {[STATE_PARAM] = REGION_WORK,
                                           [STATE_GRAD] = REGION_GRAD,
                                           [STATE_OPT1] = REGION_STATE1,
                                           [STATE_OPT2] = REGION_STATE2};
  const Regions *s = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)].regions;
  const Stored *at = regions_param(s, param);
  if (!at) return 0;
  const CompiledParam *p = &c->param[param];
  const Region *own = regions_find(s, kind[k], at);
  if (!own) return 0; /* programs that do not train have parameters alone */
  const Region *read = k == STATE_PARAM ? regions_value(s, at) : own;
  out[0] = piece_make(&c->mesh, p, s, at, read, rank);
  if (own == read) return 1;
  out[1] = piece_make(&c->mesh, p, s, at, own, rank);
  return 2;
}

static char *address(const Rank *r, const Piece *p) {
  const Region *g = p->region;
  return rank_place(r, g->off) + region_span(g, p->at);
}

void rank_read_raw(Rank *r, const Piece *p, void *to) {
  device_download(r->dev, to, address(r, p), region_span(p->region, p->count));
}

static bool reachable(const Rank *r) { return r->c->device->host; }

/* A transfer takes microseconds, however small, so a piece comes in one, as it is stored,
 * to the end of the memory of its values, and is unpacked from there: from the front, by
 * parts that are copied first, what is written never reaches what is still to be read. */
static char *packed(Rank *r, const Piece *p, size_t bytes, void *local) {
  char *at = (char *)local + p->count * (int64_t)sizeof(float) - bytes;
  device_download(r->dev, at, address(r, p), bytes);
  return at;
}

static void read_half(Rank *r, const Piece *p, float *local) {
  uint16_t block[4096];
  bool bf = p->region->dtype == DT_BF16;
  const char *from = packed(r, p, (size_t)p->count * sizeof *block, local);
  for (int64_t at = 0; at < p->count; at += LEN(block)) {
    int64_t n = MIN((int64_t)LEN(block), p->count - at);
    memcpy(block, from + at * (int64_t)sizeof *block, (size_t)n * sizeof *block);
    for (int64_t i = 0; i < n; i++)
      local[at + i] = bf ? bf16_to_f32(block[i]) : f16_to_f32(block[i]);
  }
}

static void read_bytes(Rank *r, const Piece *p, float *local) {
  uint8_t block[4096];
  const char *from = packed(r, p, (size_t)p->count, local);
  for (int64_t at = 0; at < p->count; at += LEN(block)) {
    int64_t n = MIN((int64_t)LEN(block), p->count - at);
    memcpy(block, from + at, (size_t)n);
    for (int64_t i = 0; i < n; i++) local[at + i] = block[i];
  }
}

static char *place_of(void *to, int64_t i) {
  return (char *)to + i * (int64_t)sizeof(float);
}

static void unpack(const Dynamic8Map *m, const Dynamic8 *b, int64_t from, int64_t n,
                   char *to) {
  float some[DYNAMIC8_BLOCK];
  dynamic8_unpack(m, b, (int)from, (int)n, some);
  memcpy(to, some, (size_t)n * sizeof *some);
}

/* Elements [i, i + n) of the piece, which are in one block that it has a part of. */
static void read_some(Rank *r, const Dynamic8Map *m, const Piece *p, int64_t i, int64_t n,
                      void *to) {
  Dynamic8 block;
  int64_t in = (p->at + i) % DYNAMIC8_BLOCK;
  if (n == 0) return;
  Piece part = piece_part(p, i - in, in);
  device_download(r->dev, &block, address(r, &part), sizeof block);
  unpack(m, &block, in, n, place_of(to, i));
}

/* Whole blocks, and what is before and behind them. */
static void read_blocks(Rank *r, const Piece *p, void *to) {
  Dynamic8Map map;
  Dynamic8 block;
  int64_t in = p->at % DYNAMIC8_BLOCK;
  int64_t first = in ? MIN(DYNAMIC8_BLOCK - in, p->count) : 0;
  int64_t blocks = (p->count - first) / DYNAMIC8_BLOCK;
  int64_t last = first + blocks * DYNAMIC8_BLOCK;
  Piece whole = piece_part(p, first, last - first);
  dynamic8_map(p->region->dtype == DT_Q8, &map);
  read_some(r, &map, p, 0, first, to);
  const char *from =
      packed(r, &whole, (size_t)blocks * sizeof block, place_of(to, first));
  for (int64_t i = 0; i < blocks; i++) {
    memcpy(&block, from + i * (int64_t)sizeof block, sizeof block);
    unpack(&map, &block, 0, DYNAMIC8_BLOCK, place_of(to, first + i * DYNAMIC8_BLOCK));
  }
  read_some(r, &map, p, last, p->count - last, to);
}

void rank_read_saved(Rank *r, const Piece *p, void *to) {
  if (region_saved(p->region) == (DType)p->region->dtype)
    rank_read_raw(r, p, to);
  else
    read_blocks(r, p, to);
}

void rank_read(Rank *r, const Piece *p, float *local) {
  if (p->region->dtype == DT_U8) {
    read_bytes(r, p, local);
    return;
  }
  if (dtype_elements((DType)p->region->dtype) > 1) {
    read_blocks(r, p, local);
    return;
  }
  if (p->region->dtype != DT_F32) {
    read_half(r, p, local);
    return;
  }
  device_download(r->dev, local, address(r, p), (size_t)p->count * sizeof *local);
}

float *rank_floats(Rank *r, const Piece *p) {
  bool there = reachable(r) && p->region->dtype == DT_F32;
  return there ? (float *)address(r, p) : NULL;
}

uint16_t *rank_halves(Rank *r, const Piece *p) {
  bool there = reachable(r) && dtype_size((DType)p->region->dtype) == sizeof(uint16_t);
  return there ? (uint16_t *)address(r, p) : NULL;
}

static void round_to(DType t, const float *from, int64_t n, uint16_t *restrict to) {
  if (t == DT_BF16)
    for (int64_t i = 0; i < n; i++) to[i] = bf16_from_f32(from[i]);
  else
    for (int64_t i = 0; i < n; i++) to[i] = f16_from_f32(from[i]);
}

/* What a write takes to the arena at once: CUDA takes as much from memory that is not
 * pinned and goes on. */
enum { WRITTEN = 64 << 10 };

static void write_raw(Rank *r, char *to, const void *from, size_t bytes) {
  if (reachable(r))
    memcpy(to, from, bytes);
  else
    device_upload(r->dev, to, from, bytes);
}

/* Whole blocks, but for what is left of the last one, which is padding. */
static void write_blocks(Rank *r, const Piece *p, const float *local) {
  Dynamic8Map map;
  Dynamic8 block[WRITTEN / sizeof(Dynamic8)];
  assert(p->at % DYNAMIC8_BLOCK == 0);
  dynamic8_map(p->region->dtype == DT_Q8, &map);
  for (int64_t i = 0; i < p->count;) {
    Piece part = piece_part(p, i, 0);
    size_t n = 0;
    for (; n < LEN(block) && i < p->count; n++, i += DYNAMIC8_BLOCK)
      dynamic8_pack_again(&map, local + i, (int)MIN(DYNAMIC8_BLOCK, p->count - i),
                          &block[n]);
    write_raw(r, address(r, &part), block, n * sizeof *block);
  }
}

/* Rounded to the type of the region. */
static void write_half(Rank *r, const Piece *p, const float *local) {
  uint16_t block[WRITTEN / sizeof(uint16_t)];
  for (int64_t at = 0; at < p->count; at += LEN(block)) {
    int64_t n = MIN((int64_t)LEN(block), p->count - at);
    round_to((DType)p->region->dtype, local + at, n, block);
    write_raw(r, address(r, p) + at * (int64_t)sizeof *block, block,
              (size_t)n * sizeof *block);
  }
}

/* Codes are whole numbers below 256. */
static void write_bytes(Rank *r, const Piece *p, const float *local) {
  uint8_t block[WRITTEN];
  for (int64_t at = 0; at < p->count; at += LEN(block)) {
    int64_t n = MIN((int64_t)LEN(block), p->count - at);
    for (int64_t i = 0; i < n; i++) block[i] = (uint8_t)local[at + i];
    write_raw(r, address(r, p) + at, block, (size_t)n);
  }
}

/* Other threads than the rank's may write where the host can. */
void rank_write(Rank *r, const Piece *p, const float *local) {
  if (rank_floats(r, p))
    memcpy(rank_floats(r, p), local, (size_t)p->count * sizeof *local);
  else if (rank_halves(r, p))
    round_to((DType)p->region->dtype, local, p->count, rank_halves(r, p));
  else if (p->region->dtype == DT_U8)
    write_bytes(r, p, local);
  else if (dtype_elements((DType)p->region->dtype) > 1)
    write_blocks(r, p, local);
  else if (p->region->dtype != DT_F32)
    write_half(r, p, local);
  else
    device_upload(r->dev, address(r, p), local, (size_t)p->count * sizeof *local);
}

void rank_clear(Rank *r, float *block, int64_t n) {
  memset(block, 0, (size_t)n * sizeof *block);
  for (int i = 0; i < r->p->regions.nregion; i++) {
    const Region *g = &r->p->regions.region[i];
    if (g->kind == REGION_GRAD) continue;
    uint64_t all = region_bytes(g), most = (uint64_t)n * sizeof *block;
    for (uint64_t at = 0; at < all; at += most)
      device_upload(r->dev, rank_place(r, g->off) + at, block,
                    (size_t)MIN(most, all - at));
  }
}

int64_t rank_block(const Compiled *c) {
  const int64_t limit = 1 << 18; /* shares of it fit into a core's second cache */
  int64_t most = 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Regions *s = &c->prog[pp].regions;
    for (int i = 0; i < s->nparam; i++) most = MAX(most, s->param[i].count);
  }
  return MIN(most, limit);
}
