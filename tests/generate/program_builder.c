/* program_builder.c - see program_builder.h. */
#include "program_builder.h"

typedef VEC(Instr) Code;

typedef struct OpenBody {
  Body body;
  Code code;
} OpenBody;

typedef struct Range {
  uint32_t first, n;
} Range;

typedef struct Side {
  Code main;
  VEC(OpenBody) body;
  int open; /* body, or -1 */
  VEC(const char *) unit;
  VEC(Range) range; /* per unit: the parameter ranges that its calls bind */
  VEC(Bind) bind;
  VEC(uint64_t) dyn;
  VEC(Call) call;
  VEC(Operand) operand;
  VEC(const char *) what;
  int nhandle;
} Side;

struct Build {
  Arena *a;
  Compiled *c;
  Side *side;
  VEC(CommDesc) comm;
  int line, npp;
};

Build *build_new(Arena *a, int pp, int tp, uint64_t arena_bytes) {
  Build *b = NEW(a, Build);
  Diags d = {.arena = a};
  *b = (Build){.a = a, .npp = pp, .c = NEW(a, Compiled), .side = NEW_N(a, Side, pp)};
  *b->c = (Compiled){.arena = a,
                     .prog = NEW_N(a, Program, pp),
                     .microbatches = 1,
                     .micro = 1,
                     .seq = 8,
                     .tokens = 8,
                     .dtype = DT_F32,
                     .device = device_kind(NULL, NULL)};
  MeshSpec spec = {.pp = pp, .tp = tp, .dp = 1};
  bool ok = mesh_resolve(&spec, 0, &b->c->mesh, &d);
  assert(ok), (void)ok;
  for (int i = 0; i < pp; i++) {
    Program *p = &b->c->prog[i];
    *p = (Program){.pp = i, .arena_bytes = arena_bytes, .nscalar = SC_N};
    for (int j = 0; j < IN_N; j++) p->input[j] = UINT64_MAX;
    p->attr = NEW(a, OpAttr), p->nattr = 1;
    b->side[i].open = -1;
    *VEC_PUSH(a, b->side[i].what) = "";
    build_unit(b, i, "none", NULL, 0);
  }
  return b;
}

Operand typed_at(DType t, int slot, uint64_t off, int64_t n) {
  return (Operand){.off = off, .slot = (uint16_t)slot, .dtype = t, .ndim = 1, .dim = {n}};
}

Operand f32_at(int slot, uint64_t off, int64_t n) {
  return typed_at(DT_F32, slot, off, n);
}

int build_comm(Build *b, const char *name, AxisSet axes, int in_flight, const int *pp,
               int npp) {
  int *copy = NEW_N(b->a, int, npp);
  if (npp) memcpy(copy, pp, sizeof(int) * (size_t)npp);
  *VEC_PUSH(b->a, b->comm) = (CommDesc){axes, npp, npp ? copy : NULL, name, in_flight};
  return b->comm.n - 1;
}

int build_unit(Build *b, int pp, const char *name, const uint64_t *bind, int n) {
  Side *s = &b->side[pp];
  *VEC_PUSH(b->a, s->unit) = name;
  *VEC_PUSH(b->a, s->range) = (Range){(uint32_t)s->bind.n, (uint32_t)n};
  for (int i = 0; i < n; i++) *VEC_PUSH(b->a, s->bind) = (Bind){bind[i], BIND_STORED};
  return s->unit.n - 1;
}

void build_bind(Build *b, int pp, int unit, const Bind *bind, int n) {
  Side *s = &b->side[pp];
  s->range.at[unit] = (Range){(uint32_t)s->bind.n, (uint32_t)n};
  for (int i = 0; i < n; i++) *VEC_PUSH(b->a, s->bind) = bind[i];
}

int build_body(Build *b, int pp, const char *name, Phase phase, int nslot) {
  Side *s = &b->side[pp];
  *VEC_PUSH(b->a, s->body) =
      (OpenBody){.body = {.name = name, .phase = phase, .nslot = (uint16_t)nslot}};
  return s->open = s->body.n - 1;
}

void build_main(Build *b, int pp) { b->side[pp].open = -1; }
void build_line(Build *b, int line) { b->line = line; }

static uint32_t name(Build *b, int pp, const char *what) {
  Side *s = &b->side[pp];
  if (!what) return 0;
  *VEC_PUSH(b->a, s->what) = what;
  return (uint32_t)s->what.n - 1;
}

static Instr *add(Build *b, int pp, Instr in) {
  Side *s = &b->side[pp];
  Code *code = s->open >= 0 ? &s->body.at[s->open].code : &s->main;
  in.line = b->line;
  s->nhandle = MAX(s->nhandle, in.handle + 1);
  Instr *new = VEC_PUSH(b->a, *code);
  *new = in;
  return new;
}

static uint32_t operands(Build *b, int pp, const Operand *o, int n) {
  Side *s = &b->side[pp];
  for (int i = 0; i < n; i++) *VEC_PUSH(b->a, s->operand) = o[i];
  return (uint32_t)(s->operand.n - n);
}

Instr *build_call(Build *b, int pp, int body, int unit, int mb, const char *what,
                  const uint64_t *dyn, int ndyn) {
  Side *s = &b->side[pp];
  *VEC_PUSH(b->a, s->call) = (Call){.body = (uint32_t)body,
                                    .unit = (uint32_t)unit,
                                    .mb = mb,
                                    .bind = s->range.at[unit].first,
                                    .nbind = (uint16_t)s->range.at[unit].n,
                                    .dyn = (uint32_t)s->dyn.n,
                                    .ndyn = (uint16_t)ndyn};
  for (int i = 0; i < ndyn; i++) *VEC_PUSH(b->a, s->dyn) = dyn[i];
  return add(b, pp,
             (Instr){.code = I_CALL,
                     .call = (uint32_t)s->call.n - 1,
                     .what = name(b, pp, what)});
}

Instr *build_kernel(Build *b, int pp, int op, Operand in, Operand out) {
  Operand o[] = {in, out};
  return add(b, pp,
             (Instr){.code = I_KERNEL,
                     .op = (uint16_t)op,
                     .nin = 1,
                     .nout = 1,
                     .operand = operands(b, pp, o, 2)});
}

Instr *build_op(Build *b, int pp, int op, const Operand *o, int nin, int nout,
                const char *what) {
  return add(b, pp,
             (Instr){.code = I_KERNEL,
                     .op = (uint16_t)op,
                     .nin = (int16_t)nin,
                     .nout = (int16_t)nout,
                     .what = name(b, pp, what),
                     .operand = operands(b, pp, o, nin + nout)});
}

Instr *build_coll(Build *b, int pp, int comm, CollKind coll, int handle, Operand in,
                  Operand out, const char *what) {
  Operand o[] = {in, out};
  return add(b, pp,
             (Instr){.code = I_COLL,
                     .coll = coll,
                     .comm = (int16_t)comm,
                     .nin = 1,
                     .nout = 1,
                     .by = coll == COLL_SHIFT,
                     .handle = handle,
                     .what = name(b, pp, what),
                     .operand = operands(b, pp, o, 2)});
}

Instr *build_rows(Build *b, int pp, int comm, int handle, const Operand o[4],
                  const char *what) {
  return add(b, pp,
             (Instr){.code = I_COLL,
                     .coll = COLL_ALL_TO_ALL_V,
                     .nin = 3,
                     .nout = 1,
                     .comm = (int16_t)comm,
                     .handle = handle,
                     .what = name(b, pp, what),
                     .operand = operands(b, pp, o, 4)});
}

Instr *build_send(Build *b, int pp, int peer, int handle, Operand o, const char *what) {
  return add(b, pp,
             (Instr){.code = I_SEND,
                     .nin = 1,
                     .handle = handle,
                     .peer = peer,
                     .what = name(b, pp, what),
                     .operand = operands(b, pp, &o, 1)});
}

Instr *build_recv(Build *b, int pp, int peer, int handle, Operand o, const char *what) {
  return add(b, pp,
             (Instr){.code = I_RECV,
                     .nout = 1,
                     .handle = handle,
                     .peer = peer,
                     .what = name(b, pp, what),
                     .operand = operands(b, pp, &o, 1)});
}

Instr *build_gather(Build *b, int pp, int unit, int comm, int handle, Operand shard,
                    Operand copy) {
  Instr *in = build_coll(b, pp, comm, COLL_ALL_GATHER, handle, shard, copy, NULL);
  in->code = I_GATHER, in->unit = (uint32_t)unit;
  return in;
}

Instr *build_scatter(Build *b, int pp, int unit, int comm, int handle, Operand sum,
                     Operand shard) {
  Instr *in = build_coll(b, pp, comm, COLL_REDUCE_SCATTER, handle, sum, shard, NULL);
  in->code = I_SCATTER, in->unit = (uint32_t)unit;
  return in;
}

Instr *build_free(Build *b, int pp, int unit, Operand copy) {
  return add(b, pp,
             (Instr){.code = I_FREE,
                     .nin = 1,
                     .unit = (uint32_t)unit,
                     .operand = operands(b, pp, &copy, 1)});
}

Instr *build_wait(Build *b, int pp, int handle) {
  return add(b, pp, (Instr){.code = I_WAIT, .handle = handle});
}

static void finish(Build *b, int pp) {
  Side *s = &b->side[pp];
  Program *p = &b->c->prog[pp];
  size_t n = (size_t)s->main.n;
  for (int i = 0; i < s->body.n; i++) n += (size_t)s->body.at[i].code.n;
  p->code = NEW_N(b->a, Instr, n);
  p->ncode = (uint32_t)n;
  p->nmain = (uint32_t)s->main.n;
  if (s->main.n) memcpy(p->code, s->main.at, sizeof(Instr) * p->nmain);
  p->body = NEW_N(b->a, Body, s->body.n);
  p->nbody = s->body.n;
  uint32_t at = p->nmain;
  for (int i = 0; i < s->body.n; i++) {
    OpenBody *o = &s->body.at[i];
    p->body[i] = o->body;
    p->body[i].first = at;
    p->body[i].n = (uint32_t)o->code.n;
    if (o->code.n) memcpy(p->code + at, o->code.at, sizeof(Instr) * (size_t)o->code.n);
    at += (uint32_t)o->code.n;
  }
  p->unit = s->unit.at, p->nunit = s->unit.n;
  p->number = NEW_N(b->a, uint32_t, s->unit.n);
  for (int i = 0; i < p->nunit; i++) p->number[i] = (uint32_t)i;
  p->bind = s->bind.at, p->nbind = (uint32_t)s->bind.n;
  p->dyn = s->dyn.at, p->ndyn = (uint32_t)s->dyn.n;
  p->call = s->call.at, p->ncall = (uint32_t)s->call.n;
  p->operand = s->operand.at, p->noperand = (uint32_t)s->operand.n;
  p->what = s->what.at, p->nwhat = (uint32_t)s->what.n;
  p->comm = b->comm.at, p->ncomm = b->comm.n;
  p->nhandle = s->nhandle;
}

Compiled *build_done(Build *b) {
  for (int i = 0; i < b->npp; i++) finish(b, i);
  return b->c;
}
