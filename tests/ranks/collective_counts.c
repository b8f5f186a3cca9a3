/* collective_counts.c - collectives counted in the bodies of a program. */
#include "collective_counts.h"

#include <check.h>
#include <string.h>

void collectives_count(const Program *p, uint32_t first, uint32_t n, const char *comm,
                       CollCounts *c) {
  for (const Instr *x = p->code + first; x < p->code + first + n; x++)
    if (x->code == I_COLL && (!comm || strcmp(p->comm[x->comm].name, comm) == 0))
      c->n[x->coll]++;
}

CollCounts collectives_in(const Program *p, const char *name, const char *comm) {
  CollCounts c = {0};
  for (int i = 0; i < p->nbody; i++) {
    if (strcmp(p->body[i].name, name) != 0) continue;
    c.bodies++;
    collectives_count(p, p->body[i].first, p->body[i].n, comm, &c);
  }
  return c;
}

void collectives_are(const CollCounts *c, const char *what, int reduce, int gather,
                     int scatter) {
  ck_assert_msg(c->n[COLL_ALL_REDUCE] == reduce && c->n[COLL_ALL_GATHER] == gather &&
                    c->n[COLL_REDUCE_SCATTER] == scatter,
                "%s: %d all_reduce, %d all_gather, %d reduce_scatter; expected %d, %d, "
                "%d",
                what, c->n[COLL_ALL_REDUCE], c->n[COLL_ALL_GATHER],
                c->n[COLL_REDUCE_SCATTER], reduce, gather, scatter);
}

void body_has(const Toy *t, const char *name, int reduce, int gather, int scatter) {
  CollCounts c = collectives_in(&t->compiled->prog[0], name, NULL);
  ck_assert_msg(c.bodies == 1, "%d bodies %s: equal layers share one", c.bodies, name);
  collectives_are(&c, name, reduce, gather, scatter);
}
