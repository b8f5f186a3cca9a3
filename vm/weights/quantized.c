/* quantized.c - see quantized.h. Scales are read in groups of blocks, of which all have
 * one scale; the offset of a matrix is the mean of its scales, in f64. Weights are
 * those of files, whatever type ops compute in. */
#include "quantized.h"

#include "vm/base/nf4.h"
#include "vm/run/run_int.h"

enum { GROUP = NF4_BLOCK * NF4_GROUP }; /* weights */

static const char *suffix(QuantPart part) {
  return part == QUANT_SCALES ? ".absmax" : ".nested_absmax";
}

int quantized_codes(const Compiled *c, int scales) {
  const CompiledParam *p = &c->param[scales];
  size_t n = strlen(p->name) - strlen(suffix((QuantPart)p->quant));
  for (int i = 0; i < c->nparam; i++)
    if (c->param[i].quant == QUANT_CODES && strlen(c->param[i].name) == n &&
        strncmp(c->param[i].name, p->name, n) == 0)
      return i;
  return -1;
}

int quantized_part(const Compiled *c, int codes, QuantPart part) {
  const char *name = c->param[codes].name;
  size_t n = strlen(name);
  for (int i = 0; i < c->nparam; i++)
    if (c->param[i].quant == part && strncmp(c->param[i].name, name, n) == 0 &&
        str_eq(c->param[i].name + n, suffix(part)))
      return i;
  return -1;
}

/* ---- groups of blocks ---- */

/* The scales of a group of a matrix; returns how many there are in *n. */
typedef struct Group {
  float weight[GROUP], scale[NF4_GROUP];
  uint8_t code[NF4_GROUP]; /* of the scales, */
  float own;               /* and what they are times */
  int n;
} Group;

static weft_status read_group(const Quantized *q, int codes, int64_t group, Group *g,
                              weft_error *e) {
  int64_t from = group * GROUP, n = param_weights(&q->c->param[codes]) - from;
  n = MIN(n, (int64_t)GROUP);
  TRY(q->values(q->ud, codes, from, n, g->weight, e));
  g->n = (int)(n / NF4_BLOCK);
  for (int i = 0; i < g->n; i++)
    g->scale[i] = nf4_largest(g->weight + i * NF4_BLOCK, NF4_BLOCK);
  return WEFT_OK;
}

static weft_status pack_group(const Quantized *q, int codes, int64_t group, Group *g,
                              weft_error *e) {
  TRY(read_group(q, codes, group, g, e));
  g->own = nf4_pack_scales(g->scale, g->n, q->offset[codes], g->code);
  return WEFT_OK;
}

static int64_t groups_of(const CompiledParam *codes) {
  return (param_weights(codes) + GROUP - 1) / GROUP;
}

/* ---- offsets ---- */

static bool is_here(const Run *r, const CompiledParam *p) {
  for (int i = 0; i < r->nworker; i++)
    for (int k = 0; k < p->npp; k++)
      if (mesh_coord(&r->c->mesh, r->worker[i].rank, AXIS_PP) == p->pp[k]) return true;
  return false;
}

static weft_status find_offset(const Quantized *q, int codes, weft_error *e) {
  const CompiledParam *p = &q->c->param[codes];
  double sum = 0;
  Group g;
  for (int64_t i = 0, n = groups_of(p); i < n; i++) {
    TRY(read_group(q, codes, i, &g, e));
    for (int k = 0; k < g.n; k++) sum += g.scale[k];
  }
  q->offset[codes] = (float)(sum * NF4_BLOCK / (double)param_weights(p));
  return WEFT_OK;
}

static size_t offsets_bytes(const Run *r) {
  return (size_t)MAX(r->c->nparam, 1) * sizeof(float);
}

weft_status quantized_begin(const Run *r, BaseValues *values, const void *ud,
                            Quantized *out, weft_error *e) {
  const Compiled *c = r->c;
  bool any = false;
  *out = (Quantized){.c = c, .values = values, .ud = ud};
  for (int i = 0; i < c->nparam; i++) any |= c->param[i].quant != QUANT_NONE;
  if (!any) return WEFT_OK;
  out->offset = mem_new(&r->alloc, offsets_bytes(r));
  if (!out->offset) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_error first = NO_ERROR;
#pragma omp parallel for schedule(dynamic) num_threads(MAX(r->threads, 1))
  for (int i = 0; i < c->nparam; i++) {
    weft_error why = NO_ERROR;
    if (c->param[i].quant != QUANT_CODES || !is_here(r, &c->param[i])) continue;
    if (find_offset(out, i, &why) == WEFT_OK) continue;
#pragma omp critical
    if (first.code == WEFT_OK) first = why;
  }
  if (first.code == WEFT_OK) return WEFT_OK;
  quantized_end(r, out);
  if (e) *e = first;
  return first.code;
}

void quantized_end(const Run *r, Quantized *q) {
  if (q->offset) mem_free(&r->alloc, q->offset, offsets_bytes(r));
  q->offset = NULL;
}

/* ---- pieces ---- */

/* Bytes [at, at + n) of the codes; a few blocks at a time. */
static weft_status put_codes(const Quantized *q, int codes, int64_t at, int64_t n,
                             float *to, weft_error *e) {
  enum { SOME = 64 };
  float w[SOME * NF4_BLOCK];
  uint8_t packed[NF4_BYTES];
  for (int64_t b = at / NF4_BYTES, end = (at + n + NF4_BYTES - 1) / NF4_BYTES, m; b < end;
       b += m) {
    m = MIN(end - b, (int64_t)SOME);
    TRY(q->values(q->ud, codes, b * NF4_BLOCK, m * NF4_BLOCK, w, e));
    for (int64_t i = 0; i < m; i++) {
      nf4_pack(w + i * NF4_BLOCK, packed);
      for (int64_t k = 0; k < NF4_BYTES; k++) {
        int64_t byte = (b + i) * NF4_BYTES + k;
        if (byte >= at && byte < at + n) to[byte - at] = packed[k];
      }
    }
  }
  return WEFT_OK;
}

/* Scales [at, at + n): the group that is read last is in `g`. */
static weft_status put_scales(const Quantized *q, int codes, int64_t at, int64_t n,
                              Group *g, int64_t *have, float *to, weft_error *e) {
  for (int64_t i = at; i < at + n; i++) {
    if (i / NF4_GROUP != *have) TRY(pack_group(q, codes, *have = i / NF4_GROUP, g, e));
    to[i - at] = g->code[i % NF4_GROUP];
  }
  return WEFT_OK;
}

static weft_status put_groups(const Quantized *q, int codes, int64_t at, int64_t n,
                              Group *g, float *to, weft_error *e) {
  for (int64_t i = at, last = groups_of(&q->c->param[codes]); i < at + n; i++) {
    if (i < last) TRY(pack_group(q, codes, i, g, e));
    to[i - at] = i < last ? g->own : q->offset[codes];
  }
  return WEFT_OK;
}

weft_status quantized_init(const Quantized *q, int param, const Piece *part, float *local,
                           weft_error *e) {
  QuantPart kind = (QuantPart)q->c->param[param].quant;
  int codes = kind == QUANT_CODES ? param : quantized_codes(q->c, param);
  int64_t have = -1;
  Group g;
  for (int64_t i = 0, spans = piece_spans(part); i < spans; i++) {
    Span s = piece_span(part, i);
    float *to = local + s.local;
    switch (kind) {
    case QUANT_CODES: TRY(put_codes(q, codes, s.global, s.n, to, e)); break;
    case QUANT_SCALES: TRY(put_scales(q, codes, s.global, s.n, &g, &have, to, e)); break;
    default: TRY(put_groups(q, codes, s.global, s.n, &g, to, e));
    }
    for (int64_t k = s.n; k < s.n + s.padding; k++) to[k] = 0;
  }
  return WEFT_OK;
}

/* ---- weights as ops read them ---- */

weft_status quantized_values(const void *ud, int base, int64_t from, int64_t n, float *to,
                             weft_error *e) {
  const Quantized *q = ud;
  Group g;
  uint8_t code[NF4_BYTES];
  if (q->c->param[base].quant != QUANT_CODES)
    return q->values(q->ud, base, from, n, to, e);
  for (int64_t group = from / GROUP; group * GROUP < from + n; group++) {
    TRY(pack_group(q, base, group, &g, e));
    for (int b = 0; b < g.n; b++) {
      float by = nf4_unpack_scale(g.code[b], g.own, q->offset[base]);
      nf4_pack(g.weight + b * NF4_BLOCK, code);
      for (int i = 0; i < NF4_BLOCK; i++) {
        int64_t at = group * GROUP + b * NF4_BLOCK + i;
        if (at >= from && at < from + n)
          to[at - from] = nf4_level[i % 2 ? code[i / 2] & 15 : code[i / 2] >> 4] * by;
      }
    }
  }
  return WEFT_OK;
}
