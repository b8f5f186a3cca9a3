/* interp.c - runs the program of one rank once: fetch, dispatch, next. Allocates nothing
 * and looks up no name; program_check() has passed every reference. */
#include "interp.h"

#include <stdio.h>

/* ---- names, for messages only ---- */

void instr_describe(const Compiled *c, int rank, const Instr *in, char *buf, size_t n) {
  const Mesh *m = &c->mesh;
  const Program *p = &c->prog[mesh_coord(m, rank, AXIS_PP)];
  const char *what = p->what[in->what];
  if (!what[0]) what = "the unit's inputs"; /* of no module */
  if (in->code == I_KERNEL)
    snprintf(buf, n, "op %s of %s", op_info[in->op].name, what);
  else if (instr_is[in->code] & INSTR_COLL)
    snprintf(buf, n, "%s(%s) of %s", coll_info[in->coll].name, p->comm[in->comm].name,
             what);
  else if (in->code == I_SEND)
    snprintf(buf, n, "send to rank %d of %s", rank_on_pp(m, rank, in->peer), what);
  else if (in->code == I_RECV)
    snprintf(buf, n, "recv from rank %d of %s", rank_on_pp(m, rank, in->peer), what);
  else
    snprintf(buf, n, "%s of %s", instr_name[in->code], what);
}

void rank_describe(const Rank *r, const Instr *in, char *buf, size_t n) {
  instr_describe(r->c, r->rank, in, buf, n);
}

/* Ends the step with the reason `why`, prefixed by rank and instruction. */
static weft_status fail(const Rank *r, const Instr *in, const weft_error *why,
                        weft_error *e) {
  char name[256];
  rank_describe(r, in, name, sizeof name);
  weft_status st = err_set(e, why->code, "rank %d: %s: %.700s", r->rank, name, why->text);
  if (e) e->rank = why->rank >= 0 ? why->rank : r->rank;
  return st;
}

/* ---- instructions ---- */

static weft_status look(Rank *r, const Instr *in, uint64_t given, weft_error *e) {
  weft_error why = NO_ERROR;
  return capture_check(r, given, &why) == WEFT_OK ? WEFT_OK : fail(r, in, &why, e);
}

static weft_status look_at_start(Rank *r, const Instr *in, const CommOp *op,
                                 weft_error *e) {
  const uint64_t given[] = {op->coll,
                            op->red,
                            op->dtype,
                            (uint64_t)op->group,
                            (uint64_t)op->peer,
                            (uint64_t)(uintptr_t)op->in,
                            (uint64_t)(uintptr_t)op->out,
                            op->count};
  return look(r, in, hash_bytes(0, given, sizeof given), e);
}

static void *at(const Rank *r, const uint64_t *base, const Operand *o) {
  return rank_place(r, base[o->slot] + r->off[o - r->p->operand]);
}

/* Whether this is another kernel than those that the instruction has loaded: which one it
 * is may follow from whether it adds, and from how its operands are aligned. */
static bool needs_loading(Bound *b) {
  const KernelArgs *a = &b->args;
  uintptr_t all = 0;
  for (int k = 0; k < a->nin; k++) all |= (uintptr_t)a->in[k].p;
  for (int k = 0; k < a->nout; k++) all |= (uintptr_t)a->out[k].p;
  int kind = 2 * (all % 16 != 0) + a->accumulate;
  bool known = b->loaded >> kind & 1;
  b->loaded |= (uint8_t)(1 << kind);
  return !known;
}

/* Its launch failed: nothing of it runs. */
static weft_status refused(const Rank *r, const Instr *in, weft_error *e) {
  weft_error why = {.code = WEFT_ERUN, .rank = -1};
  snprintf(why.text, sizeof why.text, "device %s: %s", r->dev->vt->name, r->dev->refused);
  return fail(r, in, &why, e);
}

static weft_status run_kernel(Rank *r, const Instr *in, const uint64_t *base,
                              uint64_t fresh, bool check, weft_error *e) {
  Bound *b = &r->bound[r->bound_of[in - r->p->code]];
  KernelArgs *a = &b->args;
  const Operand *o = &r->p->operand[in->operand];
  for (int k = 0; k < a->nin; k++) a->in[k].p = at(r, base, o++);
  for (int k = 0; k < a->nout; k++) a->out[k].p = at(r, base, o++);
  a->work = in->nwork ? at(r, base, o) : NULL;
  a->unit = r->call ? r->p->number[r->call->unit] : 0;
  a->accumulate = in->acc == ACC_ALWAYS ||
                  (in->acc >= ACC_BIT && !(fresh >> (in->acc - ACC_BIT) & 1));
  if (r->dev->loads && !needs_loading(b)) return WEFT_OK;
  device_launch(r->dev, b->kernel, a);
  if (r->dev->refused) return refused(r, in, e);
  if (r->looks) TRY(look(r, in, 0, e));
  if (!check) return WEFT_OK;
  if (in->op == OP_permute) TRY(check_permuted(r, a, e));
  for (int k = 0; k < a->nout; k++) {
    const KTensor *t = &a->out[k];
    uint64_t n = operand_count(&r->p->operand[in->operand + (uint32_t)(a->nin + k)]);
    TRY(check_result(r, in, t->p, t->dtype, n, e));
  }
  return WEFT_OK;
}

static uint32_t number(const Rank *r, const Instr *in) {
  return (uint32_t)(in - r->p->code);
}

static weft_status start(Rank *r, const Instr *in, const CommOp *op, weft_error *e) {
  if (r->looks) TRY(look_at_start(r, in, op, e));
  if (r->dev->dry) return WEFT_OK;
  uint64_t nth = atomic_load(&comm_count(r->comm, op->group)->started) + 1;
  int64_t from = trace_now(r->tracer);
  r->pending[in->handle] = (Pending){in, *op, nth, from};
  weft_error why = NO_ERROR;
  if (comm_start(r->comm, op, in->handle, device_record(r->dev), &why) == WEFT_OK)
    return WEFT_OK;
  return fail(r, in, &why, e);
}

/* Row counts are read where the host can: those of a device are fetched, which waits for
 * all that was launched before. It is the one copy in the middle of a step, and such
 * steps are not captured. */
static const int32_t *counts_at(Rank *r, const Instr *in, const uint64_t *base,
                                const Operand *o, bool take) {
  const int32_t *counts = at(r, base, o);
  if (r->c->device->host || r->dev->dry) return counts;
  size_t n = (size_t)operand_count(o);
  int32_t *here = r->rows + (size_t)(2 * in->handle + take) * r->nrows;
  assert(n <= r->nrows);
  memset(here, 0, n * sizeof *here); /* for a wait that ends because the run does */
  bool inside = r->dev->main;
  device_main(r->dev, false);
  device_download(r->dev, here, counts, n * sizeof *here);
  device_main(r->dev, inside);
  return here;
}

static weft_status run_coll(Rank *r, const Instr *in, const uint64_t *base,
                            weft_error *e) {
  const Operand *src = &r->p->operand[in->operand], *dst = src + in->nin;
  int members = r->group[in->comm].n;
  uint64_t pieces = coll_info[in->coll].in ? (uint64_t)members : 1;
  CommOp op = {.coll = in->coll,
               .red = in->red,
               .dtype = src->dtype,
               .by = in->by,
               .group = in->comm,
               .peer = -1,
               .in = at(r, base, src),
               .out = at(r, base, dst),
               .count = operand_count(src) / pieces,
               .what = number(r, in)};
  if (coll_info[in->coll].is & COLL_COUNTED) {
    op.give = counts_at(r, in, base, src + 1, false);
    op.take = counts_at(r, in, base, src + 2, true);
    op.members = members;
    op.each = (int)operand_count(src + 1) / members;
    op.row = (uint64_t)src->dim[src->ndim - 1];
  }
  return start(r, in, &op, e);
}

static weft_status run_p2p(Rank *r, const Instr *in, const uint64_t *base,
                           weft_error *e) {
  const Operand *o = &r->p->operand[in->operand];
  bool send = in->code == I_SEND;
  CommOp op = {.coll = send ? COLL_SEND : COLL_RECV,
               .dtype = o->dtype,
               .group = -1,
               .peer = r->peer[in->peer],
               .in = send ? at(r, base, o) : NULL,
               .out = send ? NULL : at(r, base, o),
               .count = operand_count(o),
               .what = number(r, in)};
  return start(r, in, &op, e);
}

static void trace_wait(Rank *r, const Instr *started, int64_t from, int64_t waited) {
  int64_t now = trace_now(r->tracer);
  trace_add(r->tracer, TRACE_MOVE, number(r, started), from, now);
  trace_add(r->tracer, TRACE_WAIT, number(r, started), waited, now);
}

/* Looks at what has come; behind the rows that are counted lies anything. */
static weft_status check_moved(Rank *r, const Instr *in, const CommOp *op,
                               weft_error *e) {
  DType t = (DType)op->dtype;
  uint64_t pieces = coll_info[op->coll].out ? (uint64_t)r->group[op->group].n : 1;
  if (!op->take) return check_result(r, in, op->out, t, op->count * pieces, e);
  size_t place = op->count * (size_t)dtype_size(t);
  for (int k = 0; k < op->members; k++)
    TRY(check_result(r, in, (char *)op->out + (size_t)k * place, t,
                     comm_rows(op, op->take, k), e));
  return WEFT_OK;
}

static weft_status run_wait(Rank *r, const Instr *in, bool check, weft_error *e) {
  Pending *p = &r->pending[in->handle];
  if (r->dev->dry) return WEFT_OK;
  if (!p->instr) {
    weft_error why = {.code = WEFT_EINTERNAL, .text = "nothing was started"};
    return fail(r, in, &why, e);
  }
  const Instr *started = p->instr;
  p->instr = NULL;
  weft_error why = NO_ERROR;
  atomic_store_explicit(&r->at, started, memory_order_relaxed);
  atomic_store_explicit(&r->nth, p->nth, memory_order_relaxed);
  atomic_store_explicit(&r->state, RANK_WAITS, memory_order_relaxed);
  int64_t from = trace_now(r->tracer);
  weft_status st = comm_wait(r->comm, in->handle, &why);
  if (r->tracer) trace_wait(r, started, p->from, from);
  if (st != WEFT_OK) return fail(r, started, &why, e);
  atomic_store_explicit(&r->state, RANK_BUSY, memory_order_relaxed);
  return check && p->op.out ? check_moved(r, started, &p->op, e) : WEFT_OK;
}

/* Only this rank writes its counter, so no atomic addition is needed. */
static void tick(Rank *r) {
  uint64_t n = atomic_load_explicit(&r->ticks, memory_order_relaxed);
  atomic_store_explicit(&r->ticks, n + 1, memory_order_relaxed);
}

static weft_status run_range(Rank *r, uint32_t first, uint32_t n, const uint64_t *base,
                             uint64_t fresh, bool check, StepEnd *end, weft_error *e);

static weft_status run_call(Rank *r, const Instr *in, bool check, weft_error *e) {
  const Call *call = &r->p->call[in->call];
  const Body *body = &r->p->body[call->body];
  r->call = call;
  for (int i = 0; i < body->nslot; i++) r->base[i] = slot_base(r->p, call, i);
  if (r->tracer) r->tracer->call = number(r, in);
  weft_status st =
      run_range(r, body->first, body->n, r->base, call->fresh, check, NULL, e);
  if (r->tracer) r->tracer->call = TRACE_MAIN;
  return st;
}

/* From here on parameters and states of the optimizer change. */
static bool begins_update(const Instr *in) {
  return in->code == I_KERNEL && (in->op == OP_clip_guess || in->op == OP_clip_coef);
}

/* A repetition with checks changes nothing, so it may be ended anywhere. */
static weft_status look_at_end(const Instr *in, bool check, StepEnd *end, weft_error *e) {
  bool goes_on = begins_update(in) && !check ? step_updates(end) : !step_ends(end);
  return goes_on ? WEFT_OK : err_set(e, WEFT_EINTR, "interrupted");
}

static weft_status run_range(Rank *r, uint32_t first, uint32_t n, const uint64_t *base,
                             uint64_t fresh, bool check, StepEnd *end, weft_error *e) {
  const Instr *in = r->p->code + first, *last = in + n;
  for (; in < last; in++) {
    int64_t from = trace_now(r->tracer);
    if (end) TRY(look_at_end(in, check, end, e));
    atomic_store_explicit(&r->at, in, memory_order_relaxed);
    tick(r);
    switch (in->code) {
    case I_CALL: TRY(run_call(r, in, check, e)); break;
    case I_KERNEL: TRY(run_kernel(r, in, base, fresh, check, e)); break;
    case I_COLL:
    case I_GATHER:
    case I_SCATTER: TRY(run_coll(r, in, base, e)); break;
    case I_FREE: break; /* the proof has looked that nothing reads it any more */
    case I_SEND:
    case I_RECV: TRY(run_p2p(r, in, base, e)); break;
    case I_WAIT: TRY(run_wait(r, in, check, e)); break;
    }
    bool runs = in->code == I_CALL || in->code == I_KERNEL;
    if (r->tracer && runs)
      trace_add(r->tracer, TRACE_RUN, number(r, in), from, trace_now(r->tracer));
  }
  return WEFT_OK;
}

/* ---- a step ---- */

static size_t scalar_bytes(const Rank *r) {
  return (size_t)r->p->nscalar * sizeof *r->scalars;
}

static void upload(Rank *r, bool check) {
  for (int i = SC_CLIP; i < r->p->nscalar; i++) r->scalars[i] = 0;
  /* A repetition of a step that was not finite must not change anything: it ends in the
   * middle. */
  r->scalars[SC_CAREFUL] = check;
  for (int k = 0; k < IN_SEED; k++)
    if (r->input[k] && r->p->input[k] != UINT64_MAX)
      device_upload(r->dev, r->arena + r->p->input[k], r->input[k], staged_bytes(r->c));
  device_upload(r->dev, r->arena + r->p->scalars, r->scalars, scalar_bytes(r));
}

weft_status interp_main(Rank *r, bool check, StepEnd *end, weft_error *e) {
  const uint64_t arena = 0;
  device_main(r->dev, !check);
  weft_status st = run_range(r, 0, r->p->nmain, &arena, 0, check, end, e);
  device_main(r->dev, false);
  return st;
}

weft_status interp_load(Rank *r, weft_error *e) {
  if (!r->dev->vt->lazy) return WEFT_OK;
  r->dev->dry = r->dev->loads = true;
  weft_status st = interp_main(r, false, NULL, e);
  r->dev->dry = r->dev->loads = false;
  atomic_store(&r->at, NULL);
  atomic_store(&r->ticks, 0);
  return st == WEFT_OK ? device_sync(r->dev, e) : st;
}

static weft_status run_main(Rank *r, bool check, StepEnd *end, weft_error *e) {
  TRY(capture_main(r, check, end, e));
  return device_sync(r->dev, e);
}

static void download(Rank *r) {
  device_download(r->dev, r->scalars, r->arena + r->p->scalars, scalar_bytes(r));
}

void rank_trace(Rank *r, Tracer *t) { r->tracer = t; }

weft_status rank_step(Rank *r, bool check, StepEnd *end, weft_error *e) {
  r->bad = NULL;
  atomic_store(&r->state, RANK_BUSY);
  upload(r, check);
  weft_status st = run_main(r, check, end, e);
  if (st != WEFT_OK) return st; /* and is still said to be where it failed */
  download(r);
  atomic_store(&r->state, RANK_IDLE);
  return WEFT_OK;
}

/* Where the host is ahead of its device, the device says where the rank is. */
RankAt rank_at(const Rank *r) {
  RankAt at = {.state = (RankState)atomic_load(&r->state),
               .ticks = atomic_load(&r->ticks),
               .instr = atomic_load(&r->at),
               .nth = atomic_load(&r->nth)};
  if (at.state != RANK_BUSY) return at;
  CommInside inside = comm_inside(r->comm);
  at.ticks += inside.ticks;
  if (!inside.in) return at;
  at.state = RANK_WAITS;
  at.instr = r->p->code + inside.what;
  at.nth = inside.nth;
  return at;
}

void *rank_arena(Rank *r) { return r->arena; }

double *rank_scalars(Rank *r) { return r->scalars; }

int32_t *rank_input(Rank *r, InputKind k) { return r->input[k]; }
