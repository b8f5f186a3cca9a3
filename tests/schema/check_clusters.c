/* check_clusters.c - the machines of a plan: names of GPUs, their figures, and what is
 * said about a plan that they cannot hold. */
#include <check.h>

#include "tests/harness/lang_fixture.h"
#include "tests/harness/process.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

#define PLAN(cluster)                                                                    \
  HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"                           \
       "  cluster = " cluster ",\n  batch = { global = 64, seq = 16 } }\n"

START_TEST(figures_are_sound) {
  static const char *const names[] = {"h100-sxm", "a100-80gb", "h200", "H100", "a100"};
  for (int i = 0; i < LEN(names); i++) {
    const Plan *p = lang_test_good(
        &t,
        arena_printf(t.arena, PLAN("weft.cluster { nodes = 2, gpu = '%s' }"), names[i]));
    const Cluster *c = &p->cluster;
    ck_assert_str_eq(c->gpu, i < 3 ? names[i] : i == 3 ? "h100-sxm" : "a100-80gb");
    ck_assert_int_eq(c->nodes * c->gpus, 16);
    ck_assert(c->memory > 79e9 && c->memory < 160e9);
    ck_assert(c->bf16 > 4 * c->f32 && c->bf16 < 1e15);
    ck_assert(c->hbm_bandwidth > 2e12 && c->hbm_bandwidth < 5e12);
    ck_assert(c->nvlink_bandwidth > 2 * c->network_bandwidth);
    ck_assert(c->network_latency > c->nvlink_latency && c->nvlink_latency > 1e-7);
  }
}
END_TEST

/* A name alone says what the machines are, not how many. */
START_TEST(a_name_leaves_the_size_open) {
  static const char *const forms[] = {"'h200'", "weft.cluster 'h200'"};
  for (int i = 0; i < LEN(forms); i++) {
    const Plan *p = lang_test_good(&t, arena_printf(t.arena, PLAN("%s"), forms[i]));
    ck_assert_str_eq(p->cluster.gpu, "h200");
    ck_assert_int_eq(p->cluster.gpus, 8);
    ck_assert_int_eq(lang_cluster_ranks(t.lp), 0);
  }
  lang_test_good(&t, PLAN("weft.cluster { 'h200', nodes = 2, gpus = 4 }"));
  ck_assert_int_eq(lang_cluster_ranks(t.lp), 8);
  lang_test_good(&t, PLAN("weft.cluster { gpus = 4 }"));
  ck_assert_int_eq(lang_cluster_ranks(t.lp), 4);
  ck_assert_ptr_null(lang_plan(t.lp)->cluster.gpu);
}
END_TEST

START_TEST(unknown_gpus) {
  lang_test_bad(&t, PLAN("weft.cluster { nodes = 1, gpus = 8, gpu = 'h100-sxn' }"),
                "plan.lua:3: error: plan.cluster.gpu: there is no GPU \"h100-sxn\" "
                "(did you mean \"h100-sxm\"?)\n1 error\n");
  lang_test_bad(&t, PLAN("'tpu'"),
                "plan.lua:3: error: plan.cluster: there is no GPU \"tpu\" "
                "(known: a100-80gb, h100-sxm, h200)\n1 error\n");
  lang_test_bad(&t, PLAN("weft.cluster { gpu = 8 }"),
                "plan.lua:3: error: plan.cluster.gpu: expected the name of a GPU, got "
                "number 8\n1 error\n");
  lang_test_bad(&t, PLAN("weft.cluster { nodes = 2 }"),
                "plan.lua:3: error: plan.cluster.gpus: this field is required where no "
                "GPU is named (GPUs of each machine)\n1 error\n");
  lang_test_bad(&t, PLAN("weft.cluster { 'h200', 8 }"),
                "plan.lua:3: error: plan.cluster[2]: a list item is not expected here "
                "(values have names: nodes, gpus, reserve_gib, gpu)\n1 error\n");
}
END_TEST

#define BIG                                                                              \
  "$weft %s " WEFT_SOURCE_DIR "/plans/llama3_8b.lua --set cluster=%s --set mesh.tp=1 "   \
  "--set mesh.pp=1 --set batch.seq=8192"

/* 8 billion parameters with their state are 120 GiB: too many for one GPU of two. */
START_TEST(memory_is_a_warning) {
  Outcome o = process_run(20, BIG, "check", "h100-sxm");
  ck_assert_int_eq(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err, "warning: plan.cluster: pipeline rank 0 needs "));
  ck_assert_ptr_nonnull(
      strstr(o.err, "needs 171.1 GiB, 93.4 GiB more than the 79.6 GiB of h100-sxm less "
                    "cluster.reserve_gib = 2 (in GiB: "));
  ck_assert_ptr_nonnull(strstr(o.err, "optimizer state 59.8, "));
  ck_assert_ptr_nonnull(strstr(o.err, "gradients 29.9, "));
  o = process_run(20, BIG, "show", "h100-sxm");
  ck_assert_int_eq(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err, "warning: plan.cluster: pipeline rank 0 needs "));
  o = process_run(20, BIG, "check", "'{ \"h100\", reserve_gib = 10 }'");
  ck_assert_ptr_nonnull(strstr(o.err, "101.4 GiB more than the 79.6 GiB"));
  o = process_run(20, BIG " --set mesh.tp=8", "check", "h100-sxm");
  ck_assert_int_eq(o.code, 0);
  ck_assert_str_eq(o.err, "");
}
END_TEST

Suite *clusters_suite(void) {
  Suite *s = suite_create("clusters");
  TCase *c = tcase_create("clusters");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, figures_are_sound);
  tcase_add_test(c, a_name_leaves_the_size_open);
  tcase_add_test(c, unknown_gpus);
  tcase_add_test(c, memory_is_a_warning);
  suite_add_tcase(s, c);
  return s;
}
