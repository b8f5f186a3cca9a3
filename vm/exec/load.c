/* load.c - makes a rank ready to run: takes its program (past program_check()), allocates
 * its arena, prepares its kernels and lists its groups. Everything that a step needs is
 * allocated here. */
#include "interp_int.h"

/* ---- kernels ---- */

/* Shapes, coordinate and threads of one instruction; then its kernel and what that wants
 * to keep. One prepared kernel serves every call of the body. */
static weft_status bind_kernel(Rank *r, const Instr *in, Bound *b, weft_error *e) {
  const Operand *o = &r->p->operand[in->operand];
  KernelArgs *a = &b->args;
  a->attr = &r->p->attr[in->attr];
  a->nin = in->nin;
  a->nout = in->nout;
  for (int k = 0; k < in->nin; k++) a->in[k] = operand_shape(&o[k]);
  for (int k = 0; k < in->nout; k++) a->out[k] = operand_shape(&o[in->nin + k]);
  a->accumulate = in->acc != ACC_NEVER;
  a->index = a->attr->cut ? mesh_index(&r->c->mesh, a->attr->cut, r->rank) : 0;
  const Kernel *kernel = device_kernel(r->dev, in->op, a);
  if (!kernel || !kernel->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel for op %s (%s)",
                   r->dev->vt->name, op_info[in->op].name, r->p->what[in->what]);
  uint64_t has = in->nwork ? operand_bytes(&o[in->nin + in->nout]) : 0;
  uint64_t needs = r->c->device->work(in->op, a);
  if (has < needs)
    return err_set(e, WEFT_EINTERNAL, "op %s of %s needs %llu bytes of scratch, not %llu",
                   op_info[in->op].name, r->p->what[in->what], (unsigned long long)needs,
                   (unsigned long long)has);
  if (kernel->prepare) TRY(kernel->prepare(r->dev, a, e));
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

static int most_members(const Mesh *m, const CommDesc *d) {
  return mesh_size(m, d->axes | AXIS_BIT(AXIS_PP));
}

static void list_groups(Rank *r) {
  const Mesh *m = &r->c->mesh;
  int *at = r->member;
  for (int i = 0; i < r->p->ncomm; i++) {
    const CommDesc *d = &r->p->comm[i];
    r->group[i] = (CommGroup){.rank = at,
                              .n = comm_group(m, d, r->rank, at),
                              .in_flight = d->in_flight,
                              .name = d->name};
    at += most_members(m, d);
  }
  for (int i = 0; i < m->size[AXIS_PP]; i++) r->peer[i] = rank_on_pp(m, r->rank, i);
}

/* ---- making and freeing ---- */

static void count_tables(Rank *r) {
  const Program *p = r->p;
  for (uint32_t i = 0; i < p->ncode; i++) r->nbound += p->code[i].code == I_KERNEL;
  for (int i = 0; i < p->ncomm; i++)
    r->nmember += (size_t)most_members(&r->c->mesh, &p->comm[i]);
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
      r->bound[i].kernel->release(r->dev, &r->bound[i].args);
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
