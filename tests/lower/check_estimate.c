/* check_estimate.c - the estimate of a step's time and bytes, term by term on paper, for
 * two pipeline ranks of dp = 2 and tp = 2 whose work is given. */
#include <check.h>

#include "vm/lower/flat_params.h"
#include "vm/lower/rank_cost.h"
#include "vm/pipeline/schedule.h"
#include "vm/plan/optimizer.h"

static Mesh mesh;
static Plan plan;
static Units units;
static UnitEdge edge = {.bytes = 1000};
static int crossing = 0;
static Cross fwd = {.at = &crossing, .n = 1}, bwd = {.at = &crossing, .n = 1};
static const UnitBody empty, some = {.n = 1};
static UnitCode code[2];
static CompiledUnit unit[2] = {{.code = &code[0]}, {.code = &code[1]}};
static int stage_of[2] = {0, 1};
static RankCost rank[2];
static RankCosts s;
static Lifetimes life[2][AREA_N];
static const RankLives *lives; /* those, or NULL */
static StepMove held[8];       /* of the first rank */

/* So many bytes of this kind over these axes, in the place of others. */
static void moves(StepMoveKind kind, AxisSet axes, uint64_t bytes) {
  int i = 0;
  while (i < rank[0].moves.n && (held[i].kind != kind || held[i].axes != axes)) i++;
  ck_assert_int_lt(i, LEN(held));
  held[i] = (StepMove){kind, axes, bytes, kind == MOVE_REDUCE || kind == MOVE_SCATTER};
  rank[0].moves.at = held, rank[0].moves.n = MAX(rank[0].moves.n, i + 1);
}

static UnitMove *add_move(Phase ph, UnitMove x) {
  static UnitMove room[BODIES][8];
  UnitWork *w = &code[0].work[ph];
  ck_assert_int_lt(w->move.n, LEN(room[ph]));
  w->move.at = room[ph];
  w->comms = MAX(w->comms, x.comm + 1), w->handles = MAX(w->handles, x.handle + 1);
  room[ph][w->move.n] = x;
  return &room[ph][w->move.n++];
}

/* Collectives of the first unit over one axis, which are waited for at once, before its
 * kernels. */
static void works(Phase ph, ShardAxis axis, CollKind coll, double bytes, int count) {
  for (int i = 0; i < count; i++) {
    add_move(ph, (UnitMove){.axes = axes_whole(ax_mesh(axis)),
                            .coll = coll,
                            .bytes = bytes / count});
    add_move(ph, (UnitMove){.waits = true});
  }
  code[0].work[ph].bytes[axis][coll] = bytes;
}

static void setup(void) {
  Arena *a = arena_new(NULL);
  Diags d = {.arena = a};
  MeshSpec spec = {.pp = 2, .dp = 2, .tp = 2};
  ck_assert(mesh_resolve(&spec, 0, &mesh, &d));
  arena_free(a);
  plan = (Plan){.dtype = DT_BF16,
                .strategy = {.overlap_grad_reduce = true},
                .cluster = {.gpu = "gpu",
                            .bf16 = 1,
                            .gpus = 8,
                            .hbm_bandwidth = 34000,
                            .nvlink_bandwidth = 100,
                            .nvlink_latency = 0.001,
                            .network_bandwidth = 10,
                            .network_latency = 0.01,
                            .host_bandwidth = 1000}};
  units = (Units){.edge = &edge, .at = unit, .n = 2};
  memset(rank, 0, sizeof rank);
  for (int i = 0; i < 2; i++) code[i] = (UnitCode){.body = {NULL, NULL, NULL, &empty}};
  memset(life, 0, sizeof life);
  lives = life;
  rank[0] = (RankCost){.stepped = 1000, .sent = 1000, .tied = 50};
  moves(MOVE_REDUCE, AXES_DP_CP, 800);
  code[0].work[PH_F].seconds = 1;
  code[0].work[PH_F].flops = 5;
  works(PH_F, AX_TP, COLL_ALL_GATHER, 200, 2);
  code[0].work[PH_I].seconds = 2;
  code[0].work[PH_W].seconds = 1;
  works(PH_W, AX_TP, COLL_ALL_REDUCE, 100, 1);
  code[1].work[PH_F].seconds = 3;
  code[1].work[PH_F].flops = 3;
  s = (RankCosts){.st = {.u = &units,
                         .n = 2,
                         .ranks = 2,
                         .rank = stage_of,
                         .of_unit = stage_of,
                         .fwd = &fwd,
                         .bwd = &bwd},
                  .rank = rank};
}

enum { MICROBATCHES = 10 };

static Estimate of_schedule(const Schedule *x, int64_t mbs, Arena *a) {
  Timeline when;
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(timeline_run(x, TIMELINE_UNIT, a, &when, &e), WEFT_OK);
  return estimate(&s, lives, &plan, &mesh, mbs, x, &when, a);
}

/* All forwards, then all backwards, on both ranks. */
static Estimate of(void) {
  Action list[2][2 * MICROBATCHES], *lists[2] = {list[0], list[1]};
  int n[2] = {2 * MICROBATCHES, 2 * MICROBATCHES};
  Schedule gpipe = {.ranks = 2,
                    .virtual_stages = 1,
                    .microbatches = MICROBATCHES,
                    .list = lists,
                    .n = n};
  for (int r = 0; r < 2; r++) {
    memcpy(rank[r].work, code[r].work, sizeof rank[r].work);
    for (int i = 0; i < 2 * MICROBATCHES; i++)
      list[r][i] =
          (Action){.kind = i < MICROBATCHES ? ACT_F : ACT_B, .mb = i % MICROBATCHES};
  }
  Arena *a = arena_new(NULL);
  Estimate e = of_schedule(&gpipe, MICROBATCHES, a);
  arena_free(a);
  return e;
}

/* F: 1 s and one gather of 200 bytes by two of 100 B/s in 2 operations: 1 + 2 * 0.001.
 * I: 2 s. W: 1 s and a sum of 100 bytes, twice the way: 2 * (0.5 + 0.001). */
static const double work = 1 + 1.002 + 2 + 1 + 1.002;
/* The first forward and its 1000 bytes, all forwards of the other rank, the way back, and
 * all backwards of the first one. */
static const double pipeline = 2.002 + (10 + 0.001) + 10 * 3 + (10 + 0.001) + 10 * 4.002;
/* 800 bytes of gradients; then 34 bytes for each of 1000 parameters. */
static const double reduce = 2 * (4 + 0.001), step = 1;

START_TEST(all_in_one_machine) {
  ck_assert_double_eq_tol(of().seconds, pipeline + (reduce - 4.002) + step, 1e-9);
}
END_TEST

/* 100 bytes by two of 100 B/s: 0.5 s, which the work hides if the gathers start ahead. */
START_TEST(gathered_for_a_while) {
  plan.strategy.stage = 3, life[0][AREA_GATHER].moved = 100;
  double hidden = of().seconds;
  plan.strategy.prefetch[0] = 1;
  ck_assert_double_eq_tol(hidden - of().seconds, 0.5 + 0.001, 1e-9);
  life[0][AREA_GATHER].moved = 100000;
  ck_assert_double_eq_tol(of().seconds - hidden,
                          (100000 / 200.0 + 0.001 - MICROBATCHES * work) - 0.501, 1e-6);
  ck_assert_double_eq(of().dp, 800 + 100000);
}
END_TEST

/* Where lifetimes are not known, less than that: nothing of unsharded buckets. */
START_TEST(lifetimes_are_not_known) {
  plan.strategy.stage = 3, plan.strategy.offload_params = true;
  Estimate before = of();
  life[0][AREA_GATHER].moved = life[0][AREA_GATHER].copies = 100;
  ck_assert_double_gt(of().seconds, before.seconds);
  lives = NULL;
  ck_assert_double_eq(of().seconds, before.seconds);
  ck_assert_double_eq(of().dp, before.dp);
}
END_TEST

/* Shards lie over the ranks of dp and cp: two of cp for one of dp move as much, four in
 * all three quarters. Copies over dp_replicate are not asked. */
START_TEST(gathered_over_cp) {
  static const MeshSpec spec[] = {{.pp = 2, .cp = 2, .tp = 2},
                                  {.pp = 2, .dp = 2, .cp = 2},
                                  {.pp = 2, .dp = 2, .dp_replicate = 2, .cp = 2}};
  static const double share[] = {0.5, 0.75, 0.5};
  static const int hops[] = {1, 3, 1};
  for (int i = 0; i < LEN(spec); i++) {
    Arena *a = arena_new(NULL);
    Diags d = {.arena = a};
    setup();
    ck_assert(mesh_resolve(&spec[i], 0, &mesh, &d));
    plan.strategy.stage = 3;
    double before = of().seconds, each = 100 * share[i] / 100 + hops[i] * 0.001;
    life[0][AREA_GATHER].moved = 100;
    ck_assert_double_eq_tol(of().seconds - before, each, 1e-9);
    moves(MOVE_GATHER, flat_axes(&plan, &mesh), 100);
    ck_assert_double_eq_tol(of().seconds - before, 2 * each, 1e-9);
    plan.strategy.overlap_grad_reduce = false;
    moves(MOVE_REDUCE, AXES_DP_CP, 0);
    before = of().seconds;
    moves(MOVE_SCATTER, flat_axes(&plan, &mesh), 100);
    ck_assert_double_eq_tol(of().seconds - before, each, 1e-9);
    arena_free(a);
  }
}
END_TEST

/* 1000 parameters: 4 bytes to the host, 2 back, 34 touched there, at 1000 B/s instead of
 * 34000 B/s. Shards of half of 500 bytes are copied up before they are gathered. */
START_TEST(what_lies_on_the_host_is_copied) {
  double before = of().seconds;
  plan.strategy.offload_state = true;
  ck_assert_double_eq_tol(of().seconds - before, 6 + 34 - 1, 1e-9);
  plan.strategy.stage = 3, life[0][AREA_GATHER].copies = 500;
  before = of().seconds;
  plan.strategy.offload_params = true;
  ck_assert_double_eq_tol(of().seconds - before, 0.25, 1e-9);
}
END_TEST

/* On a device of little arithmetic that is what an optimizer step takes; the host's is
 * not known. */
START_TEST(steps_compute) {
  double before = of().seconds;
  plan.cluster.f32 = 1000 * (double)optimizer_row(&plan.opt)->flops / 6;
  ck_assert_double_eq_tol(of().seconds - before, 6 - step, 1e-9);
  plan.strategy.offload_state = true;
  ck_assert_double_eq_tol(of().seconds - before, 6 + 34 - step, 1e-9);
}
END_TEST

/* Matrices that a step makes orthogonal: 100 bytes over the two that cut the buffer and
 * 60 over the two of tp, in its own way each, and the products. */
START_TEST(steps_of_matrices) {
  plan.strategy.stage = 1;
  double before = of().seconds;
  moves(MOVE_WHOLE, flat_axes(&plan, &mesh), 100);
  moves(MOVE_WHOLE, AXIS_BIT(AXIS_TP), 60);
  rank[0].products = 700;
  double moved = 0.5 + 0.001 + 0.3 + 0.001;
  ck_assert_double_eq_tol(of().seconds - before, moved, 1e-9);
  plan.cluster.f32 = 1e9;
  ck_assert_double_eq_tol(of().seconds - before, moved + 700 / 1e9, 1e-9);
  plan.cluster.f32 = 350, rank[0].stepped = 0;
  ck_assert_double_eq_tol(of().seconds - before, moved + 2 - step, 1e-9);
  ck_assert_double_eq(of().tp, 300 * MICROBATCHES + 60);
  ck_assert_double_eq(of().dp, 800 + 100);
}
END_TEST

/* 300 bytes of parameters: 1.501 s, behind the step or beside it. */
START_TEST(gathered_beside_the_step) {
  plan.strategy.stage = 1;
  double before = of().seconds;
  moves(MOVE_GATHER, flat_axes(&plan, &mesh), 300);
  ck_assert_double_eq_tol(of().seconds - before, 1.501, 1e-9);
  ck_assert_double_eq(of().dp, 800 + 300);
  plan.strategy.overlap_param_gather = true;
  ck_assert_double_eq_tol(of().seconds - before, 1.501 - step, 1e-9);
  moves(MOVE_GATHER, flat_axes(&plan, &mesh), 100);
  ck_assert_double_eq_tol(of().seconds, before, 1e-9);
}
END_TEST

/* Sums of gradients over dp and over tp go there and back, into shards one way. They may
 * all be under way at once, on the same links. */
START_TEST(kinds_of_reduction) {
  plan.strategy.stage = 1, plan.strategy.overlap_grad_reduce = false;
  moves(MOVE_REDUCE, AXES_DP_CP, 0);
  double before = of().seconds;
  moves(MOVE_REDUCE, AXIS_BIT(AXIS_TP), 60);
  ck_assert_double_eq_tol(of().seconds - before, 2 * (0.3 + 0.001), 1e-9);
  moves(MOVE_SCATTER, flat_axes(&plan, &mesh), 100);
  ck_assert_double_eq_tol(of().seconds - before, 2 * 0.3 + 0.5, 1e-9);
  moves(MOVE_REDUCE, AXES_DP_CP, 40);
  ck_assert_double_eq_tol(of().seconds - before, 2 * (0.3 + 0.2) + 0.5, 1e-9);
  ck_assert_double_eq(of().dp, 40 + 100);
  ck_assert_double_eq(of().tp, 300 * MICROBATCHES + 60);
}
END_TEST

/* With two GPUs to a machine sums over tp stay inside, and take no time beside longer
 * ones over the network; gathers that wait for each other take theirs in turn. */
START_TEST(on_different_links) {
  plan.cluster.gpus = 2;
  plan.strategy.stage = 1, plan.strategy.overlap_grad_reduce = false;
  double before = of().seconds;
  moves(MOVE_REDUCE, AXIS_BIT(AXIS_TP), 60);
  ck_assert_double_eq_tol(of().seconds, before, 1e-9);
  moves(MOVE_GATHER, flat_axes(&plan, &mesh), 100);
  moves(MOVE_GATHER, AXIS_BIT(AXIS_TP), 100);
  ck_assert_double_eq_tol(of().seconds - before, 5 + 0.01 + 0.5 + 0.001, 1e-9);
  plan.strategy.overlap_param_gather = true;
  ck_assert_double_eq_tol(of().seconds - before, 5 + 0.01 - step, 1e-9);
}
END_TEST

/* Experts are copied by other ranks than the rest: here by two for each of the four of dp
 * and tp, neighbours but one, and not at all where each rank has its own. */
START_TEST(experts_have_axes_of_their_own) {
  for (int ep = 2; ep <= 4; ep *= 2) {
    MeshSpec spec = {.pp = 2, .dp = 2, .tp = 2, .ep = ep, .etp = 1};
    Arena *a = arena_new(NULL);
    Diags d = {.arena = a};
    setup();
    ck_assert(mesh_resolve(&spec, 0, &mesh, &d));
    double alone = ep == 2 ? 0.5 + 0.001 : 0, before;
    plan.strategy.stage = 3;
    before = of().seconds;
    moves(MOVE_GATHER, AXIS_BIT(AXIS_EP_SHARD), 100);
    ck_assert_double_eq_tol(of().seconds - before, alone, 1e-9);
    life[0][AREA_GATHER].moved = life[0][AREA_GATHER].moved_experts = 100;
    ck_assert_double_eq_tol(of().seconds - before, 2 * alone, 1e-9);
    life[0][AREA_GATHER].moved = 300;
    ck_assert_double_eq_tol(of().seconds - before, alone + MAX(1.001, 1 + alone - 0.001),
                            1e-9);
    ck_assert_double_eq(of().dp, 800 + 100 + 300);
    arena_free(a);
  }
}
END_TEST

/* The rank that is done last with its gradients, and that with the longest update, need
 * not be the same: the norm, for which all wait, stands between; without it each has its
 * own. */
START_TEST(the_norm_is_waited_for) {
  double before = of().seconds;
  rank[1].stepped = 3000;
  ck_assert_double_eq_tol(of().seconds - before, 2, 1e-9);
  plan.opt.post_validation = true;
  ck_assert_double_eq_tol(of().seconds, before, 1e-9);
}
END_TEST

/* Copies that are kept for some of the ranks are gathered among these: over the inner
 * ranks of dp, of which there are two of the four. */
START_TEST(gathered_within_a_group) {
  MeshSpec spec = {.pp = 2, .dp = 4};
  Arena *a = arena_new(NULL);
  Diags d = {.arena = a};
  ck_assert(mesh_resolve(&spec, 0, &mesh, &d));
  mesh_split_dp(&mesh, 2);
  plan.strategy.stage = 3;
  double before = of().seconds;
  life[1][AREA_GATHER].moved_kept = 100;
  ck_assert_double_eq_tol(of().seconds - before, 0.5 + 0.001, 1e-9);
  life[1][AREA_GATHER].moved = 200;
  ck_assert_double_eq_tol(of().seconds - before, 0.5 + 1.5, 1e-9);
  ck_assert_double_eq(of().dp, 800);
  life[0][AREA_GATHER] = life[1][AREA_GATHER];
  ck_assert_double_eq(of().dp, 800 + 300);
  arena_free(a);
}
END_TEST

/* A rank's stages hand nothing over to each other, and others nothing that is not there.
 */
START_TEST(nothing_is_sent) {
  double before = of().seconds;
  edge.bytes = 0;
  ck_assert_double_eq_tol(before - of().seconds, 2 * 10.001, 1e-9);
  edge.bytes = 1000;
}
END_TEST

/* Nothing takes a second that is not spent: F of 10 ms on one rank, a step of 100 ms
 * there, and 100 bytes that are gathered beside the work. */
START_TEST(a_step_of_little) {
  edge.bytes = 0;
  memset(code[0].work, 0, sizeof code[0].work);
  memset(code[1].work, 0, sizeof code[1].work);
  rank[0] = (RankCost){0};
  ck_assert_double_eq(of().seconds, 0);
  code[0].work[PH_F].seconds = 0.01;
  ck_assert_double_eq_tol(of().seconds, 0.1, 1e-9);
  rank[0].stepped = 100;
  ck_assert_double_eq_tol(of().seconds, 0.1 + 0.1, 1e-9);
  plan.opt.post_validation = true;
  ck_assert_double_eq_tol(of().seconds, 0.1 + 0.1, 1e-9);
  plan.strategy.stage = 3, life[0][AREA_GATHER].moved = 100;
  ck_assert_double_eq_tol(of().seconds, 0.1 + 0.1 + 0.501, 1e-9);
  plan.strategy.prefetch[0] = 1;
  ck_assert_double_eq_tol(of().seconds, 0.1 + 0.1 + 0.501 - 0.1, 1e-9);
  edge.bytes = 1000;
}
END_TEST

/* Bytes of each axis that a plan names, of all bodies, on the busiest rank. */
START_TEST(bytes_by_axis) {
  static const struct {
    ShardAxis axis;
    size_t of;
  } list[] = {{AX_TP, offsetof(Estimate, tp)}, {AX_TP_REP, offsetof(Estimate, tp)},
              {AX_EP, offsetof(Estimate, ep)}, {AX_ETP, offsetof(Estimate, ep)},
              {AX_CP, offsetof(Estimate, cp)}, {AX_CP_HEADS, offsetof(Estimate, cp)},
              {AX_DP, offsetof(Estimate, dp)}, {AX_EP_SHARD, offsetof(Estimate, dp)}};
  Estimate before = of();
  for (int i = 0; i < LEN(list); i++) {
    UnitWork saved[BODIES];
    memcpy(saved, code[0].work, sizeof saved);
    code[0].work[PH_F].bytes[list[i].axis][COLL_ALL_TO_ALL_V] += 70;
    code[0].work[PH_W].bytes[list[i].axis][COLL_REDUCE_SCATTER] += 5;
    Estimate e = of();
    double got = *(double *)((char *)&e + list[i].of);
    double was = *(double *)((char *)&before + list[i].of);
    ck_assert_msg(got - was == 75 * MICROBATCHES, "axis %d: %g", list[i].axis, got - was);
    got = e.tp + e.ep + e.cp + e.dp + e.pp;
    was = before.tp + before.ep + before.cp + before.dp + before.pp;
    ck_assert_double_eq(got - was, 75 * MICROBATCHES);
    memcpy(code[0].work, saved, sizeof saved);
  }
}
END_TEST

/* Room for rows of experts that nobody has is passed on, and takes no time. */
START_TEST(rows_that_are_empty) {
  MeshSpec spec = {.pp = 2, .dp = 2, .ep = 2};
  Arena *a = arena_new(NULL);
  Diags d = {.arena = a};
  ck_assert(mesh_resolve(&spec, 0, &mesh, &d));
  plan.strategy.overlap_grad_reduce = false;
  UnitWork *w = &code[0].work[PH_W];
  w->move.n = 0; /* there is no tp */
  works(PH_W, AX_EP, COLL_ALL_TO_ALL_V, 100, 1);
  Estimate full = of();
  ck_assert_double_eq(full.ep_even, 100 * MICROBATCHES);
  w->empty[AX_EP] = 40, w->move.at[0].bytes = 60;
  Estimate e = of();
  ck_assert_double_eq(e.ep, 100 * MICROBATCHES);
  ck_assert_double_eq(e.ep_even, 60 * MICROBATCHES);
  /* Half of 40 bytes stay where they are. */
  ck_assert_double_eq_tol(full.seconds - e.seconds, MICROBATCHES * 20 / 100.0, 1e-9);
  works(PH_W, AX_EP, COLL_ALL_GATHER, 100, 1);
  Estimate more = of();
  ck_assert_double_eq_tol(more.seconds - e.seconds, MICROBATCHES * (0.5 + 0.001), 1e-9);
  code[0].work[PH_F].empty[AX_EP] = 7;
  ck_assert_double_eq(of().ep_even, more.ep - 47 * MICROBATCHES);
  arena_free(a);
}
END_TEST

/* If both ranks had the same: half of the work of a microbatch, ten times. */
START_TEST(an_even_cut) {
  ck_assert_double_eq_tol(of().even, 10 * (work + 3) / 2, 1e-9);
  code[0].work[PH_F].recomputed = 2, code[1].work[PH_W].recomputed = 1;
  ck_assert_double_eq(of().recomputed, 3 * MICROBATCHES * 4);
}
END_TEST

/* What runs beside kernels inside a body takes no time of its own: of a sum of 1.002 s
 * half a second, and no more of it where its link is slower. Another one behind it waits
 * for it, on a communicator of its own it does not. */
START_TEST(hidden_in_bodies) {
  double before = of().seconds;
  UnitWork *w = &code[0].work[PH_W];
  w->move.at[1].seconds = 0.5, w->seconds -= 0.5;
  ck_assert_double_eq_tol(before - of().seconds, MICROBATCHES * 0.5 - 0.5, 1e-9);
  plan.cluster.gpus = 1;
  double far = of().seconds;
  w->move.at[1].seconds = 0, w->seconds += 0.5;
  ck_assert_double_eq_tol(of().seconds - far, MICROBATCHES * 0.5 - 0.5, 1e-9);
  plan.cluster.gpus = 8;
  for (int comm = 0; comm < 2; comm++) {
    UnitMove first = w->move.at[0], second = first;
    second.comm = comm, second.handle = 1;
    w->move.n = 0;
    add_move(PH_W, first);
    add_move(PH_W, second);
    add_move(PH_W, (UnitMove){.waits = true});
    add_move(PH_W, (UnitMove){.waits = true, .handle = 1});
    double more = comm ? 0 : MICROBATCHES * 1.002 - 1.002;
    ck_assert_double_eq_tol(of().seconds - before, more, 1e-9);
  }
  /* B in the place of I and W */
  code[0].body[PH_B] = &some, code[0].work[PH_B].seconds = 4.002 - 0.25;
  ck_assert_double_eq_tol(before - of().seconds, MICROBATCHES * 0.25 - 0.25, 1e-9);
}
END_TEST

/* Backwards wait for the last forward, and forwards for nothing: where I and F swap their
 * costs another rank's forwards hide less of them. */
START_TEST(costs_stand_where_they_are_spent) {
  code[0].work[PH_I].seconds = 20;
  double was = of().seconds;
  code[0].work[PH_I].seconds = 1, code[0].work[PH_F].seconds = 20;
  /* Forwards of 21.002 hide those of the other rank but the last one; a backward
   * of 22.002 hides all of the reduction. */
  ck_assert_double_eq_tol(
      was - of().seconds,
      (12.003 + 30 + 10.001 + 10 * 22.002) -
          (10 * 21.002 + 10.001 + 3 + 10.001 + 10 * 3.002 + (reduce - 3.002)),
      1e-9);
}
END_TEST

/* Each round fills the pipeline and drains it: the first stage waits for the other one,
 * and for what both send. */
START_TEST(rounds_fill_and_drain) {
  Action list[] = {{.kind = ACT_F}, {.kind = ACT_B}}, *lists[] = {list, list};
  int n[] = {2, 2};
  Schedule one = {
      .ranks = 2, .virtual_stages = 1, .microbatches = 1, .list = lists, .n = n};
  Arena *a = arena_new(NULL);
  Schedule three = schedule_of_step(&one, 3, a);
  double first = of_schedule(&one, 1, a).seconds, each = work + 2 * 10.001 + 3;
  ck_assert_double_eq_tol(of_schedule(&three, 3, a).seconds - first, 2 * each, 1e-9);
  arena_free(a);
}
END_TEST

START_TEST(reduced_after_the_backward) {
  plan.strategy.overlap_grad_reduce = false;
  ck_assert_double_eq_tol(of().seconds, pipeline + reduce + step, 1e-9);
}
END_TEST

/* What the backward hides costs nothing, but no less than that. */
START_TEST(reduced_within_the_backward) {
  moves(MOVE_REDUCE, AXES_DP_CP, 100);
  ck_assert_double_eq_tol(of().seconds, pipeline + step, 1e-9);
}
END_TEST

/* Two GPUs to a machine: tp stays inside, dp and pp leave by one card each. */
START_TEST(over_the_network) {
  plan.cluster.gpus = 2;
  double away = 2 * (100 + 0.01), sums = 2 * (40 + 0.01);
  ck_assert_double_eq_tol(of().seconds,
                          pipeline - 2 * 10.001 + away + (sums - 4.002) + step, 1e-9);
}
END_TEST

/* Four to a machine: a dp group is inside, a stage is a machine. */
START_TEST(stages_apart) {
  plan.cluster.gpus = 4;
  ck_assert_double_eq_tol(
      of().seconds, pipeline - 2 * 10.001 + 2 * (100 + 0.01) + (reduce - 4.002) + step,
      1e-9);
}
END_TEST

/* The slowest rank counts. */
START_TEST(the_other_rank_has_more_to_do) {
  code[1].work[PH_F].seconds = 30;
  ck_assert_double_eq_tol(of().seconds,
                          pipeline + 10 * (30 - 3) + (reduce - 4.002) + step, 1e-9);
}
END_TEST

START_TEST(flops_and_bytes) {
  Estimate e = of();
  ck_assert_double_eq(e.flops, (5 + 3) * MICROBATCHES * 4);
  ck_assert_double_eq(e.tp, (200 + 100) * MICROBATCHES);
  ck_assert_double_eq(e.dp, 800);
  ck_assert_double_eq(e.pp, 1000 * MICROBATCHES + 50);
  moves(MOVE_REDUCE, AXIS_BIT(AXIS_TP), 7);
  ck_assert_double_eq(of().tp, 300 * MICROBATCHES + 7);
  plan.cluster.gpu = NULL;
  ck_assert_double_eq(of().seconds, 0);
}
END_TEST

Suite *estimate_suite(void) {
  const TTest *test[] = {all_in_one_machine,
                         gathered_for_a_while,
                         lifetimes_are_not_known,
                         gathered_over_cp,
                         what_lies_on_the_host_is_copied,
                         steps_compute,
                         steps_of_matrices,
                         gathered_beside_the_step,
                         kinds_of_reduction,
                         on_different_links,
                         experts_have_axes_of_their_own,
                         the_norm_is_waited_for,
                         gathered_within_a_group,
                         nothing_is_sent,
                         a_step_of_little,
                         bytes_by_axis,
                         rows_that_are_empty,
                         an_even_cut,
                         hidden_in_bodies,
                         costs_stand_where_they_are_spent,
                         rounds_fill_and_drain,
                         reduced_after_the_backward,
                         reduced_within_the_backward,
                         over_the_network,
                         stages_apart,
                         the_other_rank_has_more_to_do,
                         flops_and_bytes};
  Suite *suite = suite_create("estimate");
  TCase *tc = tcase_create("on paper");
  tcase_add_checked_fixture(tc, setup, NULL);
  for (int i = 0; i < LEN(test); i++) tcase_add_test(tc, test[i]);
  suite_add_tcase(suite, tc);
  return suite;
}
