/* check_cudnn_run.c - the program with attention through cuDNN, on the stand-ins for
 * CUDA's runtime and for cuDNN's backend: what its users see. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "tests/harness/emulated.h"
#include "tests/harness/process.h"

#ifdef WEFT_EMULATED_CUDA

#define BESIDE                                                                           \
  "cp $weft weft; ln -sf " WEFT_BINARY_DIR "/standin/weft_cuda.so " WEFT_BINARY_DIR      \
  "/standin/weft_nccl.so .; exec env "
#define RUN "./weft run plan.lua --device cuda --threads 1 --json "

/* attention_backend is on line 6. */
static void put_plan_with(const char *backend, const char *more) {
  char plan[1024];
  int n = snprintf(
      plan, sizeof plan,
      "local weft = require \"weft\"\n"
      "return weft.plan {\n"
      "  model = weft.model { \"mistral\", hidden_size = 32, num_hidden_layers = 2,\n"
      "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 32,\n"
      "    vocab_size = 32, sliding_window = false }, precision = \"bf16\", comm = { "
      "timeout = 30 },\n"
      "  attention_backend = \"%s\",\n"
      "  batch = { global = 2, micro = 1, seq = 24 },\n"
      "  optimizer = weft.adamw { lr = weft.cosine { max = 1e-2, warmup = 2 } },\n"
      "  data = weft.synthetic {}, train = { steps = 4, log_every = 1 },%s\n"
      "}\n",
      backend, more);
  scratch_put("plan.lua", plan, (size_t)n);
}

static void put_plan(const char *backend) { put_plan_with(backend, ""); }

static double loss_of(const Outcome *o, const char *says) {
  const char *at = strstr(o->out, "\"loss\":");
  ck_assert_msg(o->code == 0 && at, "code %d: %s%s", o->code, o->out, o->err);
  ck_assert_msg(strstr(o->err, says) != NULL, "%s", o->err);
  return strtod(at + strlen("\"loss\":"), NULL);
}

/* Replayed and launched op by op it is the same bits; weft's own kernels are close. */
START_TEST(a_run_through_cudnn) {
  static const char cudnn[] = "; attention: cuDNN 9.19.0; steps are ";
  put_plan("cudnn");
  Outcome kept = process_run(60, "sh -c '" BESIDE RUN "'");
  Outcome plain = process_run(60, "sh -c '" BESIDE RUN "--set cuda_graph=false'");
  Outcome native =
      process_run(60, "sh -c '" BESIDE RUN "--set attention_backend=native'");
  double a = loss_of(&kept, cudnn), b = loss_of(&plain, cudnn);
  double c = loss_of(&native, "; steps are ");
  ck_assert_msg(strstr(kept.err, "steps are replayed as one graph") != NULL, "%s",
                kept.err);
  ck_assert_msg(strstr(native.err, "attention") == NULL, "%s", native.err);
  ck_assert_msg(a == b, "%.17g and %.17g", a, b);
  ck_assert_msg(fabs(a - c) < 2e-2 * c, "%.17g and %.17g", a, c);
}
END_TEST

/* Tiles that are full and not, of tokens and of heads, of several sequences. */
START_TEST(numbers_are_turned_by_heads) {
  static const int64_t shape[][3] = {{1, 1, 1}, {2, 70, 33}, {3, 64, 32}, {1, 5, 100}};
  Device d = {0};
  for (int s = 0; s < LEN(shape); s++) {
    int64_t batch = shape[s][0], rows = shape[s][1], heads = shape[s][2];
    int64_t n = batch * rows * heads, apart = rows + s, all = batch * apart * heads;
    float *from = malloc((size_t)all * sizeof *from), *to = calloc((size_t)n, sizeof *to);
    for (int64_t i = 0; i < all; i++) from[i] = (float)(i + 1);
    cuda_by_heads(&d, from, to, batch, rows, heads, apart);
    for (int64_t b = 0; b < batch; b++)
      for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
          ck_assert(to[(b * heads + h) * rows + r] == from[(b * apart + r) * heads + h]);
    free(from), free(to);
  }
}
END_TEST

/* Ampere's engines of gradients take lse as one that lies by heads, whatever they are
 * told. */
START_TEST(older_gpus_have_the_same_gradients) {
  put_plan("cudnn");
  Outcome hopper = process_run(60, "sh -c '" BESIDE RUN "'");
  Outcome ampere =
      process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=capability=80 " RUN "'");
  double a = loss_of(&hopper, "; attention: cuDNN 9.19.0; "),
         b = loss_of(&ampere, "; attention: cuDNN; ");
  ck_assert_msg(a == b, "%.17g and %.17g", a, b);
}
END_TEST

START_TEST(ranks_through_cudnn) {
  put_plan("cudnn");
  Outcome o =
      process_run(120, "sh -c '" BESIDE "./weft verify plan.lua --device cuda --set "
                       "mesh.tp=2 --set mesh.pp=2'");
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
}
END_TEST

/* Ranks that have a part of the sequence: with all keys, and in a ring, where a step's
 * keys are seen by all queries, by half of them, or by none; windows and documents. */
START_TEST(sequences_that_cp_cuts) {
  static const char *const set[] = {
      "mesh.cp=2 --set cp.comm=allgather",
      "mesh.cp=3 --set cp.comm=allgather --set cp.balance=none",
      "mesh.cp=2 --set mesh.tp=2 --set cp.comm=ring",
      "mesh.cp=3 --set cp.comm=ring --set batch.seq=30 --set model.hidden_size=256",
      "mesh.cp=3 --set cp.comm=ring --set cp.balance=none",
      "mesh.cp=2 --set cp.comm=a2a",
      "model.sliding_window=8",
      "packed.eot=3 --set batch.seq=6 --set batch.micro=1"};
  put_plan("cudnn");
  Outcome o = process_run(
      120, "sh -c '" BESIDE "./weft verify plan.lua --device cuda --set %s'", set[_i]);
  ck_assert_msg(o.code == 0, "%s: code %d: %s%s", set[_i], o.code, o.out, o.err);
  o = process_run(30, "$weft check plan.lua --device cuda --set %s", set[_i]);
  ck_assert_msg(strstr(o.out, "attention: cuDNN\n") != NULL, "%s: %s", set[_i], o.out);
}
END_TEST

/* Its mask leaves out the scores of other documents, but not their products. */
START_TEST(the_default_keeps_packed_documents) {
  put_plan("auto");
  Outcome o = process_run(30, "$weft check plan.lua --device cuda --set packed.eot=3");
  ck_assert_msg(strstr(o.out, "attention: weft's own kernels\n") != NULL, "%s", o.out);
}
END_TEST

START_TEST(a_deterministic_run_has_weft_s_backward) {
  put_plan("auto");
  Outcome o = process_run(60, "sh -c '" BESIDE RUN "--set deterministic=true'");
  loss_of(
      &o,
      "; attention: forward by cuDNN, backward by weft's own kernels (cuDNN 9.19.0); ");
}
END_TEST

/* Without a GPU, too: check compiles for the device and says who it is. */
START_TEST(what_cudnn_cannot_do_is_an_error_of_the_plan) {
  static const struct {
    const char *set, *says;
  } asked[] = {
      {"precision=f32",
       "plan.lua:6: error: plan.attention_backend: cuDNN does not compute "
       "attention of layers.0"},
      {"precision=f32",
       "it computes in bf16 only (\"auto\" leaves such attention to weft's own kernels)"},
      {"deterministic=true", "cuDNN does not compute attention_dx of "},
      {"deterministic=true",
       "it sums dq in no fixed order, and the plan asks for deterministic = true"},
      {"packed.eot=3 --set mesh.cp=2", "no packed documents of which cp cuts the "
                                       "sequence"},
      {"model.sliding_window=8 --set mesh.cp=2",
       "weft's graph for it has no sliding window over a part of the sequence (cp)"},
      {"batch.seq=1", "it has no gradients of a single token"},
  };
  put_plan("cudnn");
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o =
        process_run(30, "$weft check plan.lua --device cuda --set %s", asked[i].set);
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.err, asked[i].says) != NULL, "%s: %s", asked[i].set, o.err);
    o = process_run(30,
                    "$weft check plan.lua --device cuda --set %s --set "
                    "attention_backend=auto",
                    asked[i].set);
    ck_assert_msg(o.code == 0 && strstr(o.out, "attention: "), "%s%s", o.out, o.err);
    o = process_run(30, "$weft check plan.lua --set %s", asked[i].set);
    ck_assert_msg(o.code == 0, "on the CPU: %s", o.err);
  }
}
END_TEST

/* Ranks of tp that all have the whole of an attention step its weights by themselves. */
START_TEST(copies_have_weft_s_backward) {
  static const char mlp[] = " mesh = { tp = 2 }, tp_plan = {\n"
                            "  [\"layers.*.mlp.gate_proj\"] = \"colwise\",\n"
                            "  [\"layers.*.mlp.up_proj\"] = \"colwise\",\n"
                            "  [\"layers.*.mlp.down_proj\"] = \"rowwise\" },";
  static const char check[] = "$weft check plan.lua --device cuda";
  put_plan_with("cudnn", mlp);
  Outcome o = process_run(30, check);
  ck_assert_int_eq(o.code, 1);
  ck_assert_msg(strstr(o.err, "plan.lua:6: error: plan.attention_backend: cuDNN does not "
                              "compute attention_dx of layers.") &&
                    strstr(o.err, "it sums dq in no fixed order, and ranks of tp repeat "
                                  "this attention: their copies of its weights would "
                                  "drift apart"),
                "%s", o.err);
  put_plan_with("auto", mlp);
  o = process_run(30, check);
  ck_assert_msg(o.code == 0 && strstr(o.out, "attention: weft's own kernels\n"), "%s%s",
                o.out, o.err);
  put_plan_with("cudnn", " mesh = { tp = 2 },");
  o = process_run(30, check);
  ck_assert_msg(o.code == 0 && strstr(o.out, "attention: ") &&
                    !strstr(o.out, "weft's own kernels"),
                "%s%s", o.out, o.err);
}
END_TEST

/* The default takes cuDNN where the machine has one that is right, on GPUs whose kernels
 * of weft's own it is known to be ahead of. */
START_TEST(the_default_is_what_the_machine_has) {
  static const struct {
    const char *standin, *says;
  } asked[] = {
      {"cudnn=91900", "; attention: cuDNN 9.19.0; steps are "},
      {"cudnn=0", "; attention: weft's own kernels (there is no cuDNN 9); steps are "},
      {"capability=80",
       "; attention: weft's own kernels (cuDNN is taken on 9.0 and 10.0, "
       "and the GPU is 8.x); steps are "},
      {"cudnn=91300", "; attention: forward by cuDNN, backward by weft's own kernels "
                      "(cuDNN 9.13.0); steps are "},
  };
  put_plan("auto");
  process_run(10, "sed -i /attention_backend/d plan.lua");
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o =
        process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=%s " RUN "'", asked[i].standin);
    loss_of(&o, asked[i].says);
  }
}
END_TEST

/* What the machine's cuDNN makes no plan of is left to weft's kernels, with a warning,
 * and where nobody asked it before; weft verify asks, too. */
START_TEST(the_default_goes_on_without_a_plan) {
  static const char warns[] =
      "warning: weft's own kernels compute attention: cuDNN needs 768 bytes";
  put_plan("auto");
  Outcome o = process_run(60, "sh -c '" BESIDE "WEFT_STANDIN=cudnn_work=512 " RUN "'");
  loss_of(&o, warns);
  ck_assert_ptr_nonnull(strstr(
      o.err, "; attention: cuDNN, or weft's own kernels where it makes no plan; "));
  /* A plan that is shrunk for it, on a GPU for which cuDNN is not taken: it is wrong. */
  o = process_run(120, "sh -c '" BESIDE "WEFT_STANDIN=capability=80,cudnn_wrong=2 ./weft "
                       "verify plan.lua --device cuda --set batch.seq=2048 --set "
                       "model.hidden_size=512'");
  ck_assert_msg(o.code == 0 && !strstr(o.out, "own kernels"), "code %d: %s%s", o.code,
                o.out, o.err);
  o = process_run(120, "sh -c '" BESIDE "WEFT_STANDIN=cudnn_fails=2 " RUN "'");
  loss_of(&o, "warning: weft's own kernels compute attention: cuDNN: attention cannot be "
              "run: ");
  o = process_run(120, "sh -c '" BESIDE "WEFT_STANDIN=cudnn=0 ./weft verify plan.lua "
                       "--device cuda --set mesh.tp=2'");
  ck_assert_msg(o.code == 0, "code %d: %s%s", o.code, o.out, o.err);
}
END_TEST

/* Each result of both ops, of which the last row alone is wrong; others that are written
 * are scratch. */
START_TEST(a_cudnn_that_is_wrong_does_not_train) {
  static const char *const result[] = {"o", "lse", "dq", "dk", "dv"};
  static const char *const cuts[] = {"batch.seq=64",
                                     "batch.seq=128 --set mesh.cp=2 --set cp.comm=ring"};
  static const int wrong[] = {1, 2, 11, 12, 13, 14, 15, 16, 17};
  int found[LEN(result)] = {0};
  put_plan("cudnn");
  for (int i = 0; i < LEN(wrong); i++) {
    Outcome o = process_run(
        60, "sh -c '" BESIDE "WEFT_STANDIN=cudnn_wrong=%d " RUN "--steps 1 --set %s'",
        wrong[i], cuts[_i]);
    for (int k = 0; k < LEN(result); k++) {
      char says[160];
      snprintf(says, sizeof says,
               "cuDNN computes another %s than weft's own kernel, on the same numbers of "
               "these shapes (sequence 0, token 63, head ",
               result[k]);
      if (o.code == 1 && strstr(o.out, says)) found[k]++;
    }
    ck_assert_msg(o.code == 0 || strstr(o.out, "use attention_backend = "),
                  "%d: code %d: %s%s", wrong[i], o.code, o.out, o.err);
  }
  for (int k = 0; k < LEN(result); k++)
    ck_assert_msg(found[k] > 0, "another %s is not found", result[k]);
}
END_TEST

/* The machine's cuDNN is not the one that was checked, or refuses what it had planned. */
START_TEST(what_cudnn_says_ends_the_run) {
  static const struct {
    const char *standin, *says;
  } asked[] = {
      {"cudnn_work=512", "cuDNN needs 768 bytes of workspace for this attention, but the "
                         "plan reserves 256; use attention_backend = \"native\""},
      {"cudnn_fails=3", ": device cuda: cuDNN: attention cannot be run: "},
  };
  put_plan("cudnn");
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o = process_run(
        60, "sh -c '" BESIDE "WEFT_STANDIN=%s ./weft run plan.lua --device cuda'",
        asked[i].standin);
    ck_assert_int_eq(o.code, 1);
    ck_assert_msg(strstr(o.err, asked[i].says) != NULL, "%s: %s", asked[i].standin,
                  o.err);
  }
}
END_TEST

/* Versions that compute wrong gradients of some lengths, or of all. */
START_TEST(versions_with_faults_end_the_run) {
  static const struct {
    const char *standin, *more, *says; /* NULL: it runs */
  } asked[] = {
      {"cudnn=91300", "batch.seq=100",
       "cuDNN 9.13.0 reads outside of memory for gradients of 100 tokens, which are no "
       "multiple of 128: install 9.15.1 or newer, or use attention_backend = \"native\""},
      {"cudnn=91500", "batch.seq=24", "cuDNN 9.15.0 reads outside of memory"},
      {"cudnn=91300", "batch.seq=128", NULL},
      {"cudnn=91501", "batch.seq=24", NULL},
      {"cudnn=91300", "attention_backend=auto --set deterministic=true", NULL},
      {"cudnn=91000", "batch.seq=128", "cuDNN 9.10.0 computes attention wrongly"},
      {"cudnn=91001", "batch.seq=128", "cuDNN 9.10.1 computes attention wrongly"},
      {"cudnn=91002", "batch.seq=128", NULL},
  };
  put_plan("cudnn");
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o = process_run(100,
                            "sh -c '" BESIDE "WEFT_STANDIN=%s ./weft run plan.lua "
                            "--device cuda --steps 1 --set %s'",
                            asked[i].standin, asked[i].more);
    bool runs = !asked[i].says;
    ck_assert_msg(runs == (o.code == 0) && (runs || strstr(o.err, asked[i].says)),
                  "row %d: code %d: %s%s", i, o.code, o.out, o.err);
    ck_assert_msg(runs || strstr(o.err, "rank 0: op attention"), "%s", o.err);
  }
}
END_TEST

/* By hand for 4 heads of 8 elements and 24 tokens: lse by heads and row sums of 384 bytes
 * take 512 each, sums of dq in f32 3072, cuDNN's own are 2 of the latter and 256.
 * Natively a sum for each row. */
START_TEST(check_counts_what_cudnn_takes) {
  static const struct {
    const char *backend, *forward, *backward;
  } asked[] = {
      {"native", "f32[1,24,4] head_dim=8", "using f32[96] head_dim=8"},
      {"cudnn", "using f32[64] backend=1 ", "using f32[2624] backend=1 "},
  };
  put_plan("native");
  for (int i = 0; i < LEN(asked); i++) {
    Outcome o = process_run(30,
                            "$weft show program plan.lua --device cuda --set "
                            "attention_backend=%s | grep KERNEL.attention",
                            asked[i].backend);
    ck_assert_msg(o.code == 0, "%s", o.err);
    ck_assert_msg(strstr(o.out, asked[i].forward) != NULL, "%s", o.out);
    ck_assert_msg(strstr(o.out, asked[i].backward) != NULL, "%s", o.out);
  }
}
END_TEST

Suite *cudnn_run_suite(void) {
  Suite *s = suite_create("cudnn_run");
  TCase *t = tcase_create("runs");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 240);
  tcase_add_test(t, a_run_through_cudnn);
  tcase_add_test(t, numbers_are_turned_by_heads);
  tcase_add_test(t, older_gpus_have_the_same_gradients);
  tcase_add_test(t, ranks_through_cudnn);
  tcase_add_test(t, a_deterministic_run_has_weft_s_backward);
  tcase_add_test(t, what_cudnn_cannot_do_is_an_error_of_the_plan);
  tcase_add_test(t, copies_have_weft_s_backward);
  tcase_add_test(t, the_default_is_what_the_machine_has);
  tcase_add_test(t, the_default_goes_on_without_a_plan);
  tcase_add_loop_test(t, a_cudnn_that_is_wrong_does_not_train, 0, 2);
  tcase_add_loop_test(t, sequences_that_cp_cuts, 0, 8);
  tcase_add_test(t, the_default_keeps_packed_documents);
  tcase_add_test(t, what_cudnn_says_ends_the_run);
  tcase_add_test(t, versions_with_faults_end_the_run);
  tcase_add_test(t, check_counts_what_cudnn_takes);
  suite_add_tcase(s, t);
  return s;
}

#else

Suite *cudnn_run_suite(void) { return emulated_suite_without("cudnn_run"); }

#endif
