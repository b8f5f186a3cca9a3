/* check_oracle.c - against Hugging Face transformers and PyTorch, on one rank and on
 * eight meshes: loss and every gradient (data of tests/oracle/generate.py), and losses
 * and norms of twelve steps of AdamW (tests/oracle/steps.py; --oracle DIR runs what that
 * made), also under PyTorch's FSDP2 (tests/oracle/fsdp2.py). */
#include <check.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/schedule/schedule_facts.h"
#include "tests/harness/plan_fixture.h"
#include "vm/run/run.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"
#include "vm/compile/compile.h"

static const char *const models[] = {
    "llama",          "llama_tied",  "llama3_rope",
    "qwen2",          "qwen3",       "gpt2",
    "llama_yarn",     "deepseek_v3", "deepseek_v3_no_lora",
    "mixtral",        "qwen3_moe",   "qwen3_moe_step",
    "deepseek_v3_moe"};
typedef struct MeshCase {
  int tp, pp, dp;
  bool sp;
} MeshCase;
static const MeshCase meshes[] = {{1, 1, 1, false}, {2, 1, 1, false}, {2, 1, 1, true},
                                  {1, 2, 1, false}, {1, 1, 2, false}, {2, 2, 1, true},
                                  {2, 2, 2, false}, {2, 2, 2, true}};
static const MeshCase wide[] = {{2, 1, 1, true},  {4, 1, 1, false}, {4, 2, 1, true},
                                {8, 1, 1, false}, {8, 1, 1, true},  {8, 1, 2, true}};

static const weft_alloc libc_alloc;

typedef struct Oracle {
  PlanFixture f;
  Compiled *c;
  Run *run;
  SafeTensors *weights, *expected;
} Oracle;

/* Fails the test unless the call succeeded. */
static void need(Oracle *o, weft_status st, const char *what) {
  ck_assert_msg(st == WEFT_OK, "%s: %s", what, fixture_report(&o->f));
}

static const char oracles[] = WEFT_SOURCE_DIR "/tests/oracle";

static SafeTensors *open_data(Oracle *o, const char *folder, const char *model,
                              const char *file) {
  SafeTensors *s = NULL;
  const char *path =
      arena_printf(o->f.arena, "%s/%s/%s.safetensors", folder, model, file);
  need(o, st_open(&libc_alloc, path, NULL, &s, &o->f.e), path);
  return s;
}

static void load_set(Oracle *o, const char *plan, const char *model,
                     const char *const *set) {
  char define[64];
  snprintf(define, sizeof define, "model=%s", model);
  need(o, fixture_open(&o->f, plan, (const char *[]){define, NULL}, set), "load");
}

static void load_plan(Oracle *o, const char *plan, const char *model, MeshCase m) {
  char tp[32], pp[32], dp[32], sp[64];
  snprintf(tp, sizeof tp, "mesh.tp=%d", m.tp);
  snprintf(pp, sizeof pp, "mesh.pp=%d", m.pp);
  snprintf(dp, sizeof dp, "mesh.dp=%d", m.dp);
  snprintf(sp, sizeof sp, "strategy.sequence_parallel=%s", m.sp ? "true" : "false");
  load_set(o, plan, model, (const char *[]){tp, pp, dp, sp, NULL});
}

static void compile_plan(Oracle *o) {
  const Plan *plan = lang_plan(o->f.lp);
  Mesh mesh;
  Graph *g;
  Schedule s;
  bool ok = mesh_resolve(&plan->mesh, 0, &mesh, &o->f.d);
  ck_assert_msg(ok, "%s", fixture_report(&o->f));
  int m = plan_microbatches(plan, &mesh);
  int64_t B = plan->batch.micro * mesh_size(&mesh, AXES_DP);
  need(o, fixture_graph(&o->f, B, plan->batch.seq, &g), "graph");
  need(o, lang_schedule(o->f.lp, &mesh, m, &s, &o->f.d, &o->f.e), "schedule");
  CompileInput in = {
      .plan = plan, .mesh = &mesh, .graph = g, .schedule = &s, .arena = o->f.arena};
  need(o, compile(&in, &o->c, &o->f.d, &o->f.e), "compile");
  Proof proof;
  need(o, prove(o->c, &proof, &o->f.e), "prove");
}

static const int32_t *ids(Oracle *o, const char *name) {
  const SafeTensor *t = st_find(o->expected, name);
  ck_assert_ptr_nonnull(t);
  ck_assert_int_eq(t->dtype, DT_I32);
  int32_t *copy = arena_alloc(o->f.arena, t->bytes);
  need(o, file_at(t->in, t->at, copy, t->bytes, &o->f.e), name);
  return copy;
}

static float expected_loss(Oracle *o) {
  float loss;
  const SafeTensor *t = st_find(o->expected, "loss");
  ck_assert_ptr_nonnull(t);
  need(o, st_read_f32(t, &loss, &o->f.e), "loss");
  return loss;
}

/* ||got - want|| / ||want|| of the gradient of parameter `i`. */
static double gradient_error(Oracle *o, int i) {
  const CompiledParam *p = &o->c->param[i];
  const SafeTensor *t =
      st_find(o->expected, arena_printf(o->f.arena, "grad.%s", p->name));
  ck_assert_msg(t != NULL, "%s is not in the data", p->name);
  int64_t n = param_count(p);
  ck_assert_uint_eq(t->bytes, (size_t)n * sizeof(float));
  float *want = NEW_N(o->f.arena, float, n), *got = NEW_N(o->f.arena, float, n);
  need(o, st_read_f32(t, want, &o->f.e), p->name);
  need(o, run_get(o->run, STATE_GRAD, i, got, &o->f.e), p->name);
  double diff = 0, norm = 0;
  for (int64_t k = 0; k < n; k++) {
    diff += ((double)got[k] - want[k]) * ((double)got[k] - want[k]);
    norm += (double)want[k] * want[k];
  }
  ck_assert_msg(norm > 0, "%s: the expected gradient is zero", p->name);
  return sqrt(diff / norm);
}

/* Of the plan that was loaded. */
static void start_loaded(Oracle *o, const char *folder, const char *model) {
  compile_plan(o);
  o->weights = open_data(o, folder, model, "model");
  o->expected = open_data(o, folder, model, "expected");
  RunOptions options = {.alloc = &libc_alloc, .threads = 1};
  need(o, run_open(lang_plan(o->f.lp), o->c, &options, &o->run, &o->f.e), "run_open");
  need(o, run_load(o->run, o->weights, &o->f.e), "run_load");
}

static void start(Oracle *o, const char *plan, const char *folder, const char *model,
                  MeshCase m) {
  load_plan(o, plan, model, m);
  start_loaded(o, folder, model);
}

static void finish(Oracle *o) {
  run_close(o->run);
  st_close(o->weights);
  st_close(o->expected);
  fixture_close(&o->f);
}

static void agrees(const char *model, MeshCase m) {
  Oracle o = {0};
  start(&o, "tests/oracle/plan.lua", oracles, model, m);
  ck_assert_int_ge(st_count(o.weights), o.c->nparam);
  StepResult r;
  const int32_t *labels = ids(&o, "labels");
  need(&o, run_step_tokens(o.run, ids(&o, "tokens"), labels, 0, &r, &o.f.e), "step");
  int n = 0;
  for (int i = 0; i < 8 * 16; i++) n += labels[i] != -100;
  ck_assert_int_eq(r.tokens, n);
  double want = expected_loss(&o);
  ck_assert_msg(fabs(r.loss - want) <= 1e-5 * want, "loss %.9g, expected %.9g", r.loss,
                want);
  for (int i = 0; i < o.c->nparam; i++) {
    double err = gradient_error(&o, i);
    ck_assert_msg(err <= 1e-5, "%s tp=%d pp=%d dp=%d sp=%d: gradient of %s: %.2g", model,
                  m.tp, m.pp, m.dp, m.sp, o.c->param[i].name, err);
  }
  finish(&o);
}

START_TEST(agrees_with_hugging_face) {
  agrees(models[_i / LEN(meshes)], meshes[_i % LEN(meshes)]);
}
END_TEST

/* Fewer key-value heads than ranks of tp, which have copies of them. */
static const char *const few_heads[] = {"llama_one_kv", "qwen3_two_kv"};

START_TEST(copies_of_heads) { agrees(few_heads[_i / LEN(wide)], wide[_i % LEN(wide)]); }
END_TEST

/* ---- steps ---- */

enum { STEPS = 12, STEP_TOKENS = 8 * 16 };

static void expected_list(Oracle *o, const char *name, float *to) {
  const SafeTensor *t = st_find(o->expected, name);
  ck_assert_ptr_nonnull(t);
  ck_assert_uint_eq(t->bytes, STEPS * sizeof *to);
  need(o, st_read_f32(t, to, &o->f.e), name);
}

/* The largest relative difference of a loss over the steps; norms may differ by ten times
 * as much: they are not what is trained on. `as`: the rest of the names of both in the
 * data, `where`: for messages. */
static double take_steps_within(Oracle *o, double tolerance, const char *as,
                                const char *where) {
  float loss[STEPS], norm[STEPS];
  double worst = 0;
  expected_list(o, arena_printf(o->f.arena, "loss%s", as), loss);
  expected_list(o, arena_printf(o->f.arena, "norm%s", as), norm);
  const int32_t *tokens = ids(o, "tokens"), *labels = ids(o, "labels");
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    need(o,
         run_step_tokens(o->run, tokens + i * STEP_TOKENS, labels + i * STEP_TOKENS, i,
                         &r, &o->f.e),
         "step");
    double by = fabs(r.loss - loss[i]) / loss[i];
    worst = fmax(worst, by);
    ck_assert_msg(by <= tolerance &&
                      fabs(r.grad_norm - norm[i]) <= 10 * tolerance * norm[i],
                  "%s, step %d: loss %.9g, expected %.9g; norm %.9g, expected %.9g",
                  where, i, r.loss, loss[i], r.grad_norm, norm[i]);
  }
  return worst;
}

static double take_steps(Oracle *o, const char *as, const char *where) {
  return take_steps_within(o, 1e-5, as, where);
}

static double run_steps(const char *plan, const char *folder, const char *model,
                        int mesh) {
  Oracle o = {0};
  char where[128];
  snprintf(where, sizeof where, "%s tp=%d pp=%d dp=%d sp=%d", model, meshes[mesh].tp,
           meshes[mesh].pp, meshes[mesh].dp, meshes[mesh].sp);
  start(&o, plan, folder, model, meshes[mesh]);
  double worst = take_steps(&o, "", where);
  finish(&o);
  return worst;
}

static const struct {
  const char *plan, *model;
} stepped[] = {{"steps.lua", "steps_qwen2"},       {"steps.lua", "steps_gpt2"},
               {"steps.lua", "steps_deepseek_v3"}, {"steps.lua", "steps_mixtral"},
               {"steps.lua", "steps_qwen3_moe"},   {"steps.lua", "steps_deepseek_v3_moe"},
               {"steps.lua", "steps_llama"},       {"steps.lua", "steps_granite"},
               {"steps.lua", "steps_smollm3"},     {"steps.lua", "steps_olmo2"},
               {"steps.lua", "steps_seed_oss"},    {"steps.lua", "steps_ernie4_5"},
               {"steps.lua", "steps_glm4_moe"},    {"steps.lua", "steps_glm4"},
               {"steps.lua", "steps_phi3"},        {"steps.lua", "steps_phi3_long"},
               {"steps.lua", "steps_minimax_m2"},  {"router.lua", "steps_router"},
               {"uses.lua", "steps_uses"}};

START_TEST(steps_agree_with_pytorch) {
  char plan[64];
  int model = _i / LEN(meshes);
  snprintf(plan, sizeof plan, "tests/oracle/%s", stepped[model].plan);
  (void)run_steps(plan, oracles, stepped[model].model, _i % LEN(meshes));
}
END_TEST

/* ---- steps in f16 ---- */

static const char *const f16_set[][3] = {{"mesh.tp=1"},
                                         {"mesh.pp=2", "mesh.dp=2"},
                                         {"mesh.tp=2", "optimizer.post_validation=true"}};

/* As PyTorch's GradScaler has it: which steps are skipped, and with which scale each is
 * taken. */
START_TEST(scales_as_gradscaler) {
  const char *set[4] = {
      "precision={param_dtype=\"f16\", init_scale=2097152, growth_interval=3}"};
  float loss[STEPS], scale[STEPS], skipped[STEPS];
  Oracle o = {0};
  memcpy(set + 1, f16_set[_i], sizeof f16_set[_i]);
  set[3] = NULL;
  load_set(&o, "tests/oracle/uses.lua", "steps_f16", set);
  start_loaded(&o, oracles, "steps_f16");
  expected_list(&o, "loss", loss);
  expected_list(&o, "scale", scale);
  expected_list(&o, "skipped", skipped);
  const int32_t *tokens = ids(&o, "tokens"), *labels = ids(&o, "labels");
  int skips = 0;
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    need(&o,
         run_step_tokens(o.run, tokens + i * STEP_TOKENS, labels + i * STEP_TOKENS, i, &r,
                         &o.f.e),
         "step");
    ck_assert_msg(r.loss_scale == scale[i] && r.skipped == (skipped[i] != 0),
                  "step %d: scale %g, skipped %d; expected %g, %g", i, r.loss_scale,
                  r.skipped, scale[i], skipped[i]);
    ck_assert_msg(fabs(r.loss - loss[i]) <= 1e-3 * loss[i],
                  "step %d: loss %.9g, not %.9g", i, r.loss, loss[i]);
    skips += r.skipped;
  }
  ck_assert(skips > 1 && skips < STEPS / 2);
  finish(&o);
}
END_TEST

/* ---- steps of FSDP2 ---- */

static const struct {
  const char *as, *set[5];
} fsdp2[] = {{"", {"mesh.dp=2"}},
             {"", {"mesh.dp=2", "strategy=fsdp2"}},
             {".hsdp", {"mesh.dp=4", "mesh.dp_replicate=2", "strategy=fsdp2"}},
             {".hsdp", {"mesh.dp=2", "mesh.dp_replicate=2", "mesh.tp=2"}},
             {"",
              {"mesh.dp=4", "mesh.tp=2",
               "strategy={ 'fsdp2', "
               "defer_fsdp_grad_sync = false }"}},
             {".hsdp",
              {"mesh.dp=4", "mesh.dp_replicate=2",
               "strategy={ 'fsdp2', "
               "defer_fsdp_grad_sync = false }"}},
             {"", {"mesh.dp=2", "mesh.pp=2", "strategy.stage=3"}},
             {"", {"mesh.dp=4", "strategy=megatron_fsdp"}},
             {".hsdp", {"mesh.dp=4", "mesh.dp_replicate=2", "strategy.stage=1"}},
             {".hsdp",
              {"mesh.dp=4", "mesh.dp_replicate=2", "strategy.stage=3",
               "strategy.offload_optimizer=cpu"}}};

START_TEST(steps_agree_with_fsdp2) {
  Oracle o = {0};
  load_set(&o, "tests/oracle/steps.lua", "steps_fsdp2", fsdp2[_i].set);
  start_loaded(&o, oracles, "steps_fsdp2");
  (void)take_steps(&o, fsdp2[_i].as, fsdp2[_i].set[0]);
  finish(&o);
}
END_TEST

/* ---- other optimizers ---- */

static const char *const other_optimizers[] = {"sgd",
                                               "sgd_momentum",
                                               "sgd_dampening",
                                               "sgd_nesterov",
                                               "lion",
                                               "lion_betas",
                                               "adam",
                                               "adamw_vectors",
                                               "muon",
                                               "muon_rms",
                                               "muon_rows",
                                               "adafactor",
                                               "adafactor_options",
                                               "adafactor_trainer",
                                               "adafactor_clipped"};
static const char *const optimizer_meshes[][5] = {
    {"mesh.dp=1"},
    {"mesh.dp=2", "mesh.tp=2", "strategy.stage=1", "strategy.sequence_parallel=true"},
    {"mesh.dp=4", "strategy=fsdp2"},
    {"mesh.dp=2", "mesh.pp=2", "strategy.stage=2", "optimizer.post_validation=true"},
    {"mesh.dp=4", "mesh.dp_replicate=2", "strategy.stage=3"},
};

START_TEST(steps_of_other_optimizers_agree) {
  const char *name = other_optimizers[_i / LEN(optimizer_meshes)];
  const char *set[LEN(optimizer_meshes[0])];
  Oracle o = {0};
  memcpy(set, optimizer_meshes[_i % LEN(optimizer_meshes)], sizeof set);
  /* A step of whole parameters is not taken back. */
  bool whole = !strncmp(name, "muon", 4) || !strncmp(name, "adafactor", 9);
  for (int i = 0; set[i]; i++)
    if (whole && strstr(set[i], "post_validation")) set[i] = NULL;
  load_set(&o, "tests/oracle/uses.lua", name, set);
  start_loaded(&o, oracles, "steps_optimizers");
  (void)take_steps(&o, arena_printf(o.f.arena, ".%s", name),
                   arena_printf(o.f.arena, "%s %s", name, set[0]));
  finish(&o);
}
END_TEST

/* ---- gradients, parameters and averages in bf16 ---- */

static const char *const bf16_formats[][2] = {
    {"mixed", "precision={ param_dtype = 'bf16', grad_dtype = 'bf16' }"},
    {"pure",
     "precision={ param_dtype = 'bf16', grad_dtype = 'bf16', master_dtype = 'bf16' }"},
};
static const char *const bf16_meshes[][4] = {
    {"mesh.dp=1"},
    {"mesh.dp=2", "mesh.tp=2", "strategy.stage=1", "strategy.sequence_parallel=true"},
    {"mesh.dp=4", "strategy=fsdp2"},
    {"mesh.dp=2", "mesh.pp=2", "strategy.stage=2", "optimizer.post_validation=true"},
    {"mesh.dp=4", "mesh.dp_replicate=2", "strategy.stage=3",
     "strategy.offload_optimizer=cpu"},
    {"mesh.dp=2", "mesh.pp=2", "schedule=zero_bubble"},
};

/* The losses are of logits with 8 bits, so that ranks that add up in another order are as
 * far apart as they are from PyTorch. */
START_TEST(steps_in_bf16_agree) {
  const char *const *form = bf16_formats[_i / LEN(bf16_meshes)];
  const char *const *mesh = bf16_meshes[_i % LEN(bf16_meshes)], *set[7] = {form[1]};
  bool pure = _i / LEN(bf16_meshes) > 0;
  Oracle o = {0};
  set[1] = pure ? "optimizer.state_dtype=bf16" : "optimizer.state_dtype=f32";
  memcpy(set + 2, mesh, sizeof bf16_meshes[0]);
  load_set(&o, "tests/oracle/uses.lua", "steps_bf16", set);
  start_loaded(&o, oracles, "steps_bf16");
  (void)take_steps_within(&o, 1e-3, arena_printf(o.f.arena, ".%s", form[0]),
                          arena_printf(o.f.arena, "%s %s", form[0], mesh[0]));
  finish(&o);
}
END_TEST

/* ---- latents ---- */

/* Attention through latents on meshes that models[] does not see. */
static const char *const latents[][6] = {
    {"mesh.tp=4"},
    {"mesh.tp=4", "mesh.dp=2", "strategy={ 'fsdp2', sequence_parallel = true }"},
    {"mesh.cp=2", "mesh.tp=2", "strategy.sequence_parallel=true"},
    {"mesh.cp=2", "mesh.dp=2", "strategy=fsdp2", "cp.comm=a2a"},
    {"mesh.cp=4", "cp.comm=ring", "mesh.pp=2", "strategy.stage=3"},
    {"mesh.cp=2", "mesh.tp=2", "mesh.pp=2", "cp.comm=a2a", "cp.balance=none"},
    {"mesh.pp=2", "mesh.tp=2", "mesh.dp=2", "strategy.stage=3", "schedule=zero_bubble",
     "recompute=full"},
    {"mesh.tp=2", "mesh.dp=2", "recompute=cheap",
     "strategy={ 'fsdp2', sequence_parallel = true, "
     "enable_async_tensor_parallel = true }"},
};

START_TEST(latents_agree_with_pytorch) {
  const char *model = "steps_deepseek_v3", *set[LEN(latents[0]) + 1] = {NULL};
  Oracle o = {0};
  memcpy(set, latents[_i], sizeof latents[_i]);
  load_set(&o, "tests/oracle/steps.lua", model, set);
  start_loaded(&o, oracles, model);
  (void)take_steps(&o, "", set[0]);
  finish(&o);
}
END_TEST

/* ---- experts ---- */

static const char *const sparse[] = {"steps_mixtral", "steps_qwen3_moe",
                                     "steps_deepseek_v3_moe"};
/* Ranks share them, with both dispatchers, strategies and ways of attention. */
static const char *const shared[][6] = {
    {"mesh.dp=2", "mesh.ep=2"},
    {"mesh.dp=4", "mesh.ep=2", "mesh.etp=2", "moe.dispatcher=alltoall"},
    {"mesh.tp=2", "mesh.dp=2", "mesh.ep=2", "mesh.etp=1", "strategy.stage=2"},
    {"mesh.tp=2", "mesh.pp=2", "mesh.dp=2", "mesh.ep=2", "strategy=fsdp2",
     "moe.dispatcher=alltoall"},
    {"mesh.dp=8", "mesh.ep=2", "strategy={ 'fsdp2', defer_fsdp_grad_sync = false }"},
    {"mesh.cp=2", "mesh.dp=2", "mesh.ep=2", "strategy.stage=3", "moe.dispatcher=alltoall",
     "recompute=full"},
    {"mesh.pp=2", "mesh.dp=2", "mesh.ep=2", "schedule=zero_bubble", "strategy.stage=1"},
    {"mesh.cp=2", "mesh.tp=2", "mesh.ep=2", "mesh.etp=2", "cp.comm=ring",
     "strategy.sequence_parallel=true"},
};

START_TEST(experts_agree_with_pytorch) {
  const char *model = sparse[_i % LEN(sparse)], *set[LEN(shared[0]) + 1] = {NULL};
  Oracle o = {0};
  memcpy(set, shared[_i / LEN(sparse)], sizeof shared[0]);
  load_set(&o, "tests/oracle/steps.lua", model, set);
  start_loaded(&o, oracles, model);
  (void)take_steps(&o, "", arena_printf(o.f.arena, "%s %s", model, set[0]));
  finish(&o);
}
END_TEST

/* ---- models made on the day ---- */

static glob_t made;
static const char *made_in;

/* On one rank and on one of the other meshes. */
START_TEST(made_model_agrees) {
  const char *model = strrchr(made.gl_pathv[_i], '/') + 1;
  char plan[512];
  snprintf(plan, sizeof plan, "%s/steps.lua", made_in);
  double one = run_steps(plan, made_in, model, 0);
  int mesh = 1 + _i % (LEN(meshes) - 1);
  double other = run_steps(plan, made_in, model, mesh);
  printf("%s: loss within %.1e on one rank, %.1e on tp=%d pp=%d dp=%d sp=%d\n", model,
         one, other, meshes[mesh].tp, meshes[mesh].pp, meshes[mesh].dp, meshes[mesh].sp);
}
END_TEST

int oracle_folder(int argc, char **argv) {
  char folder[400], pattern[512];
  if (argc < 1 || !realpath(argv[0], folder)) {
    fputs("weft-tests --oracle DIR: see tests/oracle/steps.py\n", stderr);
    return EXIT_FAILURE;
  }
  made_in = folder;
  snprintf(pattern, sizeof pattern, "%s/model_*", folder);
  if (glob(pattern, 0, NULL, &made) != 0) return EXIT_FAILURE;
  Suite *s = suite_create("oracle");
  TCase *t = tcase_create("made");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, made_model_agrees, 0, (int)made.gl_pathc);
  suite_add_tcase(s, t);
  SRunner *sr = srunner_create(s);
  srunner_run_all(sr, CK_ENV);
  int failed = srunner_ntests_failed(sr);
  srunner_free(sr);
  globfree(&made);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

Suite *oracle_suite(void) {
  Suite *s = suite_create("oracle");
  TCase *t = tcase_create("hugging face");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, agrees_with_hugging_face, 0, LEN(models) * LEN(meshes));
  tcase_add_loop_test(t, copies_of_heads, 0, LEN(few_heads) * LEN(wide));
  tcase_add_loop_test(t, steps_agree_with_fsdp2, 0, LEN(fsdp2));
  tcase_add_loop_test(t, latents_agree_with_pytorch, 0, LEN(latents));
  tcase_add_loop_test(t, experts_agree_with_pytorch, 0, LEN(sparse) * LEN(shared));
  tcase_add_loop_test(t, scales_as_gradscaler, 0, LEN(f16_set));
  tcase_add_loop_test(t, steps_of_other_optimizers_agree, 0,
                      LEN(other_optimizers) * LEN(optimizer_meshes));
  tcase_add_loop_test(t, steps_in_bf16_agree, 0, LEN(bf16_formats) * LEN(bf16_meshes));
  tcase_add_loop_test(t, steps_agree_with_pytorch, 0, LEN(stepped) * LEN(meshes));
  suite_add_tcase(s, t);
  return s;
}
