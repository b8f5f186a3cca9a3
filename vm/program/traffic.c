/* traffic.c - the bytes that a step moves, counted in the programs themselves. */
#include "program.h"

/* Of a collective: what it takes or what it gives, whichever is larger. */
static uint64_t coll_bytes(const Program *p, const Instr *x) {
  uint64_t in = operand_bytes(&p->operand[x->operand]);
  return MAX(in, operand_bytes(&p->operand[x->operand + 1]));
}

static uint64_t body_bytes(const Program *p, const Body *b) {
  uint64_t n = 0;
  for (uint32_t i = b->first; i < b->first + b->n; i++)
    if (p->code[i].code == I_COLL) n += coll_bytes(p, &p->code[i]);
  return n;
}

static RankTraffic rank_traffic(const Program *p, Arena *arena) {
  RankTraffic t = {0};
  uint64_t *body = NEW_N(arena, uint64_t, p->nbody);
  for (int i = 0; i < p->nbody; i++) body[i] = body_bytes(p, &p->body[i]);
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    if (x->code == I_SEND) t.sent += operand_bytes(&p->operand[x->operand]);
    if (x->code == I_RECV) t.received += operand_bytes(&p->operand[x->operand]);
    if (x->code == I_COLL) t.collective += coll_bytes(p, x);
    if (x->code == I_CALL) t.collective += body[p->call[x->call].body];
  }
  return t;
}

RankTraffic *traffic(const Compiled *c, Arena *arena) {
  int ranks = c->mesh.size[AXIS_PP];
  RankTraffic *t = NEW_N(arena, RankTraffic, ranks);
  for (int r = 0; r < ranks; r++) t[r] = rank_traffic(&c->prog[r], arena);
  return t;
}
