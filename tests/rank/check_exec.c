/* check_exec.c - the interpreter and steps of a run, on programs written by hand. Those
 * of the pipeline compute 2 * (3 * w) on two pp ranks. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/generate/program_builder.h"
#include "tests/generate/handmade_regions.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"

static Arena *arena;
static weft_error err;
static Plan plan;
static Run *run;

static void setup(void) {
  arena = arena_new(NULL);
  err_clear(&err);
  plan = (Plan){.batch = {.global = 1, .micro = 1, .seq = 8, .rounds = 1},
                .opt = {.lr = {.kind = LR_CONSTANT, .max = 0.5, .min = 0.5},
                        .beta1 = 0.9,
                        .beta2 = 0.5},
                .steps = 4,
                .seed = 1};
  run = NULL;
}

static void teardown(void) {
  run_close(run);
  arena_free(arena);
}

static void has(const char *part) {
  ck_assert_msg(strstr(err.text, part) != NULL, "\"%s\" is not in: %s", part, err.text);
}

/* ---- a pipeline of two ranks ---- */

enum {
  LABELS = 256,
  W = 512,
  G = 528,
  M = 544,
  V = 560,
  X = 576,
  Y = 592,
  WORK = 2048,
  END = 4096
};

static Operand scal(void) { return typed_at(DT_F64, 0, 0, SC_N); }

static void scal_op(Build *b, int pp, int op, Operand first, int attr) {
  bool one = op == OP_scal_zero || op == OP_clip_coef, works = op == OP_sqnorm;
  Operand all[] = {first, scal(), scal(), f32_at(0, WORK, 512)};
  Instr *x = build_op(b, pp, op, one ? all + 1 : all, one ? 1 : 2, 1 + works, "update");
  x->attr = (uint32_t)attr;
  x->nout = 1, x->nwork = works;
}

static void begin(Build *b, int pp) {
  scal_op(b, pp, OP_scal_zero, scal(), 0);
  scal_op(b, pp, OP_count_labels, typed_at(DT_I32, 0, LABELS, 8), 0);
}

static void finish(Build *b, int pp, Operand loss, Operand g) {
  scal_op(b, pp, OP_acc_loss, loss, 0);
  scal_op(b, pp, OP_sqnorm, g, 2);
  scal_op(b, pp, OP_clip_coef, g, 0);
}

/* y = attr.scale * x in a body: x of the unit, y of the call. */
static void call_scale(Build *b, int pp, uint64_t x, uint64_t y, const char *what) {
  int unit = build_unit(b, pp, "layers.0", &x, 1);
  int body = build_body(b, pp, "layer:F", PH_F, 3);
  Operand o[] = {f32_at(1, 0, 4), f32_at(2, 0, 4)};
  build_op(b, pp, OP_scale, o, 1, 1, what)->attr = 1;
  build_main(b, pp);
  build_call(b, pp, body, unit, 0, "F0", &y, 1);
}

static void p2p(Build *b, int pp, bool send, uint64_t at, int handle) {
  if (send)
    build_send(b, pp, 1 - pp, handle, f32_at(0, at, 4), "F0");
  else
    build_recv(b, pp, 1 - pp, handle, f32_at(0, at, 4), "F0");
  build_wait(b, pp, handle);
}

/* Parameter 0 ("w", four ones) is on pp rank 0. `lost` leaves out the send back. */
static Compiled *pipeline(bool lost) {
  Build *b = build_new(arena, 2, 1, END);
  begin(b, 0);
  call_scale(b, 0, W, X, "layers.0.mlp");
  p2p(b, 0, true, X, 0);
  p2p(b, 0, false, Y, 1);
  finish(b, 0, f32_at(0, Y, 1), f32_at(0, Y, 4));
  begin(b, 1);
  p2p(b, 1, false, X, 0);
  call_scale(b, 1, X, Y, "layers.1.mlp");
  if (!lost) p2p(b, 1, true, Y, 1);
  finish(b, 1, f32_at(0, Y, 1), f32_at(0, Y, 4));
  Compiled *c = build_done(b);
  c->param = NEW(arena, CompiledParam);
  c->nparam = 1;
  c->param[0] = (CompiledParam){.like = "w",
                                .name = "w",
                                .ndim = 1,
                                .dim = {4},
                                .init = INIT_ONES,
                                .place = place_whole()};
  stored_add(arena, &c->prog[0].regions, (Stored){.count = 4, .owner = true}, DT_F32,
             (StoredAt){W, W, G, M, V});
  for (int i = 0; i < 2; i++) {
    c->prog[i].input[IN_LABELS] = LABELS;
    c->prog[i].attr = NEW_N(arena, OpAttr, 3);
    c->prog[i].nattr = 3;
    c->prog[i].attr[1].scale = i ? 2 : 3;
    c->prog[i].attr[2].n = SC_NORM2;
  }
  return c;
}

static void open_with(const Compiled *c, RunOptions o) {
  o.threads = 1;
  weft_status st = run_open(&plan, c, &o, &run, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  ck_assert_int_eq(run_init(run, &err), WEFT_OK);
}

static void open_run(const Compiled *c) { open_with(c, (RunOptions){0}); }

static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int32_t labels[8] = {2, 3, 4, -100, 6, 7, 8, -100};

static weft_status step(int64_t n, StepResult *res) {
  return run_step_tokens(run, tokens, labels, n, res, &err);
}

START_TEST(a_step_passes_data_along) {
  StepResult res;
  open_run(pipeline(false));
  for (int i = 0; i < 3; i++) {
    weft_status st = step(i, &res);
    ck_assert_msg(st == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(res.tokens, 6);
    ck_assert_double_eq_tol(res.loss, 6.0 / 6, 1e-12);
    ck_assert_double_eq_tol(res.grad_norm, 12, 1e-12);
    ck_assert(res.lr == 0.5 && res.step == i && res.ms > 0);
  }
  const double *s = rank_scalars(run->worker[1].r);
  ck_assert_double_eq_tol(s[SC_BC1], 1 - 0.9 * 0.9 * 0.9, 1e-12);
  ck_assert_double_eq_tol(s[SC_BC2], 1 - 0.5 * 0.5 * 0.5, 1e-12);
  ck_assert_uint_eq(run_memory(run), END);
  ck_assert_int_eq(run_world(run), 2);
}
END_TEST

START_TEST(a_step_allocates_nothing) {
  StepResult res;
  open_run(pipeline(false));
  ck_assert(run_allocations(run) > 0);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(step(i, &res), WEFT_OK);
  ck_assert_uint_eq(run_allocations(run), 0);
}
END_TEST

START_TEST(the_first_nan_is_found) {
  StepResult res;
  const float w[4] = {1, 1, NAN, 1};
  open_run(pipeline(false));
  ck_assert_int_eq(run_set(run, STATE_PARAM, 0, w, &err), WEFT_OK);
  ck_assert_int_eq(step(3, &res), WEFT_ERUN);
  has("step 3: the gradient norm is nan; ");
  has("; first seen on rank 0 in op scale of layers.0.mlp");
  ck_assert_int_eq(err.rank, 0);
}
END_TEST

START_TEST(infinity_is_named_where_it_begins) {
  StepResult res;
  Compiled *c = pipeline(false);
  c->prog[1].attr[1].scale = INFINITY;
  open_run(c);
  ck_assert_int_eq(step(0, &res), WEFT_ERUN);
  has("step 0: loss is inf; first seen on rank 1 in op scale of layers.1.mlp");
}
END_TEST

START_TEST(a_step_needs_labels) {
  StepResult res;
  const int32_t none[8] = {-100, -100, -100, -100, -100, -100, -100, -100};
  open_run(pipeline(false));
  ck_assert_int_eq(run_step_tokens(run, tokens, none, 2, &res, &err), WEFT_ERUN);
  has("step 2 has no label tokens");
}
END_TEST

START_TEST(a_wrong_batch_is_refused) {
  plan.batch.global = 2;
  ck_assert_int_eq(run_open(&plan, pipeline(false), &(RunOptions){0}, &run, &err),
                   WEFT_EINTERNAL);
  err_clear(&err);
  plan.batch.global = 1;
  RunOptions gpus = {.world = world_kind("pigeons", &err)};
  ck_assert_ptr_null(gpus.world);
  has("no backend \"pigeons\" in this build, only local, mpi, tcp or nccl");
}
END_TEST

START_TEST(an_op_without_kernel_is_named) {
  Build *b = build_new(arena, 1, 1, END);
  Operand o[] = {f32_at(0, X, 4), f32_at(0, Y, 4)};
  build_op(b, 0, OP_all_reduce, o, 1, 1, "layers.3.mlp");
  weft_status st = run_open(&plan, build_done(b), &(RunOptions){0}, &run, &err);
  ck_assert_int_eq(st, WEFT_ERUN);
  has("no kernel for op all_reduce (layers.3.mlp)");
}
END_TEST

/* ---- ends ---- */

START_TEST(a_failing_rank_ends_the_others) {
  StepResult res;
  for (uint64_t n = 1; n <= 4; n++) {
    open_run(pipeline(false));
    run->worker[1].comm.fail_at = n;
    ck_assert_int_eq(step(0, &res), WEFT_ERUN);
    has("step 0: rank 1: ");
    has("injected");
    ck_assert_int_eq(err.rank, 1);
    err_clear(&err);
    ck_assert_int_eq(step(1, &res), WEFT_ERUN);
    has("an earlier step has ended this run");
    run_close(run);
    run = NULL;
    err_clear(&err);
  }
}
END_TEST

START_TEST(the_flag_stops_a_step) {
  StepResult res;
  StopFlag stop = 1;
  open_with(pipeline(false), (RunOptions){.stop = &stop});
  ck_assert_int_eq(step(5, &res), WEFT_EINTR);
  has("interrupted in step 5");
}
END_TEST

static StopFlag late;
static void *set_late(void *unused) {
  usleep(30000);
  late = 1;
  return NULL;
}

/* All ranks wait, so nobody but the caller's thread can see the flag. */
START_TEST(the_flag_ends_waits) {
  StepResult res;
  pthread_t t;
  late = 0;
  open_with(pipeline(true), (RunOptions){.stop = &late});
  pthread_create(&t, NULL, set_late, NULL);
  ck_assert_int_eq(step(0, &res), WEFT_EINTR);
  pthread_join(t, NULL);
}
END_TEST

/* Seconds without progress after which the ranks say where they wait. It is long enough
 * for the thread of each rank to come there. */
enum { PATIENCE_S = 1 };

START_TEST(the_watchdog_names_the_wait) {
  StepResult res;
  open_with(pipeline(true), (RunOptions){.patience_s = PATIENCE_S});
  ck_assert_int_eq(step(0, &res), WEFT_ERUN);
  has("no progress for");
  has("rank 0 waits in recv from rank 1 of F0; rank 1 has finished its step");
}
END_TEST

/* Three pp ranks, of which 0 and 2 add up a tied parameter. Rank 1 does not come: it has
 * nothing to do, or waits for a message that nobody sends. */
static Compiled *absent(bool blocked) {
  Build *b = build_new(arena, 3, 1, END);
  int comm = build_comm(b, "pp", AXIS_BIT(AXIS_PP), 1, NULL, 0);
  for (int pp = 0; pp < 3; pp += 2) {
    build_coll(b, pp, comm, COLL_ALL_REDUCE, 0, f32_at(0, G, 4), f32_at(0, G, 4),
               "embed.weight");
    build_wait(b, pp, 0);
  }
  if (blocked) {
    build_recv(b, 1, 0, 0, f32_at(0, X, 4), "F3 of layers.7");
    build_wait(b, 1, 0);
  }
  return build_done(b);
}

START_TEST(the_watchdog_names_all_that_wait) {
  static const char *const others[] = {
      "rank 1 has finished its step",
      "rank 1 waits in recv from rank 0 of F3 of layers.7"};
  StepResult res;
  open_with(absent(_i), (RunOptions){.patience_s = PATIENCE_S});
  ck_assert_int_eq(step(3, &res), WEFT_ERUN);
  has("step 3: no progress for");
  has("ranks 0, 2 wait in all_reduce(pp) of embed.weight");
  has(others[_i]);
}
END_TEST

static void slow_launch(Device *d, const Kernel *k, const KernelArgs *a) {
  usleep(PATIENCE_S * 1500000);
  device_cpu.launch(d, k, a);
}

static DeviceVtable slow_device;
static const DeviceVtable *load_slow(weft_error *e) {
  slow_device = device_cpu;
  slow_device.launch = slow_launch;
  return &slow_device;
}

/* A kernel may take longer than others may wait for nothing. */
START_TEST(the_watchdog_lets_ranks_compute) {
  StepResult res;
  Compiled *c = pipeline(false);
  DeviceKind slow = *c->device;
  slow.load = load_slow;
  c->device = &slow;
  open_with(c, (RunOptions){.patience_s = PATIENCE_S});
  ck_assert_msg(step(0, &res) == WEFT_OK, "%s", err.text);
}
END_TEST

/* ---- accumulation ---- */

/* db += sum of dy, with bit 0 of `fresh` set for the first call only. */
START_TEST(the_first_microbatch_overwrites) {
  Build *b = build_new(arena, 1, 1, END);
  int body = build_body(b, 0, "layer:W", PH_W, 3);
  uint64_t grad = G, dy = X;
  int unit = build_unit(b, 0, "layers.0", &grad, 1);
  Operand o[] = {f32_at(2, 0, 4), f32_at(1, 0, 2)};
  o[0].ndim = 2, o[0].dim[0] = 2, o[0].dim[1] = 2;
  build_op(b, 0, OP_bias_dw, o, 1, 1, "layers.0.bias")->acc = ACC_BIT;
  build_main(b, 0);
  for (int i = 0; i < 3; i++) build_call(b, 0, body, unit, i, "W", &dy, 1);
  Compiled *c = build_done(b);
  c->prog[0].call[0].fresh = 1;
  Device dev;
  Rank *r;
  ck_assert_int_eq(device_open(&dev, &device_cpu, NULL, 0, 0, 1, &err), WEFT_OK);
  ck_assert_int_eq(rank_new(NULL, c, 0, &dev, &r, &err), WEFT_OK);
  char *at = rank_arena(r);
  float *db = (float *)(at + G), *x = (float *)(at + X);
  db[0] = 100, x[0] = 1, x[1] = 2, x[2] = 3, x[3] = 4;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(rank_step(r, true, NULL, &err), WEFT_OK);
    ck_assert(db[0] == 12 && db[1] == 18);
  }
  rank_free(r);
  device_close(&dev);
}
END_TEST

/* ---- inputs ---- */

enum { TOK = 512, LAB = 1024, POS = 1536, DOC = 2048 };

/* Two microbatches of two sequences on two dp ranks. */
static Compiled *all_inputs(void) {
  Build *b = build_new(arena, 1, 1, END);
  const uint64_t at[] = {TOK, LAB, POS, DOC};
  scal_op(b, 0, OP_scal_zero, scal(), 0);
  scal_op(b, 0, OP_count_labels, typed_at(DT_I32, 0, LAB, 32), 0);
  Compiled *c = build_done(b);
  Diags d = {.arena = arena};
  ck_assert(mesh_resolve(&(MeshSpec){.dp = 2}, 0, &c->mesh, &d));
  c->microbatches = 2;
  c->micro = 2;
  memcpy(c->prog[0].input, at, sizeof at);
  plan.batch.global = 8;
  return c;
}

START_TEST(rows_go_to_their_ranks) {
  StepResult res;
  int32_t tok[64], lab[64];
  plan.packed = (Packed){.on = true, .separator = 999};
  open_run(all_inputs());
  for (int i = 0; i < 64; i++) tok[i] = i, lab[i] = 100 + i;
  tok[2 * 8 + 2] = tok[2 * 8 + 7] = 999; /* row 2: rank 1's first */
  ck_assert_int_eq(run_step_tokens(run, tok, lab, 0, &res, &err), WEFT_OK);
  const int row[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
  for (int k = 0; k < 2; k++) {
    const char *at = rank_arena(run->worker[k].r);
    for (int i = 0; i < 4; i++) {
      ck_assert_mem_eq(at + TOK + 32 * i, tok + 8 * row[k][i], 32);
      ck_assert_mem_eq(at + LAB + 32 * i, lab + 8 * row[k][i], 32);
    }
  }
  const int32_t pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 0}, doc[] = {0, 0, 0, 3, 3, 3, 3, 3, 0};
  const char *at = rank_arena(run->worker[1].r);
  ck_assert_mem_eq(at + POS, pos, sizeof pos);
  ck_assert_mem_eq(at + DOC, doc, sizeof doc);
}
END_TEST

START_TEST(an_unpacked_row_is_one_document) {
  StepResult res;
  int32_t tok[64] = {0};
  open_run(all_inputs());
  ck_assert_int_eq(run_step_tokens(run, tok, tok, 0, &res, &err), WEFT_OK);
  const int32_t pos[] = {0, 1, 2, 3, 4, 5, 6, 7, 0}, doc[9] = {0};
  const char *at = rank_arena(run->worker[0].r);
  ck_assert_mem_eq(at + POS, pos, sizeof pos);
  ck_assert_mem_eq(at + DOC, doc, sizeof doc);
}
END_TEST

START_TEST(samples_are_numbered_globally) {
  StepResult res;
  Data *d;
  int32_t tok[8], lab[8];
  plan.batch.seq = 8;
  DataSpec spec = {.kind = DATA_SYNTHETIC, .vocab = 50};
  ck_assert_int_eq(data_open(NULL, &spec, 8, 50, 3, &d, &err), WEFT_OK);
  open_run(all_inputs());
  ck_assert_int_eq(run_step(run, d, 2, &res, &err), WEFT_OK);
  ck_assert_int_eq(data_sample(d, 2 * 8 + 6, tok, lab, &err), WEFT_OK);
  const char *at = rank_arena(run->worker[1].r);
  ck_assert_mem_eq(at + TOK + 2 * 32, tok, sizeof tok);
  ck_assert_mem_eq(at + LAB + 2 * 32, lab, sizeof lab);
  data_close(d);
}
END_TEST

/* ---- shards ---- */

/* Two ranks with four elements each of the parameters of a unit: gathered, tripled by a
 * call that binds the copy, and as if that were the gradient, summed into the shards. */
START_TEST(a_gathered_copy_stands_in_for_what_is_stored) {
  enum { SHARD = 512, COPY = 768, THREE = 1024, SUM = 1280 };
  Build *b = build_new(arena, 1, 2, END);
  int tp = build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  int unit = build_unit(b, 0, "layers.0", NULL, 0);
  int body = build_body(b, 0, "layer:F", PH_F, 3);
  build_kernel(b, 0, OP_scale, f32_at(1, 0, 8), f32_at(2, 0, 8))->attr = 1;
  build_main(b, 0);
  build_bind(b, 0, unit, &(Bind){COPY, unit}, 1);
  build_gather(b, 0, unit, tp, 0, f32_at(0, SHARD, 4), f32_at(0, COPY, 8));
  build_wait(b, 0, 0);
  build_call(b, 0, body, unit, 0, "F0", &(uint64_t){THREE}, 1);
  build_free(b, 0, unit, f32_at(0, COPY, 8));
  build_scatter(b, 0, unit, tp, 0, f32_at(0, THREE, 8), f32_at(0, SUM, 4));
  build_wait(b, 0, 0);
  Compiled *c = build_done(b);
  c->prog[0].attr = NEW_N(arena, OpAttr, 2);
  c->prog[0].nattr = 2;
  c->prog[0].attr[1].scale = 3;
  weft_status st = prove(c, NULL, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  open_run(c);
  StepResult res;
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < 4; i++)
      ((float *)((char *)rank_arena(run->worker[r].r) + SHARD))[i] = (float)(10 * r + i);
  step(0, &res);
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < 4; i++) {
      const float *sum = (float *)((char *)rank_arena(run->worker[r].r) + SUM);
      ck_assert_float_eq(sum[i], (float)(2 * 3 * (10 * r + i)));
    }
}
END_TEST

/* Step k of a warmup of n has (k + 1) / n of the maximum, so that the first one learns.
 */
START_TEST(learning_rates) {
  static const struct {
    LrKind kind;
    int64_t step;
    double lr;
  } want[] = {{LR_COSINE, 0, 0.25}, {LR_COSINE, 3, 1},    {LR_COSINE, 4, 1},
              {LR_COSINE, 7, 0.55}, {LR_COSINE, 10, 0.1}, {LR_LINEAR, 5, 0.85},
              {LR_LINEAR, 9, 0.25}, {LR_LINEAR, 20, 0.1}, {LR_CONSTANT, 1, 0.5},
              {LR_CONSTANT, 9, 1}};
  for (int i = 0; i < LEN(want); i++) {
    LrSchedule lr = {
        .kind = want[i].kind, .max = 1, .min = 0.1, .warmup = 4, .steps = 10};
    ck_assert_double_eq_tol(lr_at(&lr, want[i].step), want[i].lr, 1e-12);
  }
}
END_TEST

/* Numbers of transformers.optimization: get_polynomial_decay_schedule_with_warmup,
 * get_inverse_sqrt_schedule and get_wsd_schedule with a warmup of 4 steps, 20 steps, a
 * lowest rate of 0.1 and 5 steps of decay; exponential by Megatron's formula. */
START_TEST(learning_rates_of_transformers) {
  static const struct {
    LrSchedule lr;
    int64_t step;
    double want;
  } rate[] = {
      {{.kind = LR_POLYNOMIAL, .power = 2}, 4, 1},
      {{.kind = LR_POLYNOMIAL, .power = 2}, 7, 0.694140625},
      {{.kind = LR_POLYNOMIAL, .power = 2}, 19, 0.103515625},
      {{.kind = LR_POLYNOMIAL, .power = 2}, 23, 0.1},
      {{.kind = LR_INVERSE_SQRT}, 4, 1},
      {{.kind = LR_INVERSE_SQRT}, 7, 0.755928946018},
      {{.kind = LR_INVERSE_SQRT}, 23, 0.417028828114},
      {{.kind = LR_INVERSE_SQRT}, 1000000, 0.1},
      {{.kind = LR_INVERSE_SQRT, .timescale = 9}, 7, 0.866025403784},
      {{.kind = LR_INVERSE_SQRT, .timescale = 9}, 19, 0.612372435696},
      {{.kind = LR_WSD, .fall = LR_FALL_COSINE, .decay = 5}, 14, 1},
      {{.kind = LR_WSD, .fall = LR_FALL_COSINE, .decay = 5}, 15, 1},
      {{.kind = LR_WSD, .fall = LR_FALL_COSINE, .decay = 5}, 17, 0.689057647469},
      {{.kind = LR_WSD, .fall = LR_FALL_COSINE, .decay = 5}, 20, 0.1},
      {{.kind = LR_WSD, .fall = LR_FALL_LINEAR, .decay = 5}, 17, 0.64},
      {{.kind = LR_WSD, .fall = LR_FALL_LINEAR, .decay = 5}, 19, 0.28},
      {{.kind = LR_WSD, .fall = LR_FALL_MINUS_SQRT, .decay = 5}, 17, 0.43079002117},
      {{.kind = LR_WSD, .fall = LR_FALL_MINUS_SQRT, .decay = 5}, 22, 0.1},
      {{.kind = LR_WSD, .fall = LR_FALL_EXPONENTIAL, .decay = 5}, 17, 0.564144909859},
  };
  for (int i = 0; i < LEN(rate); i++) {
    LrSchedule lr = rate[i].lr;
    lr.max = 1, lr.min = 0.1, lr.warmup = 4, lr.steps = 20;
    ck_assert_double_eq_tol(lr_at(&lr, rate[i].step), rate[i].want, 1e-11);
  }
}
END_TEST

/* What is said as a part, or in tokens, in steps. */
START_TEST(learning_rates_by_parts) {
  Plan p = {.steps = 30, .batch = {.global = 8, .seq = 100}};
  p.opt.lr = (LrSchedule){.kind = LR_WSD,
                          .max = 2,
                          .min_ratio = 0.1,
                          .warmup_ratio = 0.1,
                          .decay_ratio = 0.21};
  LrSchedule lr = lr_resolved(&p);
  ck_assert_int_eq(lr.steps, 30);
  ck_assert_int_eq(lr.warmup, 3);
  ck_assert_int_eq(lr.decay, 7);
  ck_assert_double_eq(lr.min, 0.2);
  p.opt.lr.steps = 10;
  ck_assert_int_eq(lr_resolved(&p).warmup, 1);
  p.opt.lr.warmup_ratio = 0, p.opt.lr.warmup_tokens = 801;
  ck_assert_int_eq(lr_resolved(&p).warmup, 2);
}
END_TEST

Suite *exec_suite(void) {
  const TTest *const tests[] = {
      a_step_passes_data_along,
      a_gathered_copy_stands_in_for_what_is_stored,
      a_step_allocates_nothing,
      the_first_nan_is_found,
      infinity_is_named_where_it_begins,
      a_step_needs_labels,
      learning_rates,
      learning_rates_of_transformers,
      learning_rates_by_parts,
      a_wrong_batch_is_refused,
      an_op_without_kernel_is_named,
      a_failing_rank_ends_the_others,
      the_flag_stops_a_step,
      the_flag_ends_waits,
      the_watchdog_names_the_wait,
      the_watchdog_lets_ranks_compute,
      the_first_microbatch_overwrites,
      rows_go_to_their_ranks,
      an_unpacked_row_is_one_document,
      samples_are_numbered_globally,
  };
  Suite *s = suite_create("exec");
  TCase *c = tcase_create("exec");
  tcase_add_checked_fixture(c, setup, teardown);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  tcase_add_loop_test(c, the_watchdog_names_all_that_wait, 0, 2);
  suite_add_tcase(s, c);
  return s;
}
