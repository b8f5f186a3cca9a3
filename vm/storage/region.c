/* region.c - lookups in the regions of a pp rank; see region.h. */
#include "region.h"

const char *const region_name[REGION_N] = {
#define REGION(id, name, class) [REGION_##id] = name,
#include "region.def"
};

const char *const region_class[REGION_N] = {
#define REGION(id, name, class) [REGION_##id] = class,
#include "region.def"
};

int64_t param_count(const CompiledParam *p) {
  int64_t n = 1;
  for (int i = 0; i < p->ndim; i++) n *= p->dim[i];
  return n;
}

int64_t param_state_count(const CompiledParam *p) {
  if (!p->factors) return param_count(p);
  return p->ndim > 2 ? p->dim[0] * p->factors : p->factors;
}

int64_t param_weights(const CompiledParam *p) {
  if (p->quant == QUANT_NONE) return param_count(p);
  return p->quant == QUANT_CODES ? 2 * param_count(p) : 0;
}

const Stored *regions_param(const Regions *s, int param) {
  for (int i = 0; i < s->nparam; i++)
    if (s->param[i].param == param) return &s->param[i];
  return NULL;
}

const Region *regions_find(const Regions *s, RegionKind kind, const Stored *p) {
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    if (r->kind == kind && p->at >= r->first && p->at < r->first + r->whole) return r;
  }
  return NULL;
}

const Region *regions_value(const Regions *s, const Stored *p) {
  const Region *r = regions_find(s, REGION_MASTER, p);
  return r ? r : regions_find(s, REGION_WORK, p);
}

/* Items that n elements begin: the last one may have more than these. */
static int64_t items(const Region *r, int64_t n) {
  int64_t each = dtype_elements((DType)r->dtype);
  return (n + each - 1) / each;
}

uint64_t region_span(const Region *r, int64_t n) {
  return (uint64_t)items(r, n) * (uint64_t)dtype_size((DType)r->dtype);
}

uint64_t region_bytes(const Region *r) { return region_span(r, r->count); }

uint64_t region_at(const Region *r, int64_t at) {
  assert(r->count == r->whole && at >= r->first && at <= r->first + r->whole);
  return r->off + region_span(r, at - r->first);
}

/* ---- stretches ---- */

/* True if the shards of neighbouring buckets are adjacent. */
static bool is_packed(const Region *r) { return r->flat && !r->spread; }

/* The regions of some kinds that hold a parameter, and how they are cut. */
typedef struct Where {
  const Region *of[REGION_N];
  const Region *flat; /* one of them that is cut flat, or NULL */
  bool packed;        /* all are flat and their shards are adjacent */
} Where;

static Where where(const Regions *s, unsigned kinds, const Stored *p) {
  Where w = {.packed = true};
  for (int k = 0; k < REGION_N; k++) {
    const Region *r = kinds >> k & 1 ? regions_find(s, (RegionKind)k, p) : NULL;
    if (!r) continue;
    w.of[k] = r;
    if (r->flat) w.flat = r;
    w.packed &= is_packed(r);
  }
  return w;
}

static bool same_regions(const Where *w, const Stored *p) {
  for (int k = 0; k < REGION_N; k++) {
    const Region *r = w->of[k];
    if (r && (p->at < r->first || p->at >= r->first + r->whole)) return false;
  }
  return true;
}

/* Sets the element range of a stretch from its range of parameters. */
static void measure(const Regions *s, Stretch *r, const Region *cut) {
  const Stored *first = &s->param[r->first], *last = &s->param[r->first + r->n - 1];
  const Block *end = &s->block[last->block];
  r->flat = cut ? cut->flat : 0;
  r->ways = cut ? cut->ways : 1;
  r->at = first->at;
  r->count = (cut ? end->first + end->whole : last->at + last->count) - r->at;
  assert(!cut || (s->block[first->block].first == r->at &&
                  last == &s->param[end->at + end->n - 1]));
}

bool regions_stretch(const Regions *s, const CompiledParam *all, unsigned kinds,
                     Alike alike, Stretch *r) {
  int i = r->first + r->n;
  if (i >= s->nparam) return false;
  const Stored *first = &s->param[i];
  Where w = where(s, kinds, first);
  *r = (Stretch){.first = i};
  while (i < s->nparam && alike(all, first, &s->param[i]) &&
         same_regions(&w, &s->param[i]) &&
         (!w.flat || w.packed || s->param[i].block == first->block))
    i++;
  r->n = i - r->first;
  measure(s, r, w.flat);
  return true;
}

Stretch regions_block(const Regions *s, int block, const Region *cut) {
  const Block *b = &s->block[block];
  Stretch r = {.first = b->at, .n = b->n};
  measure(s, &r, cut && cut->flat ? cut : NULL);
  return r;
}

Extent region_extent(const Region *r, const Stretch *s) {
  if (s->ways == 1) return (Extent){.off = region_at(r, s->at), .n = items(r, s->count)};
  Extent p = {.n = items(r, s->count / s->ways)};
  if (is_packed(r))
    p.off = r->off + region_span(r, (s->at - r->first) / s->ways);
  else
    p.off = region_at(r, s->at), p.shard = s->flat;
  return p;
}
