/* check_post_validation.c - an optimizer that steps before the norm of all ranks is known
 * gives the bits of one that waits: where its step stands, where it is taken back and
 * made again, where it is held, and where a gradient is not finite on one rank only. */
#include <check.h>
#include <math.h>

#include "tests/harness/run_bits.h"
#include "vm/run/run_int.h"
#include "vm/storage/memory_plan.h"
#include "vm/weights/param_gather.h"

/* ---- what the pp ranks did in the last step ---- */

enum { PP_MAX = 4 };

typedef struct Did {
  bool stepped[PP_MAX], undone[PP_MAX], skipped[PP_MAX];
} Did;

static void look(const Run *r, Did *d) {
  for (int i = 0; i < r->nworker; i++) {
    const double *s = rank_scalars(r->worker[i].r);
    int pp = mesh_coord(&r->c->mesh, i, AXIS_PP);
    d->stepped[pp] = s[SC_GUESS] != 0;
    d->undone[pp] = s[SC_UNDO] != 0;
    d->skipped[pp] = s[SC_SKIP] != 0;
  }
}

/* Norms of the first step's gradient: of each pp rank, and of all of them in [pp]. */
static void first_norms(ToyOptions o, double *norm) {
  Toy t;
  Run *r;
  StepResult res;
  o.post_validation = false;
  open_toy(&t, &o, 1, &r);
  trace_step(r, &t, 0, &res);
  for (int k = 0; k < o.pp; k++) norm[k] = 0;
  for (int i = 0; i < t.compiled->nparam; i++) {
    const CompiledParam *p = &t.compiled->param[i];
    int64_t n = param_count(p);
    float *g = NEW_N(t.arena, float, n);
    OK(run_get(r, STATE_GRAD, i, g, &trace_err));
    for (int64_t k = 0; k < n; k++) norm[p->pp[0]] += (double)g[k] * g[k];
  }
  for (int k = 0; k < o.pp; k++) norm[k] = sqrt(norm[k]);
  norm[o.pp] = res.grad_norm;
  run_close(r);
  toy_free(&t);
}

/* One step with this clip: what the ranks did. */
static void first_step(ToyOptions o, Did *d) {
  Toy t;
  Run *r;
  StepResult res;
  open_toy(&t, &o, 1, &r);
  trace_step(r, &t, 0, &res);
  look(r, d);
  run_close(r);
  toy_free(&t);
}

/* The same steps with and without. */
static void same_as_ordinary(ToyOptions o) {
  Toy t, u;
  Trace x, y;
  for (int threads = 1; threads <= 2; threads++) {
    o.post_validation = true;
    trace(&t, &o, threads, &x);
    o.post_validation = false;
    trace(&u, &o, threads, &y);
    if (o.optimizer == OPTIMIZER_SGD_PLAIN)
      x.kinds--; /* a state for the copy: optimizers.def */
    same_bits(&x, &y);
    toy_free(&t);
    toy_free(&u);
  }
}

static double largest(const double *norm, int n) {
  double most = 0;
  for (int i = 0; i < n; i++) most = fmax(most, norm[i]);
  return most;
}

/* ---- the four ways ---- */

static ToyOptions two_stages(void) {
  ToyOptions o = meshed(1, 2, 1);
  o.post_validation = true;
  return o;
}

START_TEST(a_step_that_stands) {
  ToyOptions o = two_stages();
  Did d;
  o.clip = 1e6;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(d.stepped[k] && !d.undone[k] && !d.skipped[k]);
  same_as_ordinary(o);
  o.clip = 0;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(d.stepped[k] && !d.undone[k]);
  same_as_ordinary(o);
}
END_TEST

/* No rank's own part reaches the clip, all together do: all ranks have stepped, and all
 * take it back. */
START_TEST(a_step_that_is_taken_back) {
  ToyOptions o = two_stages();
  double norm[PP_MAX + 1];
  Did d;
  first_norms(o, norm);
  o.clip = (largest(norm, 2) + norm[2]) / 2;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(d.stepped[k] && d.undone[k] && !d.skipped[k]);
  same_as_ordinary(o);
}
END_TEST

/* One rank knows from its own part that it has to clip, the other does not. */
START_TEST(a_step_that_one_rank_holds) {
  ToyOptions o = two_stages();
  double norm[PP_MAX + 1];
  Did d;
  first_norms(o, norm);
  ck_assert_double_ne(norm[0], norm[1]);
  o.clip = (norm[0] + norm[1]) / 2;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) {
    ck_assert_int_eq(d.stepped[k], norm[k] < o.clip);
    ck_assert_int_eq(d.undone[k], d.stepped[k]);
  }
  same_as_ordinary(o);
}
END_TEST

START_TEST(a_step_that_all_hold) {
  ToyOptions o = two_stages();
  Did d;
  o.clip = 1e-3;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(!d.stepped[k] && !d.undone[k]);
  same_as_ordinary(o);
}
END_TEST

/* With one stage the rank's own norm is the whole one: the guess is right, clip or not.
 */
START_TEST(one_stage_guesses_right) {
  ToyOptions o = meshed(2, 1, 2);
  Did d;
  o.post_validation = true;
  for (int i = 0; i < 2; i++) {
    o.clip = i ? 1e-3 : 1e6;
    first_step(o, &d);
    ck_assert(d.stepped[0] && !d.undone[0]);
    same_as_ordinary(o);
  }
}
END_TEST

/* ---- other optimizers ---- */

/* Where a step is taken back, and where it stands. */
START_TEST(every_optimizer_takes_steps_back) {
  ToyOptions o = meshed(1, 2, 2);
  double norm[PP_MAX + 1];
  Did d;
  o.optimizer = _i / 2;
  const OptimizerInfo *of = &optimizer_info[o.optimizer];
  if (of->matrices || of->factored) return; /* refused: optimizers.def */
  o.strategy.stage = _i % 2;
  first_norms(o, norm);
  o.post_validation = true;
  o.clip = (largest(norm, 2) + norm[2]) / 2;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(d.stepped[k] && d.undone[k] && !d.skipped[k]);
  same_as_ordinary(o);
  pair_agrees(&o);
  o.clip = 0;
  first_step(o, &d);
  for (int k = 0; k < 2; k++) ck_assert(d.stepped[k] && !d.undone[k]);
  same_as_ordinary(o);
}
END_TEST

/* ---- meshes ---- */

START_TEST(meshes_give_the_same_bits) {
  ToyOptions all[] = {meshed(2, 2, 2), meshed(1, 4, 2), meshed(2, 4, 1), meshed(2, 2, 1),
                      meshed(1, 3, 2)};
  ToyOptions o = all[_i];
  double norm[PP_MAX + 1];
  o.overlap = _i % 2, o.sp = _i == 2, o.tied = _i == 1;
  if (_i == 3) o.dtype = DT_BF16;
  if (_i == 4) o.layers = 3;
  first_norms(o, norm);
  o.clip = (largest(norm, o.pp) + norm[o.pp]) / 2;
  Did d;
  o.post_validation = true;
  first_step(o, &d);
  for (int k = 0; k < o.pp; k++) ck_assert(d.stepped[k] && d.undone[k]);
  same_as_ordinary(o);
  if (o.dtype == DT_F32) pair_agrees(&o);
}
END_TEST

/* Experts that their own mesh cuts are kept in regions of their own, larger or smaller
 * than those of other parameters; with tp = 2 and etp = 1 nothing but that makes two of
 * them. */
START_TEST(experts_are_kept_apart) {
  ToyOptions all[] = {meshed(1, 2, 2), meshed(2, 2, 1), meshed(1, 2, 2), meshed(2, 2, 2)};
  ToyOptions o = all[_i];
  double norm[PP_MAX + 1];
  o.experts = 4, o.topk = 2, o.layers = 2;
  o.ep = _i == 1 ? 1 : 2, o.etp = 1;
  if (_i == 2) o.ffn = 8; /* the other region is the larger one */
  if (_i == 3) o.strategy.stage = 1;
  first_norms(o, norm);
  o.clip = (largest(norm, o.pp) + norm[o.pp]) / 2;
  Did d;
  o.post_validation = true;
  first_step(o, &d);
  for (int k = 0; k < o.pp; k++) ck_assert(d.stepped[k] && d.undone[k]);
  same_as_ordinary(o);
  pair_agrees(&o);
}
END_TEST

/* ---- a gradient that is not finite ---- */

static weft_status step_again(Worker *w, void *arg, weft_error *e) {
  return rank_step(w->r, false, NULL, e);
}

/* Parameters and moments of all local ranks, where they lie. */
static float *pieces(Toy *t, const Run *r, int64_t *n) {
  static const StateKind kind[] = {STATE_PARAM, STATE_OPT1, STATE_OPT2};
  *n = 0;
  float *all =
      NEW_N(t->arena, float, 3 * (uint64_t)r->nworker * t->compiled->params_total);
  for (int i = 0; i < r->nworker; i++)
    for (int k = 0; k < LEN(kind); k++)
      for (int p = 0; p < t->compiled->nparam; p++) {
        Piece piece[2];
        if (!state_pieces(t->compiled, r->worker[i].rank, kind[k], p, piece)) continue;
        rank_read(r->worker[i].r, piece, all + *n);
        *n += piece->count;
      }
  return all;
}

/* From now on the backward pass of pp rank 0 gives gradients that are not finite; nothing
 * comes after it, so it is the only one. */
static void spoil(Toy *t) {
  Program *p = &t->compiled->prog[0];
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++)
    if (p->code[i].code == I_KERNEL && p->code[i].op == OP_attention_dx)
      p->attr[p->code[i].attr].scale = INFINITY, n++;
  ck_assert_int_gt(n, 0);
}

/* Spoils one step after a good one. Returns the message that a whole run ends with. */
static const char *spoiled_step(Toy *t, const ToyOptions *o, Did *d) {
  Run *r;
  StepResult res;
  int64_t n, m;
  open_toy(t, o, 1, &r);
  trace_step(r, t, 0, &res);
  float *before = pieces(t, r, &n);
  spoil(t);
  OK(run_all(r, step_again, NULL, true, &trace_err));
  look(r, d);
  float *after = pieces(t, r, &m);
  ck_assert_int_eq(n, m);
  ck_assert(memcmp(before, after, sizeof(float) * (size_t)n) == 0);
  int32_t *ids = NEW_N(t->arena, int32_t, 2 * t->plan.batch.global * t->plan.batch.seq);
  random_ids(t, 1, ids, ids + t->plan.batch.global * t->plan.batch.seq);
  weft_error why = {.rank = -1};
  weft_status st = run_step_tokens(r, ids, ids + t->plan.batch.global * t->plan.batch.seq,
                                   1, &res, &why);
  ck_assert_int_eq(st, WEFT_ERUN);
  after = pieces(t, r, &m);
  ck_assert(memcmp(before, after, sizeof(float) * (size_t)n) == 0);
  const char *text = arena_str(t->arena, why.text);
  run_close(r);
  return text;
}

/* The other ranks have stepped when they hear of it. All skip the step, nothing has
 * changed, and the run ends with the message of an ordinary one. */
START_TEST(a_gradient_that_is_not_finite) {
  ToyOptions o = meshed(1 + _i, 2, 1 + _i);
  Toy t, u;
  Did d, ordinary;
  o.clip = 1e6;
  const char *want = spoiled_step(&u, &o, &ordinary);
  o.post_validation = true;
  const char *got = spoiled_step(&t, &o, &d);
  ck_assert(!d.stepped[0] && d.stepped[1] && d.undone[1]);
  for (int k = 0; k < 2; k++) {
    ck_assert(d.skipped[k] && ordinary.skipped[k]);
    ck_assert(!ordinary.stepped[k] && !ordinary.undone[k]);
  }
  /* Which of the ranks with the same work is first is chance. */
  const char *texts[] = {want, got};
  for (int k = 0; k < 2; k++) {
    ck_assert_ptr_nonnull(
        strstr(texts[k], "step 1: the gradient norm is nan; first seen"));
    ck_assert_ptr_nonnull(strstr(texts[k], "in op attention_dx of "));
  }
  if (_i == 0) ck_assert_str_eq(got, want);
  toy_free(&t);
  toy_free(&u);
}
END_TEST

/* ---- the program ---- */

static uint64_t class_bytes(const Program *p, const char *name) {
  for (int i = 0; i < p->nmem; i++)
    if (str_eq(p->mem[i].name, name)) return p->mem[i].bytes;
  return 0;
}

static uint64_t kept_bytes(const Program *p) {
  uint64_t n = 0;
  for (int i = 0; i < p->regions.nregion; i++)
    if (p->regions.region[i].kind == REGION_STATE1)
      n += 3 * region_bytes(&p->regions.region[i]);
  return n;
}

/* Scratch of the kernels of a step's end: it is not dead when the optimizer steps. */
static uint64_t scratch_bytes(const Program *p) {
  uint64_t most = 0;
  for (const Instr *in = p->code; in < p->code + p->nmain; in++)
    if (in->code == I_KERNEL && in->nwork)
      most = MAX(most, operand_bytes(&p->operand[in->operand + in->nin + in->nout]));
  return align_up(most);
}

/* The copies lie where the activations were; memory grows by what does not fit there. */
START_TEST(copies_share_memory_with_activations) {
  for (int large = 0; large < 2; large++) {
    ToyOptions o = meshed(1, 2, 1);
    Toy t, u;
    o.micro = large ? 8 : 1, o.seq = large ? 64 : 4;
    ck_assert_int_eq(toy_compile(&u, &o, NULL), WEFT_OK);
    o.post_validation = true;
    ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
    for (int k = 0; k < 2; k++) {
      const Program *p = &t.compiled->prog[k], *q = &u.compiled->prog[k];
      uint64_t kept = kept_bytes(p);
      uint64_t freed =
          class_bytes(q, "activations") + class_bytes(q, "workspace") - scratch_bytes(q);
      uint64_t more = kept > freed ? kept - freed : 0;
      ck_assert_uint_eq(p->arena_bytes, q->arena_bytes + more);
      ck_assert_uint_eq(class_bytes(p, "undo copies"), more);
      ck_assert(large ? more == 0 : more > 0);
    }
    toy_free(&t);
    toy_free(&u);
  }
}
END_TEST

/* While the norm is on its way nothing may look at it; the prover says who does. */
START_TEST(the_norm_in_flight_is_not_read) {
  ToyOptions o = two_stages();
  Toy t;
  weft_error why = {.rank = -1};
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Program *p = &t.compiled->prog[1];
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == I_KERNEL && p->code[i].op == OP_adamw_try)
      p->operand[p->code[i].operand + 4].dim[0] = SC_N;
  ck_assert_int_eq(prove(t.compiled, NULL, &why), WEFT_EPLAN);
  ck_assert_msg(strstr(why.text, "adamw_try") != NULL, "%s", why.text);
  toy_free(&t);
}
END_TEST

START_TEST(nothing_is_allocated) {
  ToyOptions o = meshed(2, 2, 1);
  Toy t;
  Run *r;
  StepResult res;
  o.post_validation = true;
  open_toy(&t, &o, 1, &r);
  (void)run_allocations(r);
  for (int k = 0; k < 3; k++) trace_step(r, &t, k, &res);
  ck_assert_uint_eq(run_allocations(r), 0);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- verify sees a step that stays ---- */

static void drop_undo(Toy *t) {
  int n = 0;
  for (int k = 0; k < t->mesh.size[AXIS_PP]; k++) {
    Program *p = &t->compiled->prog[k];
    for (uint32_t i = 0; i < p->nmain; i++) {
      if (p->code[i].code != I_KERNEL || p->code[i].op != OP_step_undo) continue;
      for (uint32_t j = 0; j < 8; j++)
        if (j != 3) p->operand[p->code[i].operand + j].dim[0] = 0;
      n++;
    }
  }
  ck_assert_int_gt(n, 0);
}

/* Whether verify passes with such a clip, without the undo if `spoilt`. */
static bool verify_passes(const ToyOptions *o, bool spoilt) {
  Pair p;
  pair_compile(&p, o);
  if (spoilt) drop_undo(&p.many);
  pair_verify(&p, 1, 1e-5);
  bool ok = p.report.ok;
  if (!ok)
    ck_assert_msg(strstr(p.report.first_bad, "first moment of ") != NULL, "%s",
                  p.report.first_bad);
  pair_free(&p);
  return ok;
}

/* Steps are undone where the clip is between the norm of a stage and that of all. Labels
 * of verify are not those of first_norms: one of these clips is. */
START_TEST(a_wrong_step_that_stays) {
  ToyOptions o = two_stages();
  double norm[PP_MAX + 1];
  int seen = 0;
  first_norms(o, norm);
  for (double part = 0.6; part < 1.5; part += 0.1) {
    o.clip = part * (largest(norm, 2) + norm[2]) / 2;
    ck_assert(verify_passes(&o, false));
    seen += !verify_passes(&o, true);
  }
  ck_assert_int_gt(seen, 0);
}
END_TEST

Suite *post_validation_suite(void) {
  const TTest *const tests[] = {
      a_step_that_stands,
      a_step_that_is_taken_back,
      a_step_that_one_rank_holds,
      a_step_that_all_hold,
      one_stage_guesses_right,
      copies_share_memory_with_activations,
      the_norm_in_flight_is_not_read,
      nothing_is_allocated,
      a_wrong_step_that_stays,
  };
  Suite *s = suite_create("post_validation");
  TCase *c = tcase_create("steps");
  tcase_set_timeout(c, 60);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  tcase_add_loop_test(c, experts_are_kept_apart, 0, 4);
  tcase_add_loop_test(c, every_optimizer_takes_steps_back, 0, 2 * OPTIMIZER_N);
  tcase_add_loop_test(c, meshes_give_the_same_bits, 0, 5);
  tcase_add_loop_test(c, a_gradient_that_is_not_finite, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
