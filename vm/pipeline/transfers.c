/* transfers.c - plans all transfers between pp ranks: what each rank sends to each
 * neighbour, in the order of its actions, and when each receive is posted.
 *
 * A rank posts its receives from a peer in the sender's order, one action ahead of use.
 * The wait for a send comes after the point where, on the timeline's clock, its receive
 * is posted: every wait then depends only on earlier points of that clock, so transfers
 * cannot block an order of actions that can run. */
#include "transfers.h"

static int32_t *arrives(const Transfers *t, int stage, int mb, bool forward) {
  return &t->arrives[!forward][(size_t)stage * (size_t)t->microbatches + (size_t)mb];
}

bool inlet(const Transfers *t, int stage, int mb, bool forward, Inlet *in) {
  const Cross *c = entering(t->st, stage, forward);
  if (!c || c->n == 0) return false;
  in->src = t->st->rank[forward ? stage - 1 : stage + 1];
  if (in->src == t->st->rank[stage]) return false;
  in->first = *arrives(t, stage, mb, forward);
  in->n = c->n;
  return true;
}

/* Consecutive stages lie on neighbouring ranks, in a loop as in a V. With two ranks each
 * is both neighbours of the other. */
int send_side(const Transfers *t, int src, int dst) {
  int ranks = t->s->ranks;
  assert((src + 1) % ranks == dst || (dst + 1) % ranks == src);
  return (src + 1) % ranks != dst;
}

Sends *sends_to(const Transfers *t, int src, int dst) {
  return &t->sends[2 * src + send_side(t, src, dst)];
}

/* ---- the order of sends ---- */

/* Adds the tensors that leave `stage`; the first pass only counts them. */
static void leave(Transfers *t, int rank, int stage, int mb, bool forward) {
  int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to >= t->st->n || t->st->rank[to] == rank) return;
  Sends *v = sends_to(t, rank, t->st->rank[to]);
  const Cross *c = entering(t->st, to, forward);
  *arrives(t, to, mb, forward) = v->n;
  for (int i = 0; i < c->n; i++, v->n++)
    if (v->at) v->at[v->n] = (struct SendItem){.edge = c->at[i], .stage = to, .mb = mb};
}

static void add_sends(Transfers *t) {
  const Schedule *s = t->s;
  ActionPart part[2];
  for (int r = 0; r < s->ranks; r++)
    for (int base = 0; base < t->microbatches; base += s->microbatches)
      for (int i = 0; i < s->n[r]; i++) {
        int n = action_parts(&s->list[r][i], part);
        for (int k = 0; k < n; k++) {
          int stage = stage_at(t->st, r, part[k].chunk), mb = base + part[k].mb;
          if (part[k].bits & PART_F) leave(t, r, stage, mb, true);
          if (part[k].bits & PART_I) leave(t, r, stage, mb, false);
        }
      }
}

/* ---- when receives are posted ---- */

/* Posts now the receives that the action after the next one needs. */
static void post_times(Transfers *t, int rank) {
  const Schedule *s = t->s;
  int posted[2] = {0, 0};    /* by the source's send_side */
  int64_t ended[2] = {0, 0}; /* of the last action and of the one before */
  ActionPart part[2];
  for (int round = 0; round < t->microbatches / s->microbatches; round++)
    for (int i = 0; i < s->n[rank]; i++) {
      int n = action_parts(&s->list[rank][i], part);
      for (int k = 0; k < n; k++) {
        Inlet in;
        int stage = stage_at(t->st, rank, part[k].chunk);
        int mb = round * s->microbatches + part[k].mb;
        if (part[k].bits == PART_W || !inlet(t, stage, mb, part[k].bits & PART_F, &in))
          continue;
        Sends *v = sends_to(t, in.src, rank);
        int *next = &posted[send_side(t, in.src, rank)];
        for (; *next < in.first + in.n; ++*next) v->at[*next].posted = ended[1];
      }
      if (n == 0) continue;
      ended[1] = ended[0];
      ended[0] = t->when->slot[rank][i].end + round * t->when->makespan;
    }
}

void transfers(const Stages *st, const Schedule *s, const Timeline *when,
               int microbatches, Arena *a, Transfers *t) {
  int ranks = s->ranks;
  size_t cells = (size_t)st->n * (size_t)microbatches;
  *t = (Transfers){.st = st, .s = s, .when = when, .microbatches = microbatches};
  t->sends = NEW_N(a, Sends, 2 * (size_t)ranks);
  t->arrives[0] = NEW_N(a, int32_t, cells);
  t->arrives[1] = NEW_N(a, int32_t, cells);
  add_sends(t);
  for (int i = 0; i < 2 * ranks; i++) {
    t->sends[i].at = NEW_N(a, struct SendItem, t->sends[i].n);
    t->sends[i].n = 0;
  }
  add_sends(t);
  for (int r = 0; r < ranks; r++) post_times(t, r);
}
