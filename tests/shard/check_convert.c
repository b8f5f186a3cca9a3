/* check_convert.c - changes of placement where several axes cut one dimension: the
 * collectives and slices that shard_convert writes, done with the numbers of the elements
 * that each rank holds, end where the placement says. */
#include <check.h>
#include <stdlib.h>

#include "vm/shard/shard.h"

enum { SIZE = 48, RANKS = 16, SEQ = 0, HEADS = 1, DIMS = 2 };

typedef struct World {
  Arena *arena;
  Mesh mesh;
  Plan plan;
  Diags d;
  Graph *logical;
  Shard s;
  Tid t; /* tokens of heads */
} World;

/* cp 4, of which two exchange heads, and tp 4, whose ranks are two for each of two
 * key-value heads. */
static void world_open(World *w) {
  *w = (World){.arena = arena_new(NULL), .plan = {.dtype = DT_F32}};
  if (setjmp(*arena_guard(w->arena))) abort();
  w->d.arena = w->arena;
  w->plan.cp.in_order = true;
  ck_assert(mesh_resolve(&(MeshSpec){.cp = 4, .tp = 4}, 0, &w->mesh, &w->d));
  mesh_split_tp(&w->mesh, 2);
  mesh_split_cp(&w->mesh, 2);
  w->logical = graph_new(w->arena, 1, SIZE);
  Dim dim[] = {{.size = SIZE, .local = SIZE, .tag = TAG_SEQ, .parts = 1, .unit = 1},
               {.size = SIZE, .local = SIZE, .tag = TAG_HEAD, .parts = 1, .unit = 1}};
  w->t = graph_tensor(w->logical, T_VALUE, DT_F32, dim, DIMS);
  w->s = (Shard){.g = w->logical,
                 .out = graph_new(w->arena, 1, SIZE),
                 .plan = &w->plan,
                 .d = &w->d,
                 .tp = 4};
  for (int a = 0; a < AX_N; a++) w->s.n[a] = mesh_size(&w->mesh, ax_mesh((ShardAxis)a));
}

/* ---- what ranks hold ---- */

/* Numbers along a dimension. */
typedef struct Line {
  int at[SIZE], n;
} Line;

typedef struct UnshardedList {
  Line dim[DIMS];
} UnshardedList;

static bool same_line(const Line *a, const Line *b) {
  return a->n == b->n && memcmp(a->at, b->at, sizeof(int) * (size_t)a->n) == 0;
}

static void cut(const World *w, int axis, int rank, Line *l) {
  AxisSet axes = ax_mesh((ShardAxis)axis);
  l->n /= mesh_size(&w->mesh, axes);
  memmove(l->at, l->at + mesh_index(&w->mesh, axes, rank) * l->n,
          sizeof(int) * (size_t)l->n);
}

/* By the definition: the axes cut one after the other, each what the one before left; cp
 * cuts tokens before tp does, and heads after it. */
static UnshardedList held(const World *w, Place p, int rank) {
  static const ShardAxis order[DIMS][4] = {{AX_CP, AX_CP_HEADS, AX_TP, AX_TP_REP},
                                           {AX_TP, AX_TP_REP, AX_CP, AX_CP_HEADS}};
  UnshardedList h;
  for (int d = 0; d < DIMS; d++) {
    h.dim[d].n = SIZE;
    for (int i = 0; i < SIZE; i++) h.dim[d].at[i] = i;
    for (int i = 0; i < LEN(order[d]); i++)
      if (p.on[order[d][i]] == d) cut(w, order[d][i], rank, &h.dim[d]);
  }
  return h;
}

static Line piece(const Line *x, int i, int n) {
  Line l = {.n = x->n / n};
  memcpy(l.at, x->at + i * l.n, sizeof(int) * (size_t)l.n);
  return l;
}

/* What all of a group have along a dimension, one after the other. */
static Line joined(const UnshardedList *all, const int *group, int n, int dim) {
  Line l = {.n = 0};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < all[group[i]].dim[dim].n; k++)
      l.at[l.n++] = all[group[i]].dim[dim].at[k];
  return l;
}

static UnshardedList done(const World *w, const Op *op, const UnshardedList *all,
                          int rank) {
  AxisSet axes = ax_set_mesh(op->attr.axes);
  UnshardedList h = all[rank];
  int dim = op->attr.dim, joins = op->code == OP_all_to_all ? op->attr.from : dim;
  int group[RANKS], n = mesh_group(&w->mesh, axes, rank, group);
  ck_assert_int_eq(n, op->attr.n);
  if (op->code == OP_slice) ck_assert_uint_eq(op->attr.cut, axes);
  for (int i = 0; i < n && op->code != OP_slice; i++) /* the rest is the same for all */
    ck_assert(same_line(&all[group[i]].dim[!joins], &h.dim[!joins]));
  if (op->code != OP_slice) h.dim[joins] = joined(all, group, n, joins);
  if (op->code != OP_all_gather)
    h.dim[dim] = piece(&all[rank].dim[dim], mesh_index(&w->mesh, axes, rank), n);
  else
    ck_assert_int_eq(op->code, OP_all_gather);
  return h;
}

static const ShardAxis cutters[] = {AX_CP, AX_CP_HEADS, AX_TP, AX_TP_REP};

/* The ops from one placement to another, on all ranks; returns how many they are. */
static int walk(World *w, Place from, Place to) {
  Graph *g = w->s.out;
  UnshardedList now[RANKS], next[RANKS];
  Tid t = graph_tensor(g, T_VALUE, DT_F32, w->logical->t.at[w->t].dim, DIMS);
  g->t.at[t].place = from;
  int before = g->op.n;
  Tid end = shard_convert(&w->s, w->t, t, to, &(Op){.unit = 0}, PH_F);
  ck_assert(place_eq(g->t.at[end].place, to));
  for (int r = 0; r < RANKS; r++) now[r] = held(w, from, r);
  for (int i = before; i < g->op.n; i++) {
    for (int r = 0; r < RANKS; r++) next[r] = done(w, &g->op.at[i], now, r);
    memcpy(now, next, sizeof now);
  }
  for (int r = 0; r < RANKS; r++) {
    UnshardedList want = held(w, to, r);
    for (int d = 0; d < DIMS; d++) ck_assert(same_line(&now[r].dim[d], &want.dim[d]));
  }
  return g->op.n - before;
}

/* ---- the tests ---- */

/* Digit a of `key` to the base of 3: what the axis cuts, or nothing. Ranks that a
 * sequence goes round never exchange heads. */
static bool place_of(int key, Place *p) {
  *p = place_whole();
  for (int a = 0; a < LEN(cutters); a++, key /= 3)
    p->on[cutters[a]] = (int8_t)(key % 3 ? key % 3 - 1 : PL_R);
  return p->on[AX_CP] != HEADS;
}

START_TEST(every_change_of_cuts) {
  World w;
  Place from, to;
  int n = 0;
  world_open(&w);
  for (int i = 0; i < 81; i++)
    for (int k = 0; k < 81; k++)
      if (place_of(i, &from) && place_of(k, &to)) walk(&w, from, to), n++;
  ck_assert_int_eq(n, 54 * 54);
  arena_free(w.arena);
}
END_TEST

static Place cut_by(unsigned axes) {
  Place p = place_whole();
  for (int a = 0; a < LEN(cutters); a++)
    if (axes >> a & 1) p.on[cutters[a]] = SEQ;
  return p;
}

/* Both parts of cp or tp change in one step; an axis outside of others makes those
 * change, too.
 */
START_TEST(no_more_steps_than_needed) {
  enum { RING = 1, SOME = 2, KV = 4, REP = 8, CP = RING | SOME, TP = KV | REP };
  static const struct {
    unsigned from, to;
    int steps;
  } cases[] = {{TP, 0, 1},       {0, TP, 1},       {CP | TP, 0, 2},
               {0, CP | TP, 2},  {CP | TP, CP, 1}, {CP, CP | TP, 1},
               {CP | TP, TP, 3}, {TP, CP | TP, 3}, {KV, TP, 1},
               {TP, KV, 1},      {TP, REP, 3},     {CP, CP, 0},
               {RING, CP, 1},    {CP, RING, 1},    {CP | TP, RING | TP, 3}};
  World w;
  world_open(&w);
  for (int i = 0; i < LEN(cases); i++)
    ck_assert_int_eq(walk(&w, cut_by(cases[i].from), cut_by(cases[i].to)),
                     cases[i].steps);
  arena_free(w.arena);
}
END_TEST

/* Tokens for heads in one step where tp cuts the heads before and after it. */
START_TEST(heads_are_exchanged_at_once) {
  World w;
  Place tokens = place_whole(), heads;
  world_open(&w);
  tokens.on[AX_CP] = tokens.on[AX_CP_HEADS] = SEQ;
  tokens.on[AX_TP] = tokens.on[AX_TP_REP] = HEADS;
  heads = tokens;
  heads.on[AX_CP_HEADS] = HEADS;
  ck_assert_int_eq(walk(&w, tokens, heads), 1);
  ck_assert_int_eq(walk(&w, heads, tokens), 1);
  arena_free(w.arena);
}
END_TEST

Suite *convert_suite(void) {
  Suite *s = suite_create("convert");
  TCase *c = tcase_create("convert");
  tcase_add_test(c, every_change_of_cuts);
  tcase_add_test(c, no_more_steps_than_needed);
  tcase_add_test(c, heads_are_exchanged_at_once);
  suite_add_tcase(s, c);
  return s;
}
