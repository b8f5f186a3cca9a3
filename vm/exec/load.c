/* load.c - makes a rank ready to run: takes its program, checks every reference in it,
 * allocates its arena, prepares its kernels and lists its groups. Everything that a step
 * needs is allocated here. */
#include "interp_int.h"

/* ---- references ---- a program that points outside of its tables or its arena is a bug
 * of the compiler; it must not become a wrong number or a crash */

static bool inside(const Program *p, uint64_t off, uint64_t bytes) {
  return off <= p->arena_bytes && bytes <= p->arena_bytes - off;
}

static weft_status broken(const Rank *r, const Instr *in, const char *why,
                          weft_error *e) {
  char name[256];
  rank_describe(r, in, name, sizeof name);
  return err_set(e, WEFT_EINTERNAL, "program of pp rank %d, instruction %ld (%s): %s",
                 r->p->pp, (long)(in - r->p->code), name, why);
}

/* What does not depend on the bindings of a call. */
static weft_status check_instr(const Rank *r, const Instr *in, weft_error *e) {
  const Program *p = r->p;
  if (in->code >= I_N) return broken(r, in, "unknown instruction", e);
  if (in->what >= p->nwhat) return broken(r, in, "it has no name", e);
  if (in->nin < 0 || in->nout < 0 ||
      in->operand + (uint64_t)in->nin + (uint64_t)in->nout > p->noperand)
    return broken(r, in, "operands outside of the table", e);
  switch (in->code) {
  case I_CALL:
    if (in->call >= p->ncall) return broken(r, in, "no such call", e);
    if (in >= p->code + p->nmain) return broken(r, in, "a body may not call", e);
    return WEFT_OK;
  case I_KERNEL:
    if (in->op >= OP_N || in->attr >= p->nattr) return broken(r, in, "no such op", e);
    if (in->nin > KERNEL_MAX_IN || in->nout > KERNEL_MAX_OUT)
      return broken(r, in, "too many operands", e);
    return WEFT_OK;
  case I_COLL:
    if (in->comm < 0 || in->comm >= p->ncomm || in->coll > COLL_REDUCE_SCATTER)
      return broken(r, in, "no such collective", e);
    if (in->nin != 1 || in->nout != 1) return broken(r, in, "wants 1 + 1 operands", e);
    break;
  case I_SEND:
  case I_RECV:
    if (in->peer < 0 || in->peer >= r->c->mesh.size[AXIS_PP] || in->peer == p->pp)
      return broken(r, in, "no such peer", e);
    if (in->nin + in->nout != 1) return broken(r, in, "wants 1 operand", e);
    break;
  default: break;
  }
  if (in->handle < 0 || in->handle >= p->nhandle) return broken(r, in, "no handle", e);
  return WEFT_OK;
}

/* All operands of instructions [first, first + n) with the bindings `base`. */
static weft_status check_range(const Rank *r, uint32_t first, uint32_t n,
                               const uint64_t *base, uint32_t nbase, weft_error *e) {
  const Program *p = r->p;
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &p->code[i];
    for (int k = 0; k < in->nin + in->nout; k++) {
      const Operand *o = &p->operand[in->operand + (uint32_t)k];
      if (o->slot >= nbase) return broken(r, in, "an operand's slot is not bound", e);
      if (o->ndim > MAX_DIM || o->dtype >= DT_ACT)
        return broken(r, in, "an operand's type is wrong", e);
      uint64_t bytes = operand_count(o) * (uint64_t)dtype_size(o->dtype);
      if (!inside(p, base[o->slot] + o->off, bytes))
        return broken(r, in, "an operand lies outside of the arena", e);
    }
  }
  return WEFT_OK;
}

static weft_status check_call(const Rank *r, const Instr *in, weft_error *e) {
  const Program *p = r->p;
  const Call *call = &p->call[in->call];
  if (call->body >= p->nbody || call->unit >= p->nunit)
    return broken(r, in, "the call has no body or no unit", e);
  const UnitBind *u = &p->unit[call->unit];
  const Body *b = &p->body[call->body];
  if ((uint64_t)u->first + u->n > p->nbind || (uint64_t)call->dyn + call->ndyn > p->ndyn)
    return broken(r, in, "bindings outside of the table", e);
  if (1 + u->n + call->ndyn != b->nslot)
    return broken(r, in, "the call does not bind all slots of its body", e);
  if ((uint64_t)b->first + b->n > p->ncode)
    return broken(r, in, "the body ends outside of the program", e);
  bind_slots(p, call, r->base);
  return check_range(r, b->first, b->n, r->base, b->nslot, e);
}

static weft_status check_param(const Rank *r, const ProgParam *q, weft_error *e) {
  const Program *p = r->p;
  const Mesh *m = &r->c->mesh;
  if (q->param < 0 || q->param >= r->c->nparam)
    return err_set(e, WEFT_EINTERNAL, "program of pp rank %d: no such parameter", p->pp);
  const CompiledParam *cp = &r->c->param[q->param];
  Piece piece = piece_make(cp, m->size[AXIS_TP], mesh_coord(m, r->rank, AXIS_TP));
  if (piece_count(&piece) != q->count)
    return err_set(e, WEFT_EINTERNAL,
                   "program of pp rank %d: parameter %s has %lld local elements, not %lld",
                   p->pp, cp->name, (long long)q->count, (long long)piece_count(&piece));
  uint64_t n = (uint64_t)q->count;
  if (!inside(p, q->work, n * (uint64_t)dtype_size(r->c->dtype)) ||
      !inside(p, q->master, n * 4) || !inside(p, q->grad, n * 4) ||
      !inside(p, q->m, n * 4) || !inside(p, q->v, n * 4))
    return err_set(e, WEFT_EINTERNAL,
                   "program of pp rank %d: parameter %s lies outside of the arena", p->pp,
                   cp->name);
  return WEFT_OK;
}

static weft_status check_data(const Rank *r, weft_error *e) {
  const Program *p = r->p;
  uint64_t bytes = (uint64_t)r->c->microbatches * (uint64_t)r->c->micro *
                   (uint64_t)r->c->seq * sizeof(int32_t);
  for (int k = IN_TOKENS; k <= IN_DOC_STARTS; k++)
    if (p->input[k] != UINT64_MAX && !inside(p, p->input[k], bytes))
      return err_set(e, WEFT_EINTERNAL,
                     "program of pp rank %d: an input lies outside of the arena", p->pp);
  if (!inside(p, p->scalars, SC_N * sizeof(double)))
    return err_set(e, WEFT_EINTERNAL,
                   "program of pp rank %d: the scalars lie outside of the arena", p->pp);
  for (int i = 0; i < p->nparam; i++) TRY(check_param(r, &p->param[i], e));
  return WEFT_OK;
}

static weft_status check_program(const Rank *r, weft_error *e) {
  const Program *p = r->p;
  if (p->nmain > p->ncode)
    return err_set(e, WEFT_EINTERNAL, "program of pp rank %d: main is too long", p->pp);
  for (uint32_t i = 0; i < p->ncode; i++) TRY(check_instr(r, &p->code[i], e));
  const uint64_t zero = 0;
  TRY(check_range(r, 0, p->nmain, &zero, 1, e));
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == I_CALL) TRY(check_call(r, &p->code[i], e));
  return check_data(r, e);
}

/* ---- kernels ---- */

static KTensor shape_of(const Operand *o) {
  KTensor t = {.dtype = (DType)o->dtype, .ndim = o->ndim};
  memcpy(t.dim, o->dim, sizeof t.dim);
  return t;
}

/* Shapes, coordinate and threads of one instruction; then its kernel and what that wants
 * to keep. One prepared kernel serves every call of the body. */
static weft_status bind_kernel(Rank *r, const Instr *in, Bound *b, weft_error *e) {
  const Operand *o = &r->p->operand[in->operand];
  KernelArgs *a = &b->args;
  a->attr = &r->p->attr[in->attr];
  a->nin = in->nin;
  a->nout = in->nout;
  for (int k = 0; k < in->nin; k++) a->in[k] = shape_of(&o[k]);
  for (int k = 0; k < in->nout; k++) a->out[k] = shape_of(&o[in->nin + k]);
  a->accumulate = in->acc != ACC_NEVER;
  a->index = a->attr->cut ? mesh_index(&r->c->mesh, a->attr->cut, r->rank) : 0;
  a->threads = r->dev->threads;
  const Kernel *kernel = device_kernel(r->dev, in->op, a);
  if (!kernel || !kernel->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel for op %s (%s)", r->dev->vt->name,
                   op_info[in->op].name, r->p->what[in->what]);
  if (kernel->prepare) TRY(kernel->prepare(a, e));
  b->kernel = kernel;
  return WEFT_OK;
}

static weft_status bind_kernels(Rank *r, weft_error *e) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->p->ncode; i++)
    if (r->p->code[i].code == I_KERNEL) r->bound_of[i] = n++;
  for (uint32_t i = 0; i < r->p->ncode; i++)
    if (r->p->code[i].code == I_KERNEL)
      TRY(bind_kernel(r, &r->p->code[i], &r->bound[r->bound_of[i]], e));
  return WEFT_OK;
}

/* ---- groups ---- */

static int on_pp(const Mesh *m, int rank, int pp) {
  int coord[AXIS_N];
  for (int a = 0; a < AXIS_N; a++) coord[a] = mesh_coord(m, rank, (Axis)a);
  coord[AXIS_PP] = pp;
  return mesh_rank(m, coord);
}

static int desc_size(const Mesh *m, const CommDesc *d) {
  return d->npp > 0 ? d->npp : mesh_size(m, d->axes);
}

/* A rank outside of a list of pp ranks is alone: it takes no part in that group. */
static int desc_members(const Rank *r, const CommDesc *d, int *out) {
  const Mesh *m = &r->c->mesh;
  if (d->npp == 0) return mesh_group(m, d->axes, r->rank, out);
  bool listed = false;
  for (int i = 0; i < d->npp; i++) {
    out[i] = on_pp(m, r->rank, d->pp[i]);
    listed |= out[i] == r->rank;
  }
  if (listed) return d->npp;
  out[0] = r->rank;
  return 1;
}

static void list_groups(Rank *r) {
  const Program *p = r->p;
  int *at = r->member;
  for (int i = 0; i < p->ncomm; i++) {
    int n = desc_members(r, &p->comm[i], at);
    r->group[i] = (CommGroup){.rank = at,
                              .n = n,
                              .in_flight = p->comm[i].in_flight,
                              .name = p->comm[i].name};
    at += desc_size(&r->c->mesh, &p->comm[i]);
  }
  for (int i = 0; i < r->c->mesh.size[AXIS_PP]; i++)
    r->peer[i] = on_pp(&r->c->mesh, r->rank, i);
}

/* ---- making and freeing ---- */

static void count_tables(Rank *r) {
  const Program *p = r->p;
  for (uint32_t i = 0; i < p->ncode; i++) r->nbound += p->code[i].code == I_KERNEL;
  for (int i = 0; i < p->ncomm; i++)
    r->nmember += (size_t)desc_size(&r->c->mesh, &p->comm[i]);
  r->nbase = 1;
  for (int i = 0; i < p->nbody; i++) r->nbase = MAX(r->nbase, p->body[i].nslot);
}

static bool new_tables(Rank *r) {
  const Program *p = r->p;
  const weft_alloc *a = r->alloc;
  r->bound = mem_new(a, r->nbound * sizeof *r->bound);
  r->bound_of = mem_new(a, p->ncode * sizeof *r->bound_of);
  r->group = mem_new(a, (size_t)p->ncomm * sizeof *r->group);
  r->member = mem_new(a, r->nmember * sizeof *r->member);
  r->peer = mem_new(a, (size_t)r->c->mesh.size[AXIS_PP] * sizeof *r->peer);
  r->base = mem_new(a, r->nbase * sizeof *r->base);
  r->pending = mem_new(a, (size_t)p->nhandle * sizeof *r->pending);
  return r->bound && r->bound_of && r->group && r->member && r->peer && r->base &&
         r->pending;
}

static weft_status load(Rank *r, weft_error *e) {
  count_tables(r);
  if (!new_tables(r)) return err_set(e, WEFT_ENOMEM, "out of memory");
  list_groups(r);
  TRY(check_program(r, e));
  void *arena = NULL;
  TRY(device_alloc(r->dev, r->p->arena_bytes, &arena, e));
  r->arena = arena;
  return bind_kernels(r, e);
}

weft_status rank_new(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                     Rank **out, weft_error *e) {
  *out = NULL;
  Rank *r = mem_new(a, sizeof *r);
  if (!r) return err_set(e, WEFT_ENOMEM, "out of memory");
  r->alloc = a;
  r->c = c;
  r->p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)];
  r->dev = dev;
  r->rank = rank;
  weft_status st = load(r, e);
  if (st == WEFT_OK) {
    *out = r;
    return WEFT_OK;
  }
  if (e && e->rank < 0) e->rank = rank;
  rank_free(r);
  return st;
}

void rank_free(Rank *r) {
  if (!r) return;
  const Program *p = r->p;
  const weft_alloc *a = r->alloc;
  for (uint32_t i = 0; r->bound && i < r->nbound; i++)
    if (r->bound[i].kernel && r->bound[i].kernel->release)
      r->bound[i].kernel->release(&r->bound[i].args);
  if (r->arena) device_free(r->dev, r->arena, p->arena_bytes);
  mem_free(a, r->pending, (size_t)p->nhandle * sizeof *r->pending);
  mem_free(a, r->base, r->nbase * sizeof *r->base);
  mem_free(a, r->peer, (size_t)r->c->mesh.size[AXIS_PP] * sizeof *r->peer);
  mem_free(a, r->member, r->nmember * sizeof *r->member);
  mem_free(a, r->group, (size_t)p->ncomm * sizeof *r->group);
  mem_free(a, r->bound_of, p->ncode * sizeof *r->bound_of);
  mem_free(a, r->bound, r->nbound * sizeof *r->bound);
  mem_free(a, r, sizeof *r);
}

int rank_groups(Rank *r, const CommGroup **out) {
  *out = r->group;
  return r->p->ncomm;
}

void rank_connect(Rank *r, Comm *c) { r->comm = c; }
