/* program.c - derived values of programs: sizes of operands, bases of slots, members of
 * communicators. Every reader of programs uses these functions. */
#include "program.h"

/* Heads are cut over tp; what a rank has of them, cp cuts within attention. */
int heads_index(const Mesh *m, AxisSet cut, int rank) {
  AxisSet cp =
      cut & (AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_CP_RING) | AXIS_BIT(AXIS_CP_HEADS));
  AxisSet tp = cut & ~cp;
  int outer = tp ? mesh_index(m, tp, rank) : 0, inner = cp ? mesh_index(m, cp, rank) : 0;
  return outer * (cp ? mesh_size(m, cp) : 1) + inner;
}

KTensor operand_shape(const Operand *o) {
  KTensor t = {.dtype = (DType)o->dtype, .ndim = o->ndim};
  memcpy(t.dim, o->dim, sizeof t.dim);
  return t;
}

uint64_t operand_reach(const Mesh *m, const Operand *o) {
  return operand_bytes(o) * (o->shard ? (uint64_t)mesh_size(m, o->shard) : 1);
}

/* Without the axes of one rank. */
static AxisSet with_ranks(const Mesh *m, AxisSet s) {
  for (int a = 0; a < AXIS_END; a++)
    if (m->size[a] == 1) s &= ~AXIS_BIT(a);
  return s;
}

bool operands_share(const Mesh *m, const CommDesc *d, CollKind kind, const Operand *in,
                    const Operand *out) {
  if (kind == COLL_ALL_REDUCE)
    return in->shard == out->shard && operand_bytes(in) == operand_bytes(out);
  const Operand *whole = kind == COLL_ALL_GATHER ? out : in;
  const Operand *shard = kind == COLL_ALL_GATHER ? in : out;
  return d->npp == 0 && !whole->shard &&
         with_ranks(m, shard->shard) == with_ranks(m, d->axes) &&
         operand_reach(m, shard) == operand_bytes(whole);
}

const Call *call_that_binds(const Program *p, uint32_t bind) {
  for (uint32_t i = 0; i < p->ncall; i++)
    if (p->call[i].nbind && p->call[i].bind == bind) return &p->call[i];
  return NULL;
}

bool comm_spans_pp(const Mesh *m, const CommDesc *d) {
  if (d->npp > 0) return d->npp > 1;
  return (d->axes & AXIS_BIT(AXIS_PP)) && m->size[AXIS_PP] > 1;
}

bool comm_has_pp(const CommDesc *d, int pp) {
  for (int i = 0; i < d->npp; i++)
    if (d->pp[i] == pp) return true;
  return d->npp == 0;
}

bool program_meets(const Program *p, int pp) {
  for (uint32_t i = 0; i < p->ncode; i++)
    if (instr_is[p->code[i].code] & INSTR_PAIR && p->code[i].peer == pp) return true;
  return false;
}

int comm_size(const Mesh *m, const CommDesc *d) {
  if (d->npp == 0) return mesh_size(m, d->axes);
  return mesh_size(m, d->axes & ~AXIS_BIT(AXIS_PP)) * d->npp;
}

int comm_group(const Mesh *m, const CommDesc *d, int rank, int *out) {
  if (d->npp == 0) return mesh_group(m, d->axes, rank, out);
  if (!comm_has_pp(d, mesh_coord(m, rank, AXIS_PP))) return 0;
  int all = mesh_group(m, d->axes | AXIS_BIT(AXIS_PP), rank, out), n = 0;
  for (int i = 0; i < all; i++)
    if (comm_has_pp(d, mesh_coord(m, out[i], AXIS_PP))) out[n++] = out[i];
  return n;
}

size_t flow_index(const Compiled *c, int pp, int comm, CollKind kind) {
  size_t row = comm < 0 ? (size_t)c->prog->ncomm : (size_t)comm;
  return ((size_t)pp * (size_t)(c->prog->ncomm + 1) + row) * COLL_N + (size_t)kind;
}

size_t flow_room(const Compiled *c) {
  return flow_index(c, c->mesh.size[AXIS_PP], 0, (CollKind)0);
}

const Flow *flow_of(const Compiled *c, int pp, int comm, CollKind kind) {
  return &c->flow[flow_index(c, pp, comm, kind)];
}

RankTraffic *traffic(const Compiled *c, Arena *arena) {
  int ranks = c->mesh.size[AXIS_PP];
  RankTraffic *t = NEW_N(arena, RankTraffic, ranks);
  for (int r = 0; r < ranks; r++) {
    t[r].sent = flow_of(c, r, -1, COLL_SEND)->bytes;
    t[r].received = flow_of(c, r, -1, COLL_RECV)->bytes;
    for (int i = 0; i < c->prog->ncomm; i++)
      for (CollKind k = COLL_ALL_REDUCE; k < COLL_PAIRS; k++)
        t[r].collective += flow_of(c, r, i, k)->bytes;
  }
  return t;
}

int rank_on_pp(const Mesh *m, int rank, int pp) {
  return rank + (pp - mesh_coord(m, rank, AXIS_PP)) * m->stride[AXIS_PP];
}
