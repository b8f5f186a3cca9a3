/* rank_load.c - loads a checked program: allocates the arena and one block for all
 * tables, prepares kernels and lists groups. The code that fills the block also counts
 * it, so that its bytes are known beforehand. */
#include "interp.h"

/* ---- kernels ---- */

enum { STATE_ALIGN = 64 };

static size_t aligned(uint64_t n) {
  return (n + STATE_ALIGN - 1) & ~(size_t)(STATE_ALIGN - 1);
}

/* What is known of a kernel without addresses. */
static KernelArgs kernel_args(const Rank *r, const Instr *in) {
  const Operand *o = &r->p->operand[in->operand];
  KernelArgs a = {.attr = &r->p->attr[in->attr], .nin = in->nin, .nout = in->nout};
  for (int k = 0; k < in->nin; k++) a.in[k] = operand_shape(&o[k]);
  for (int k = 0; k < in->nout; k++) a.out[k] = operand_shape(&o[in->nin + k]);
  a.accumulate = in->acc != ACC_NEVER;
  a.index = a.attr->cut ? mesh_index(&r->c->mesh, a.attr->cut, r->rank) : 0;
  a.shard = a.attr->flat ? mesh_index(&r->c->mesh, a.attr->flat, r->rank) : 0;
  a.heads_index = heads_index(&r->c->mesh, a.attr->heads_cut, r->rank);
  return a;
}

static weft_status prepare_kernel(Rank *r, const Instr *in, const Kernel *k,
                                  KernelArgs *a, weft_error *e) {
  weft_error why = NO_ERROR;
  char name[256];
  if (!k->prepare || k->prepare(r->dev, a, &why) == WEFT_OK) return WEFT_OK;
  rank_describe(r, in, name, sizeof name);
  return err_set(e, why.code, "rank %d: %s: device %s: %.600s", r->rank, name,
                 r->dev->vt->name, why.text);
}

/* Shapes, coordinate and state of one instruction; then its kernel. One prepared kernel
 * serves every call of the body. */
static weft_status bind_kernel(Rank *r, const Instr *in, Bound *b, size_t *state,
                               weft_error *e) {
  KernelArgs *a = &b->args;
  *a = kernel_args(r, in);
  const Kernel *kernel = device_kernel(r->dev, in->op, a);
  if (!kernel || !kernel->run)
    return err_set(e, WEFT_ERUN, "device %s has no kernel for op %s (%s)",
                   r->dev->vt->name, op_info[in->op].name, r->p->what[in->what]);
  const Operand *o = &r->p->operand[in->operand];
  uint64_t has = in->nwork ? operand_bytes(&o[in->nin + in->nout]) : 0;
  uint64_t needs = r->c->device->work(in->op, a);
  if (has < needs)
    return err_set(e, WEFT_EINTERNAL, "op %s of %s needs %llu bytes of scratch, not %llu",
                   op_info[in->op].name, r->p->what[in->what], (unsigned long long)needs,
                   (unsigned long long)has);
  uint64_t keeps = r->c->device->state(in->op, a);
  if (keeps) a->state = r->states + *state;
  *state += aligned(keeps);
  TRY(prepare_kernel(r, in, kernel, a, e));
  b->kernel = kernel;
  return WEFT_OK;
}

static weft_status bind_kernels(Rank *r, weft_error *e) {
  uint32_t n = 0;
  size_t state = 0;
  for (uint32_t i = 0; i < r->p->ncode; i++) {
    if (r->p->code[i].code != I_KERNEL) continue;
    r->bound_of[i] = n;
    TRY(bind_kernel(r, &r->p->code[i], &r->bound[n++], &state, e));
  }
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
  for (uint32_t i = 0; i < r->p->ncode; i++) {
    const Instr *in = &r->p->code[i];
    if (!(instr_is[in->code] & INSTR_COLL)) continue;
    r->group[in->comm].uses |= 1u << in->coll;
    if (in->by > 1) r->group[in->comm].uses |= 1u << COLL_ALL_TO_ALL;
  }
  for (int i = 0; i < m->size[AXIS_PP]; i++) r->peer[i] = rank_on_pp(m, r->rank, i);
}

static void list_met(Rank *r) {
  for (int i = 0; i < r->c->mesh.size[AXIS_PP]; i++)
    if (program_meets(r->p, i)) r->met[r->nmet++] = r->peer[i];
}

/* ---- operands ---- */

static void place_operands(Rank *r) {
  for (uint32_t i = 0; i < r->p->noperand; i++) {
    const Operand *o = &r->p->operand[i];
    r->off[i] = o->off;
    if (o->shard)
      r->off[i] +=
          (uint64_t)mesh_index(&r->c->mesh, o->shard, r->rank) * operand_bytes(o);
  }
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

/* The most row counts that an exchange has, each way. */
static size_t most_rows(const Rank *r) {
  size_t most = 0;
  for (uint32_t i = 0; i < r->p->ncode && !r->c->device->host; i++) {
    const Instr *in = &r->p->code[i];
    if (in->code != I_COLL || !(coll_info[in->coll].is & COLL_COUNTED)) continue;
    most = MAX(most, (size_t)operand_count(&r->p->operand[in->operand + 1]));
  }
  return most;
}

/* A block that is handed out from its begin; without memory it only counts. */
typedef struct Room {
  char *p;
  size_t n;
} Room;

static void *take(Room *m, size_t bytes) {
  void *p = m->p ? m->p + m->n : NULL;
  m->n += (bytes + 15) & ~(size_t)15;
  return p;
}

/* What capture_of finds. */
static void take_keep(Rank *r, Room *m) {
  if (!r->c->device->keeps) return;
  uint32_t n = capture_fingerprints(r->p);
  GraphCapture *k = take(m, sizeof *k);
  uint64_t *print = take(m, n * sizeof *print);
  if (!k) return;
  *k = (GraphCapture){.print = print, .nprint = n};
  r->keeps = true;
}

static void take_tables(Rank *r, Room *m) {
  const Program *p = r->p;
  take(m, sizeof *r);
  take_keep(r, m);
  r->bound = take(m, r->nbound * sizeof *r->bound);
  r->bound_of = take(m, p->ncode * sizeof *r->bound_of);
  r->group = take(m, (size_t)p->ncomm * sizeof *r->group);
  r->member = take(m, r->nmember * sizeof *r->member);
  r->peer = take(m, (size_t)r->c->mesh.size[AXIS_PP] * sizeof *r->peer);
  r->met = take(m, (size_t)r->c->mesh.size[AXIS_PP] * sizeof *r->met);
  r->base = take(m, r->nbase * sizeof *r->base);
  r->off = take(m, p->noperand * sizeof *r->off);
  r->pending = take(m, (size_t)p->nhandle * sizeof *r->pending);
  r->nrows = most_rows(r);
  r->rows = take(m, (size_t)p->nhandle * 2 * r->nrows * sizeof *r->rows);
}

static void take_staging(Rank *r, Room *m) {
  for (int k = 0; k < IN_SEED; k++)
    if (r->p->input[k] != UINT64_MAX) r->input[k] = take(m, staged_bytes(r->c));
  r->scalars = take(m, (size_t)r->p->nscalar * sizeof *r->scalars);
}

static void take_states(Rank *r, Room *m) {
  size_t n = 0;
  for (uint32_t i = 0; i < r->p->ncode; i++) {
    if (r->p->code[i].code != I_KERNEL) continue;
    KernelArgs a = kernel_args(r, &r->p->code[i]);
    n += aligned(r->c->device->state(r->p->code[i].op, &a));
  }
  if (!n) return;
  char *p = take(m, n + STATE_ALIGN);
  r->states = p + (-(uintptr_t)p & (STATE_ALIGN - 1));
}

static RankFootprint held_by_one(const Compiled *c, int pp) {
  Rank r = {.c = c, .p = &c->prog[pp], .rank = rank_on_pp(&c->mesh, 0, pp)};
  Room m = {0};
  count_tables(&r);
  take_tables(&r, &m);
  RankFootprint h = {.tables = m.n};
  take_staging(&r, &m);
  h.staging = m.n - h.tables;
  take_states(&r, &m);
  h.states = m.n - h.tables - h.staging;
  return h;
}

/* One that is over another has its staging. */
RankFootprint rank_footprint(const Compiled *c, int pp) {
  RankFootprint h = held_by_one(c, pp);
  if (!c->eval) return h;
  RankFootprint over = held_by_one(c->eval, pp);
  h.tables += over.tables, h.states += over.states;
  return h;
}

static weft_status take_arenas(Rank *r, weft_error *e) {
  void *arena = NULL;
  TRY(device_alloc_arena(r->dev, r->p->arena_bytes, &arena, e));
  r->arena = arena;
  if (!r->p->host_bytes) return WEFT_OK;
  TRY(device_alloc_host(r->dev, r->p->host_bytes, &arena, e));
  r->host = arena;
  return WEFT_OK;
}

/* What does not fit is told before time goes into products: the arena is taken and given
 * back, as they are timed on memory that is free. */
static weft_status try_arena(Rank *r, weft_error *e) {
  void *arena = NULL;
  TRY(device_alloc_arena(r->dev, r->p->arena_bytes, &arena, e));
  device_free_arena(r->dev, arena, r->p->arena_bytes);
  return WEFT_OK;
}

static void share_arenas(Rank *r) {
  const Rank *under = r->under;
  r->arena = under->arena, r->host = under->host;
  r->scalars = under->scalars;
  memcpy(r->input, under->input, sizeof r->input);
}

static weft_status load(Rank *r, weft_error *e) {
  Room m = {.p = (char *)r};
  count_tables(r);
  take_tables(r, &m);
  if (!r->under) take_staging(r, &m);
  take_states(r, &m);
  list_groups(r);
  list_met(r);
  place_operands(r);
  rank_layouts(r);
  if (!r->under && r->dev->times && r->dev->vt->lazy) TRY(try_arena(r, e));
  TRY(bind_kernels(r, e)); /* before the arena: see try_arena */
  if (r->under)
    share_arenas(r);
  else
    TRY(take_arenas(r, e));
  return interp_load(r, e);
}

static weft_status make(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                        Rank *under, Rank **out, weft_error *e) {
  *out = NULL;
  int pp = mesh_coord(&c->mesh, rank, AXIS_PP);
  RankFootprint h = held_by_one(c, pp);
  size_t block = h.tables + (under ? 0 : h.staging) + h.states;
  Rank *r = mem_new(a, block);
  if (!r) return err_set(e, WEFT_ENOMEM, "out of memory");
  r->alloc = a;
  r->block = block;
  r->c = c;
  r->p = &c->prog[pp];
  r->dev = dev;
  r->rank = rank;
  r->under = under;
  weft_status st = load(r, e);
  if (st == WEFT_OK) {
    *out = r;
    return WEFT_OK;
  }
  if (e && e->rank < 0) e->rank = rank;
  rank_free(r);
  return st;
}

weft_status rank_new(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                     Rank **out, weft_error *e) {
  return make(a, c, rank, dev, NULL, out, e);
}

weft_status rank_new_over(const Compiled *c, Rank *under, Rank **out, weft_error *e) {
  return make(under->alloc, c, under->rank, under->dev, under, out, e);
}

void rank_free(Rank *r) {
  if (!r) return;
  capture_free(r);
  for (uint32_t i = 0; r->bound && i < r->nbound; i++)
    if (r->bound[i].kernel && r->bound[i].kernel->release)
      r->bound[i].kernel->release(r->dev, &r->bound[i].args);
  if (r->host && !r->under) device_free_host(r->dev, r->host, r->p->host_bytes);
  if (r->arena && !r->under) device_free_arena(r->dev, r->arena, r->p->arena_bytes);
  mem_free(r->alloc, r, r->block);
}

CommNeeds rank_needs(const Rank *r) {
  return (CommNeeds){.group = r->group,
                     .ngroup = r->p->ncomm,
                     .peer = r->met,
                     .npeer = r->nmet,
                     .nhandle = r->p->nhandle,
                     .memory = r->arena,
                     .bytes = r->p->arena_bytes};
}

void rank_connect(Rank *r, Comm *c) { r->comm = c; }

void rank_disconnect(Rank *r) {
  if (!r) return;
  capture_free(r);
  r->comm = NULL;
}
