/* check_cuda_device.c - the CUDA device on the stand-in runtime (tests/standin): plans on
 * it against one rank of the CPU, in several legal orders of what is queued; waits that
 * are missing; what is said where there is no GPU. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "tests/harness/emulated.h"
#include "tests/generate/device_plans.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/harness/process.h"

#ifdef WEFT_EMULATED_CUDA

#include "tests/standin/standin.h"
#include "vm/session/verify.h"

static void order(uint64_t n) {
  Standin s = standin_usual;
  s.order = n;
  standin_set(&s);
}

/* ---- plans ---- */

enum { SAMPLE = 3 };

START_TEST(plan_agrees_with_one_rank_of_the_cpu) {
  Text t = {0};
  for (uint64_t i = 0; i < 2; i++)
    ck_assert_msg(device_plan_holds(2026, (uint64_t)_i, i, &t), "%s", t.s);
  text_free(&t);
}
END_TEST

static ToyOptions small(int tp, int pp, int dp) {
  ToyOptions o = toy_default();
  o.tp = tp, o.pp = pp, o.dp = dp;
  o.layers = pp, o.micro = 1, o.microbatches = pp, o.hidden = 16, o.heads = 2,
  o.kv_heads = 2, o.ffn = 16, o.seq = 4;
  return o;
}

static void on_cuda(Pair *p, const ToyOptions *o, const DeviceKind *kind) {
  pair_compile(p, o);
  toy_free(&p->many);
  ToyOptions many = *o;
  many.device = kind;
  ck_assert_int_eq(toy_compile(&p->many, &many, NULL), WEFT_OK);
}

START_TEST(bf16_agrees) {
  Pair p;
  ToyOptions o = small(2, 1, 2);
  o.dtype = DT_BF16, o.sp = true;
  on_cuda(&p, &o, device_standin());
  toy_free(&p.one);
  ToyOptions one = pair_alone(&o);
  one.dtype = DT_F32;
  ck_assert_int_eq(toy_compile(&p.one, &one, NULL), WEFT_OK);
  pair_verify(&p, 2, 4e-2);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  ck_assert_double_gt(p.report.grad, 1e-5);
  pair_free(&p);
}
END_TEST

/* Ranks that compute the same products take the same algorithms: none is timed. By itself
 * a rank may find another one than the library's first the fastest. */
START_TEST(copied_products_are_not_timed) {
  static const TpRule most[] = {{"embed_tokens", STYLE_EMBEDDING_ROWWISE, true, 0},
                                {"layers.*.mlp.gate_proj", STYLE_COLWISE, true, 0},
                                {"layers.*.mlp.up_proj", STYLE_COLWISE, true, 0},
                                {"layers.*.mlp.down_proj", STYLE_ROWWISE, true, 0},
                                {"lm_head", STYLE_COLWISE, true, 0}};
  enum { ALONE, CUT, COPIED };
  Pair p;
  Standin s = standin_usual;
  ToyOptions o = small(_i == ALONE ? 1 : 2, 1, 1);
  if (_i == COPIED) o.rules = most, o.nrules = LEN(most);
  s.algorithms = LT_ALGORITHMS;
  standin_set(&s);
  on_cuda(&p, &o, device_standin());
  uint64_t before = 0, later = 0;
  for (int i = 1; i < LT_ALGORITHMS; i++) before += standin_products(i);
  pair_verify(&p, 1, 1e-4);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  for (int i = 1; i < LT_ALGORITHMS; i++) later += standin_products(i);
  ck_assert_int_eq(later > before, _i != COPIED);
  pair_free(&p);
}
END_TEST

/* What other processes hold is asked before a rank of this one has taken memory. */
START_TEST(ranks_count_as_no_others) {
  Pair p;
  ToyOptions o = small(2, 2, 2);
  on_cuda(&p, &o, device_standin());
  uint64_t before = standin_asked_late();
  for (int i = 0; i < 4; i++) {
    pair_verify(&p, 1, 1e-4);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  }
  ck_assert_uint_eq(standin_asked_late(), before);
  pair_free(&p);
}
END_TEST

/* ---- waits that end ---- */

typedef struct Held {
  bool over;
  int looks;
} Held;

static weft_status ends_it(void *ud, weft_error *e) {
  Held *h = ud;
  h->looks++;
  return err_set(e, WEFT_EINTR, "interrupted");
}

static weft_status lets_it_go(void *ud, weft_error *e) {
  Held *h = ud;
  h->looks++;
  h->over = true;
  return WEFT_OK;
}

/* What a copy to the host comes after may wait for another process for ever: the wait
 * looks whether the run has ended, and then there is no copy. */
START_TEST(a_download_looks_around) {
  Device d;
  weft_error e = NO_ERROR;
  Held h = {0};
  int there = 7, here = 0;
  void *p;
  order(0);
  ck_assert_int_eq(device_open(&d, device_standin()->load(&e), NULL, 0, 0, 1, &e),
                   WEFT_OK);
  ck_assert_int_eq(device_alloc(&d, sizeof there, &p, &e), WEFT_OK);
  device_upload(&d, p, &there, sizeof there);
  standin_hold(((CudaContext *)d.ctx)->stream, &h.over);
  d.look = ends_it, d.look_ud = &h;
  device_download(&d, &here, p, sizeof here);
  ck_assert_int_eq(h.looks, 1);
  ck_assert_int_eq(here, 0);
  ck_assert_int_eq(device_sync(&d, &e), WEFT_EINTR);
  d.look = lets_it_go;
  device_download(&d, &here, p, sizeof here);
  ck_assert_int_eq(h.looks, 3);
  ck_assert_int_eq(here, there);
  device_free(&d, p, sizeof there);
  device_close(&d);
}
END_TEST

/* ---- in orders ---- */

/* What is queued does not run before somebody waits, and all of it does then. */
START_TEST(shards_agree) {
  Pair p;
  ToyOptions o = small(1, 2, 2);
  o.strategy.stage = 2 + _i % 2;
  on_cuda(&p, &o, device_standin());
  uint64_t before = standin_ran();
  pair_verify(&p, 2, 1e-4);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  ck_assert_uint_gt(standin_ran() - before, 1000);
  pair_free(&p);
}
END_TEST

/* Rows of experts between ranks of one process; one of them has all. */
START_TEST(rows_agree) {
  Pair p;
  ToyOptions o = small(1, 1, 4);
  o.ep = _i ? 4 : 2, o.experts = 8, o.topk = 2;
  o.dispatcher = MOE_ALLTOALL, o.exchange = EXCHANGE_ROWS;
  on_cuda(&p, &o, device_standin());
  pair_verify(&p, 2, 1e-4);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  pair_free(&p);
}
END_TEST

/* ---- waits that are missing ---- */

/* One wait or event of one rank is lost, in every step: the `at`-th of each `of`. */
static struct Fault {
  bool waits;
  int rank, at;
  uint64_t of, seen;
} fault;
static DeviceVtable faulty;
static const DeviceVtable *sound;

static bool lost(const Device *d, bool wait) {
  if (wait != fault.waits || d->rank != fault.rank) return false;
  uint64_t n = fault.seen++;
  return fault.of && n % fault.of == (uint64_t)fault.at;
}

static void lose_wait(Device *d, DeviceEvent ev) {
  if (!lost(d, true)) sound->wait(d, ev);
}

static DeviceEvent lose_event(Device *d) {
  DeviceEvent ev = sound->record(d);
  return lost(d, false) ? (DeviceEvent){0} : ev;
}

static const DeviceVtable *load_faulty(weft_error *e) {
  sound = device_standin()->load(e);
  faulty = *sound;
  faulty.wait = lose_wait, faulty.record = lose_event;
  return &faulty;
}

/* A wait or start, as a rank comes to it, and whether something goes wrong without it: a
 * wait for results, as a send's only keeps a buffer from being used again, perhaps by
 * nobody; a start of what the kernel before it made. */
typedef struct Transfer {
  const Instr *in;
  bool needed;
} Transfer;

static bool makes(const Program *p, const Instr *kernel, const Instr *start) {
  if (!kernel || kernel->code != I_KERNEL || start->code == I_RECV) return false;
  const Operand *made = &p->operand[kernel->operand + (uint32_t)kernel->nin];
  const Operand *sent = &p->operand[start->operand];
  return made->slot == sent->slot && made->off == sent->off;
}

static int list_transfers(const Program *p, bool waits, Transfer out[], int most) {
  const Instr *by[256] = {0}, *before = NULL;
  int n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *main = &p->code[i];
    const Body *b = main->code == I_CALL ? &p->body[p->call[main->call].body] : NULL;
    for (uint32_t k = 0; k < (b ? b->n : 1); k++) {
      const Instr *in = b ? &p->code[b->first + k] : main;
      bool starts = instr_is[in->code] & INSTR_STARTS;
      if (starts) by[in->handle] = in;
      if (starts && !waits) out[n++] = (Transfer){in, makes(p, before, in)};
      if (in->code == I_WAIT && waits)
        out[n++] = (Transfer){by[in->handle], by[in->handle]->code != I_SEND};
      ck_assert_int_lt(n, most);
      before = in;
    }
  }
  return n;
}

/* Without a fault gradients differ by 5e-7; a fault may change a norm alone, by 8e-5.
 * Mostly within five orders; which ones show it also depends on when the threads of the
 * ranks come, so a loaded machine may need more. */
static bool found(Pair *p) {
  for (uint64_t i = 0; i < 60; i++) {
    order(i);
    fault.seen = 0;
    weft_error e = {.rank =
                        -1}; /* memory that was never written is nan, which ends a step */
    weft_status st = verify(&p->many.plan, p->many.compiled, &p->one.plan,
                            p->one.compiled, 1, 2e-5, NULL, &p->report, &e);
    if (st != WEFT_OK || !p->report.ok) return true;
  }
  return false;
}

/* Twenty of them: ten waits and ten events, spread over a step of each of two ranks. */
START_TEST(a_missing_wait_shows) {
  enum { MOST = 4096, PLANTS = 5 };
  static Transfer list[MOST];
  DeviceKind kind = *device_standin();
  kind.load = load_faulty;
  Pair p;
  ToyOptions o = small(2, 2, 1);
  o.sp = true;
  on_cuda(&p, &o, &kind);
  p.one.plan.seed = p.many.plan.seed = 1; /* both rows of verify have labels with it */
  fault = (struct Fault){.waits = _i / PLANTS % 2, .rank = _i / PLANTS / 2 * 3};
  int pp = fault.rank ? 1 : 0;
  int n = list_transfers(&p.many.compiled->prog[pp], fault.waits, list, MOST);
  fault.of = (uint64_t)n;
  fault.at = n * (2 * (_i % PLANTS) + 1) / (2 * PLANTS);
  while (!list[fault.at].needed) fault.at = (fault.at + 1) % n;
  ck_assert_msg(found(&p), "%s %d of %d of rank %d was not missed: %s",
                fault.waits ? "wait" : "event", fault.at, n, fault.rank,
                p.many.compiled->prog[pp].what[list[fault.at].in->what]);
  fault.of = 0;
  ck_assert(_i > 0 || !found(&p));
  pair_free(&p);
}
END_TEST

/* ---- what is said ---- */

/* A copy of the program beside the module for tests, which is then the device. */
#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so .; exec env "

static void put_plan(void) {
  RandomPlan p;
  random_plan(7, 3, &p);
  scratch_put("plan.lua", p.text, strlen(p.text));
}

/* Codes of weights that ranks copy: to those of a group, and from the host. */
static const char *const copied_codes[] = {
    "mesh = { dp = 4 }, strategy = { 'fsdp2', reshard_after_forward = 2 }",
    "mesh = { dp = 2 }, strategy = { 'fsdp2', offload_policy = true }"};

START_TEST(codes_are_copied) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\nreturn weft.plan { model = weft.model { 'llama', "
      "hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, "
      "intermediate_size = 128, vocab_size = 256 }, precision = 'bf16', batch = { global "
      "= 4, micro = 1, seq = 16 }, adapter = { 'lora', rank = 4, base = 'nf4' }, %s }\n",
      copied_codes[_i]);
  scratch_put("plan.lua", text, strlen(text));
  Outcome o = process_run(100, "sh -c '" BESIDE
                               "./weft verify plan.lua --device cuda --steps 2'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

START_TEST(the_program_verifies) {
  put_plan();
  Outcome o = process_run(100, "sh -c '" BESIDE "./weft verify plan.lua --device cuda'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "the same (tolerance 0.0001)") != NULL, "%s", o.out);
}
END_TEST

static const struct {
  const char *machine, *says;
  int code;
} machines[] = {
    {"driver=0", "device cuda: this machine has no NVIDIA driver (libcuda.so.1)", 2},
    {"driver=12080",
     "the driver supports CUDA 12.8, but weft_cuda.so was built with 13.0", 2},
    {"driver=13000 runtime=13010 capability=120",
     "the driver is older than the toolkit of weft_cuda.so, whose PTX it cannot "
     "translate: "
     "install a newer one, or build with -DCMAKE_CUDA_ARCHITECTURES=120",
     2},
    {"capability=120 no_ptx",
     "weft_cuda.so has no code for compute capability 12.0: build with "
     "-DCMAKE_CUDA_ARCHITECTURES=120",
     2},
    {"gpus=0", "device cuda: the driver shows no GPU; look at nvidia-smi", 2},
    {"capability=75", "the GPU has compute capability 7.5; weft needs 8.0 or newer", 2},
    {"memory=1000", "the plan needs 0.00 GiB, as check predicts; the GPU has 0.00 GiB",
     3},
    {"memory=8589934592 held=8589934000",
     "the GPU has 8.00 GiB, of which 0.00 GiB are free (other processes, which "
     "nvidia-smi "
     "lists, held 8.00)",
     3},
};

START_TEST(a_machine_that_cannot_is_told) {
  put_plan();
  Outcome o = process_run(
      60,
      "sh -c '" BESIDE "WEFT_STANDIN=\"%s\" ./weft run plan.lua --steps 1 --device cuda'",
      machines[_i].machine);
  ck_assert_msg(strstr(o.err, machines[_i].says) != NULL, "%s", o.err);
  ck_assert_int_eq(o.code, machines[_i].code);
}
END_TEST

/* The minor version of the driver may be older where there is machine code. */
static const struct {
  const char *machine, *says;
} first_lines[] = {
    {"capability=90", "; kernels: machine code for 9.0, loaded in "},
    {"capability=89", "; kernels: machine code for 8.0, loaded in "},
    {"capability=100 driver=13000 runtime=13010", "; kernels: machine code for 10.0, "},
    {"capability=120", "; kernels: PTX, translated by the driver for 12.0 in "},
    {"memory=8589934592 held=4294967296", "; other processes hold 4.0 GiB of the GPU"},
};

START_TEST(the_first_line_says_how_kernels_came) {
  put_plan();
  Outcome o = process_run(60,
                          "sh -c '" BESIDE "WEFT_STANDIN=\"%s\" ./weft run plan.lua "
                          "--steps 1 --device cuda'",
                          first_lines[_i].machine);
  ck_assert_msg(o.code == 0 && strstr(o.err, first_lines[_i].says), "%s", o.err);
}
END_TEST

/* ---- what fails while it runs ---- */

static void put_plan_of_one_rank(void) {
  static const char plan[] =
      "local weft = require \"weft\"\n"
      "return weft.plan { model = weft.model { \"llama\", hidden_size = 16,\n"
      "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
      "  vocab_size = 32 }, batch = { global = 1, micro = 1, seq = 8 },\n"
      "  precision = \"bf16\", attention_backend = \"cudnn\",\n"
      "  data = weft.synthetic {} }\n";
  scratch_put("plan.lua", plan, sizeof plan - 1);
}

/* The n-th thing that runs is a fault; what is launched behind something waits for it, so
 * the launch after the next hears of it. */
static Outcome run_with_fault(int n, const char *more) {
  return process_run(60,
                     "sh -c '" BESIDE "WEFT_STANDIN=depth=1,fault=%d %s ./weft run "
                     "plan.lua --device cuda --steps 1'",
                     n, more);
}

/* Of the first step: the op that hears of it, by each way to launch something, and what
 * is said of the same fault with CUDA_LAUNCH_BLOCKING. */
static const struct {
  const char *hears, *fails, *how;
} faults[] = {
    {": op rope_qkv of ",
     ": op rmsnorm of input_layernorm: ", "its kernel failed with a "},
    {": op attention of ", ": op linear of self_attn.q_proj,k_proj,v_proj: ",
     "cuBLASLt: the product of 8 x 16 x 48 failed: status 13"},
    {": op linear of self_attn.o_proj: ", ": op rope_qkv of ",
     "its kernel failed with a "},
    {": op add_rmsnorm of ", ": op attention of ", "cuDNN: attention cannot be run: "},
};

/* That op is innocent: nothing is said of its grid or its product. */
START_TEST(a_fault_is_not_the_next_op_s) {
  static const char before[] = ": device cuda: a kernel or copy before it failed: ",
                    later[] = "0: device cuda: a kernel or copy failed: ",
                    how[] = " (cudaErrorIllegalAddress); CUDA_LAUNCH_BLOCKING=1 in ";
  int found = 0;
  put_plan_of_one_rank();
  for (int n = 60; n < 200 && found < LEN(faults); n++) {
    Outcome o = run_with_fault(n, "");
    ck_assert_msg(o.code == 1 && strstr(o.err, how), "%d: %s", n, o.err);
    ck_assert_msg(strstr(o.err, before) || strstr(o.err, later), "%d: %s", n, o.err);
    if (!strstr(o.err, faults[found].hears)) continue;
    o = run_with_fault(n, "CUDA_LAUNCH_BLOCKING=1");
    ck_assert_msg(o.code == 1 && strstr(o.err, faults[found].fails) &&
                      strstr(o.err, faults[found].how),
                  "%d: %s", n, o.err);
    found++;
  }
  ck_assert_int_eq(found, LEN(faults));
}
END_TEST

START_TEST(no_module_is_told) {
  put_plan();
  Outcome o = process_run(
      60, "sh -c 'cp $weft weft; exec ./weft run plan.lua --steps 1 --device cuda'");
  ck_assert_msg(strstr(o.err, "device cuda is not there: weft_cuda.so is built where the "
                              "CUDA toolkit (nvcc) is found") != NULL,
                "%s", o.err);
  ck_assert_int_eq(o.code, 2);
  o = process_run(60, "$weft check plan.lua --device cuda");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft check plan.lua --device cuda --set precision=f16");
  ck_assert_msg(strstr(o.err, "device cuda computes in f32 and bf16") != NULL, "%s",
                o.err);
  ck_assert_int_eq(o.code, 2);
  o = process_run(60, "$weft check plan.lua --device tpu");
  ck_assert_msg(strstr(o.err, "there is: cpu, cuda") != NULL, "%s", o.err);
  ck_assert_int_eq(o.code, 2);
}
END_TEST

Suite *cuda_device_suite(void) {
  Suite *s = suite_create("cuda_device");
  TCase *tc = tcase_create("standin");
  tcase_set_timeout(tc, 300);
  tcase_add_loop_test(tc, plan_agrees_with_one_rank_of_the_cpu, 0, SAMPLE);
  tcase_add_test(tc, bf16_agrees);
  tcase_add_loop_test(tc, copied_products_are_not_timed, 0, 3);
  tcase_add_loop_test(tc, shards_agree, 0, 2);
  tcase_add_loop_test(tc, rows_agree, 0, 2);
  tcase_add_loop_test(tc, a_missing_wait_shows, 0, 20);
  suite_add_tcase(s, tc);
  tc = tcase_create("looks");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, ranks_count_as_no_others);
  tcase_add_test(tc, a_download_looks_around);
  suite_add_tcase(s, tc);
  tc = tcase_create("program");
  tcase_set_timeout(tc, 300);
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, the_program_verifies);
  tcase_add_loop_test(tc, codes_are_copied, 0, LEN(copied_codes));
  tcase_add_loop_test(tc, a_machine_that_cannot_is_told, 0, LEN(machines));
  tcase_add_loop_test(tc, the_first_line_says_how_kernels_came, 0, LEN(first_lines));
  tcase_add_test(tc, a_fault_is_not_the_next_op_s);
  tcase_add_test(tc, no_module_is_told);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *cuda_device_suite(void) { return emulated_suite_without("cuda_device"); }

#endif
