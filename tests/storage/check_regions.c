/* check_regions.c - where parameters live: every element of every parameter is where the
 * regions say it is, once among the ranks that are read, whatever the mesh; and what norm
 * and optimizer make of the row. */
#include <check.h>

#include "tests/generate/handmade_regions.h"
#include "tests/generate/small_llama.h"
#include "vm/storage/memory_plan.h"

enum { MOST = 1 << 13 };

/* ---- random choices ---- */

static uint64_t state;

static int draw(int n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)((state >> 33) % (uint64_t)n);
}

/* ---- coverage ---- */

/* How many ranks hold an element, and how many of those are read. */
typedef struct Seen {
  int16_t held[MOST], given[MOST];
} Seen;

static void see(Seen *s, const Piece *p, bool gives) {
  int64_t filled = 0;
  for (int64_t i = 0, n = piece_spans(p); i < n; i++) {
    Span span = piece_span(p, i);
    ck_assert_int_eq(span.local, filled);
    for (int64_t k = 0; k < span.n; k++) {
      s->held[span.global + k]++;
      s->given[span.global + k] += gives;
    }
    filled += span.n + span.padding;
  }
  ck_assert_int_eq(filled, p->count);
}

static void all_seen(const Seen *s, const char *name, int64_t n, int copies) {
  for (int64_t i = 0; i < n; i++) {
    ck_assert_msg(s->given[i] == 1, "element %lld of %s is read %d times", (long long)i,
                  name, s->given[i]);
    ck_assert_msg(s->held[i] == copies, "element %lld of %s is on %d ranks, not %d",
                  (long long)i, name, s->held[i], copies);
  }
}

/* ---- programs ---- */

static ToyOptions random_toy(uint64_t number) {
  ToyOptions o = toy_default();
  state = number * 0x9e3779b97f4a7c15u + 1;
  o.layers = 2 + draw(3);
  o.tp = 1 << draw(2);
  o.pp = 1 + draw(2);
  o.dp = 1 + draw(3);
  o.vocab = 50 + draw(3);
  o.sp = draw(2), o.tied = draw(2), o.bias = draw(2), o.overlap = draw(2);
  o.dtype = draw(2) ? DT_F32 : DT_BF16;
  o.bucket_bytes = 1 << (8 + draw(10));
  o.post_validation = draw(2);
  return o;
}

static void check_state(const Compiled *c, StateKind kind, int param) {
  static Seen seen[2];
  const CompiledParam *p = &c->param[param];
  Piece piece[2];
  int kinds = 0;
  memset(seen, 0, sizeof seen);
  for (int r = 0; r < c->mesh.world; r++) {
    int n = state_pieces(c, r, kind, param, piece);
    kinds = MAX(kinds, n);
    for (int k = 0; k < n; k++)
      see(&seen[k], &piece[k], piece_gives(&c->mesh, p, piece[k].region, r));
  }
  ck_assert_int_eq(kinds, kind == STATE_PARAM && c->dtype != DT_F32 ? 2 : 1);
  int copies = c->mesh.world / c->mesh.size[AXIS_PP] * p->npp;
  for (int k = 0; k < kinds; k++)
    all_seen(&seen[k], p->name, param_count(p),
             copies / mesh_size(&c->mesh, place_cuts(p->place)));
}

/* Regions lie beside each other; in each of them parameters begin at aligned places. */
static void check_row(const Program *p) {
  const Regions *s = &p->regions;
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    ck_assert_uint_eq(r->off % ALIGN, 0);
    if (i) ck_assert_uint_ge(r->off, r[-1].off + region_bytes(&r[-1]));
    for (int k = 0; k < s->nparam; k++)
      ck_assert_uint_eq(region_at(r, s->param[k].at) % ALIGN, 0);
  }
}

START_TEST(every_parameter_once) {
  ToyOptions o = random_toy((uint64_t)_i);
  Toy t;
  ck_assert_msg(toy_compile(&t, &o, NULL) == WEFT_OK, "%s", t.err.text);
  for (int k = 0; k < STATE_N; k++)
    for (int i = 0; i < t.compiled->nparam; i++) check_state(t.compiled, (StateKind)k, i);
  for (int r = 0; r < o.pp; r++) check_row(&t.compiled->prog[r]);
  toy_free(&t);
}
END_TEST

/* ---- what runs over the row ---- */

static int count_ops(const Program *p, int op, int64_t *elements) {
  int n = 0;
  *elements = 0;
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == I_KERNEL && p->code[i].op == op) {
      *elements += (int64_t)operand_count(&p->operand[p->code[i].operand]);
      n++;
    }
  return n;
}

/* Many buckets, in backward order, and yet one launch for each class. */
START_TEST(few_launches) {
  ToyOptions o = toy_default();
  o.tp = o.dp = 2, o.sp = true, o.overlap = true, o.bucket_bytes = 1;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  const Program *p = &t.compiled->prog[0];
  int64_t stepped, measured;
  ck_assert_int_gt(p->regions.nparam, 20);
  ck_assert_int_eq(count_ops(p, OP_adamw, &stepped), 2);   /* decay */
  ck_assert_int_eq(count_ops(p, OP_sqnorm, &measured), 2); /* cut and whole */
  ck_assert_int_ge(p->regions.region[0].whole, stepped);
  ck_assert_int_eq(stepped, measured);
  toy_free(&t);
}
END_TEST

/* The comm that the sum of a scalar goes over, NULL if it does not. */
static const char *summed_over(const Program *p, int scalar) {
  const char *name = NULL;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    if (x->code != I_COLL) continue;
    if (p->operand[x->operand].off != p->scalars + 8 * (uint64_t)scalar) continue;
    ck_assert_ptr_null(name);
    name = p->comm[x->comm].name;
  }
  return name;
}

static int targets(const Program *p, int scalar) {
  int n = 0;
  for (uint32_t i = 0; i < p->nmain; i++)
    n += p->code[i].code == I_KERNEL && p->code[i].op == OP_sqnorm &&
         p->attr[p->code[i].attr].n == scalar;
  return n;
}

/* What is cut over tp is summed over tp, what is whole only over pp, with the rest. */
START_TEST(a_norm_for_each_set_of_axes) {
  ToyOptions o = toy_default();
  o.tp = o.pp = 2;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  for (int r = 0; r < 2; r++) {
    const Program *p = &t.compiled->prog[r];
    ck_assert_int_eq(targets(p, SC_NORM2), 1);
    ck_assert_int_eq(targets(p, SC_NORM2_CUT), 1);
    ck_assert_str_eq(summed_over(p, SC_NORM2_CUT), "tp");
    ck_assert_str_eq(summed_over(p, SC_NORM2), "pp");
    ck_assert_ptr_null(summed_over(p, SC_NORM2_CUT + 1));
  }
  toy_free(&t);
  o.tp = 1;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  ck_assert_int_eq(targets(&t.compiled->prog[0], SC_NORM2_CUT), 0);
  toy_free(&t);
}
END_TEST

/* A tied weight counts on the first of its pp ranks only. */
START_TEST(tied_weights_count_once) {
  ToyOptions o = toy_default();
  o.pp = 2, o.tied = true;
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  int64_t elements, all = 0, paddings = 0;
  for (int r = 0; r < 2; r++) {
    const Program *p = &t.compiled->prog[r];
    count_ops(p, OP_sqnorm, &elements);
    all += elements;
    for (int i = 0; i < p->regions.nparam; i++) paddings -= p->regions.param[i].count;
    paddings += p->regions.region[0].whole;
  }
  ck_assert_int_ge(all, (int64_t)t.compiled->params_total);
  ck_assert_int_le(all, (int64_t)t.compiled->params_total + paddings);
  toy_free(&t);
}
END_TEST

/* ---- any cut, of dimensions and flat ---- */

enum { PARAMS = 5 };

/* A parameter whose dimensions cp and tp cut, perhaps the same one. */
static CompiledParam random_param(void) {
  static int pp0[] = {0};
  CompiledParam p = {
      .name = "p", .ndim = 1 + draw(3), .place = place_whole(), .npp = 1, .pp = pp0};
  for (int d = 0; d < p.ndim; d++) {
    p.parts[d] = (uint8_t)(draw(4) ? 1 : 2);
    p.dim[d] = (1 + draw(7)) * p.parts[d];
  }
  if (draw(3)) p.place.on[AX_TP] = (int8_t)draw(p.ndim);
  if (draw(2)) p.place.on[AX_CP] = (int8_t)draw(p.ndim);
  return p;
}

/* Element `i` of the box of a rank in the whole parameter, -1 if it is padding: the place
 * in each dimension, axis by axis, without spans. */
static int64_t by_hand(const Mesh *m, const CompiledParam *p, int rank, int64_t i) {
  int64_t global = 0, stride = 1;
  bool padding = false;
  for (int d = p->ndim - 1; d >= 0; d--) {
    int64_t size = p->dim[d] / p->parts[d], slice = size, begin = 0, room = size;
    static const ShardAxis axis[] = {AX_CP, AX_TP};
    for (int x = 0; x < LEN(axis); x++) {
      if (p->place.on[axis[x]] != d) continue;
      int n = mesh_size(m, ax_mesh(axis[x]));
      slice = (slice + n - 1) / n;
      int64_t skip = mesh_index(m, ax_mesh(axis[x]), rank) * slice;
      begin += skip;
      room = MIN(MAX(room - skip, 0), slice);
    }
    int64_t at = i % (slice * p->parts[d]), part = at / slice, in_part = at % slice;
    i /= slice * p->parts[d];
    padding |= in_part >= room;
    global += (part * size + begin + in_part) * stride;
    stride *= p->dim[d];
  }
  return padding ? -1 : global;
}

static void check_piece(const Mesh *m, const CompiledParam *p, const Stored *at,
                        const Piece *piece, int rank) {
  float whole[MOST], local[MOST], back[MOST];
  int64_t n = param_count(p);
  for (int64_t i = 0; i < n; i++) whole[i] = (float)(i + 1), back[i] = 0;
  piece_cut(piece, whole, local);
  ck_assert(piece->from + piece->count <= at->count);
  for (int64_t i = 0; i < piece->count; i++) {
    int64_t want = by_hand(m, p, rank, piece->from + i);
    ck_assert(local[i] == (want < 0 ? 0 : (float)(want + 1)));
  }
  ck_assert(piece_distance(piece, DT_F32, local, whole) == 0);
  piece_paste(piece, local, back);
  for (int64_t i = 0; i < piece->count; i++) {
    int64_t at_whole = by_hand(m, p, rank, piece->from + i);
    if (at_whole >= 0) ck_assert(back[at_whole] == whole[at_whole]);
  }
}

/* Several parameters, in blocks of one and more, in a region that is cut flat; `spread`
 * or not the same elements are a rank's. */
static void check_flat(const Mesh *m, const CompiledParam *p, AxisSet flat, bool spread) {
  static Seen seen[PARAMS];
  Stored row[PARAMS];
  Block block[PARAMS];
  Regions s = {.param = row, .nparam = PARAMS, .block = block};
  int64_t length = draw(3), ways = mesh_size(m, flat);
  memset(seen, 0, sizeof seen);
  Region r = {.dtype = DT_F32,
              .flat = flat,
              .ways = (int)ways,
              .first = length,
              .spread = spread};
  for (int i = 0; i < PARAMS; i++) {
    if (i == 0 || draw(2)) block[s.nblock++] = (Block){.first = length, .at = i};
    Block *b = &block[s.nblock - 1];
    row[i] = (Stored){
        .block = s.nblock - 1, .at = b->first + b->whole, .count = piece_box(m, &p[i])};
    int64_t end = row[i].at + row[i].count + draw(4) - b->first;
    b->whole = (end + ways - 1) / ways * ways, b->n++;
    length = b->first + b->whole;
  }
  r.whole = length - r.first;
  r.count = spread ? r.whole : r.whole / ways;
  for (int i = 0; i < PARAMS; i++) {
    for (int rank = 0; rank < m->world; rank++) {
      Piece piece = piece_make(m, &p[i], &s, &row[i], &r, rank);
      if (rank % 3 == 0) check_piece(m, &p[i], &row[i], &piece, rank);
      ck_assert(piece.at >= 0 && piece.at + piece.count <= r.count);
      see(&seen[i], &piece, piece_gives(m, &p[i], &r, rank));
    }
    AxisSet cuts = piece_axes(&p[i], &r);
    int copies = mesh_size(m, axes_rest(cuts) & ~AXIS_BIT(AXIS_PP));
    all_seen(&seen[i], "a parameter", param_count(&p[i]), copies);
  }
}

START_TEST(flat_cuts_of_any_parameter) {
  state = (uint64_t)_i * 77 + 5;
  Mesh m = stored_mesh(1, 1 + draw(5), 1 + draw(3), 1 + draw(4));
  CompiledParam p[PARAMS];
  for (int i = 0; i < PARAMS; i++) p[i] = random_param();
  check_flat(&m, p, 0, false);
  for (int spread = 0; spread < 2; spread++) {
    check_flat(&m, p, AXIS_BIT(AXIS_DP_SHARD), spread);
    check_flat(&m, p, AXES_DP, spread);
  }
}
END_TEST

Suite *regions_suite(void);
Suite *regions_suite(void) {
  Suite *s = suite_create("regions");
  TCase *c = tcase_create("programs");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, every_parameter_once, 0, 24);
  tcase_add_test(c, few_launches);
  tcase_add_test(c, a_norm_for_each_set_of_axes);
  tcase_add_test(c, tied_weights_count_once);
  suite_add_tcase(s, c);
  c = tcase_create("pieces");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, flat_cuts_of_any_parameter, 0, 40);
  suite_add_tcase(s, c);
  return s;
}
