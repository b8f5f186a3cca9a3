/* check_regions.c - where a program keeps parameters, gradients and state: regions inside
 * the arena and cut evenly, blocks behind each other, each parameter in its block and in
 * the regions that it needs. */
#include "program_check_int.h"

#include "vm/plan/optimizer.h"
#include "vm/storage/piece.h"

static weft_status bad_param(const Check *k, const Stored *q, const char *why) {
  return err_set(k->e, WEFT_EINTERNAL, "pp rank %d: %s: %lld elements from %lld on %s",
                 k->p->pp, k->c->param[q->param].name, (long long)q->count,
                 (long long)q->at, why);
}

/* What is kept of every parameter that is trained, besides its value: the gradient, then
 * the states of the optimizer. */
static RegionKind kept(int i) { return i ? region_state(i - 1) : REGION_GRAD; }

/* Blocks follow each other, and each parameter lies in its own. */
static weft_status check_blocks(const Check *k) {
  const Regions *s = &k->p->regions;
  int64_t end = 0;
  int at = 0;
  for (int i = 0; i < s->nblock; i++) {
    const Block *b = &s->block[i];
    if (b->first != end || b->at != at || b->n < 1 || b->at + b->n > s->nparam)
      return check_limit(k, "the start of a block", (uint64_t)b->first, (uint64_t)end);
    end += b->whole, at += b->n;
    for (int j = b->at; j < at; j++) {
      const Stored *q = &s->param[j];
      if (q->block != i || q->at < b->first || q->at + q->count > end)
        return bad_param(k, q, "are not in their block");
    }
  }
  return at == s->nparam ? WEFT_OK : bad_param(k, &s->param[at], "are in no block");
}

static weft_status check_params(const Check *k) {
  const Regions *s = &k->p->regions;
  int64_t end = 0;
  for (int i = 0; i < s->nparam; i++) {
    const Stored *q = &s->param[i];
    if (q->param < 0 || q->param >= k->c->nparam)
      return check_limit(k, "a parameter", (uint64_t)q->param, (uint64_t)k->c->nparam);
    if (q->block < 0 || q->block >= s->nblock)
      return check_limit(k, "the block of a parameter", (uint64_t)q->block,
                         (uint64_t)s->nblock);
    if (q->at < end) return bad_param(k, q, "overlap those before");
    end = q->at + q->count;
    int64_t box = piece_box(&k->c->mesh, &k->c->param[q->param]);
    if (box != q->count)
      return check_limit(k, k->c->param[q->param].name, (uint64_t)q->count,
                         (uint64_t)box);
    const CompiledParam *p = &k->c->param[q->param];
    int trained = k->c->context ? 0 : 1 + optimizer_states(k->c->optimizer, p->matrix);
    const Region *r = regions_value(s, q);
    for (int j = 0; r && j < trained && !p->frozen; j++)
      if (q->at + q->count <= r->first + r->whole) r = regions_find(s, kept(j), q);
    if (!r || q->at + q->count > r->first + r->whole)
      return bad_param(k, q, "have no place in a region");
  }
  return WEFT_OK;
}

/* A region is of whole blocks, each of which its axes cut evenly. */
static bool cuts_blocks(const Regions *s, const Region *r) {
  int64_t n = 0;
  for (int i = 0; i < s->nblock; i++) {
    const Block *b = &s->block[i];
    int64_t end = b->first + b->whole;
    if (end <= r->first || b->first >= r->first + r->whole) continue;
    if (b->first < r->first || end > r->first + r->whole || b->whole % r->ways)
      return false;
    n += b->whole;
  }
  return n == r->whole;
}

/* The averages of all parameters in the range of a region lie in it, behind each other.
 */
static bool holds_factors(const Check *k, const Region *r) {
  const Regions *s = &k->p->regions;
  int64_t end = 0;
  if (r->kind < REGION_STATE1 || r->ways != 1 || r->count < 1) return false;
  for (int i = 0; i < s->nparam; i++) {
    const Stored *q = &s->param[i];
    if (q->param < 0 || q->param >= k->c->nparam) return false;
    const CompiledParam *p = &k->c->param[q->param];
    if (q->at < r->first || q->at >= r->first + r->whole) continue;
    int64_t n = piece_make(&k->c->mesh, p, s, q, r, 0).count;
    if (!p->factors || q->factors < end || n > r->count - q->factors) return false;
    end = q->factors + n;
  }
  return true;
}

weft_status check_regions(const Check *k) {
  const Program *p = k->p;
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    if (r->kind >= REGION_N)
      return check_limit(k, "the kind of a region", r->kind, REGION_N);
    if (r->dtype >= DT_ACT)
      return check_limit(k, "the type of a region", r->dtype, DT_ACT);
    uint64_t n = region_bytes(r);
    if (r->ways != mesh_size(&k->c->mesh, r->flat))
      return check_limit(k, "the shards of a region", (uint64_t)r->ways,
                         (uint64_t)mesh_size(&k->c->mesh, r->flat));
    bool long_enough = r->factors ? holds_factors(k, r)
                                  : r->count * (r->spread ? 1 : r->ways) == r->whole;
    if (r->first < 0 || !long_enough)
      return check_limit(k, "the length of a region", (uint64_t)r->count,
                         (uint64_t)r->whole);
    if (!cuts_blocks(&p->regions, r))
      return check_limit(k, "the blocks of a region, elements", (uint64_t)r->whole, 0);
    uint64_t off = on_host(r->off) ? r->off - HOST_BASE : r->off;
    uint64_t room = on_host(r->off) ? p->host_bytes : p->arena_bytes;
    if (off > room || n > room - off)
      return check_limit(k, "the end of a region", off + n, room);
  }
  TRY(check_params(k));
  return check_blocks(k);
}
