/* expert_dispatch.c - expert dispatch over ep (Megatron: the alltoall token dispatcher):
 * each ep rank sorts its own tokens by expert and sends them to the ranks that hold these
 * experts; results come back the same way.
 *
 * How many rows (token and expert pairs) go where depends on data, so counts are
 * exchanged first, one per expert, then the rows. Buffers have the size of the most rows
 * that one rank can have for another: that size is what the memory plan and the proof
 * use. Received rows are in the order of their source ranks and are then sorted by
 * expert. */
#include "shard.h"

static bool own(int on) { return on == PL_OWN; }

bool shard_exchanges_rows(Place from, Place want) {
  return own(from.on[AX_EP]) != own(want.on[AX_EP]);
}

/* ---- ops that are written ---- */

typedef struct Rows {
  Shard *s;
  Tid logical;
  const Op *user;
  Phase phase;
} Rows;

/* Sends piece k of the first dimension to rank k of ep; with counts only the rows that
 * are in use of each piece. */
static Tid all_to_all(const Rows *r, Tid x, const Tid *give, const Tid *take) {
  Tensor t = r->s->out->t.at[x];
  OpAttr attr = {.axes = 1u << AX_EP, .n = r->s->n[AX_EP], .parts = 1};
  Tid in[3] = {x};
  if (give) in[1] = *give, in[2] = *take, attr.scale = (float)t.even;
  return shard_emit(r->s, give ? OP_all_to_all_v : OP_all_to_all, in, give ? 3 : 1, attr,
                    r->logical, t.place, t.dim, t.ndim, r->user, r->phase);
}

/* The placement of a tensor with one piece for each rank of ep. */
static Place in_places(Place p) {
  p.on[AX_EP] = 0;
  return p;
}

/* Copies between a padded piece for each rank of ep and rows without gaps. */
static Tid regroup(const Rows *r, Tid x, Tid n, bool by_expert, int to) {
  Shard *s = r->s;
  Tensor t = s->out->t.at[x];
  OpAttr attr = {.kind = by_expert, .inverse = to == PL_R};
  Place p = t.place;
  Tid in[] = {x, n};
  p.on[AX_EP] = (int8_t)to;
  if (to != PL_R)
    return shard_emit(s, OP_regroup, in, 2, attr, r->logical, p, NULL, 0, r->user,
                      r->phase);
  p = in_places(p);
  int ranks = s->n[AX_EP];
  Dim dim[] = {{.tag = TAG_RAGGED, .size = ranks},
               {.size = shard_ragged(s, r->logical, p) / ranks},
               t.dim[1]};
  dim[2].size = t.dim[1].local;
  return shard_emit(s, OP_regroup, in, 2, attr, r->logical, p, dim, 3, r->user, r->phase);
}

/* The counts of the rows that this rank sends to and receives from each rank of ep. */
static const struct Way *way_of(const Rows *r) {
  Shard *s = r->s;
  const Op *permute = shard_permutation(s->g, r->logical);
  assert(permute);
  for (int i = 0; i < s->way.n; i++)
    if (s->way.at[i].permute == permute) return &s->way.at[i];
  Rows of = *r;
  of.logical = permute->out[1];
  Tid ends = s->local[of.logical];
  Dim dim[] = {{.tag = TAG_EXPERT, .size = s->n[AX_EP]},
               {.size = permute->attr.experts / s->n[AX_EP]}};
  Place p = in_places(s->out->t.at[ends].place);
  Tid n = shard_emit(s, OP_expert_sizes, &ends, 1, (OpAttr){0}, of.logical, p, dim, 2,
                     r->user, r->phase);
  struct Way *w = VEC_PUSH(s->out->arena, s->way);
  *w = (struct Way){permute, n, all_to_all(&of, n, NULL, NULL)};
  return w;
}

Tid shard_exchange_rows(Shard *s, Tid logical, Tid from, int want, const Op *user,
                        Phase ph) {
  Rows r = {s, logical, user, ph};
  const struct Way *w = way_of(&r);
  if (s->g->t.at[logical].dim[0].tag != TAG_RAGGED) { /* offsets of experts */
    assert(!own(want));
    Place p = in_places(s->out->t.at[from].place);
    return shard_emit(s, OP_expert_ends, &w->taken, 1, (OpAttr){0}, logical, p, NULL, 0,
                      user, ph);
  }
  bool home = own(want);
  Tid give = home ? w->taken : w->given, take = home ? w->given : w->taken;
  Tid x = regroup(&r, from, give, home, PL_R);
  return regroup(&r, all_to_all(&r, x, &give, &take), take, !home, want);
}
