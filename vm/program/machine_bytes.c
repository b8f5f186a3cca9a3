/* machine_bytes.c - which kernels and transfers may touch which bytes, and when. From the
 * start of a transfer to its WAIT nothing else may write what it reads nor touch what it
 * writes. Gathered parameters may be read from the WAIT of their GATHER to their FREE, by
 * calls that bind them as the copy of that unit; meanwhile nothing may write them or the
 * shard they came from. A walk in the order of time does not look: its programs are
 * proven. */
#include "machine.h"

static const Busy *collision(const RankState *r, uint64_t lo, uint64_t hi, bool write) {
  if ((hi <= r->lo) | (r->hi <= lo)) return NULL;
  for (int i = 0; i < r->busy.n; i++) {
    const Busy *b = &r->busy.at[i];
    if ((b->lo < hi) & (lo < b->hi) & (b->write | write)) return b;
  }
  return NULL;
}

/* What is busy has changed. */
static void bound(RankState *r) {
  r->lo = UINT64_MAX, r->hi = 0;
  for (int i = 0; i < r->busy.n; i++) {
    r->lo = MIN(r->lo, r->busy.at[i].lo);
    r->hi = MAX(r->hi, r->busy.at[i].hi);
  }
}

/* One rank stands for all: of a shard it is what any of them touches. */
static void range_of(const Machine *m, int pp, const Call *call, const Operand *o,
                     uint64_t *lo, uint64_t *hi) {
  *lo = slot_base(m->rank[pp].p, call, o->slot) + o->off;
  *hi = *lo + operand_reach(&m->c->mesh, o);
}

/* ---- gathered copies ---- */

/* The unit in whose gathered copy a slot of the call lies, or BIND_STORED. */
static int32_t copy_bound(const RankState *r, const Call *call, int slot) {
  if (!call || slot == 0 || slot > call->nbind) return BIND_STORED;
  return r->p->bind[call->bind + (uint32_t)slot - 1].copy;
}

/* The copy that has all of the bytes, else one that has some of them, or NULL. */
static const Copy *copy_at(const RankState *r, uint64_t lo, uint64_t hi) {
  const Copy *some = NULL;
  for (int i = 0; i < r->copy.n; i++) {
    const Copy *c = &r->copy.at[i];
    if (c->lo <= lo && hi <= c->hi) return c;
    if (c->lo < hi && lo < c->hi) some = c;
  }
  return some;
}

static bool is_there(const Copy *c, uint64_t lo, uint64_t hi, int32_t unit) {
  return c && c->lo <= lo && hi <= c->hi && c->unit == (uint32_t)unit &&
         c->handle == FOOTPRINT;
}

static bool gathered(const RankState *r, const Call *call, const Access *a) {
  int32_t unit = copy_bound(r, call, a->slot);
  if (unit == BIND_STORED) return true;
  uint64_t at = slot_base(r->p, call, a->slot), lo = at + a->lo, hi = at + a->hi;
  return is_there(copy_at(r, lo, hi), lo, hi, unit);
}

/* ---- one instruction ---- */

weft_status bytes_touch(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  if (machine_shares(m) || (r->busy.n == 0 && !r->gathers)) return WEFT_OK;
  const Call *call = site_call(r->p, at);
  for (int i = 0; i < instr_operands(in); i++) {
    const Operand *o = &r->p->operand[in->operand + (uint32_t)i];
    uint64_t lo, hi;
    range_of(m, pp, call, o, &lo, &hi);
    if (lo == hi) continue;
    int32_t unit = copy_bound(r, call, o->slot);
    if (unit != BIND_STORED && !is_there(copy_at(r, lo, hi), lo, hi, unit))
      return report_not_gathered(m, pp, at, (uint32_t)unit, copy_at(r, lo, hi));
    const Busy *b = collision(r, lo, hi, i >= in->nin);
    if (b) return report_overlap(m, pp, at, i, lo, hi, b);
  }
  return WEFT_OK;
}

/* Input and result begin in the same place. */
static bool in_place(const Machine *m, const RankState *r, const Instr *in) {
  const Operand *o = &r->p->operand[in->operand];
  return operands_share(&m->c->mesh, &r->p->comm[in->comm], (CollKind)in->coll, o,
                        o + in->nin);
}

weft_status bytes_occupy(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  const Call *call = site_call(r->p, at);
  uint64_t lo[COLL_OPERANDS], hi[COLL_OPERANDS];
  int n = in->nin + in->nout;
  if (machine_shares(m)) return WEFT_OK;
  TRY(bytes_touch(m, pp, in, at));
  for (int i = 0; i < n; i++) {
    range_of(m, pp, call, &r->p->operand[in->operand + (uint32_t)i], &lo[i], &hi[i]);
    if (lo[i] < hi[i])
      *VEC_PUSH(m->a, r->busy) = (Busy){lo[i], hi[i], in->handle, i >= in->nin, at};
  }
  bound(r);
  if (in->code == I_GATHER)
    *VEC_PUSH(m->a, r->copy) = (Copy){lo[1], hi[1], in->unit, in->handle, at};
  for (int i = 0, out = n - 1; i < out; i++) {
    if (lo[i] >= hi[out] || lo[out] >= hi[i]) continue;
    if (i > 0 || lo[0] != lo[out] || !in_place(m, r, in))
      return report_inplace(m, pp, at);
  }
  return WEFT_OK;
}

/* A copy that is there now keeps its bytes and its shard's, as what is only read. */
static bool hold(RankState *r, int32_t handle) {
  for (int i = 0; i < r->copy.n; i++) {
    if (r->copy.at[i].handle != handle) continue;
    r->copy.at[i].handle = FOOTPRINT;
    for (int j = 0; j < r->busy.n; j++)
      if (r->busy.at[j].handle == handle)
        r->busy.at[j].handle = FOOTPRINT, r->busy.at[j].write = false;
    return true;
  }
  return false;
}

void bytes_release(RankState *r, int32_t handle) {
  if (r->copy.n && hold(r, handle)) return;
  int n = 0;
  for (int i = 0; i < r->busy.n; i++)
    if (r->busy.at[i].handle != handle) r->busy.at[n++] = r->busy.at[i];
  r->busy.n = n;
  bound(r);
}

static bool same_site(Site a, Site b) { return a.pc == b.pc && a.main == b.main; }

weft_status bytes_free(Machine *m, int pp, const Instr *in, Site at) {
  RankState *r = &m->rank[pp];
  uint64_t lo, hi;
  if (machine_shares(m)) return WEFT_OK;
  range_of(m, pp, NULL, &r->p->operand[in->operand], &lo, &hi);
  const Copy *c = copy_at(r, lo, hi);
  if (!is_there(c, lo, hi, (int32_t)in->unit) || c->lo != lo || c->hi != hi)
    return report_not_gathered(m, pp, at, in->unit, c);
  Site since = c->since;
  int n = 0;
  for (int i = 0; i < r->busy.n; i++) {
    const Busy *b = &r->busy.at[i];
    if (b->handle != FOOTPRINT && b->lo < hi && lo < b->hi)
      return report_overlap(m, pp, at, 0, lo, hi, b);
    if (b->handle != FOOTPRINT || !same_site(b->since, since)) r->busy.at[n++] = *b;
  }
  r->busy.n = n;
  bound(r);
  r->copy.at[c - r->copy.at] = r->copy.at[r->copy.n - 1];
  r->copy.n--;
  return WEFT_OK;
}

weft_status bytes_end(Machine *m, int pp) {
  const RankState *r = &m->rank[pp];
  return r->copy.n ? report_not_freed(m, pp, &r->copy.at[0]) : WEFT_OK;
}

/* ---- whole calls ---- */

/* A call that is not clean is run instruction by instruction, which is exact and names
 * the place. */
bool bytes_clean(const RankState *r, const Call *call, const BodySum *s) {
  if (!s->closed) return false;
  for (int i = 0; i < s->apart.n; i++) {
    const Access *a = &s->apart.at[i].a, *b = &s->apart.at[i].b;
    uint64_t x = slot_base(r->p, call, a->slot), y = slot_base(r->p, call, b->slot);
    if (x + a->lo < y + b->hi && y + b->lo < x + a->hi) return false;
  }
  for (int i = 0; i < s->access.n && r->gathers; i++)
    if (!gathered(r, call, &s->access.at[i])) return false;
  for (int i = 0; i < s->comm.n; i++) {
    int j = s->comm.at[i].comm;
    if (r->in_flight[j] + s->comm.at[i].in_flight > r->p->comm[j].in_flight) return false;
  }
  for (int i = 0; i < s->handle.n && r->nflight; i++)
    if (r->handle[s->handle.at[i]].channel >= 0) return false;
  uint64_t x = 0;
  for (int i = 0, slot = 0; i < s->access.n && r->busy.n; i++) {
    const Access *a = &s->access.at[i];
    if (a->slot != slot) x = slot_base(r->p, call, slot = a->slot);
    if (collision(r, x + a->lo, x + a->hi, a->write)) return false;
  }
  return true;
}
