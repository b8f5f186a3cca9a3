/* check_ckpt_exact.c - a run that goes on from a checkpoint is the run that was never
 * interrupted; and what is in a checkpoint does not depend on the mesh that reads it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/harness/ckpt_runs.h"
#include "tests/harness/scratch.h"
#include "vm/rank/saved_pieces.h"
#include "vm/run/run_int.h"
#include "vm/weights/snapshot.h"

enum { HALF = 2, WHOLE = 4 };

/* ---- the same mesh ---- */

static ToyOptions plain(void) { return meshed(2, 2, 2); }

static ToyOptions one_rank(void) { return meshed(1, 1, 1); }

static ToyOptions tied(void) {
  ToyOptions o = meshed(2, 2, 1);
  o.tied = true, o.sp = true;
  return o;
}

static ToyOptions masters(void) {
  ToyOptions o = meshed(2, 1, 2);
  o.dtype = DT_BF16;
  return o;
}

static ToyOptions stage(int n, DType t) {
  ToyOptions o = meshed(1, 2, 2);
  o.strategy.stage = n, o.dtype = t;
  return o;
}
static ToyOptions zero1(void) { return stage(1, DT_F32); }
static ToyOptions zero1_bf16(void) { return stage(1, DT_BF16); }
static ToyOptions zero2(void) { return stage(2, DT_F32); }
static ToyOptions zero3(void) { return stage(3, DT_F32); }
static ToyOptions zero3_bf16(void) { return stage(3, DT_BF16); }

static ToyOptions fsdp2(void) {
  ToyOptions o = meshed(2, 1, 4);
  o.strategy.kind = STRATEGY_FSDP2, o.strategy.stage = 3,
  o.strategy.defer_grad_sync = true;
  o.replicate = 2, o.dtype = DT_BF16;
  return o;
}

static ToyOptions offload(void) {
  ToyOptions o = stage(3, DT_BF16);
  o.strategy.offload_state = o.strategy.offload_params = true;
  return o;
}

static ToyOptions by_chance(void) {
  ToyOptions o = meshed(1, 1, 2);
  o.dtype = DT_BF16, o.state = DT_BF16, o.stochastic = true;
  return o;
}

/* Nothing but bf16, rounded by chance. */
static ToyOptions only_bf16(ToyOptions o) {
  o.dtype = o.grad = o.reduce = o.master = o.state = DT_BF16;
  o.stochastic = true;
  return o;
}
static ToyOptions pure(void) { return only_bf16(plain()); }
static ToyOptions pure_zero1(void) { return only_bf16(zero1()); }
static ToyOptions pure_zero3(void) { return only_bf16(zero3()); }
static ToyOptions pure_offload(void) { return only_bf16(offload()); }

static ToyOptions f16(void) {
  ToyOptions o = meshed(2, 1, 1);
  o.dtype = DT_F16;
  return o;
}

static ToyOptions post_validation(void) {
  ToyOptions o = meshed(1, 4, 1);
  o.post_validation = true;
  return o;
}

static ToyOptions with(OptimizerKind kind, ToyOptions o) {
  o.optimizer = kind;
  return o;
}
static ToyOptions sgd_plain(void) { return with(OPTIMIZER_SGD, plain()); }
static ToyOptions sgd_zero3(void) { return with(OPTIMIZER_SGD, zero3_bf16()); }
static ToyOptions bare_sgd_zero3(void) { return with(OPTIMIZER_SGD_PLAIN, zero3_bf16()); }
static ToyOptions bare_sgd_fsdp2(void) { return with(OPTIMIZER_SGD_PLAIN, fsdp2()); }
static ToyOptions bare_sgd_offload(void) { return with(OPTIMIZER_SGD_PLAIN, offload()); }
static ToyOptions bare_sgd_by_chance(void) { return with(OPTIMIZER_SGD_PLAIN, pure()); }
static ToyOptions sgd_early(void) { return with(OPTIMIZER_SGD, post_validation()); }
static ToyOptions sgd_f16(void) { return with(OPTIMIZER_SGD, f16()); }
static ToyOptions lion_one_rank(void) { return with(OPTIMIZER_LION, one_rank()); }
static ToyOptions lion_fsdp2(void) { return with(OPTIMIZER_LION, fsdp2()); }
static ToyOptions lion_offload(void) { return with(OPTIMIZER_LION, offload()); }
static ToyOptions lion_by_chance(void) { return with(OPTIMIZER_LION, by_chance()); }
static ToyOptions lion_zero2(void) { return with(OPTIMIZER_LION, zero2()); }
static ToyOptions muon_one_rank(void) { return with(OPTIMIZER_MUON, one_rank()); }
static ToyOptions muon_fsdp2(void) { return with(OPTIMIZER_MUON, fsdp2()); }
static ToyOptions muon_zero3(void) { return with(OPTIMIZER_MUON, zero3_bf16()); }

static ToyOptions adafactor_one_rank(void) {
  return with(OPTIMIZER_ADAFACTOR, one_rank());
}
static ToyOptions adafactor_fsdp2(void) { return with(OPTIMIZER_ADAFACTOR, fsdp2()); }
static ToyOptions adafactor_zero3(void) {
  return with(OPTIMIZER_ADAFACTOR, zero3_bf16());
}

/* Heads that tp does not divide: padding. */
static ToyOptions padded(void) {
  ToyOptions o = meshed(4, 1, 2);
  o.strategy.stage = 1;
  return o;
}

/* Experts that ranks share; all of these train on the same samples. */
static ToyOptions shared(int tp, int pp, int dp, int ep, int etp) {
  ToyOptions o = meshed(tp, pp, dp);
  o.microbatches = 8 / dp, o.layers = 2, o.heads = o.kv_heads = 8, o.vocab = 51;
  o.ep = ep, o.etp = etp, o.experts = 8, o.topk = 2, o.fused = true;
  return o;
}
static ToyOptions experts_one_rank(void) { return shared(1, 1, 1, 1, 1); }
static ToyOptions experts_of_tp(void) {
  ToyOptions o = shared(2, 2, 2, 2, 2);
  o.sp = true;
  return o;
}
static ToyOptions experts_of_dp(void) {
  ToyOptions o = shared(1, 1, 8, 4, 2);
  o.dispatcher = MOE_ALLTOALL, o.strategy.stage = 1, o.z = 0.001f;
  return o;
}
static ToyOptions experts_of_both(void) {
  ToyOptions o = shared(2, 1, 4, 8, 1);
  o.dispatcher = MOE_ALLTOALL, o.strategy.stage = 2;
  return o;
}
static ToyOptions experts_in_shards(void) {
  ToyOptions o = shared(2, 1, 4, 2, 1);
  o.strategy.kind = STRATEGY_FSDP2, o.strategy.stage = 3;
  return o;
}
static ToyOptions lion_experts(void) { return with(OPTIMIZER_LION, experts_of_both()); }
static ToyOptions muon_experts(void) { return with(OPTIMIZER_MUON, experts_of_both()); }
static ToyOptions adafactor_experts(void) {
  return with(OPTIMIZER_ADAFACTOR, experts_of_both());
}
static ToyOptions adafactor_padded(void) { return with(OPTIMIZER_ADAFACTOR, padded()); }
static ToyOptions muon_padded(void) { return with(OPTIMIZER_MUON, padded()); }
/* Averages in blocks of 8 bits, but for what is small. */
static ToyOptions in_8bit(ToyOptions o) {
  o.state = DT_Q8, o.hidden = 96, o.ffn = 72;
  return with(OPTIMIZER_ADAMW_8BIT, o);
}
static ToyOptions in_8bit_one_rank(void) { return in_8bit(one_rank()); }
static ToyOptions in_8bit_fsdp2(void) { return in_8bit(fsdp2()); }
static ToyOptions in_8bit_zero3(void) { return in_8bit(zero3_bf16()); }
static ToyOptions in_8bit_offload(void) { return in_8bit(offload()); }
static ToyOptions in_8bit_experts(void) { return in_8bit(experts_of_both()); }
static ToyOptions sgd_experts(void) { return with(OPTIMIZER_SGD, experts_in_shards()); }
static ToyOptions experts_bf16(void) {
  ToyOptions o = shared(1, 2, 4, 2, 2);
  o.strategy.stage = 3, o.dtype = DT_BF16;
  return o;
}

static ToyOptions (*const cases[])(void) = {plain,
                                            one_rank,
                                            tied,
                                            masters,
                                            zero1,
                                            zero1_bf16,
                                            zero2,
                                            zero3,
                                            zero3_bf16,
                                            fsdp2,
                                            offload,
                                            by_chance,
                                            pure,
                                            pure_zero1,
                                            pure_zero3,
                                            pure_offload,
                                            f16,
                                            post_validation,
                                            padded,
                                            sgd_plain,
                                            in_8bit_one_rank,
                                            in_8bit_fsdp2,
                                            in_8bit_zero3,
                                            in_8bit_offload,
                                            in_8bit_experts,
                                            bare_sgd_zero3,
                                            bare_sgd_fsdp2,
                                            bare_sgd_offload,
                                            bare_sgd_by_chance,
                                            sgd_zero3,
                                            sgd_early,
                                            sgd_f16,
                                            lion_one_rank,
                                            lion_fsdp2,
                                            lion_offload,
                                            lion_by_chance,
                                            lion_experts,
                                            muon_one_rank,
                                            muon_fsdp2,
                                            muon_zero3,
                                            muon_experts,
                                            muon_padded,
                                            adafactor_one_rank,
                                            adafactor_fsdp2,
                                            adafactor_zero3,
                                            adafactor_experts,
                                            adafactor_padded,
                                            experts_of_tp,
                                            experts_of_dp,
                                            experts_of_both,
                                            experts_in_shards,
                                            experts_bf16};

START_TEST(goes_on_bit_by_bit) {
  ToyOptions o = cases[_i]();
  SavedToy s;
  Trace straight = {0}, resumed = {0};
  double loss[WHOLE], again[WHOLE];
  const char *dir = scratch_path("a");
  saved_open(&s, &o, dir, NULL);
  saved_steps(&s, 0, WHOLE, loss);
  SavedToy first = s;
  read_state(first.run, &first.t, &straight);
  SavedToy half;
  const char *half_dir = scratch_path("b");
  saved_open(&half, &o, half_dir, NULL);
  saved_steps(&half, 0, HALF, again);
  saved_save(&half, HALF);
  saved_close(&half);
  Ckpt *c = saved_ckpt(half_dir, HALF);
  ck_assert_int_eq(c->m.step, HALF);
  ck_assert_int_eq(c->m.scaler.skipped, o.dtype == DT_F16 ? HALF : 0);
  saved_open(&half, &o, half_dir, c);
  saved_steps(&half, HALF, WHOLE, again);
  read_state(half.run, &half.t, &resumed);
  ck_assert_mem_eq(loss + HALF, again + HALF, sizeof *loss * (WHOLE - HALF));
  same_bits(&straight, &resumed);
  ckpt_close(c);
  saved_close(&half);
  saved_close(&first);
}
END_TEST

/* ---- another mesh ---- */

static void load_state(const ToyOptions *o, const Ckpt *c, SavedToy *s, const char *dir,
                       Trace *x) {
  saved_open(s, o, dir, c);
  read_state(s->run, &s->t, x);
}

static const struct Pair2 {
  ToyOptions (*from)(void), (*to)(void);
} pairs[] = {{plain, one_rank},
             {one_rank, plain},
             {zero3, plain},
             {plain, zero3},
             {padded, zero2},
             {zero2, padded},
             {zero1, padded},
             {post_validation, zero3},
             {experts_of_tp, experts_of_dp},
             {experts_of_dp, experts_in_shards},
             {experts_in_shards, experts_one_rank},
             {experts_one_rank, experts_of_both},
             {experts_of_both, experts_of_tp},
             {sgd_plain, sgd_early},
             {sgd_early, sgd_plain},
             {sgd_experts, sgd_experts},
             {lion_zero2, lion_one_rank},
             {lion_one_rank, lion_zero2},
             {muon_one_rank, muon_padded},
             {muon_padded, muon_fsdp2},
             {muon_fsdp2, muon_one_rank},
             {adafactor_one_rank, adafactor_padded},
             {adafactor_padded, adafactor_fsdp2},
             {adafactor_fsdp2, adafactor_one_rank},
             {pure, pure_zero3},
             {pure_zero3, pure_zero1},
             {pure_zero1, zero2}};

/* What a mesh has loaded it writes again, and the first one reads that. */
START_TEST(means_the_same_on_another_mesh) {
  ToyOptions a = pairs[_i].from(), b = pairs[_i].to();
  SavedToy s, there, back;
  Trace was = {0}, is = {0}, again = {0};
  double loss[WHOLE];
  const char *dir = scratch_path("a"), *other = scratch_path("b");
  saved_open(&s, &a, dir, NULL);
  saved_steps(&s, 0, HALF, loss);
  saved_save(&s, HALF);
  read_state(s.run, &s.t, &was);
  Ckpt *c = saved_ckpt(dir, HALF);
  load_state(&b, c, &there, other, &is);
  same_bits(&was, &is);
  saved_save(&there, HALF + 1);
  Ckpt *d = saved_ckpt(other, HALF + 1);
  load_state(&a, d, &back, scratch_path("c"), &again);
  same_bits(&was, &again);
  ckpt_close(c), ckpt_close(d);
  saved_close(&back), saved_close(&there), saved_close(&s);
}
END_TEST

static const struct Pair2 onward[] = {{plain, zero3},
                                      {experts_of_tp, experts_of_both},
                                      {experts_in_shards, experts_one_rank},
                                      {experts_one_rank, experts_of_tp}};

START_TEST(steps_on_another_mesh_agree) {
  ToyOptions a = onward[_i].from(), b = onward[_i].to();
  SavedToy s, t;
  double loss[WHOLE], there[WHOLE];
  const char *dir = scratch_path("a");
  saved_open(&s, &a, dir, NULL);
  saved_steps(&s, 0, HALF, loss);
  saved_save(&s, HALF);
  Ckpt *c = saved_ckpt(dir, HALF);
  saved_open(&t, &b, scratch_path("b"), c);
  saved_steps(&s, HALF, WHOLE, loss);
  saved_steps(&t, HALF, WHOLE, there);
  for (int k = HALF; k < WHOLE; k++)
    ck_assert_double_le(fabs(loss[k] - there[k]), 1e-6 * fabs(loss[k]));
  ckpt_close(c);
  saved_close(&t), saved_close(&s);
}
END_TEST

/* Its states would be those of another step. */
START_TEST(another_optimizer_is_refused) {
  static const OptimizerKind to[] = {OPTIMIZER_ADAMW, OPTIMIZER_LION,
                                     OPTIMIZER_SGD_PLAIN};
  ToyOptions a = with(OPTIMIZER_SGD, one_rank());
  SavedToy s;
  double loss[WHOLE];
  saved_open(&s, &a, scratch_path("a"), NULL);
  saved_steps(&s, 0, HALF, loss);
  saved_save(&s, HALF);
  Ckpt *c = saved_ckpt(scratch_path("a"), HALF);
  for (int i = 0; i < LEN(to); i++) {
    ToyOptions b = with(to[i], one_rank());
    Toy t;
    weft_error e = {.rank = -1};
    ck_assert_int_eq(toy_compile(&t, &b, NULL), WEFT_OK);
    ck_assert_int_eq(ckpt_fits(c, t.compiled, CKPT_STATES, &e), WEFT_EUSAGE);
    ck_assert_msg(
        strstr(e.text, "has the states of weft.sgd, the plan's optimizer is weft."), "%s",
        e.text);
    toy_free(&t);
  }
  ckpt_close(c);
  saved_close(&s);
}
END_TEST

/* Masters are the values; a plan in another format reads them. */
START_TEST(means_the_same_in_another_format) {
  ToyOptions a = masters(), b = one_rank();
  SavedToy s, t;
  Trace was = {0}, is = {0};
  double loss[WHOLE];
  saved_open(&s, &a, scratch_path("a"), NULL);
  saved_steps(&s, 0, HALF, loss);
  saved_save(&s, HALF);
  read_state(s.run, &s.t, &was);
  Ckpt *c = saved_ckpt(scratch_path("a"), HALF);
  load_state(&b, c, &t, scratch_path("b"), &is);
  same_bits(&was, &is);
  ckpt_close(c);
  saved_close(&t), saved_close(&s);
}
END_TEST

/* ---- transfers ---- */

/* A device takes microseconds for one, however small: a piece comes in three at most, of
 * what is whole blocks and of the ends, and pieces of other types in one. */
START_TEST(pieces_come_in_few_transfers) {
  ToyOptions o = in_8bit_fsdp2();
  SavedToy s;
  double loss[1];
  uint64_t pieces = 0;
  saved_open(&s, &o, scratch_path("a"), NULL);
  saved_steps(&s, 0, 1, loss);
  Worker *w = s.run->worker;
  SavedList l = saved_list(s.run->c, w->rank);
  for (Saved x; saved_next(&l, &x);) pieces++;
  uint64_t was = w->dev.count.copies;
  ck_assert_int_eq(run_snapshot(s.run, NULL), WEFT_OK);
  ck_assert_int_gt(w->dev.count.copies, was);
  ck_assert_int_le(w->dev.count.copies, was + 3 * pieces);
  saved_close(&s);
}
END_TEST

/* Some elements of a piece, wherever they begin and end, are those of the whole. */
static void parts_are_the_same(Rank *r, const Piece *p) {
  static const int64_t from[] = {0, 1, 255, 256, 300, 511, 700},
                       count[] = {1, 2, 200, 256, 257, 600, 5000};
  enum { MOST = 8192 };
  float whole[MOST], part[MOST + 1];
  if (p->count > MOST) return;
  rank_read(r, p, whole);
  for (int i = 0; i < LEN(from); i++)
    for (int k = 0; k < LEN(count); k++) {
      int64_t n = MIN(count[k], p->count - from[i]);
      if (n <= 0) continue;
      Piece some = piece_part(p, from[i], n);
      part[n] = -7;
      rank_read(r, &some, part);
      ck_assert_mem_eq(part, whole + from[i], (size_t)n * sizeof *part);
      ck_assert(part[n] == -7);
    }
}

START_TEST(parts_of_pieces) {
  static ToyOptions (*const of[])(void) = {in_8bit_one_rank, in_8bit_zero3, pure};
  ToyOptions o = of[_i]();
  SavedToy s;
  double loss[1];
  saved_open(&s, &o, scratch_path("a"), NULL);
  saved_steps(&s, 0, 1, loss);
  Worker *w = s.run->worker;
  SavedList l = saved_list(s.run->c, w->rank);
  for (Saved x; saved_next(&l, &x);) parts_are_the_same(w->r, &x.piece);
  saved_close(&s);
}
END_TEST

/* ---- shares ---- */

/* Every rank writes, and none much more than its part. */
START_TEST(ranks_share_the_writing) {
  ToyOptions o = _i ? meshed(1, 1, 4) : meshed(2, 2, 2);
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  const Compiled *c = t.compiled;
  uint64_t sum = 0, most = 0;
  for (int i = 0; i < c->mesh.world; i++) {
    uint64_t n = saved_share(c, i);
    ck_assert_int_gt(n, 0);
    ck_assert(n <= saved_most(c, mesh_coord(&c->mesh, i, AXIS_PP)));
    sum += n, most = MAX(most, n);
  }
  ck_assert_int_ge(sum, 12 * c->params_total);
  ck_assert_int_lt(sum, 12 * c->params_total * 21 / 20);
  ck_assert_int_lt(most, 2 * sum / (uint64_t)c->mesh.world);
  toy_free(&t);
}
END_TEST

Suite *ckpt_exact_suite(void) {
  Suite *s = suite_create("ckpt_exact");
  TCase *c = tcase_create("resume");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, goes_on_bit_by_bit, 0, LEN(cases));
  tcase_add_loop_test(c, means_the_same_on_another_mesh, 0, LEN(pairs));
  tcase_add_loop_test(c, steps_on_another_mesh_agree, 0, LEN(onward));
  tcase_add_test(c, another_optimizer_is_refused);
  tcase_add_test(c, means_the_same_in_another_format);
  tcase_add_test(c, pieces_come_in_few_transfers);
  tcase_add_loop_test(c, parts_of_pieces, 0, 3);
  tcase_add_loop_test(c, ranks_share_the_writing, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
