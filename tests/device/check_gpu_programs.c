/* check_gpu_programs.c - what ./dev test gpu runs where there is a GPU, here on the
 * stand-ins for CUDA's runtime and NCCL: kernels one by one, the table by op, failures,
 * the race, and the script around them. Times mean nothing here; that they are told, and
 * what is found wrong, does. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness/emulated.h"
#include "tests/harness/process.h"

#ifdef WEFT_EMULATED_CUDA

#include "vm/graph/graph.h"

/* Copies of the programs beside the modules for tests. */
#define BESIDE                                                                           \
  "cp $weft " WEFT_BINARY_DIR "/weft-gpu .; ln -sf " WEFT_BINARY_DIR                     \
  "/standin/weft_cuda.so " WEFT_BINARY_DIR "/standin/weft_nccl.so .; exec env "
#define SCRIPT WEFT_SOURCE_DIR "/tests/gpu"
#define SMALL                                                                            \
  "--set batch.seq=8 --set batch.global=4 --set batch.micro=1 --set "                    \
  "model.hidden_size=16 --set model.num_attention_heads=2 --set "                        \
  "model.num_key_value_heads=2 --set model.intermediate_size=24 --set "                  \
  "model.num_hidden_layers=2 --set model.vocab_size=256"

static int times(const char *text, const char *what) {
  int n = 0;
  for (const char *s = text; (s = strstr(s, what)); s++) n++;
  return n;
}

/* ---- kernels one by one ---- */

START_TEST(kernels_are_right) {
#ifdef __SANITIZE_ADDRESS__
  puts("skipped: under a sanitizer kernels run in suite cuda_kernels");
  return;
#endif
  Outcome o = process_run(200, "sh -c '" BESIDE "./weft-gpu kernels --brief'");
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, " ops are right, 0 are wrong\n") != NULL, "%s", o.out);
  ck_assert_msg(strstr(o.out, "\nattention_dx           bf16") != NULL, "%s", o.out);
}
END_TEST

/* Of the three launches of the first problem one has another result. */
static const char *const wrong[] = {"result 0 differs by ",
                                    "result 0 is not the same bits twice",
                                    "result 0 differs by "};

START_TEST(a_wrong_kernel_is_found) {
  Outcome o = process_run(60,
                          "sh -c '" BESIDE "WEFT_STANDIN=flip=%d ./weft-gpu kernels "
                          "--op add'",
                          _i + 1);
  ck_assert_msg(o.code == 1, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, "FAILED add f32, case \"x 2,3,5 x 2,3,5\" of add: ") !=
                    NULL,
                "%s", o.out);
  ck_assert_msg(strstr(o.out, wrong[_i]) != NULL, "%s", o.out);
  ck_assert_msg(strstr(o.out, "0 ops are right, 1 are wrong") != NULL, "%s", o.out);
}
END_TEST

/* Hopper keeps 14 bits of sums of fp8: what is right there is right, and six are not. */
START_TEST(sums_of_fp8_may_lack_bits) {
  Outcome o = process_run(100,
                          "sh -c '" BESIDE "WEFT_STANDIN=fp8_bits=%d ./weft-gpu kernels "
                          "--brief --op linear_fp8'",
                          _i ? 14 : 6);
  ck_assert_msg(o.code == !_i, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, _i ? "1 ops are right, 0 are wrong" : "differs by ") !=
                    NULL,
                "%s", o.out);
}
END_TEST

/* A run would go on by another kernel. */
START_TEST(wgmma_that_is_wrong_shows) {
  Outcome o = process_run(100, "sh -c '" BESIDE "WEFT_STANDIN=wgmma_wrong=1 ./weft-gpu "
                               "kernels --brief --op attention'");
  ck_assert_msg(o.code == 1, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, "FAILED attention bf16") &&
                    strstr(o.out, "wgmma computes another o than mma.sync"),
                "%s", o.out);
}
END_TEST

START_TEST(no_device_is_told) {
  Outcome o = process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=gpus=0 ./weft-gpu kernels'");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "the driver shows no GPU") != NULL, "%s", o.err);
}
END_TEST

/* ---- the table by op ---- */

typedef struct Line {
  char op[32], unit[8], rate[8];
  int times;
  double cold, warm, step, does, per_s, share;
  int64_t shape[KERNEL_OPERANDS][MAX_DIM];
  int ndim[KERNEL_OPERANDS], nin, n;
} Line;

/* "bf16(2,8,16) bf16(16,16) -> bf16(2,8,16)" */
static void read_shapes(const char *s, Line *l) {
  for (; *s && *s != '\n'; s++) {
    if (s[0] == '-' && s[1] == '>') l->nin = l->n;
    if (*s != '(') continue;
    int k = l->n++;
    ck_assert_int_lt(k, KERNEL_OPERANDS);
    do l->shape[k][l->ndim[k]++] = strtol(s + 1, (char **)&s, 10);
    while (*s == ',');
  }
}

static bool read_line(const char *s, Line *l) {
  int end = 0;
  *l = (Line){0};
  int n = sscanf(s, "%31s %d %lf %lf %lf %lf %7s %lf %7s %lf %% %n", l->op, &l->times,
                 &l->cold, &l->warm, &l->step, &l->does, l->unit, &l->per_s, l->rate,
                 &l->share, &end);
  if (n != 10 || !end || op_parse(l->op) < 0) return false;
  read_shapes(s + end, l);
  return true;
}

static double elements(const Line *l, int k) {
  double n = 1;
  for (int i = 0; i < l->ndim[k]; i++) n *= (double)l->shape[k][i];
  return n;
}

/* What the formulas say, as ops.def's rules should. */
static double flops(const Line *l) {
  double rows = elements(l, 0) / (double)l->shape[0][l->ndim[0] - 1];
  if (strcmp(l->op, "linear") == 0 || strcmp(l->op, "linear_dx") == 0)
    return 2 * rows * elements(l, 1);
  /* A row meets the weight of one expert. */
  if (strcmp(l->op, "grouped_linear") == 0 || strcmp(l->op, "grouped_linear_dx") == 0)
    return 2 * rows * elements(l, 1) / (double)l->shape[1][0];
  if (strcmp(l->op, "grouped_linear_dw") == 0)
    return 2 * rows * elements(l, l->nin) / (double)l->shape[l->nin][0];
  if (strncmp(l->op, "router_logits", 13) == 0)
    return 2 * rows * elements(l, strcmp(l->op, "router_logits_dw") ? 1 : l->nin);
  if (strcmp(l->op, "linear_dw") == 0) return 2 * rows * elements(l, l->nin);
  int64_t T = l->shape[1][1]; /* causal: half of all pairs */
  if (strcmp(l->op, "attention") == 0) return 2 * elements(l, 0) * (double)T;
  return strcmp(l->op, "attention_dx") == 0 ? 5 * elements(l, 0) * (double)T : 0;
}

static const char *const tabled[] = {"llama_1b", "mixtral_1b"};

START_TEST(the_table_is_of_the_plan) {
  Outcome o = process_run(100,
                          "sh -c '" BESIDE "./weft-gpu table " SCRIPT "/%s.lua " SMALL
                          " --cube 32 --copy 0.01 --ms 0'",
                          tabled[_i]);
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, "a product of 32 x 32 x 32 in bf16: ") == o.out, "%s",
                o.out);
  int launches = 0, attention = 0, products = 0;
  double gflop = 0;
  Line l;
  for (const char *s = o.out; s && *s; s = strchr(s, '\n'), s += s != NULL) {
    if (!read_line(s, &l)) continue;
    launches += l.times;
    ck_assert_msg(l.step >= l.times * l.warm * 0.99 - 1e-3, "%.120s", s);
    ck_assert_msg(l.n > l.nin && l.nin > 0, "%.120s", s);
    if (strcmp(l.op, "attention") == 0) attention += l.times;
    if (flops(&l) == 0) continue;
    products++;
    ck_assert_msg(strcmp(l.unit, "Gflop") == 0 && strcmp(l.rate, "Tflop/s") == 0,
                  "%.120s", s);
    ck_assert_msg(l.does > 0.9999e-9 * flops(&l) && l.does < 1.0001e-9 * flops(&l),
                  "%g, not %g: %.120s", l.does, 1e-9 * flops(&l), s);
    gflop += l.does * l.times;
  }
  ck_assert_int_eq(attention, 2 * 4); /* layers, microbatches */
  ck_assert_int_ge(products, 5);
  const char *sum = strstr(o.out, "kernels of a step: ");
  double said = 0;
  int counted = 0;
  ck_assert_msg(sum && sscanf(sum,
                              "kernels of a step: %d launches, %*f ms, again %*f ms, %lf",
                              &counted, &said) == 2,
                "%s", o.out);
  ck_assert_int_eq(counted, launches);
  ck_assert_msg(said > 0.999 * gflop && said < 1.001 * gflop, "%g, not %g", said, gflop);
}
END_TEST

/* ---- failures, the race, the script ---- */

START_TEST(failures_are_told) {
  Outcome o = process_run(200, "sh -c '" BESIDE "LIMIT=4 MORE=\"" SMALL "\" " SCRIPT
                               "/failures.sh ./weft out'");
  ck_assert_msg(o.code == 0 && times(o.out, ": ok: ") == 4, "code %d: %s%s", o.code,
                o.out, o.err);
}
END_TEST

/* A run that ends before anything overflows, for another reason. */
START_TEST(failures_that_do_not_come_are_found) {
  Outcome o =
      process_run(200, "sh -c '" BESIDE "ONLY=nan WEFT_STANDIN=gpus=0 MORE=\"" SMALL
                       "\" " SCRIPT "/failures.sh ./weft out'");
  ck_assert_msg(o.code == 1 && strstr(o.out, "nan: FAILED: code 2"), "code %d: %s%s",
                o.code, o.out, o.err);
}
END_TEST

static bool has_torch(void) {
  if (system("python3 -c 'import torch' 2>/dev/null") == 0) return true;
  puts("skipped: python3 has no module torch");
  return false;
}

#define RACE(options)                                                                    \
  "sh -c '" BESIDE "python3 " SCRIPT "/race.py --weft ./weft --out out --device cpu "    \
  "--tiny --turns 1 --steps 5 " options "'"

/* Weft's device, and how PyTorch multiplies experts: one by one, or all at once as on a
 * GPU. */
static const char *const races[] = {"cpu --experts loop", "cuda --experts loop",
                                    "cpu --experts grouped"};

START_TEST(the_race_is_of_one_model) {
  static const char table[] =
      "a product of 8 x 8 x 8 in bf16: 0.5 Tflop/s; a copy of 1 MiB: 1.000 TB/s\n"
      "kernels of a step: 90 launches, 2.000 ms, again 1.000 ms, 5 Gflop\n";
  if (!has_torch()) return;
  mkdir(scratch_path("out"), 0755);
  scratch_put("out/table.txt", table, strlen(table));
  Outcome o = process_run(200, RACE("--weft-device %s"), races[_i]);
  if (strstr(o.err, "has no grouped product here")) {
    puts("skipped: this torch has no grouped product on the CPU");
    return;
  }
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(times(o.out, "loss of step ") == 2 * 3, "%s", o.out);
  ck_assert_msg(times(o.out, "ratio:   weft has ") == 2, "%s", o.out);
  ck_assert_msg(times(o.out, " % of the measured product (") == 2 * 2, "%s", o.out);
  ck_assert_msg(times(o.out, "its kernels 1.00 (caches full) to 2.00 ms") == 1, "%s",
                o.out);
  const char *line = strstr(o.out, "\n{\"model\": \"llama_1b\", ");
  ck_assert_msg(line && strstr(line + 1, "\n{\"model\": \"mixtral_1b\", "), "%s", o.out);
}
END_TEST

/* Two sides that are not the same model: another learning rate shows in the second loss,
 * what is different about experts in the first. */
static const char *const another[][2] = {
    {"--set optimizer.lr=2e-4", "failed: llama_1b mixtral_1b\n"},
    {"--model mixtral_1b --set model.num_experts_per_tok=1", "failed: mixtral_1b\n"},
    {"--model mixtral_1b --set moe.capacity_factor=1", "failed: mixtral_1b\n"},
    {"--model mixtral_1b --set moe.aux_loss_coef=0.01", "failed: mixtral_1b\n"},
};

START_TEST(the_race_sees_another_model) {
  if (!has_torch()) return;
  Outcome o = process_run(200, RACE("%s"), another[_i][0]);
  ck_assert_msg(o.code == 1 && strstr(o.err, "not the same model") &&
                    strstr(o.err, another[_i][1]),
                "code %d: %s%s", o.code, o.out, o.err);
}
END_TEST

/* nvidia-smi of a GPU of which 500 MiB are used, and 900 later. */
static void put_smi(const char *list) {
  char text[512];
  int n =
      snprintf(text, sizeof text,
               "#!/bin/sh\ncase \"$*\" in\n-L) echo \"%s\" ;;\n*memory.used*)\n"
               "  if [ -f smi.count ]; then echo 900; else : >smi.count; echo 500; fi\n"
               "esac\n",
               list);
  scratch_put("nvidia-smi", text, (size_t)n);
}

/* The end of all that the script wrote down. */
static const char *all_said(void) {
  enum { SHOWN = 8000 };
  const char *all = scratch_get(scratch_path("out/all.txt"));
  size_t n = strlen(all);
  return n > SHOWN ? all + n - SHOWN : all;
}

/* gpu.sh works in the folder of the sources; what it is given is of this one. */
#define GPU_SH                                                                           \
  "chmod +x nvidia-smi; D=$PWD; " BESIDE                                                 \
  "PATH=$D:$PATH WEFT_GPU_SLOW=20 WEFT_GPU_DEEP=64 WEFT_GPU_BIN=$D "                     \
  "WEFT_GPU_OUT=$D/out "

START_TEST(the_script_runs_its_parts) {
  put_smi("GPU 0: a stand-in");
  Outcome o = process_run(
      300, "sh -c '" GPU_SH "WEFT_GPU_MORE=\"" SMALL
           "\" WEFT_GPU_TABLE=\"--cube 32 --copy 0.01 --ms 0\" " SCRIPT
           ".sh run verify-bf16 verify-tp verify-fp8 graph cudnn table nccl-2 "
           "nccl-8 memcheck'");
  ck_assert_msg(o.code == 0, "code %d: %s%s%s", o.code, o.out, o.err, all_said());
  ck_assert_msg(strstr(o.out, "9 passed, 0 failed: none; skipped: memcheck; ") != NULL,
                "%s", o.out);
  ck_assert_msg(strstr(o.out, "fp8 agrees with the CPU: tensorwise rowwise\n") != NULL,
                "%s", o.out);
  const char *line = strstr(o.out, "{\"gpu\": \"");
  json_t *result = line ? json_loads(line, 0, NULL) : NULL;
  ck_assert_msg(result != NULL, "%s", o.out);
  ck_assert_str_eq(json_string_value(json_object_get(result, "gpu")),
                   "GPU 0: a stand-in");
  ck_assert_int_eq(json_integer_value(json_object_get(result, "passed")), 9);
  ck_assert_int_eq((int)json_array_size(json_object_get(result, "parts")), 10);
  json_decref(result);
  ck_assert_msg(strstr(o.out, "kernels of a step: ") != NULL, "%s", o.out);
}
END_TEST

/* What two GPUs share. */
START_TEST(the_script_looks_at_windows) {
  put_smi(_i ? "GPU 0: a stand-in\nGPU 1: a stand-in" : "GPU 0: a stand-in");
  Outcome o =
      process_run(300, "sh -c '" GPU_SH "WEFT_STANDIN=gpus=2 WEFT_GPU_MORE=\"" SMALL
                       "\" " SCRIPT ".sh windows'");
  ck_assert_msg(o.code == 0, "code %d: %s%s%s", o.code, o.out, o.err, all_said());
  ck_assert_msg(strstr(o.out, _i ? "windows: the loss is " : "skipped: windows;") != NULL,
                "%s%s", o.out, all_said());
}
END_TEST

START_TEST(the_script_says_what_fails) {
  put_smi("GPU 0: a stand-in");
  Outcome o = process_run(300, "sh -c '" GPU_SH
                               "WEFT_STANDIN=capability=75 WEFT_GPU_MORE=\"" SMALL
                               "\" " SCRIPT ".sh run nccl-2 versions'");
  ck_assert_msg(o.code == 1, "code %d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.out, "1 passed, 2 failed: run nccl-2; ") != NULL, "%s", o.out);
}
END_TEST

START_TEST(the_script_skips_where_there_is_no_gpu) {
  put_smi("No devices found");
  Outcome o = process_run(20, "sh -c '" GPU_SH SCRIPT ".sh'");
  ck_assert_int_eq(o.code, 77);
  ck_assert_str_eq(o.out, "gpu: skipped: nvidia-smi shows no GPU\n");
}
END_TEST

/* A folder with all that another machine needs, used from another place. The stand-in's
 * two modules are one file, as they share the runtime's queues. */
START_TEST(what_is_packed_runs) {
  put_smi("GPU 0: a stand-in");
  Outcome o = process_run(200, "sh -c '" GPU_SH SCRIPT "/pack.sh $D/packed'");
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
  o = process_run(200,
                  "sh -c 'rm weft weft-gpu; cd /; D=%s; ln -sf weft_cuda.so "
                  "$D/packed/build/weft_nccl.so; exec env PATH=$D:$PATH "
                  "WEFT_GPU_OUT=$D/out WEFT_GPU_MORE=\"" SMALL
                  "\" $D/packed/tests/gpu.sh run verify-tp nccl-2'",
                  scratch_path(""));
  ck_assert_msg(o.code == 0, "code %d: %s%s%s", o.code, o.out, o.err, all_said());
  ck_assert_msg(strstr(o.out, "3 passed, 0 failed") != NULL, "%s", o.out);
}
END_TEST

START_TEST(limits_add_up_to_less_than_nine_minutes) {
  Outcome o = process_run(20, "%s.sh --limits", SCRIPT);
  int sum = 0, parts = 0, seconds;
  for (const char *s = o.out; sscanf(s, "%*s %d", &seconds) == 1; s = strchr(s, '\n') + 1)
    sum += seconds, parts++;
  ck_assert_msg(o.code == 0 && parts >= 16, "%s%s", o.out, o.err);
  ck_assert_msg(sum < 9 * 60, "%d s:\n%s", sum, o.out);
}
END_TEST

Suite *gpu_programs_suite(void);
Suite *gpu_programs_suite(void) {
  Suite *s = suite_create("gpu_programs");
  TCase *t = tcase_create("programs");
  tcase_set_timeout(t, 400);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, kernels_are_right);
  tcase_add_loop_test(t, sums_of_fp8_may_lack_bits, 0, 2);
  tcase_add_loop_test(t, a_wrong_kernel_is_found, 0, LEN(wrong));
  tcase_add_test(t, wgmma_that_is_wrong_shows);
  tcase_add_test(t, no_device_is_told);
  tcase_add_loop_test(t, the_table_is_of_the_plan, 0, LEN(tabled));
  tcase_add_test(t, failures_are_told);
  tcase_add_test(t, failures_that_do_not_come_are_found);
  tcase_add_loop_test(t, the_race_is_of_one_model, 0, LEN(races));
  tcase_add_loop_test(t, the_race_sees_another_model, 0, LEN(another));
  tcase_add_test(t, the_script_runs_its_parts);
  tcase_add_loop_test(t, the_script_looks_at_windows, 0, 2);
  tcase_add_test(t, the_script_says_what_fails);
  tcase_add_test(t, the_script_skips_where_there_is_no_gpu);
  tcase_add_test(t, what_is_packed_runs);
  tcase_add_test(t, limits_add_up_to_less_than_nine_minutes);
  suite_add_tcase(s, t);
  return s;
}

#else

Suite *gpu_programs_suite(void);
Suite *gpu_programs_suite(void) { return emulated_suite_without("gpu_programs"); }

#endif
