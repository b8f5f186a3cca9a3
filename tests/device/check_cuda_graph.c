/* check_cuda_graph.c - steps that are replayed as one graph, on the stand-ins for CUDA's
 * runtime and NCCL: the same bits as steps that are launched op by op, nothing launched
 * after the second one; what would be another step in each replay is found; what cannot
 * be captured is told and goes on. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/emulated.h"
#include "tests/generate/device_plans.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/harness/process.h"
#include "tests/harness/run_bits.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"

#ifdef WEFT_EMULATED_CUDA

#include "kernels/cuda/cuda.h"
#include "tests/standin/standin.h"

enum { TAKEN = 5 }; /* steps */

static void order(uint64_t n) {
  Standin s = standin_usual;
  s.order = n;
  standin_set(&s);
}

/* Every step has another learning rate and other tokens. */
static void schedule_lr(Toy *t) {
  t->plan.opt.lr = (LrSchedule){
      .kind = LR_COSINE, .max = 1e-2, .min = 1e-3, .warmup = 2, .steps = TAKEN};
}

static uint64_t step_bits(uint64_t h, Run *r, Toy *t, int k) {
  StepResult res;
  trace_step(r, t, k, &res);
  h = hash_bytes(h, &res.loss, sizeof res.loss);
  return hash_bytes(h, &res.grad_norm, sizeof res.grad_norm);
}

static uint64_t state_bits(uint64_t h, Run *r, Toy *t) {
  Trace x;
  read_state(r, t, &x);
  for (int k = 0; k < 3; k++) h = hash_bytes(h, x.state[k], (size_t)x.n * sizeof(float));
  return h;
}

static uint64_t all_bits(Run *r, Toy *t) {
  uint64_t h = 0;
  for (int k = 0; k < TAKEN; k++) h = step_bits(h, r, t, k);
  return state_bits(h, r, t);
}

/* ---- one rank ---- */

static ToyOptions tiny(void) {
  ToyOptions o = toy_default();
  o.layers = 2, o.micro = 1, o.microbatches = 2, o.hidden = 16, o.heads = 2,
  o.kv_heads = 2, o.ffn = 16, o.seq = 4;
  o.device = device_standin();
  return o;
}

static ToyOptions dense(void) {
  ToyOptions o = tiny();
  o.microbatches = 3;
  return o;
}
static ToyOptions in_bf16(void) {
  ToyOptions o = tiny();
  o.dtype = DT_BF16, o.tied = o.bias = true;
  return o;
}
static ToyOptions experts(void) {
  ToyOptions o = tiny();
  o.experts = 4, o.topk = 2, o.aux = 0.01f, o.running = true;
  return o;
}
static ToyOptions packed(void) {
  ToyOptions o = tiny();
  o.packed = true, o.seq = 8;
  return o;
}
static ToyOptions by_chance(void) {
  ToyOptions o = tiny();
  o.state = DT_BF16, o.stochastic = true;
  return o;
}
static ToyOptions (*const plans[])(void) = {dense, in_bf16, experts, packed, by_chance};

static uint64_t alone_bits(ToyOptions o, bool graph, DeviceCounts *count) {
  Toy t;
  Run *r;
  o.no_graph = !graph;
  open_toy(&t, &o, 1, &r);
  schedule_lr(&t);
  uint64_t h = step_bits(step_bits(0, r, &t, 0), r, &t, 1);
  count[0] = r->worker[0].dev.count;
  for (int k = 2; k < TAKEN; k++) h = step_bits(h, r, &t, k);
  count[1] = r->worker[0].dev.count;
  h = state_bits(h, r, &t);
  ck_assert_ptr_null(run_not_captured(r));
  run_close(r);
  toy_free(&t);
  return h;
}

START_TEST(the_bits_are_the_same) {
  ToyOptions o = plans[_i]();
  for (uint64_t i = 0; i < 2; i++) {
    DeviceCounts plain[2], kept[2];
    order(i);
    uint64_t a = alone_bits(o, false, plain), b = alone_bits(o, true, kept);
    ck_assert_uint_eq(a, b);
    ck_assert_uint_eq(plain[1].replays, 0);
    ck_assert_uint_gt(plain[1].launches, plain[0].launches);
    ck_assert_uint_eq(kept[0].replays, 1);
    ck_assert_uint_eq(kept[1].replays, TAKEN - 1);
    ck_assert_uint_eq(kept[1].launches, kept[0].launches);
  }
}
END_TEST

/* A learning rate that is no longer read would give the bits of another one. */
START_TEST(replays_read_what_changes) {
  Toy t;
  Run *r;
  uint64_t bits[2];
  ToyOptions o = dense();
  for (int i = 0; i < 2; i++) {
    open_toy(&t, &o, 1, &r);
    schedule_lr(&t);
    uint64_t h = 0;
    for (int k = 0; k < TAKEN; k++) {
      if (i && k == 3) t.plan.opt.lr.max *= 2;
      h = step_bits(h, r, &t, k);
    }
    bits[i] = state_bits(h, r, &t);
    run_close(r);
    toy_free(&t);
  }
  ck_assert_uint_ne(bits[0], bits[1]);
}
END_TEST

/* Members that share a GPU are not kept, and it is said. */
START_TEST(ranks_of_one_process_are_launched) {
  Toy t;
  Run *r;
  char way[96];
  ToyOptions o = tiny();
  o.dp = 2;
  open_toy(&t, &o, 1, &r);
  ck_assert_str_eq(run_way(r, way), "launched op by op: 2 ranks in one process");
  (void)all_bits(r, &t);
  ck_assert_uint_eq(r->worker[1].dev.count.replays, 0);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- what would not be the same step ---- */

/* A device with something wrong in it. */
static DeviceVtable faulty;
static const DeviceVtable *sound;
static float changing;       /* in each step another number for each rmsnorm, by value */
static DeviceEvent old;      /* of the step before */
static uint64_t waits, lose; /* so many are left */
static bool wait_for_old;

static void launch_changing(Device *d, const Kernel *k, const KernelArgs *a) {
  KernelArgs b = *a;
  OpAttr attr = *a->attr;
  attr.eps += changing;
  b.attr = &attr;
  sound->launch(d, k, k->run == cuda_rmsnorm ? &b : a);
}

static DeviceEvent record_and_keep(Device *d) {
  DeviceEvent ev = sound->record(d);
  if (!old.id) old = ev;
  return ev;
}

static void wait_wrongly(Device *d, DeviceEvent ev) {
  waits++;
  if (lose > 0 && lose--) return;
  if (wait_for_old) sound->wait(d, old);
  wait_for_old = false;
  sound->wait(d, ev);
}

static const DeviceVtable *load_faulty(weft_error *e) {
  sound = device_standin()->load(e);
  faulty = *sound;
  faulty.launch = launch_changing;
  faulty.record = record_and_keep, faulty.wait = wait_wrongly;
  return &faulty;
}

static weft_status try_step(Run *r, Toy *t, int k, weft_error *e) {
  int32_t ids[2][64];
  StepResult res;
  ck_assert_int_le(t->plan.batch.global * t->plan.batch.seq, 64);
  random_ids(t, k, ids[0], ids[1]);
  return run_step_tokens(r, ids[0], ids[1], k, &res, e);
}

/* Its value changes before the second step, or, as tests are strict, later. */
START_TEST(what_changes_by_value_is_found) {
  DeviceKind kind = *device_standin();
  Toy t;
  Run *r;
  weft_error e = {.rank = -1};
  ToyOptions o = dense();
  kind.load = load_faulty;
  o.device = &kind;
  int at = _i ? 3 : 1;
  open_toy(&t, &o, 1, &r);
  for (int k = 0; k < at; k++)
    ck_assert_msg(try_step(r, &t, k, &e) == WEFT_OK, "%s", e.text);
  changing = 1e-3f;
  ck_assert_int_eq(try_step(r, &t, at, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, "rank 0: op rmsnorm of ") != NULL, "%s", e.text);
  ck_assert_msg(strstr(e.text, "its launch arguments are not those of the first step") !=
                    NULL,
                "%s", e.text);
  changing = 0;
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- steps that are not replayed ---- */

/* One that is repeated, with a look at all values, names the op as ever. */
START_TEST(a_nan_in_a_replay_is_found) {
  Toy t;
  Run *r;
  weft_error e = {.rank = -1};
  ToyOptions o = dense();
  open_toy(&t, &o, 1, &r);
  for (int k = 0; k < 3; k++) OK(try_step(r, &t, k, &trace_err));
  const CompiledParam *p = &t.compiled->param[1];
  float *x = NEW_N(t.arena, float, param_count(p));
  x[0] = NAN;
  OK(run_set(r, STATE_PARAM, 1, x, &trace_err));
  ck_assert_int_eq(try_step(r, &t, 3, &e), WEFT_ERUN);
  ck_assert_msg(strstr(e.text, "step 3: loss is nan; first seen on rank 0 in op ") !=
                    NULL,
                "%s", e.text);
  ck_assert_uint_eq(r->worker[0].dev.count.replays, 3);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* ---- what cannot be captured ---- */

static uint64_t plain_bits(const ToyOptions *o) {
  DeviceCounts count[2];
  return alone_bits(*o, false, count);
}

static void goes_on_plainly(ToyOptions o, int at, const char *says, const char *also) {
  Toy t;
  Run *r;
  uint64_t want = plain_bits(&o), h = 0;
  open_toy(&t, &o, 1, &r);
  schedule_lr(&t);
  for (int k = 0; k < TAKEN; k++) {
    Standin s = standin_usual;
    s.capture_fails = k == 1 ? at : 0;
    standin_set(&s);
    h = step_bits(h, r, &t, k);
    const char *why = run_not_captured(r);
    ck_assert_msg((why != NULL) == (k == 1), "step %d: %s", k, why);
    if (why) ck_assert_msg(strstr(why, says) && strstr(why, also), "%s", why);
  }
  ck_assert_uint_eq(state_bits(h, r, &t), want);
  ck_assert_uint_eq(r->worker[0].dev.count.replays, 0);
  run_close(r);
  toy_free(&t);
}

/* The first launch, one in the middle. */
START_TEST(a_capture_that_breaks_is_told) {
  goes_on_plainly(dense(), _i ? 40 : 1, "the step cannot be captured: ", "rank 0: op ");
}
END_TEST

/* ---- several ranks, over NCCL ---- */

static ToyOptions tensor_parallel(void) {
  ToyOptions o = tiny();
  o.tp = 2, o.sp = true;
  return o;
}
static ToyOptions pipeline(void) {
  ToyOptions o = tiny();
  o.pp = 2;
  return o;
}
static ToyOptions zero1(void) {
  ToyOptions o = tiny();
  o.dp = 2, o.strategy.stage = 1;
  return o;
}
static ToyOptions zero3(void) {
  ToyOptions o = tiny();
  o.dp = 2, o.strategy.stage = 3;
  return o;
}
static ToyOptions expert_parallel(void) {
  ToyOptions o = experts();
  o.dp = o.ep = 2;
  return o;
}
static ToyOptions (*const meshes[])(void) = {tensor_parallel, pipeline, zero1, zero3,
                                             expert_parallel};

typedef struct Members {
  ToyOptions toy;
  uint64_t order;
  int fault; /* of rank 0: waits that are lost (1), or are for what was before (2) */
  const char
      *connections; /* to the GPU: fewer than streams, or NULL: as weft sets them */
  bool opens_only;  /* takes no step */
} Members;

/* Says the bits of rank 0, and what it says of launches. */
static bool be_rank(const Rendezvous *m, const void *arg) {
  const Members *x = arg;
  ToyOptions o = x->toy;
  DeviceKind kind = *device_standin();
  Toy t;
  Run *r;
  char way[96];
  RunOptions options = {.world = world_standin(), .settings.meet = m, .threads = 1};
  if (x->fault && m->rank == 0) kind.load = load_faulty;
  o.device = &kind;
  order(x->order + 7 * (uint64_t)m->rank);
  if (x->connections) setenv(CUDA_CONNECTIONS, x->connections, 1);
  if (toy_compile(&t, &o, NULL) != WEFT_OK) return false;
  OK(run_open(&t.plan, t.compiled, &options, &r, &trace_err));
  OK(run_init(r, &trace_err));
  schedule_lr(&t);
  if (x->opens_only) {
    if (m->rank == 0 && run_warning(r, 0)) printf("%s\n", run_warning(r, 0));
    run_close(r);
    toy_free(&t);
    return true;
  }
  uint64_t h = 0;
  for (int k = 0; k < TAKEN; k++) {
    if (x->fault == 1 && k == 1) lose = waits;
    if (x->fault == 2 && k == 1) wait_for_old = true;
    if (k == 0) old = (DeviceEvent){0}, waits = 0;
    h = step_bits(h, r, &t, k);
    const char *why = run_not_captured(r);
    if (why) printf("rank %d, step %d: %s\n", m->rank, k, why);
  }
  h = state_bits(h, r, &t);
  uint64_t replays = r->worker[0].dev.count.replays;
  if (m->rank == 0) printf("bits %016llx; %s\n", (unsigned long long)h, run_way(r, way));
  if (m->rank == 0 && run_warning(r, 0)) printf("%s\n", run_warning(r, 0));
  uint64_t first = r->worker[0].comm.crowded; /* it is captured, too */
  run_close(r);
  toy_free(&t);
  bool kept = !o.no_graph && !(x->fault && m->rank == 0);
  return replays == (kept ? TAKEN - 1 + first : 0) && first == (x->connections != NULL);
}

/* "bits ..." up to the number's end. */
static void take_bits(const Members *x, char bits[32], Forked *f) {
  int n = x->toy.tp * x->toy.pp * x->toy.dp;
  *f = forked(n, be_rank, x);
  for (int i = 0; i < n; i++)
    ck_assert_msg(f->code[i] == 0, "rank %d: code %d: %s", i, f->code[i], f->text);
  const char *at = strstr(f->text, "bits ");
  ck_assert_msg(at != NULL, "%s", f->text);
  snprintf(bits, 32, "%.21s", at);
}

START_TEST(the_bits_of_ranks_are_the_same) {
  Members x = {.toy = meshes[_i](), .order = (uint64_t)_i};
  Forked f;
  char plain[32], kept[32];
  take_bits(&x, kept, &f);
  ck_assert_msg(strstr(f.text, "; replayed as one graph") != NULL, "%s", f.text);
  x.toy.no_graph = true;
  x.order++;
  take_bits(&x, plain, &f);
  ck_assert_msg(strstr(f.text, "; launched op by op: cuda_graph = false") != NULL, "%s",
                f.text);
  ck_assert_str_eq(plain, kept);
}
END_TEST

/* With NCCL's streams there are more than connections: the first step is a graph as well.
 * Where there are none to be the run says so; whether its steps stop is a matter of time.
 */
START_TEST(a_crowded_first_step_is_a_graph) {
  static const char *const few[LEN(meshes)] = {"8", "8", "3", "3", "4"};
  static const char stop[] = "steps that are launched op by op may stop";
  Members x = {.toy = meshes[_i](), .order = (uint64_t)_i};
  Forked f;
  char usual[32], kept[32];
  take_bits(&x, usual, &f);
  ck_assert_ptr_null(strstr(f.text, stop));
  x.connections = few[_i];
  take_bits(&x, kept, &f);
  ck_assert_ptr_null(strstr(f.text, stop));
  ck_assert_str_eq(usual, kept);
  x.toy.no_graph = x.opens_only = true;
  f = forked(x.toy.tp * x.toy.pp * x.toy.dp, be_rank, &x);
  ck_assert_msg(f.code[0] == 0 && strstr(f.text, stop), "%s", f.text);
}
END_TEST

/* A queue that the compute queue does not wait for in the end, and an event of an earlier
 * step: such a step is no graph. The other rank has one. */
static const char *const breaks[] = {"cudaErrorStreamCaptureUnjoined",
                                     "cudaErrorStreamCaptureIsolation"};

START_TEST(what_breaks_a_capture_is_told) {
  Members x = {.toy = zero1(), .fault = _i + 1};
  Forked f;
  char plain[32], broken[32];
  take_bits(&x, broken, &f);
  ck_assert_msg(strstr(f.text, "rank 0, step 1: rank 0: ") != NULL, "%s", f.text);
  ck_assert_msg(strstr(f.text, breaks[_i]) != NULL, "%s", f.text);
  x.toy.no_graph = true, x.fault = 0;
  take_bits(&x, plain, &f);
  ck_assert_str_eq(plain, broken);
}
END_TEST

Suite *cuda_graph_suite(void) {
  Suite *s = suite_create("cuda_graph");
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, the_bits_are_the_same, 0, LEN(plans));
  tcase_add_test(tc, replays_read_what_changes);
  tcase_add_test(tc, ranks_of_one_process_are_launched);
  tcase_add_loop_test(tc, what_changes_by_value_is_found, 0, 2);
  tcase_add_test(tc, a_nan_in_a_replay_is_found);
  tcase_add_loop_test(tc, a_capture_that_breaks_is_told, 0, 2);
  tcase_add_loop_test(tc, the_bits_of_ranks_are_the_same, 0, LEN(meshes));
  tcase_add_loop_test(tc, a_crowded_first_step_is_a_graph, 1, LEN(meshes));
  tcase_add_loop_test(tc, what_breaks_a_capture_is_told, 0, LEN(breaks));
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_graph_suite(void) { return emulated_suite_without("cuda_graph"); }

#endif
