/* check_memory.c - what a run holds: the arenas and the named lines, to the byte, by the
 * allocator's own count. */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "tests/harness/scratch.h"
#include "tests/harness/run_bits.h"
#include "vm/session/session.h"
#include "vm/weights/snapshot.h"
#include "vm/storage/memory_plan.h"
#include "vm/session/host_memory.h"
#include "vm/weights/param_gather.h"

/* ---- an allocator that counts bytes; any thread's ---- */

static _Atomic int64_t held, peak;

static void *count(void *ud, void *p, size_t old, size_t n) {
  int64_t now =
      atomic_fetch_add(&held, (int64_t)n - (int64_t)old) + (int64_t)n - (int64_t)old;
  int64_t most = atomic_load(&peak);
  while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) continue;
  if (n) return realloc(p, n);
  free(p);
  return NULL;
}

static const weft_alloc counting = {count, NULL};

static void begin(void) {
  atomic_store(&held, 0);
  atomic_store(&peak, 0);
}

/* ---- what was promised ---- */

static int64_t sum(const HostMemoryLine *line, int n, const char *but) {
  int64_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (!strstr(but, line[i].name)) bytes += (int64_t)line[i].bytes;
  return bytes;
}

/* Arenas and lines of all ranks and of their process; `but`: lines that are not part of
 * this run. */
static int64_t promised(const Plan *p, const Compiled *c, bool weights, const char *but) {
  HostMemoryLine line[HOST_MEMORY_MOST];
  int64_t bytes = 0;
  for (int rank = 0; rank < c->mesh.world; rank++) {
    int pp = mesh_coord(&c->mesh, rank, AXIS_PP);
    bytes += (int64_t)(c->prog[pp].arena_bytes + c->prog[pp].host_bytes);
    bytes += sum(line, host_memory_lines(p, c, weights, HOST_MEMORY_RANK, pp, line), "");
  }
  return bytes +
         sum(line, host_memory_lines(p, c, weights, HOST_MEMORY_PROCESS, 0, line), but);
}

/* ---- runs of given tokens ---- */

/* Opens, fills, steps, reads and writes; returns the most that was held. */
static int64_t most_of(Toy *t, int threads) {
  Run *r;
  StepResult res;
  RunOptions o = {.alloc = &counting,
                  .world = world_kind("local", NULL),
                  .threads = threads,
                  .saves = t->plan.checkpoint.dir};
  float *whole = malloc(sizeof *whole * (size_t)t->compiled->params_total);
  begin();
  OK(run_open(&t->plan, t->compiled, &o, &r, &trace_err));
  OK(run_init(r, &trace_err));
  for (int k = 0; k < 2; k++) trace_step(r, t, k, &res);
  if (o.saves) OK(run_snapshot(r, &trace_err));
  OK(run_get(r, STATE_PARAM, 0, whole, &trace_err));
  OK(run_set(r, STATE_PARAM, 0, whole, &trace_err));
  run_close(r);
  ck_assert_int_eq(atomic_load(&held), 0);
  free(whole);
  return atomic_load(&peak);
}

static const int meshes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 4, 1},
                                {1, 1, 4}, {2, 2, 2}, {4, 2, 1}};

static ToyOptions varied(int i) {
  ToyOptions o = meshed(meshes[i / 2][0], meshes[i / 2][1], meshes[i / 2][2]);
  o.kv_heads = 4;
  o.dtype = i % 2 ? DT_BF16 : DT_F32;
  o.sp = o.tp > 1, o.tied = i % 3 == 0, o.overlap = o.dp > 1;
  o.post_validation = o.pp > 1;
  /* every second mesh: shards of state, on the host */
  if (i / 2 % 2) o.strategy.stage = 1;
  o.strategy.offload_state = o.strategy.stage && !o.post_validation;
  return o;
}

/* What strategies keep in shards, and moments of 16 bits. */
static ToyOptions sharded(int i) {
  ToyOptions o = meshed(1 + i % 2, 1 + i / 4, i % 4 == 3 ? 4 : 2);
  o.strategy.reshard_to = i % 4 == 3 ? 2 : 0;
  o.strategy.stage = i % 4;
  o.strategy.reshard = i % 2 ? RESHARD_YES : RESHARD_NO;
  o.strategy.defer_grad_sync = i < 4;
  o.dtype = i % 3 == 0 ? DT_F16 : i % 3 == 1 ? DT_BF16 : DT_F32;
  o.state = i % 2 ? DT_BF16 : DT_F32;
  o.reduce = i % 4 == 3 ? DT_F32 : DT_BF16;
  return o;
}

enum { VARIED = 12, SHARDED = 8 };

START_TEST(a_run_holds_what_is_promised) {
  ToyOptions o = _i < VARIED ? varied(_i) : sharded(_i - VARIED);
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  if (_i % 2) t.plan.checkpoint.dir = "somewhere";
  for (int threads = 1; threads <= 2; threads++)
    ck_assert_int_eq(most_of(&t, threads),
                     promised(&t.plan, t.compiled, false, "data programs"));
  toy_free(&t);
}
END_TEST

/* ---- what is whole for a while ---- */

static uint64_t class_of(const Program *p, const char *name) {
  for (int i = 0; i < p->nmem; i++)
    if (strcmp(p->mem[i].name, name) == 0) return p->mem[i].bytes;
  return 0;
}

/* Bytes of the largest block, and of the largest sum of the blocks of a unit. */
static uint64_t largest_unit(const Program *p, InstrCode code) {
  uint64_t most = 0, one = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    if (x->code != code) continue;
    const Operand *o = &p->operand[x->operand + (code == I_GATHER)];
    bool same = i > 0 && p->code[i - 1].code == code && p->code[i - 1].unit == x->unit;
    one = (same ? one : 0) + align_up(operand_bytes(o));
    most = MAX(most, one);
  }
  return most;
}

/* Where each backward is reduced, a rank has the whole gradients of a unit, and besides
 * them, or a sum that is under way, the copies that are gathered ahead, or that of the
 * unit whose turn it is, or the whole gradients of the embedding, which has no I. With tp
 * I and W may be one body. */
static void is_bounded(const Compiled *c, int depth, uint64_t *held) {
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    uint64_t copy = largest_unit(p, I_GATHER), sum = largest_unit(p, I_SCATTER);
    *held = class_of(p, "gather buffers");
    ck_assert_uint_gt(copy, 0);
    ck_assert_uint_gt(sum, 0);
    uint64_t most = MAX((uint64_t)MAX(depth, 1) * copy, sum) + sum;
    if (copy != sum) most += depth > 1 ? copy : 0; /* holes between unlike sizes */
    if (c->mesh.size[AXIS_TP] > 1) most = (uint64_t)(1 + depth) * copy + 2 * sum;
    ck_assert_msg(*held <= most, "depth %d: %llu bytes, copies of %llu, sums of %llu",
                  depth, (unsigned long long)*held, (unsigned long long)copy,
                  (unsigned long long)sum);
  }
}

START_TEST(as_many_copies_as_are_gathered_ahead) {
  uint64_t held[4];
  for (int depth = 0; depth < LEN(held); depth++) {
    ToyOptions o = meshed(1 + _i / 2, 1, 4);
    Toy t;
    o.layers = 6, o.vocab = 240; /* a head is as large as a layer */
    o.dtype = _i % 2 ? DT_BF16 : DT_F32;
    o.strategy =
        (Strategy){.stage = 3, .reshard = RESHARD_YES, .prefetch = {depth > 0, depth}};
    o.overlap = true;
    ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
    is_bounded(t.compiled, depth, &held[depth]);
    ck_assert_int_eq(most_of(&t, 1),
                     promised(&t.plan, t.compiled, false, "data programs"));
    toy_free(&t);
  }
  if (_i < 2) ck_assert_uint_eq(held[0], held[1]);
  ck_assert_uint_gt(held[3], held[2]);
}
END_TEST

/* ---- a kernel that allocates is found ---- */

static const Kernel *real;
static void allocate(Device *d, const KernelArgs *a) {
  void *p = mem_new(d->alloc, 100);
  real->run(d, a);
  mem_free(d->alloc, p, 100);
}
static const Kernel greedy = {.run = allocate};

static const Kernel *greedy_add(Device *d, int op, const KernelArgs *a) {
  const Kernel *k = device_cpu.kernel(d, op, a);
  if (op != OP_add) return k;
  real = k;
  return &greedy;
}
static DeviceVtable other;
static const DeviceVtable *load_other(weft_error *e) { return &other; }

static const DeviceKind *leaky(const Compiled *c) {
  static DeviceKind kind;
  kind = *c->device;
  other = device_cpu;
  other.kernel = greedy_add;
  kind.load = load_other;
  return &kind;
}

START_TEST(a_kernel_that_allocates_is_found) {
  ToyOptions o = meshed(1, 1, 1);
  Toy t;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  t.compiled->device = leaky(t.compiled);
  ck_assert_int_eq(most_of(&t, 1),
                   100 + promised(&t.plan, t.compiled, false, "data programs"));
  toy_free(&t);
}
END_TEST

/* ---- sessions: data and weights ---- */

static void job_at(Job *j, Arena *a, const char *path, const char *set) {
  static const weft_alloc libc_alloc;
  const char *list[] = {set, NULL};
  LangOptions o = {.alloc = &libc_alloc, .set = list, .nset = set != NULL};
  *j = (Job){0};
  weft_status st = job_load(j, a, &o, path);
  if (st == WEFT_OK) st = job_mesh(j, 0);
  if (st == WEFT_OK) st = job_compile(j);
  ck_assert_msg(st == WEFT_OK, "%s", j->e.text);
}

static void job(Job *j, Arena *a, const char *file, const char *set) {
  job_at(j, a, arena_printf(a, WEFT_SOURCE_DIR "/%s", file), set);
}

static weft_status after(void *ud, const StepResult *r, weft_error *e) { return WEFT_OK; }

static int64_t session_most(Job *j, const char *weights, int64_t *file) {
  Session s = {0};
  begin();
  if (weights) OK(st_open(&counting, weights, NULL, &s.weights, &trace_err));
  *file = atomic_load(&held);
  OK(data_open(&counting, &j->plan.data, j->plan.batch.seq, j->compiled->vocab, 1,
               &s.data, &trace_err));
  RunOptions o = {.alloc = &counting, .threads = 1};
  OK(session_open(&s, &j->plan, j->compiled, &o, &trace_err));
  OK(session_train(&s, 2, NULL, after, NULL, &trace_err));
  session_close(&s, false);
  ck_assert_int_eq(atomic_load(&held), 0);
  return atomic_load(&peak);
}

START_TEST(the_quick_start_holds_what_is_promised) {
  static const char *const set[] = {NULL, "precision=\"bf16\"", "mesh.pp=1"};
  Job j;
  Arena *a = arena_new(NULL);
  int64_t file;
  job(&j, a, "plans/quickstart.lua", set[_i]);
  ck_assert_int_eq(session_most(&j, NULL, &file),
                   promised(&j.plan, j.compiled, false, "programs"));
  job_free(&j);
  arena_free(a);
}
END_TEST

/* A rank of eight: shards of 16 bytes a parameter, two or three units, activations. */
START_TEST(a_billion_on_eight) {
  static const char *const set[] = {"strategy.backward_prefetch_depth=0",
                                    "strategy.backward_prefetch_depth=1", NULL};
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama', num_hidden_layers = 16,\n"
      "  hidden_size = 2048, intermediate_size = 8192, num_attention_heads = 32,\n"
      "  num_key_value_heads = 8, vocab_size = 32000 }, mesh = { dp = 8 },\n"
      "  strategy = { 'fsdp2', defer_fsdp_grad_sync = false },\n"
      "  batch = { global = 16, micro = 1, seq = 512 } }\n";
  Job j;
  Arena *a = arena_new(NULL);
  uint64_t held;
  scratch_put("billion.lua", plan, strlen(plan));
  job_at(&j, a, scratch_path("billion.lua"), set[_i]);
  is_bounded(j.compiled, _i, &held);
  const Program *p = &j.compiled->prog[0];
  uint64_t unit = largest_unit(p, I_SCATTER), shards = j.compiled->params_total / 8 * 16;
  uint64_t rest = p->arena_bytes - held - class_of(p, "activations") -
                  class_of(p, "workspace") - class_of(p, "inputs and scalars");
  ck_assert_uint_gt(j.compiled->params_total, 1000000000);
  ck_assert_uint_le(rest, shards + (1 << 16));
  ck_assert_uint_le(held, (uint64_t)MAX(_i + 1, 2) * unit);
  job_free(&j);
  arena_free(a);
}
END_TEST

/* All parameters as a file; its own bytes depend on it. */
static const char *weights_file(const Compiled *c) {
  const char *path = scratch_path("model.safetensors");
  StWrite *w = calloc((size_t)c->nparam, sizeof *w);
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    w[i] = (StWrite){.name = p->name, .dtype = DT_F32, .ndim = p->ndim};
    memcpy(w[i].dim, p->dim, sizeof p->dim);
    w[i].data = calloc((size_t)param_count(p), sizeof(float));
  }
  OK(st_write(NULL, path, w, c->nparam, &trace_err));
  for (int i = 0; i < c->nparam; i++) free((void *)w[i].data);
  free(w);
  return path;
}

START_TEST(weights_are_read_within_their_line) {
  Job j;
  Arena *a = arena_new(NULL);
  int64_t file = 0;
  job(&j, a, "plans/quickstart.lua", NULL);
  int64_t most = session_most(&j, weights_file(j.compiled), &file);
  ck_assert_int_gt(file, 0);
  ck_assert_int_eq(most - file, promised(&j.plan, j.compiled, true, "programs"));
  job_free(&j);
  arena_free(a);
}
END_TEST

/* The line of the programs is what their arena has taken. */
START_TEST(programs_are_what_their_arena_took) {
  begin();
  Arena *a = arena_new(&counting);
  Job j;
  HostMemoryLine line[HOST_MEMORY_MOST];
  int64_t bytes = 0;
  job(&j, a, "plans/quickstart.lua", NULL);
  int n = host_memory_lines(&j.plan, j.compiled, false, HOST_MEMORY_PROCESS, 0, line);
  for (int i = 0; i < n; i++)
    if (strcmp(line[i].name, "programs") == 0) bytes = (int64_t)line[i].bytes;
  ck_assert_int_eq(bytes, atomic_load(&held));
  job_free(&j);
  arena_free(a);
  ck_assert_int_eq(atomic_load(&held), 0);
}
END_TEST

/* ---- phases of a step ---- */

static char phases[1 << 16];
static int nphase;

static void upload(Device *d, void *to, const void *from, size_t n) {
  phases[nphase++] = 'u';
  device_cpu.upload(d, to, from, n);
}
static void download(Device *d, void *to, const void *from, size_t n) {
  phases[nphase++] = 'd';
  device_cpu.download(d, to, from, n);
}
static void launch(Device *d, const Kernel *k, const KernelArgs *a) {
  phases[nphase++] = 'l';
  device_cpu.launch(d, k, a);
}
static weft_status sync(Device *d, weft_error *e) {
  phases[nphase++] = 's';
  return device_cpu.sync(d, e);
}

/* Tokens, labels, positions and scalars go up, launches follow, then the scalars come
 * back: nothing of the host is in the middle. */
START_TEST(a_step_is_upload_main_download) {
  ToyOptions o = meshed(1, 1, 1);
  Toy t;
  Run *r;
  StepResult res;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  DeviceKind kind = *t.compiled->device;
  other = device_cpu;
  other.upload = upload, other.download = download, other.launch = launch;
  other.sync = sync;
  kind.load = load_other;
  t.compiled->device = &kind;
  RunOptions options = {.threads = 1};
  OK(run_open(&t.plan, t.compiled, &options, &r, &trace_err));
  OK(run_init(r, &trace_err));
  for (int k = 0; k < 2; k++) {
    nphase = 0;
    trace_step(r, &t, k, &res);
    int up = (int)strspn(phases, "u"), main = (int)strspn(phases + up, "l");
    ck_assert_int_eq(up, 4);
    ck_assert_int_gt(main, 100);
    ck_assert_int_eq(nphase, up + main + 2);
    ck_assert_mem_eq(phases + up + main, "sd", 2);
  }
  run_close(r);
  toy_free(&t);
}
END_TEST

Suite *memory_suite(void) {
  Suite *s = suite_create("memory");
  TCase *c = tcase_create("held");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, a_run_holds_what_is_promised, 0, VARIED + SHARDED);
  tcase_add_loop_test(c, as_many_copies_as_are_gathered_ahead, 0, 4);
  tcase_add_loop_test(c, a_billion_on_eight, 0, 3);
  tcase_add_test(c, a_kernel_that_allocates_is_found);
  tcase_add_loop_test(c, the_quick_start_holds_what_is_promised, 0, 3);
  tcase_add_test(c, weights_are_read_within_their_line);
  tcase_add_test(c, programs_are_what_their_arena_took);
  tcase_add_test(c, a_step_is_upload_main_download);
  suite_add_tcase(s, c);
  return s;
}
