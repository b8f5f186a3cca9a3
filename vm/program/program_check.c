/* program_check.c - program_check(): indices in range, operands inside the arena,
 * collectives of consistent sizes; parameters in their regions (check_regions.c), nothing
 * over what it may not lie over (check_overlap.c). Input: a finished Compiled; it changes
 * nothing and reports the first violation, which is a bug of the compiler. */
#include "program_check_int.h"

#include <stdio.h>

#include "vm/device/device.h"

/* Where a problem is: "main[3] COLL" or "body layer:F[2] KERNEL". */
static const char *place(const Check *k, uint32_t pc, const Body *b, char out[128]) {
  const Instr *in = &k->p->code[pc];
  const char *name = in->code < I_N ? instr_name[in->code] : "?";
  if (b)
    snprintf(out, 128, "body %s[%u] %s", b->name, pc - b->first, name);
  else
    snprintf(out, 128, "main[%u] %s", pc, name);
  return out;
}

weft_status check_fail(const Check *k, uint32_t pc, const Body *b, const char *fmt, ...) {
  char at[128], text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_file(k->e, WEFT_EINTERNAL, NULL, k->p->code[pc].line, "pp rank %d, %s: %s",
                  k->p->pp, place(k, pc, b, at), text);
}

weft_status check_limit(const Check *k, const char *what, uint64_t got, uint64_t limit) {
  return err_set(k->e, WEFT_EINTERNAL, "pp rank %d: %s is %llu, the limit is %llu",
                 k->p->pp, what, (unsigned long long)got, (unsigned long long)limit);
}

/* ---- one instruction ---- */

static weft_status check_operands(const Check *k, uint32_t pc, const Body *b) {
  const Instr *in = &k->p->code[pc];
  int n = instr_operands(in), nslot = b ? b->nslot : 1;
  if (in->nin < 0 || in->nout < 0 || in->nwork < 0 ||
      (uint64_t)in->operand + (uint64_t)n > k->p->noperand)
    FAIL("operands %u..+%d of %u", in->operand, n, k->p->noperand);
  for (int i = 0; i < n; i++) {
    const Operand *o = &k->p->operand[in->operand + (uint32_t)i];
    if (o->dtype >= DT_ACT) FAIL("operand %d has no storage type (%d)", i, o->dtype);
    if (o->ndim > MAX_DIM) FAIL("operand %d has %d dimensions", i, o->ndim);
    if (o->shard && (b || !axes_one_mesh(o->shard)))
      FAIL("operand %d is a shard over axes %x", i, o->shard);
    if (b && on_host(o->off)) FAIL("operand %d of a body is on the host", i);
    if (o->slot >= nslot) FAIL("operand %d is in slot %d of %d", i, o->slot, nslot);
    for (int d = 0; d < o->ndim; d++)
      if (o->dim[d] < 0) FAIL("operand %d: dimension %d is negative", i, d);
    int aligned =
        dtype_elements(o->dtype) > 1 ? (int)sizeof(float) : dtype_size(o->dtype);
    if (o->off % (uint64_t)aligned)
      FAIL("operand %d: offset %llu is not a multiple of %s", i,
           (unsigned long long)o->off, dtype_name(o->dtype));
  }
  return WEFT_OK;
}

static weft_status check_kernel(const Check *k, uint32_t pc, const Body *b) {
  const Instr *in = &k->p->code[pc];
  if (in->op >= OP_N) FAIL("op %d of %d", in->op, OP_N);
  const OpInfo *op = &op_info[in->op];
  if ((op->nin >= 0 && in->nin != op->nin) || (op->nout >= 0 && in->nout != op->nout))
    FAIL("%s is given %d inputs and %d results, not %d and %d", op->name, in->nin,
         in->nout, op->nin, op->nout);
  if (in->nin > KERNEL_MAX_IN || in->nout > KERNEL_MAX_OUT)
    FAIL("%s has %d inputs and %d results, at most %d and %d can be launched", op->name,
         in->nin, in->nout, KERNEL_MAX_IN, KERNEL_MAX_OUT);
  if (in->nwork > 1) FAIL("%d places for scratch", in->nwork);
  if (in->attr >= k->p->nattr) FAIL("attributes %u of %u", in->attr, k->p->nattr);
  if (in->acc >= ACC_BIT + 64) FAIL("accumulation bit %d of 64", in->acc - ACC_BIT);
  if (in->acc >= ACC_BIT && !b) FAIL("main has no call whose bits it could read");
  return WEFT_OK;
}

/* As many counts for each of n members, of whole rows. */
static weft_status check_counts(const Check *k, uint32_t pc, const Body *b,
                                const Operand *o, uint64_t n) {
  for (int i = 1; i < 3; i++)
    if (o[i].dtype != DT_I32 || operand_count(&o[i]) % n ||
        operand_count(&o[i]) != operand_count(&o[1]))
      FAIL("operand %d is no count for each of %llu ranks", i, (unsigned long long)n);
  uint64_t row = o[0].ndim ? (uint64_t)o[0].dim[o[0].ndim - 1] : 0;
  if (row == 0 || operand_count(&o[0]) / n % row)
    FAIL("places of %llu elements are not of rows of %llu",
         (unsigned long long)(operand_count(&o[0]) / n), (unsigned long long)row);
  return WEFT_OK;
}

static weft_status check_coll(const Check *k, uint32_t pc, const Body *b) {
  const Instr *in = &k->p->code[pc];
  if (in->coll >= COLL_PAIRS) FAIL("%d is not a collective", in->coll);
  if (in->red > RED_MAX) FAIL("unknown reduction %d", in->red);
  if (in->comm < 0 || in->comm >= k->p->ncomm)
    FAIL("communicator %d of %d", in->comm, k->p->ncomm);
  const CollInfo *is = &coll_info[in->coll];
  if (in->red && !(is->is & COLL_SUMS))
    FAIL("a reduction in %s, which has none", is->name);
  bool counted = is->is & COLL_COUNTED;
  if (in->nin != (counted ? 3 : 1) || in->nout != 1)
    FAIL(counted ? "it needs one input with two counts, and one result"
                 : "it needs one input and one result");
  const CommDesc *d = &k->p->comm[in->comm];
  if (!comm_has_pp(d, k->p->pp)) FAIL("this rank is no member of %s", d->name);
  bool shifts = in->coll == COLL_SHIFT;
  if (shifts ? in->by < 1 || in->by >= comm_size(&k->c->mesh, d) : in->by != 0)
    FAIL("a %s by %d among %d ranks", is->name, in->by, comm_size(&k->c->mesh, d));
  const Operand *o = &k->p->operand[in->operand];
  const Operand *out = &o[in->nin];
  if (o->dtype != out->dtype)
    FAIL("%s in, %s out", dtype_name(o->dtype), dtype_name(out->dtype));
  uint64_t a = operand_count(o), z = operand_count(out);
  uint64_t n = (uint64_t)comm_size(&k->c->mesh, d);
  bool whole = !is->in || a % n == 0;
  if (!whole || a * (is->out ? n : 1) != z * (is->in ? n : 1))
    FAIL("%s of %llu elements gives %llu over %s of %llu ranks", coll_info[in->coll].name,
         (unsigned long long)a, (unsigned long long)z, d->name, (unsigned long long)n);
  return counted ? check_counts(k, pc, b, o, n) : WEFT_OK;
}

static weft_status check_call(const Check *k, uint32_t pc, const Body *b) {
  const Program *p = k->p;
  const Instr *in = &p->code[pc];
  if (in->call >= p->ncall) FAIL("call %u of %u", in->call, p->ncall);
  const Call *call = &p->call[in->call];
  if (call->body >= (uint32_t)p->nbody) FAIL("body %d of %d", call->body, p->nbody);
  if (call->unit >= (uint32_t)p->nunit) FAIL("unit %d of %d", call->unit, p->nunit);
  if ((uint64_t)call->dyn + call->ndyn > p->ndyn)
    FAIL("dynamic slots %u..+%u of %u", call->dyn, call->ndyn, p->ndyn);
  if ((uint64_t)call->bind + call->nbind > p->nbind)
    FAIL("parameter slots %u..+%u of %u", call->bind, call->nbind, p->nbind);
  uint64_t slots = 1 + (uint64_t)call->nbind + call->ndyn;
  if (slots != p->body[call->body].nslot)
    FAIL("body %s has %d slots, the call binds %llu", p->body[call->body].name,
         p->body[call->body].nslot, (unsigned long long)slots);
  return WEFT_OK;
}

/* GATHER, FREE and SCATTER: parameters of a unit, of which each member has a shard. */
static weft_status check_shards(const Check *k, uint32_t pc, const Body *b) {
  const Instr *in = &k->p->code[pc];
  if (in->unit >= (uint32_t)k->p->nunit) FAIL("unit %u of %d", in->unit, k->p->nunit);
  if (in->code == I_FREE) {
    if (in->nin != 1 || in->nout != 0) FAIL("it needs one operand");
    return WEFT_OK;
  }
  CollKind coll = in->code == I_GATHER ? COLL_ALL_GATHER : COLL_REDUCE_SCATTER;
  if (in->coll != coll)
    FAIL("its collective is %d, not %s", in->coll, coll_info[coll].name);
  return check_coll(k, pc, b);
}

static weft_status check_instr(const Check *k, uint32_t pc, const Body *b) {
  const Program *p = k->p;
  const Instr *in = &p->code[pc];
  if (in->code >= I_N) FAIL("unknown instruction %d", in->code);
  if (in->what >= p->nwhat) FAIL("name %u of %u", in->what, p->nwhat);
  if (in->action && (in->action < 0 || p->pp >= k->c->schedule.ranks ||
                     in->action > k->c->schedule.n[p->pp]))
    FAIL("action %d is not in the schedule", in->action);
  int is = instr_is[in->code];
  if (b && (is & INSTR_MAIN))
    FAIL(in->code == I_CALL ? "bodies do not call" : "it belongs into main");
  if (is & INSTR_TOUCHES) TRY(check_operands(k, pc, b));
  bool handle = (is & INSTR_STARTS) || in->code == I_WAIT;
  if (handle && (in->handle < 0 || in->handle >= p->nhandle))
    FAIL("handle %d of %d", in->handle, p->nhandle);
  switch ((InstrCode)in->code) {
  case I_CALL: return check_call(k, pc, b);
  case I_KERNEL: return check_kernel(k, pc, b);
  case I_COLL: return check_coll(k, pc, b);
  case I_SEND:
  case I_RECV:
    if (in->nin != (in->code == I_SEND) || in->nout != (in->code == I_RECV))
      FAIL("it needs one operand");
    if (in->peer < 0 || in->peer >= k->c->mesh.size[AXIS_PP] || in->peer == p->pp)
      FAIL("peer %d is no other pp rank", in->peer);
    return WEFT_OK;
  case I_GATHER:
  case I_FREE:
  case I_SCATTER: return check_shards(k, pc, b);
  case I_WAIT:
  case I_N: return WEFT_OK;
  }
  return WEFT_OK;
}

/* ---- the tables ---- */

static weft_status check_body(const Check *k, const Body *b) {
  const Program *p = k->p;
  if (b->first < p->nmain || (uint64_t)b->first + b->n > p->ncode)
    return check_limit(k, "the end of a body", (uint64_t)b->first + b->n, p->ncode);
  if (b->phase > PH_UPDATE)
    return check_limit(k, "the phase of a body", b->phase, PH_UPDATE);
  for (uint32_t i = b->first; i < b->first + b->n; i++) TRY(check_instr(k, i, b));
  return WEFT_OK;
}

static weft_status check_tables(const Check *k) {
  const Program *p = k->p;
  if (p->nmain > p->ncode)
    return check_limit(k, "the length of main", p->nmain, p->ncode);
  for (uint32_t i = 0; i < p->nbind; i++)
    if (p->bind[i].copy < BIND_STORED || p->bind[i].copy >= p->nunit)
      return check_limit(k, "the unit of a gathered copy", (uint64_t)p->bind[i].copy,
                         (uint64_t)p->nunit);
  for (int i = 1; i < p->nunit; i++)
    if (p->number[i] <= p->number[i - 1])
      return check_limit(k, "the number of a unit", p->number[i], p->number[i - 1] + 1);
  if (p->nscalar < SC_N || p->nscalar % 2)
    return check_limit(k, "the number of scalars", (uint64_t)p->nscalar, SC_N);
  uint64_t scalars = 8 * (uint64_t)p->nscalar;
  if (p->scalars % 8 || p->scalars + scalars > p->arena_bytes)
    return check_limit(k, "the end of the scalars", p->scalars + scalars, p->arena_bytes);
  if (p->sums % sizeof(float) || p->sums + p->sums_bytes > p->arena_bytes)
    return check_limit(k, "the end of the sums of units", p->sums + p->sums_bytes,
                       p->arena_bytes);
  uint64_t sum = 0;
  for (int i = 0; i < p->nmem; i++) sum += p->mem[i].bytes;
  if (sum > p->arena_bytes)
    return check_limit(k, "the sum of memory classes", sum, p->arena_bytes);
  uint64_t ids =
      4 * (uint64_t)k->c->microbatches * (uint64_t)k->c->micro * (uint64_t)k->c->tokens;
  for (int i = 0; i < IN_N; i++) {
    uint64_t at = p->input[i], n = i == IN_SEED ? 4 : ids;
    if (at != UINT64_MAX && (at > p->arena_bytes || n > p->arena_bytes - at))
      return check_limit(k, "the end of an input", at + n, p->arena_bytes);
  }
  return WEFT_OK;
}

/* All programs have the same list, because a communicator is an index into it. */
static weft_status check_comms(const Check *k) {
  const Program *p = k->p, *first = &k->c->prog[0];
  if (p->ncomm != first->ncomm)
    return check_limit(k, "the number of communicators", (uint64_t)p->ncomm,
                       (uint64_t)first->ncomm);
  for (int i = 0; i < p->ncomm; i++) {
    const CommDesc *d = &p->comm[i], *f = &first->comm[i];
    bool same = d->axes == f->axes && d->npp == f->npp && d->in_flight == f->in_flight;
    for (int j = 0; j < d->npp && same; j++) {
      same = d->pp[j] == f->pp[j];
      bool once = d->pp[j] >= 0 && d->pp[j] < k->c->mesh.size[AXIS_PP];
      for (int l = 0; l < j; l++) once = once && d->pp[l] != d->pp[j];
      if (!once)
        return err_set(k->e, WEFT_EINTERNAL,
                       "pp rank %d: communicator %s: pp rank %d is not there or twice",
                       p->pp, d->name, d->pp[j]);
    }
    if (!same || !axes_one_mesh(d->axes))
      return err_set(k->e, WEFT_EINTERNAL,
                     "pp rank %d: communicator %d (%s) is not the one of pp rank 0 (%s)",
                     p->pp, i, d->name, f->name);
  }
  return WEFT_OK;
}

/* ---- operands inside the arena ---- */

/* The furthest byte that `n` instructions reach in each slot, and in the host's arena. */
static void reach(const Check *k, uint32_t first, uint32_t n, uint64_t *end,
                  uint64_t *host) {
  const Program *p = k->p;
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &p->code[i];
    for (int j = 0; j < instr_operands(in); j++) {
      const Operand *o = &p->operand[in->operand + (uint32_t)j];
      uint64_t to = o->off + operand_reach(&k->c->mesh, o);
      bool far = on_host(o->off);
      uint64_t *most = far ? host : &end[o->slot];
      *most = MAX(*most, far ? to - HOST_BASE : to);
    }
  }
}

static weft_status check_bounds(const Check *k, Arena *a) {
  const Program *p = k->p;
  uint64_t in_main = 0, host = 0, **end = NEW_N(a, uint64_t *, p->nbody);
  reach(k, 0, p->nmain, &in_main, &host);
  if (in_main > p->arena_bytes)
    return check_limit(k, "the reach of main", in_main, p->arena_bytes);
  for (int i = 0; i < p->nbody; i++) {
    end[i] = NEW_N(a, uint64_t, MAX(p->body[i].nslot, 1));
    reach(k, p->body[i].first, p->body[i].n, end[i], &host);
  }
  if (host > p->host_bytes)
    return check_limit(k, "the reach on the host", host, p->host_bytes);
  const Body *b = NULL;
  for (uint32_t pc = 0; pc < p->nmain; pc++) {
    if (p->code[pc].code != I_CALL) continue;
    const Call *call = &p->call[p->code[pc].call];
    for (int s = 0; s < p->body[call->body].nslot; s++) {
      uint64_t at = slot_base(p, call, s), n = end[call->body][s];
      if (n && (at > p->arena_bytes || n > p->arena_bytes - at))
        FAIL("%s: slot %d at %llu reaches %llu bytes, the arena has %llu",
             p->body[call->body].name, s, (unsigned long long)at, (unsigned long long)n,
             (unsigned long long)p->arena_bytes);
    }
  }
  return WEFT_OK;
}

static weft_status check_program(const Check *k, Arena *a) {
  TRY(check_tables(k));
  TRY(check_comms(k));
  TRY(check_regions(k));
  for (uint32_t i = 0; i < k->p->nmain; i++) TRY(check_instr(k, i, NULL));
  for (int i = 0; i < k->p->nbody; i++) TRY(check_body(k, &k->p->body[i]));
  TRY(check_bounds(k, a));
  return check_overlap(k, a);
}

static weft_status check_all(Arena *a, void *ud, weft_error *e) {
  const Compiled *c = ud;
  for (int i = 0; i < c->mesh.size[AXIS_PP]; i++) {
    Check k = {.c = c, .p = &c->prog[i], .e = e};
    if (k.p->pp != i)
      return err_set(e, WEFT_EINTERNAL, "program %d is of pp rank %d", i, k.p->pp);
    TRY(check_program(&k, a));
  }
  return WEFT_OK;
}

weft_status program_check(const Compiled *c, weft_error *e) {
  return arena_scoped(arena_allocator(c->arena), check_all, (void *)c, e);
}
