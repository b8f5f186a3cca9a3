/* region.c - finding things in the regions of a pp rank. */
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
  for (int i = 0; i < p->ndim; i++)
    n *= p->dim[i];
  return n;
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

uint64_t region_bytes(const Region *r) {
  return (uint64_t)r->count * (uint64_t)dtype_size((DType)r->dtype);
}

uint64_t region_at(const Region *r, int64_t at) {
  assert(!r->flat && at >= r->first && at <= r->first + r->whole);
  return r->off + (uint64_t)(at - r->first) * (uint64_t)dtype_size((DType)r->dtype);
}

bool regions_stretch(const Regions *s, const CompiledParam *all, Alike alike,
                     Stretch *r) {
  int i = r->first + r->n;
  if (i >= s->nparam) return false;
  *r = (Stretch){.first = i, .at = s->param[i].at};
  while (i < s->nparam && alike(all, &s->param[r->first], &s->param[i]))
    i++;
  r->n = i - r->first;
  r->count = s->param[i - 1].at + s->param[i - 1].count - r->at;
  return true;
}
