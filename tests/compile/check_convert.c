/* check_convert.c - changes of placement where several axes cut one dimension: the
 * collectives and slices that shard_convert writes, done with the numbers of the elements
 * that each rank holds, end where the placement says. */
#include <check.h>
#include <stdlib.h>

#include "vm/units/shard.h"

enum { SIZE = 48, RANKS = 16 };

typedef struct World {
  Arena *arena;
  Mesh mesh;
  Plan plan;
  Diags d;
  Graph *logical;
  Shard s;
  Tid t;
} World;

/* cp 4, of which two exchange heads, and tp 4, whose ranks are two for each of two
 * key-value heads. */
static void world_open(World *w) {
  *w = (World){.arena = arena_new(NULL), .plan = {.dtype = DT_F32}};
  if (setjmp(*arena_guard(w->arena))) abort();
  w->d.arena = w->arena;
  ck_assert(mesh_resolve(&(MeshSpec){.cp = 4, .tp = 4}, 0, &w->mesh, &w->d));
  mesh_split_tp(&w->mesh, 2);
  mesh_split_cp(&w->mesh, 2);
  w->logical = graph_new(w->arena, 1, SIZE);
  Dim dim = {.size = SIZE, .local = SIZE, .tag = TAG_SEQ, .parts = 1, .unit = 1};
  w->t = graph_tensor(w->logical, T_VALUE, DT_F32, &dim, 1);
  w->s = (Shard){.g = w->logical,
                 .out = graph_new(w->arena, 1, SIZE),
                 .plan = &w->plan,
                 .d = &w->d,
                 .tp = 4};
  for (int a = 0; a < AX_N; a++)
    w->s.n[a] = mesh_size(&w->mesh, ax_mesh((ShardAxis)a));
}

/* ---- what ranks hold ---- */

typedef struct Held {
  int at[SIZE], n;
} Held;

/* By the definition: the axes cut one after the other, each what the one before left. */
static Held held(const World *w, Place p, int rank) {
  Held h = {.n = SIZE};
  int first = 0;
  for (int a = 0; a < AX_N; a++) {
    if (p.on[a] != 0) continue;
    AxisSet axes = ax_mesh((ShardAxis)a);
    h.n /= mesh_size(&w->mesh, axes);
    first += mesh_index(&w->mesh, axes, rank) * h.n;
  }
  for (int i = 0; i < h.n; i++)
    h.at[i] = first + i;
  return h;
}

static Held done(const World *w, const Op *op, const Held *all, int rank) {
  AxisSet axes = ax_set_mesh(op->attr.axes);
  Held h = {0};
  int group[RANKS], n = mesh_group(&w->mesh, axes, rank, group);
  ck_assert_int_eq(n, op->attr.n);
  if (op->code == OP_slice) {
    const Held *x = &all[rank];
    h.n = x->n / n;
    ck_assert_uint_eq(op->attr.cut, axes);
    memcpy(h.at, x->at + mesh_index(&w->mesh, axes, rank) * h.n,
           sizeof(int) * (size_t)h.n);
    return h;
  }
  ck_assert_int_eq(op->code, OP_all_gather);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < all[group[i]].n; k++)
      h.at[h.n++] = all[group[i]].at[k];
  return h;
}

static Place cut_by(unsigned axes) {
  Place p = place_whole();
  static const ShardAxis of[] = {AX_CP, AX_CP_HEADS, AX_TP, AX_TP_REP};
  for (int a = 0; a < LEN(of); a++)
    if (axes >> a & 1) p.on[of[a]] = 0;
  return p;
}

/* The ops from one placement to another, on all ranks; returns how many they are. */
static int walk(World *w, Place from, Place to) {
  Graph *g = w->s.out;
  Held now[RANKS], next[RANKS];
  Tid t = graph_tensor(g, T_VALUE, DT_F32, w->logical->t.at[w->t].dim, 1);
  g->t.at[t].place = from;
  int before = g->op.n;
  Tid end = shard_convert(&w->s, w->t, t, to, &(Op){.unit = 0, .phase = PH_F});
  ck_assert(place_eq(g->t.at[end].place, to));
  for (int r = 0; r < RANKS; r++)
    now[r] = held(w, from, r);
  for (int i = before; i < g->op.n; i++) {
    for (int r = 0; r < RANKS; r++)
      next[r] = done(w, &g->op.at[i], now, r);
    memcpy(now, next, sizeof now);
  }
  for (int r = 0; r < RANKS; r++) {
    Held want = held(w, to, r);
    ck_assert_int_eq(now[r].n, want.n);
    ck_assert_mem_eq(now[r].at, want.at, sizeof(int) * (size_t)want.n);
  }
  return g->op.n - before;
}

/* ---- the tests ---- */

START_TEST(every_change_of_cuts) {
  World w;
  world_open(&w);
  for (unsigned from = 0; from < 16; from++)
    for (unsigned to = 0; to < 16; to++)
      walk(&w, cut_by(from), cut_by(to));
  arena_free(w.arena);
}
END_TEST

/* Both parts of cp or tp change in one step; an axis outside of others makes those
 * change, too.
 */
START_TEST(no_more_steps_than_needed) {
  enum { RING = 1, HEADS = 2, KV = 4, REP = 8, CP = RING | HEADS, TP = KV | REP };
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

Suite *convert_suite(void) {
  Suite *s = suite_create("convert");
  TCase *c = tcase_create("convert");
  tcase_add_test(c, every_change_of_cuts);
  tcase_add_test(c, no_more_steps_than_needed);
  suite_add_tcase(s, c);
  return s;
}
