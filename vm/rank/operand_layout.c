/* operand_layout.c - where in the arena the operands of a rank's collectives lie.
 *
 * Goes through the program as a step does and gives each group a number
 * (CommGroup.layout) of its operations in their order: kind, sum, type, elements, offset
 * of the operand and of the result. Members with equal numbers and arenas of one size
 * find each other's operands at the offsets of their own, at every operation. A piece
 * that lies in its place of the whole counts as in place: its offset is another one on
 * each member, as it has to be, and no member looks for it at another.
 *
 * Example: tp ranks of one stage run one program, so all numbers of tp are equal. Stages
 * run different ones: those of a group over stages differ. */
#include "interp.h"

typedef struct Layout {
  Rank *r;
  CommGroup *group; /* of the rank that has the communicators */
} Layout;

/* Stands for the offset of a piece in its place. */
#define IN_PLACE UINT64_MAX

static int index_in(const CommGroup *g, int rank) {
  int i = 0;
  while (i + 1 < g->n && g->rank[i] != rank) i++;
  return i;
}

static uint64_t offset(const Layout *l, const Call *call, const Operand *o) {
  return slot_base(l->r->p, call, o->slot) + l->r->off[o - l->r->p->operand];
}

static void add_operation(const Layout *l, const Instr *in, const Call *call) {
  const Operand *src = &l->r->p->operand[in->operand], *dst = src + in->nin;
  CommGroup *g = &l->group[in->comm];
  uint64_t from = offset(l, call, src), to = offset(l, call, dst);
  uint64_t me = (uint64_t)index_in(g, l->r->rank);
  if (in->coll == COLL_ALL_GATHER && from == to + me * operand_bytes(src))
    from = IN_PLACE;
  else if (in->coll == COLL_REDUCE_SCATTER && to == from + me * operand_bytes(dst))
    to = IN_PLACE;
  const uint64_t is[] = {in->coll,           in->red, src->dtype, (uint64_t)in->by,
                         operand_count(src), from,    to};
  g->layout = hash_bytes(g->layout, is, sizeof is);
}

static void add_range(const Layout *l, uint32_t first, uint32_t n, const Call *call) {
  const Program *p = l->r->p;
  for (const Instr *in = p->code + first, *end = in + n; in < end; in++) {
    if (instr_is[in->code] & INSTR_COLL) add_operation(l, in, call);
    if (in->code != I_CALL) continue;
    const Call *called = &p->call[in->call];
    const Body *body = &p->body[called->body];
    add_range(l, body->first, body->n, called);
  }
}

void rank_layouts(Rank *r) {
  Layout l = {.r = r, .group = r->under ? r->under->group : r->group};
  for (int i = 0; i < r->p->ncomm; i++) {
    uint64_t *layout = &l.group[i].layout;
    *layout = hash_bytes(*layout, &r->p->arena_bytes, sizeof r->p->arena_bytes);
  }
  add_range(&l, 0, r->p->nmain, NULL);
  for (int i = 0; i < r->p->ncomm; i++) l.group[i].layout |= 1; /* 0: unknown */
}
