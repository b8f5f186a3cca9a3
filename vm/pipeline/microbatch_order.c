/* microbatch_order.c - whether stages run the forwards of microbatches in their order,
 * where units add up over a step what a microbatch then reads: on one rank they do, so
 * that any other order would be another result. */
#include "stages.h"

/* An error for the first F of a chunk that comes after that of a later microbatch. */
static bool chunk_in_order(const Schedule *s, int rank, int chunk, Diags *d) {
  int last = -1;
  for (int i = 0; i < s->n[rank]; i++) {
    const Action *a = &s->list[rank][i];
    ActionPart part[2];
    for (int k = 0, n = action_parts(a, part); k < n; k++) {
      if (!(part[k].bits & PART_F) || part[k].chunk != chunk) continue;
      if (part[k].mb > last) {
        last = part[k].mb;
        continue;
      }
      char name[ACTION_NAME];
      Diag *x = diag_error(
          d, "schedule", "schedule",
          "rank %d, step %d: %s comes after microbatch %d, whose router reads what the "
          "microbatches before it chose (moe.aux_loss_batch = \"global\")",
          rank, i, action_name(s, rank, a, name), last);
      x->suggestion = "each chunk runs F in the order of microbatches then";
      if (a->line > 0 && s->file) x->file = s->file, x->line = a->line;
      return false;
    }
  }
  return true;
}

bool microbatches_in_order(const Stages *st, const Schedule *s, Diags *d) {
  bool ok = true;
  for (int stage = 0; stage < st->n; stage++) {
    bool sums = false;
    for (int u = st->first[stage]; u < st->first[stage + 1]; u++)
      sums |= st->u->at[u].code->sums > 0;
    if (sums) ok &= chunk_in_order(s, st->rank[stage], st->chunk[stage], d);
  }
  return ok;
}
