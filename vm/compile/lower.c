/* lower.c - writes the program of one pp rank: shared bodies, calls with their bindings,
 * the main list, and the account of its memory. */
#include "passes.h"

/* ---- emitting ---- */

static uint32_t what_index(Emit *e, const char *s) {
  for (int i = MAX(0, e->what.n - 64); i < e->what.n; i++)
    if (strcmp(e->what.at[i], s) == 0) return (uint32_t)i;
  *VEC_PUSH(e->b->arena, e->what) = arena_str(e->b->arena, s);
  return (uint32_t)e->what.n - 1;
}

Instr *emit_instr(Emit *e, InstrCode code, const char *what) {
  Instr *x = VEC_PUSH(e->b->arena, e->code);
  *x = (Instr){.code = (uint8_t)code, .comm = -1, .handle = -1, .peer = -1,
               .operand = (uint32_t)e->operand.n, .what = what_index(e, what)};
  return x;
}

uint32_t emit_operand(Emit *e, uint64_t off, DType dt, int64_t count) {
  *VEC_PUSH(e->b->arena, e->operand) =
      (Operand){.off = off, .dtype = (uint8_t)dt, .ndim = 1, .dim = {count}};
  return (uint32_t)e->operand.n - 1;
}

/* ---- bodies ---- */

static bool same_instr(const CodeInstr *a, const CodeInstr *b) {
  const Instr *x = &a->i, *y = &b->i;
  if (x->code != y->code || x->coll != y->coll || x->red != y->red || x->acc != y->acc ||
      x->op != y->op || x->comm != y->comm || x->nin != y->nin || x->nout != y->nout ||
      x->handle != y->handle)
    return false;
  return memcmp(&a->attr, &b->attr, sizeof a->attr) == 0 &&
         memcmp(a->operand, b->operand, sizeof *a->operand * (size_t)(x->nin + x->nout)) ==
             0 &&
         strcmp(a->name, b->name) == 0;
}

static bool same_body(const UnitCode *a, const UnitCode *b, Phase ph) {
  if (a->body[ph].n != b->body[ph].n || a->nparam != b->nparam || a->nedge != b->nedge)
    return false;
  for (int i = 0; i < a->body[ph].n; i++)
    if (!same_instr(&a->body[ph].at[i], &b->body[ph].at[i])) return false;
  return true;
}

/* Slots with one place per rank become offsets into the arena. */
static Operand absolute(const Emit *e, Operand o, uint64_t temp) {
  switch (o.slot) {
  case SLOT_TEMP: o.off += temp; break;
  case SLOT_SEED: o.off = e->l->seed; break;
  case SLOT_SCALARS: o.off = e->l->scalars; break;
  default: return o;
  }
  o.slot = 0;
  return o;
}

typedef struct Bodies {
  int *unit, (*of)[3];   /* body -> unit it was written for; unit -> its bodies */
  VEC(int) written[3];   /* units with a body of their own, per phase */
} Bodies;

static void write_body(Emit *e, int u, Phase ph, uint64_t temp) {
  static const char *const suffix[] = {"F", "I", "W"};
  const UnitCode *code = &e->b->unit[u];
  const Unit *unit = &e->b->in->graph->unit.at[u];
  Body *body = VEC_PUSH(e->b->arena, e->body);
  *body = (Body){.name = arena_printf(e->b->arena, "%s:%s",
                                      unit->layer >= 0 ? "layer" : unit->name, suffix[ph]),
                 .first = (uint32_t)e->code.n, .n = (uint32_t)code->body[ph].n,
                 .phase = (uint8_t)ph, .flops = code->body[ph].flops,
                 .nslot = (uint16_t)(1 + 2 * code->nparam + DYN_EDGE + code->nedge)};
  for (int i = 0; i < code->body[ph].n; i++) {
    const CodeInstr *from = &code->body[ph].at[i];
    Instr *x = emit_instr(e, (InstrCode)from->i.code, from->name);
    uint32_t what = x->what, operand = x->operand;
    *x = from->i;
    x->what = what, x->operand = operand;
    if (from->i.code == I_KERNEL) {
      x->attr = (uint32_t)e->attr.n;
      *VEC_PUSH(e->b->arena, e->attr) = from->attr;
    }
    for (int k = 0; k < from->i.nin + from->i.nout; k++)
      *VEC_PUSH(e->b->arena, e->operand) = absolute(e, from->operand[k], temp);
  }
}

/* The bodies of all units of this rank; units whose code is equal share one. Written
 * after the main list, numbered before it. */
static void number_bodies(Emit *e, Bodies *bo) {
  const Build *b = e->b;
  int units = b->in->graph->unit.n, n = 0;
  bo->of = (void *)arena_alloc(b->arena, sizeof *bo->of * (size_t)units);
  bo->unit = NEW_N(b->arena, int, units * 3);
  for (Phase ph = PH_F; ph <= PH_W; ph++)
    for (int u = 0; u < units; u++) {
      bo->of[u][ph] = -1;
      if (stage_rank(b, b->st.of_unit[u]) != e->p->pp || b->unit[u].body[ph].n == 0)
        continue;
      for (int k = 0; k < bo->written[ph].n && bo->of[u][ph] < 0; k++) {
        int v = bo->written[ph].at[k];
        if (same_body(&b->unit[u], &b->unit[v], ph)) bo->of[u][ph] = bo->of[v][ph];
      }
      if (bo->of[u][ph] >= 0) continue;
      bo->of[u][ph] = n;
      bo->unit[n++] = u * 3 + (int)ph;
      *VEC_PUSH(b->arena, bo->written[ph]) = u;
    }
  e->p->nbody = n;
}

/* ---- calls ---- */

static void bind_units(Emit *e, int *unit_at) {
  const Build *b = e->b;
  for (int u = 0; u < b->in->graph->unit.n; u++) {
    unit_at[u] = -1;
    if (stage_rank(b, b->st.of_unit[u]) != e->p->pp) continue;
    const UnitCode *code = &b->unit[u];
    unit_at[u] = e->unit.n;
    *VEC_PUSH(b->arena, e->unit) = (UnitBind){b->in->graph->unit.at[u].name,
                                              (uint32_t)e->bind.n,
                                              (uint32_t)(2 * code->nparam)};
    for (int i = 0; i < code->nparam; i++)
      *VEC_PUSH(b->arena, e->bind) = e->l->param[e->l->of[code->param[i]]].work;
    for (int i = 0; i < code->nparam; i++)
      *VEC_PUSH(b->arena, e->bind) = e->l->param[e->l->of[code->param[i]]].grad;
  }
}

/* Bits of the gradients that nothing has written yet in this step. */
static uint64_t fresh_mask(Emit *e, int u, Phase ph, bool *written) {
  const UnitCode *code = &e->b->unit[u];
  uint64_t mask = 0;
  if (ph != PH_W) return 0;
  for (int i = 0; i < code->nparam; i++) {
    int p = e->l->of[code->param[i]];
    if (!written[p]) mask |= 1ull << i;
    written[p] = true;
  }
  return mask;
}

static void bind_buffer(Emit *e, const Timeline *t, int32_t buffer, uint64_t frames) {
  *VEC_PUSH(e->b->arena, e->dyn) = buffer < 0 ? 0 : frames + t->buffer.at[buffer].off;
}

static void emit_call(Emit *e, const Event *ev, const Timeline *t, const Bodies *bo,
                      const int *unit_at, bool *written, uint64_t frames) {
  static const char phase_name[] = "FIW";
  const Build *b = e->b;
  const UnitCode *code = &b->unit[ev->unit];
  int rank, chunk;
  schedule_where(b->in->schedule, b->st.of_unit[ev->unit], &rank, &chunk);
  Call call = {.body = (uint16_t)bo->of[ev->unit][ev->phase],
               .unit = (uint16_t)unit_at[ev->unit], .chunk = (uint16_t)chunk,
               .mb = ev->mb, .dyn = (uint32_t)e->dyn.n,
               .ndyn = (uint32_t)(DYN_EDGE + code->nedge),
               .fresh = fresh_mask(e, ev->unit, (Phase)ev->phase, written)};
  const int32_t *buf = &t->call_buffer.at[ev->edges];
  for (int k = 0; k < 3; k++) bind_buffer(e, t, buf[k], frames);
  uint64_t mb_bytes = (uint64_t)(b->in->plan->batch.micro * b->in->graph->seq * 4);
  for (int i = 0; i < IN_SEED; i++)
    *VEC_PUSH(b->arena, e->dyn) = e->l->input[i] == UINT64_MAX
                                      ? 0
                                      : e->l->input[i] + (uint64_t)ev->mb * mb_bytes;
  for (int k = 0; k < code->nedge; k++) bind_buffer(e, t, buf[3 + k], frames);
  char what[16] = {phase_name[ev->phase], 0};
  Instr *x = emit_instr(e, I_CALL, what);
  x->call = (uint32_t)e->call.n;
  x->line = ev->line;
  *VEC_PUSH(b->arena, e->call) = call;
}

static void emit_transfer(Emit *e, const Event *ev, const Timeline *t, uint64_t frames) {
  char label[96];
  const Tensor *x = &e->b->sh.g->t.at[ev->t];
  Instr *i = emit_instr(e, ev->kind == EV_SEND ? I_SEND : I_RECV,
                        tensor_label(e->b->sh.g, ev->t, label));
  i->peer = ev->peer;
  i->handle = ev->handle;
  i->line = ev->line;
  i->nin = ev->kind == EV_SEND, i->nout = !i->nin;
  Operand *o = VEC_PUSH(e->b->arena, e->operand);
  *o = (Operand){.off = frames + t->buffer.at[ev->buffer].off, .dtype = x->dtype,
                 .ndim = x->ndim};
  for (int d = 0; d < x->ndim; d++) o->dim[d] = x->dim[d].local;
}

static void emit_event(Emit *e, const Event *ev, const Timeline *t, const Bodies *bo,
                       const int *unit_at, bool *written, uint64_t frames) {
  switch ((EventKind)ev->kind) {
  case EV_CALL: emit_call(e, ev, t, bo, unit_at, written, frames); break;
  case EV_SEND:
  case EV_RECV: emit_transfer(e, ev, t, frames); break;
  case EV_WAIT: {
    Instr *x = emit_instr(e, I_WAIT, "");
    x->handle = ev->handle;
    x->line = ev->line;
    break;
  }
  case EV_REDUCE: {
    const Bucket *k = &e->l->bucket.at[ev->bucket];
    Instr *x = emit_instr(e, I_COLL, "gradients");
    x->coll = COLL_ALL_REDUCE;
    x->comm = (int16_t)comm_for(e->b, k->axes, NULL, 0);
    x->handle = ev->handle;
    x->nin = x->nout = 1;
    emit_operand(e, k->off, DT_F32, (int64_t)k->count);
    emit_operand(e, k->off, DT_F32, (int64_t)k->count);
    break;
  }
  }
}

/* ---- memory ---- */

static void account(Emit *e, Compiled *c, uint64_t frames, uint64_t temp) {
  static const char *const name[] = {"parameters", "master weights", "gradients",
                                     "optimizer state", "inputs and scalars",
                                     "activations", "workspace"};
  Program *p = e->p;
  p->mem = NEW_N(c->arena, MemClass, LEN(name));
  for (int i = 0; i < LEN(name); i++) {
    uint64_t bytes = i < 5 ? e->l->bytes[i] : i == 5 ? frames : temp;
    if (bytes) p->mem[p->nmem++] = (MemClass){.name = name[i], .bytes = bytes};
  }
  p->arena_bytes = e->l->end + frames + temp;
}

/* The most operations of instructions [first, first + n) under way at once on each
 * communicator. */
static void peak_in_flight(const Emit *e, uint32_t first, uint32_t n, int *peak) {
  int *now = NEW_N(e->b->arena, int, e->b->comm.n);
  int *comm_of = NEW_N(e->b->arena, int, e->p->nhandle);
  for (int h = 0; h < e->p->nhandle; h++) comm_of[h] = -1;
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *x = &e->code.at[i];
    if (x->code == I_COLL) {
      comm_of[x->handle] = x->comm;
      now[x->comm]++;
      peak[x->comm] = MAX(peak[x->comm], now[x->comm]);
    } else if (x->code == I_WAIT && comm_of[x->handle] >= 0) {
      now[comm_of[x->handle]]--;
      comm_of[x->handle] = -1;
    }
  }
}

/* A body's operations come on top of those that the main list has under way. */
static void count_in_flight(const Emit *e) {
  int *main_peak = NEW_N(e->b->arena, int, e->b->comm.n);
  int *body_peak = NEW_N(e->b->arena, int, e->b->comm.n);
  peak_in_flight(e, 0, e->p->nmain, main_peak);
  for (int k = 0; k < e->body.n; k++)
    peak_in_flight(e, e->body.at[k].first, e->body.at[k].n, body_peak);
  for (int c = 0; c < e->b->comm.n; c++) {
    CommDesc *d = &e->b->comm.at[c];
    d->in_flight = MAX(d->in_flight, main_peak[c] + body_peak[c]);
  }
}

static double step_flops(const Emit *e) {
  double sum = 0;
  for (int i = 0; i < e->call.n; i++) sum += e->body.at[e->call.at[i].body].flops;
  return sum;
}

/* Moves what was gathered in the compile's arena into the result's. */
#define KEEP(field, count)                                                               \
  (p->field = NEW_N(c->arena, __typeof__(*p->field), e.field.n),                         \
   e.field.n ? memcpy(p->field, e.field.at, sizeof *p->field * (size_t)e.field.n) : 0,   \
   p->count = (__typeof__(p->count))e.field.n)

uint64_t temp_of(const Build *b, int rank) {
  uint64_t bytes = 0;
  for (int u = 0; u < b->in->graph->unit.n; u++)
    if (stage_rank(b, b->st.of_unit[u]) == rank) bytes = MAX(bytes, b->unit[u].temp);
  return bytes;
}

void lower(Build *b, int rank, const Layout *l, Timeline *t, Compiled *c) {
  Program *p = &c->prog[rank];
  Emit e = {.b = b, .p = p, .l = l};
  Bodies bo = {0};
  int *unit_at = NEW_N(b->arena, int, b->in->graph->unit.n);
  bool *written = NEW_N(b->arena, bool, l->nparam + 1);
  uint64_t temp_bytes = temp_of(b, rank);
  p->pp = rank;
  uint64_t frames = offsets(b->arena, t->buffer.at, t->buffer.n);
  number_bodies(&e, &bo);
  bind_units(&e, unit_at);
  update_prologue(&e, c);
  for (int i = 0; i < t->ev.n; i++)
    emit_event(&e, &t->ev.at[i], t, &bo, unit_at, written, l->end);
  update_epilogue(&e, c, t);
  p->nmain = (uint32_t)e.code.n;
  for (int k = 0; k < p->nbody; k++)
    write_body(&e, bo.unit[k] / 3, (Phase)(bo.unit[k] % 3), l->end + frames);
  p->nhandle = MAX(t->handles, 1);
  account(&e, c, frames, temp_bytes);
  count_in_flight(&e);
  p->flops = step_flops(&e);
  KEEP(code, ncode);
  KEEP(body, nbody);
  KEEP(unit, nunit);
  KEEP(bind, nbind);
  KEEP(call, ncall);
  KEEP(dyn, ndyn);
  KEEP(operand, noperand);
  KEEP(attr, nattr);
  KEEP(what, nwhat);
  for (uint32_t i = 0; i < p->nwhat; i++) p->what[i] = arena_str(c->arena, p->what[i]);
  for (int i = 0; i < p->nbody; i++) p->body[i].name = arena_str(c->arena, p->body[i].name);
  for (int i = 0; i < p->nunit; i++) p->unit[i].name = arena_str(c->arena, p->unit[i].name);
  p->param = l->param, p->nparam = l->nparam;
  memcpy(p->input, l->input, sizeof p->input);
  p->scalars = l->scalars;
}
