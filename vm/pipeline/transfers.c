/* transfers.c - plans all transfers between pp ranks: what each rank sends to each other
 * one, in the order of its actions, and from when on the receive of each is there.
 *
 * A rank posts its receives from a peer in that order, one action ahead of use. A wait
 * for a send may stand wherever, on the clock of the timeline, the receive is there
 * before: then every wait has only to do with what is earlier on that clock, so that no
 * order of actions that can run at all is blocked by its transfers. */
#include "vm/compile/build.h"

int stage_rank(const Build *b, int stage) {
  int rank, chunk;
  schedule_where(b->in->schedule, stage, &rank, &chunk);
  return rank;
}

const Cross *entering(const Build *b, int stage, bool forward) {
  if (forward) return stage > 0 ? &b->fwd[stage - 1] : NULL;
  return stage + 1 < b->st.n ? &b->bwd[stage] : NULL;
}

static int32_t *arrives(const Build *b, int stage, int mb, bool forward) {
  return &b->arrives[!forward][(size_t)stage * (size_t)b->microbatches + (size_t)mb];
}

bool inlet(const Build *b, int stage, int mb, bool forward, Inlet *in) {
  const Cross *c = entering(b, stage, forward);
  if (!c || c->n == 0) return false;
  in->src = stage_rank(b, forward ? stage - 1 : stage + 1);
  if (in->src == stage_rank(b, stage)) return false;
  in->first = *arrives(b, stage, mb, forward);
  in->n = c->n;
  return true;
}

/* Stages that follow each other lie on ranks that do, in a loop as in a V. Of two ranks
 * each is the one after the other. */
int send_side(const Build *b, int src, int dst) {
  int ranks = b->in->schedule->ranks;
  assert((src + 1) % ranks == dst || (dst + 1) % ranks == src);
  return (src + 1) % ranks != dst;
}

Sends *sends_to(const Build *b, int src, int dst) {
  return &b->sends[2 * src + send_side(b, src, dst)];
}

/* ---- the order of sends ---- */

/* Adds what leaves `stage`; the first time only counts. */
static void leave(Build *b, int rank, int stage, int mb, bool forward) {
  int to = forward ? stage + 1 : stage - 1;
  if (to < 0 || to >= b->st.n || stage_rank(b, to) == rank) return;
  Sends *v = sends_to(b, rank, stage_rank(b, to));
  const Cross *c = entering(b, to, forward);
  *arrives(b, to, mb, forward) = v->n;
  for (int i = 0; i < c->n; i++, v->n++)
    if (v->at) v->at[v->n] = (struct SendItem){.t = c->at[i], .stage = to, .mb = mb};
}

static void add_sends(Build *b) {
  const Schedule *s = b->in->schedule;
  ActionPart part[2];
  for (int r = 0; r < s->ranks; r++)
    for (int base = 0; base < b->microbatches; base += s->microbatches)
      for (int i = 0; i < s->n[r]; i++) {
        int n = action_parts(&s->list[r][i], part);
        for (int k = 0; k < n; k++) {
          int stage = schedule_stage(s, r, part[k].chunk), mb = base + part[k].mb;
          if (part[k].bits & PART_F) leave(b, r, stage, mb, true);
          if (part[k].bits & PART_I) leave(b, r, stage, mb, false);
        }
      }
}

/* ---- when receives are there ---- */

/* What is needed by the action after next is posted now. */
static void post_times(Build *b, int rank) {
  const Schedule *s = b->in->schedule;
  int posted[2] = {0, 0};    /* by the source's send_side */
  int64_t ended[2] = {0, 0}; /* of the last action and of the one before */
  ActionPart part[2];
  for (int round = 0; round < b->microbatches / s->microbatches; round++)
    for (int i = 0; i < s->n[rank]; i++) {
      int n = action_parts(&s->list[rank][i], part);
      for (int k = 0; k < n; k++) {
        Inlet in;
        int stage = schedule_stage(s, rank, part[k].chunk);
        int mb = round * s->microbatches + part[k].mb;
        if (part[k].bits == PART_W || !inlet(b, stage, mb, part[k].bits & PART_F, &in))
          continue;
        Sends *v = sends_to(b, in.src, rank);
        int *next = &posted[send_side(b, in.src, rank)];
        for (; *next < in.first + in.n; ++*next)
          v->at[*next].posted = ended[1];
      }
      if (n == 0) continue;
      ended[1] = ended[0];
      ended[0] = b->when.slot[rank][i].end + round * b->when.makespan;
    }
}

void transfers(Build *b) {
  int ranks = b->in->schedule->ranks;
  size_t cells = (size_t)b->st.n * (size_t)b->microbatches;
  b->sends = NEW_N(b->arena, Sends, 2 * (size_t)ranks);
  b->arrives[0] = NEW_N(b->arena, int32_t, cells);
  b->arrives[1] = NEW_N(b->arena, int32_t, cells);
  add_sends(b);
  for (int i = 0; i < 2 * ranks; i++) {
    b->sends[i].at = NEW_N(b->arena, struct SendItem, b->sends[i].n);
    b->sends[i].n = 0;
  }
  add_sends(b);
  for (int r = 0; r < ranks; r++)
    post_times(b, r);
}
