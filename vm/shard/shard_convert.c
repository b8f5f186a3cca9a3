/* shard_convert.c - conversions between placements by reductions, gathers, slices and
 * all-to-alls, in an order in which pieces stay contiguous (DTensor: redistribute). */
#include "shard.h"

/* A conversion in progress, and the op it is for. */
typedef struct Change {
  Shard *s;
  Tid logical, t; /* the logical tensor, and its current form */
  const Op *user;
  Phase phase;
} Change;

static Place now(const Change *c) { return c->s->out->t.at[c->t].place; }

/* Whether the conversion is recomputed: a reduction with the op whose result it reduces,
 * a gather or slice with the op that reads it. */
static bool runs_again(const Change *c, int code) {
  const Graph *g = c->s->g;
  Oid maker = g->t.at[c->logical].producer;
  bool reduces = code == OP_all_reduce || code == OP_reduce_scatter;
  return reduces && maker >= 0 ? g->op.at[maker].recomputed : c->user->recomputed;
}

static bool is_cp(int axis) { return axis == AX_CP || axis == AX_CP_HEADS; }

/* The number of packed parts in the pieces over an axis of dimension `dim`. */
static int parts_of(const Change *c, int axis, int dim, int32_t *mirror) {
  const Tensor *t = &c->s->out->t.at[c->t];
  *mirror =
      is_cp(axis) && dim >= 0 && t->dim[dim].tag == TAG_SEQ && !c->s->plan->cp.in_order;
  return *mirror ? 2 : dim >= 0 ? t->dim[dim].parts : 1;
}

/* Whether two axes can be converted by one collective: parts of a split axis and axes of
 * the expert mesh, whose pieces are adjacent. */
static bool change_together(ShardAxis a, ShardAxis b) {
  return ax_of_one_factor(a, b) || (ax_expert(a) && ax_expert(b));
}

/* The axes that change together with axis `a`, as bits. */
static uint32_t changed_alike(const Change *c, int a, Place want) {
  Place p = now(c);
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == p.on[a] && want.on[x] == want.on[a] &&
        change_together((ShardAxis)x, (ShardAxis)a))
      axes |= 1u << x;
  return axes;
}

static int ranks_of(const Shard *s, uint32_t axes) {
  int n = 1;
  for (int x = 0; x < AX_N; x++)
    if (axes >> x & 1) n *= s->n[x];
  return n;
}

static Place with_axes(Place p, uint32_t axes, int to) {
  for (int x = 0; x < AX_N; x++)
    if (axes >> x & 1) p.on[x] = (int8_t)to;
  return p;
}

/* All-to-all over cp: shards heads instead of tokens, or tokens instead of heads. */
static void exchange(Change *c, int a, Place want) {
  Shard *s = c->s;
  int from = now(c).on[a], to = want.on[a];
  uint32_t axes = changed_alike(c, a, want);
  Place p = with_axes(now(c), axes, to);
  int32_t mirror;
  int tokens = s->out->t.at[c->t].dim[from].tag == TAG_SEQ ? from : to;
  int parts = parts_of(c, a, tokens, &mirror);
  Tid t = shard_emit_tensor(s, c->logical, p);
  Oid id = shard_emit_op(s, OP_all_to_all, 1, 1, c->user, c->phase);
  Op *op = &s->out->op.at[id];
  op->attr = (OpAttr){.axes = axes,
                      .dim = to,
                      .from = from,
                      .n = ranks_of(s, axes),
                      .parts = parts,
                      .mirror = mirror};
  op->recomputed = runs_again(c, OP_all_to_all);
  op->in[0] = c->t;
  shard_bind(s, id, 0, t);
  c->t = t;
}

/* Converts axis `a`, and the axes that change in the same way with it, by one collective
 * or slice. */
static void change(Change *c, int a, Place want) {
  Shard *s = c->s;
  Place p = now(c);
  int was = p.on[a], to = want.on[a], code = OP_all_reduce;
  uint32_t axes = changed_alike(c, a, want);
  int n = ranks_of(s, axes);
  if (was >= 0)
    code = OP_all_gather, to = PL_R;
  else if (was == PL_R)
    code = OP_slice;
  else if (to >= 0)
    code = OP_reduce_scatter;
  assert(to >= PL_R && n > 1);
  if (to >= 0 && !is_cp(a) && !ax_expert(a)) shard_check_cut(s, c->logical, to);
  p = with_axes(p, axes, to);
  int dim = was >= 0 ? was : to;
  Tid t = shard_emit_tensor(s, c->logical, p);
  Oid id = shard_emit_op(s, code, 1, 1, c->user, c->phase);
  Op *op = &s->out->op.at[id];
  int32_t mirror, parts = parts_of(c, a, dim, &mirror);
  op->attr = (OpAttr){.axes = axes,
                      .dim = dim,
                      .n = n,
                      .red = was == PL_MAX ? RED_MAX : RED_SUM,
                      .parts = parts,
                      .mirror = mirror,
                      .cut = code == OP_slice ? ax_set_mesh(axes) : 0};
  op->recomputed = runs_again(c, code);
  op->in[0] = c->t;
  shard_bind(s, id, 0, t);
  c->t = t;
}

/* Whether axis `a` must be gathered: its placement changes, or an outer axis changes how
 * it shards the same dimension. (The pieces of an axis are pieces of those of outer
 * axes.) */
static bool must_gather(Place p, Place want, int a) {
  if (p.on[a] < 0) return false;
  for (int x = 0; x <= a; x++)
    if (p.on[x] != want.on[x] && (p.on[x] == p.on[a] || want.on[x] == p.on[a]))
      return true;
  return false;
}

bool shard_gathers(Place p, Place want) {
  for (int a = 0; a < AX_N; a++)
    if (must_gather(p, want, a)) return true;
  return false;
}

/* ---- heads sharded over cp ---- */

/* The dimension of heads that `p` shards over axis `a` of cp; negative if none. */
static int heads_cut(const Tensor *t, Place p, int a) {
  int tag = p.on[a] >= 0 ? t->dim[p.on[a]].tag : TAG_NONE;
  return is_cp(a) && (tag == TAG_HEAD || tag == TAG_KV_HEAD) ? p.on[a] : -1;
}

/* Whether any axis other than those of cp starts or stops sharding dimension `dim`. */
static bool others_change(Place p, Place want, int dim) {
  for (int a = 0; a < AX_N; a++)
    if (!is_cp(a) && p.on[a] != want.on[a] && (p.on[a] == dim || want.on[a] == dim))
      return true;
  return false;
}

static int seq_dim(const Tensor *t) {
  int d = 0;
  while (t->dim[d].tag != TAG_SEQ) d++;
  assert(d < t->ndim);
  return d;
}

/* Converts axis `a` of cp to `to`, together with the other part of cp if both change
 * alike. */
static void trade(Change *c, int a, int to, Place want) {
  Place was = now(c), p = was;
  if (p.on[a] == to) return; /* it was converted with the other part */
  for (int x = AX_CP; x <= AX_CP_HEADS; x++)
    if (was.on[x] == was.on[a] && want.on[x] == want.on[a]) p.on[x] = (int8_t)to;
  if (was.on[a] >= 0 && to >= 0)
    exchange(c, a, p);
  else
    change(c, a, p);
}

/* Gathers what inner axes shard of the tokens, for the time of the all-to-all over cp. */
static Place aside(const Change *c, Place p) {
  for (int a = AX_CP_HEADS + 1; a < AX_N; a++)
    if (p.on[a] == seq_dim(&c->s->g->t.at[c->logical])) p.on[a] = PL_R;
  return p;
}

static void change_all(Change *c, Place want) {
  for (int a = AX_N - 1; a >= 0; a--)
    if (must_gather(now(c), want, a)) change(c, a, want);
  for (int a = 0; a < AX_N; a++)
    if (now(c).on[a] != want.on[a]) change(c, a, want);
}

/* Heads are sharded over cp inside of other axes, tokens outside of them. So before the
 * other axes change, heads become tokens again; tokens become heads only after that. */
static void change_heads(Change *c, Place want) {
  const Tensor *t = &c->s->g->t.at[c->logical];
  Place between = want;
  bool enters = false;
  for (int a = AX_CP_HEADS; a >= AX_CP; a--) {
    int was = heads_cut(t, now(c), a), is = heads_cut(t, want, a);
    if (was >= 0 && (is != was || others_change(now(c), want, was))) {
      if (want.on[a] != PL_R) change_all(c, aside(c, now(c)));
      trade(c, a, want.on[a] == PL_R ? PL_R : seq_dim(t), want);
    }
    if (is >= 0) between.on[a] = now(c).on[a];
    enters |= between.on[a] != want.on[a];
  }
  change_all(c, enters ? aside(c, between) : between);
  for (int a = AX_CP; a <= AX_CP_HEADS && enters; a++) trade(c, a, want.on[a], want);
}

/* ---- all of it ---- */

/* Reductions come first, while pieces are small; then the shardings of each dimension are
 * undone from the innermost axis outwards, and the new ones made from the outermost
 * inwards. */
Tid shard_convert(Shard *s, Tid logical, Tid from, Place want, const Op *user, Phase ph) {
  Change c = {s, logical, from, user, ph};
  want = shard_told(s, want);
  for (int a = AX_N - 1; a >= 0; a--)
    if (now(&c).on[a] < PL_R && want.on[a] == PL_R) change(&c, a, want);
  if (shard_exchanges_rows(now(&c), want))
    c.t = shard_exchange_rows(s, logical, c.t, want.on[AX_EP], user, ph);
  change_heads(&c, want);
  change_all(&c, want);
  return c.t;
}
