/* check_clusters.c - the machines of a plan: names of GPUs, their figures, and what is
 * said about a plan that they cannot hold. */
#include <check.h>
#include <math.h>

#include "tests/harness/lang_fixture.h"
#include "tests/harness/process.h"
#include "bindings/sandbox/stdlib.h"
#include "bindings/schema/schema.h"
#include "vm/plan/cluster_figures.h"

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
    ck_assert(c->memory_gib > 74 && c->memory_gib < 150);
    ck_assert(c->bf16 > 4 * c->f32 && c->bf16 < 1e15);
    ck_assert(c->hbm_bandwidth > 2e12 && c->hbm_bandwidth < 5e12);
    ck_assert(c->nvlink_bandwidth > 2 * c->network_bandwidth);
    ck_assert(c->network_latency > c->nvlink_latency && c->nvlink_latency > 1e-7);
  }
}
END_TEST

/* Every GPU of the library, whose names the field's text lists, has what a step on eight
 * nodes needs, but for the network of PCIe cards and bf16 of a GPU that has none. */
START_TEST(library) {
  int n;
  const char *const *names = stdlib_names(t.arena, "clusters", &n);
  const char *listed = schema_find("cluster", "gpu")->doc;
  for (int i = 0; i < n; i++) {
    const Plan *p =
        lang_test_good(&t, arena_printf(t.arena,
                                        PLAN("weft.cluster { nodes = 8, gpu = '%s' }, "
                                             "precision = 'f16'"),
                                        names[i]));
    const Cluster *c = &p->cluster;
    Mesh m = {0};
    Diags d = {.arena = t.arena};
    MeshSpec spec = {.tp = 4, .pp = 64};
    ck_assert(mesh_resolve(&spec, 0, &m, &d));
    const char *lacks = cluster_lacks(p, &m);
    if (strcmp(names[i], "h100-pcie") == 0)
      ck_assert_str_eq(lacks, "cluster.network.per_gpu");
    else
      ck_assert_msg(!lacks, "%s: %s", names[i], lacks);
    ck_assert_msg(strstr(listed, names[i]), "%s", names[i]);
    ck_assert(c->hbm_bandwidth > 0.5e12 && c->hbm_bandwidth < 10e12);
    ck_assert(c->fp8 == 0 || c->fp8 >= 1.9 * c->bf16);
    ck_assert(c->sms >= 80 && c->host_bandwidth < c->nvlink_bandwidth);
    ck_assert_int_eq(c->gpus, strstr(names[i], "nvl72") ? 4 : 8);
    ck_assert_int_eq(cluster_domain(c), strstr(names[i], "nvl72")            ? 72
                                        : strcmp(names[i], "h100-pcie") == 0 ? 2
                                                                             : 8);
  }
}
END_TEST

/* A file that says which other it is like has its own figures first, then the other's. */
START_TEST(figures_of_a_gpu_like_another) {
  static const struct {
    const char *name;
    double memory_gib, bandwidth, nvlink, network, bf16, reached;
  } list[] = {
      {"h800", 81559 / 1024.0, 3.35e12, 200e9, 50e9, 989.4e12, 689e12},
      {"h200", 143771 / 1024.0, 4.8e12, 450e9, 50e9, 989.4e12, 683e12},
      {"a100-40gb", 40, 1.555e12, 300e9, 25e9, 312e12, 256.5e12},
      {"gb300-nvl72", 284208 / 1024.0, 8e12, 900e9, 100e9, 2500e12, 0},
  };
  for (int i = 0; i < LEN(list); i++) {
    const Cluster *c =
        &lang_test_good(&t,
                        arena_printf(t.arena, PLAN("weft.cluster '%s'"), list[i].name))
             ->cluster;
    ck_assert_str_eq(c->gpu, list[i].name);
    ck_assert_double_eq(c->memory_gib, list[i].memory_gib);
    ck_assert_double_eq(c->hbm_bandwidth, list[i].bandwidth);
    ck_assert_double_eq(c->nvlink_bandwidth, list[i].nvlink);
    ck_assert_double_eq(c->network_bandwidth, list[i].network);
    ck_assert_double_eq(c->bf16, list[i].bf16);
    if (list[i].reached) ck_assert_double_eq(c->reached, list[i].reached);
  }
}
END_TEST

/* All figures of one's own, or some of a known GPU's. */
START_TEST(figures_of_the_plan) {
  const Plan *p = lang_test_good(
      &t,
      PLAN("weft.cluster { nodes = 2, gpus = 4, domain = 8, gpu = { name = 'mine', "
           "bf16 = 4e14, f32 = 5e13, memory_gib = 64, bandwidth = 2e12, nvlink = 3e11, "
           "nvlink_latency = 2e-6, host = 3e10, sms = 100 }, network = { per_gpu = "
           "2e10, latency = 5e-6, spine = 1e10 } }"));
  const Cluster *c = &p->cluster;
  ck_assert_str_eq(c->gpu, "mine");
  ck_assert(c->bf16 == 4e14 && c->f32 == 5e13 && c->memory_gib == 64);
  ck_assert(c->hbm_bandwidth == 2e12 && c->nvlink_bandwidth == 3e11);
  ck_assert(c->network_bandwidth == 2e10 && c->spine == 1e10 && c->sms == 100);
  ck_assert_int_eq(cluster_domain(c), 8);
  Link l = link_near(c, 8), far = link_near(c, 16);
  ck_assert_double_eq(l.bandwidth, 3e11);
  ck_assert_double_eq(far.bandwidth, 8 * 1e10); /* eight cards, behind the spine */
  p = lang_test_good(
      &t, PLAN("weft.cluster { gpu = { 'h100-sxm', memory_gib = 94, bandwidth = 3.9e12 "
               "}, network = { per_gpu = 25e9 } }"));
  c = &p->cluster;
  ck_assert_str_eq(c->gpu, "h100-sxm");
  ck_assert(c->memory_gib == 94 && c->hbm_bandwidth == 3.9e12 && c->bf16 == 989.4e12);
  ck_assert(c->network_bandwidth == 25e9 && c->network_latency == 9.6e-6);
  ck_assert_int_eq(c->gpus, 8);
  lang_test_bad(&t, PLAN("weft.cluster { gpus = 8, gpu = { bf16 = -1, tflops = 3 } }"),
                "plan.lua:3: error: plan.cluster.gpu.bf16: expected a number of at least "
                "1000000, got number -1\n"
                "plan.lua:3: error: plan.cluster.gpu.tflops: unknown field\n2 errors\n");
}
END_TEST

/* A changed peak is reached in the share that was measured beside the known one. */
START_TEST(what_products_reach) {
  const Cluster *c =
      &lang_test_good(&t, PLAN("weft.cluster { gpu = { 'h100-sxm', bf16 = 494.7e12 } }"))
           ->cluster;
  ck_assert_double_eq_tol(c->reached, 689e12 / 2, 1);
  c = &lang_test_good(&t, PLAN("weft.cluster { gpu = { 'h800', bf16 = 494.7e12 } }"))
           ->cluster;
  ck_assert_double_eq_tol(c->reached, 689e12 / 2, 1);
  int n;
  const char *const *names = stdlib_names(t.arena, "clusters", &n);
  for (int i = 0; i < n; i++) {
    const char *own = "weft.cluster { nodes = 1, gpu = { '%s', bf16 = %.17g } }, "
                      "precision = 'f16'";
    const char *name = arena_printf(
        t.arena, PLAN("weft.cluster { nodes = 1, gpu = '%s' }, precision = 'f16'"),
        names[i]);
    Cluster whole = lang_test_good(&t, name)->cluster;
    if (whole.bf16 == 0) continue;
    const char *half = arena_printf(t.arena, own, names[i], whole.bf16 / 2);
    c = &lang_test_good(&t, arena_printf(t.arena, PLAN("%s"), half))->cluster;
    ck_assert_msg(fabs(c->reached - whole.reached / 2) <= 1e-9 * whole.reached,
                  "%s: %g of %g", names[i], c->reached, whole.reached);
  }
  c = &lang_test_good(&t, PLAN("weft.cluster { gpu = { 'h100-sxm', bf16 = 494.7e12, "
                               "reached = 4e14 } }"))
           ->cluster;
  ck_assert_double_eq(c->reached, 4e14);
  lang_test_bad(&t, PLAN("weft.cluster { gpu = { 'h100-sxm', reached = 1e15 } }"),
                "plan.lua:3: error: plan.cluster.gpu.reached: 1e+15 flop/s are more than "
                "the peak, bf16 = 9.894e+14\n1 error\n");
}
END_TEST

static Mesh mesh_of(MeshSpec spec) {
  Mesh m = {0};
  Diags d = {.arena = t.arena};
  ck_assert(mesh_resolve(&spec, 0, &m, &d));
  return m;
}

/* A machine of eight: groups of three of which some begin at its end; of four pipeline
 * ranks of four ranks each two lie in each machine. */
START_TEST(groups_that_reach_into_the_next_machine) {
  const Cluster k = {.gpus = 8,
                     .nvlink_bandwidth = 100,
                     .nvlink_latency = 1,
                     .network_bandwidth = 10,
                     .network_latency = 2,
                     .host_bandwidth = 5};
  AxisSet tp = AXIS_BIT(AXIS_TP);
  Mesh m = mesh_of((MeshSpec){.tp = 3, .dp = 8});
  ck_assert_int_eq(link_kind(&m, &k, tp), LINK_NETWORK);
  ck_assert_double_eq(link_of(&m, &k, tp).bandwidth, 10); /* 6, 7 | 8 */
  m = mesh_of((MeshSpec){.tp = 6, .dp = 4});
  ck_assert_int_eq(link_kind(&m, &k, tp), LINK_NETWORK);
  ck_assert_double_eq(link_of(&m, &k, tp).bandwidth, 20); /* 6, 7 | 8, 9, 10, 11 */
  m = mesh_of((MeshSpec){.tp = 3, .dp = 2});              /* one machine */
  ck_assert_int_eq(link_kind(&m, &k, tp), LINK_NVLINK);
  m = mesh_of((MeshSpec){.tp = 4, .dp = 2, .pp = 2});
  ck_assert_int_eq(link_kind(&m, &k, tp), LINK_NVLINK);
  ck_assert_int_eq(link_kind(&m, &k, AXES_DP), LINK_NVLINK);
  ck_assert_int_eq(link_kind_pair(&m, &k, 0, 1), LINK_NETWORK);
  m = mesh_of((MeshSpec){.tp = 2, .dp = 2, .pp = 4});
  ck_assert_int_eq(link_kind(&m, &k, AXIS_BIT(AXIS_PP)), LINK_NETWORK);
  static const LinkKind pairs[] = {LINK_NVLINK, LINK_NETWORK, LINK_NVLINK};
  for (int pp = 0; pp < 3; pp++) {
    ck_assert_int_eq(link_kind_pair(&m, &k, pp, pp + 1), pairs[pp]);
    ck_assert_int_eq(link_kind_pair(&m, &k, pp + 1, pp), pairs[pp]);
    ck_assert_double_eq(link_pair(&m, &k, pp, pp + 1).bandwidth, pp == 1 ? 10 : 100);
  }
  ck_assert_int_eq(link_kind_pair(&m, &k, 0, 3), LINK_NETWORK);
  ck_assert_uint_eq(links_used(&m, &k), 1u << LINK_NVLINK | 1u << LINK_NETWORK);
}
END_TEST

/* The link that a group needs and the least of its members in a machine, by looking at
 * each rank of it. */
static LinkKind kind_by_ranks(const Mesh *m, const Cluster *k, const int *rank, int n,
                              int *here) {
  LinkKind kind = LINK_NVLINK;
  for (int i = 0; i < n; i++) {
    int beside = 0;
    for (int j = 0; j < n; j++) beside += rank[j] / k->gpus == rank[i] / k->gpus;
    *here = MIN(*here, beside);
    if (rank[i] / k->gpus != rank[0] / k->gpus) kind = LINK_NETWORK;
  }
  return kind;
}

static void look_at_groups(const Mesh *m, const Cluster *k, AxisSet axes) {
  int rank[64], here = mesh_size(m, axes);
  char name[64];
  LinkKind kind = LINK_NVLINK;
  for (int r = 0; r < m->world; r++) {
    int n = mesh_group(m, axes, r, rank);
    kind = MAX(kind, kind_by_ranks(m, k, rank, n, &here));
  }
  Link l = link_of(m, k, axes);
  ck_assert_msg(link_kind(m, k, axes) == kind, "%s of %s", axes_name(axes, name),
                mesh_text(m, (char[96]){0}));
  ck_assert_int_eq(l.here, kind == LINK_NETWORK ? here : 1);
}

/* In every order of the mesh, of both meshes: where pp is not its slowest axis the ranks
 * of a group of experts are not equally far apart. */
START_TEST(links_are_those_of_the_ranks) {
  static const char *const orders[][AXIS_N + 1] = {{0},
                                                   {"dp", "pp", "cp", "tp"},
                                                   {"dp", "cp", "tp", "pp"},
                                                   {"tp", "pp", "dp", "cp"},
                                                   {"cp", "pp", "tp", "dp"}};
  const Cluster k = {.gpus = 8, .nvlink_bandwidth = 100, .network_bandwidth = 10};
  for (int i = 0; i < LEN(orders) * 4 * 4; i++) {
    MeshSpec spec = {.world = 64, .tp = 1 << i % 4, .pp = 1 << i / 4 % 4};
    int64_t row = 64 / spec.pp;
    spec.cp = i % 3 || spec.tp * 2 > row ? 1 : 2;
    spec.etp = i % 2 ? 1 : MIN(spec.tp, 4), spec.ep = MIN(row / spec.etp, 4 + i % 5 * 4);
    while (row / spec.etp % spec.ep) spec.ep--;
    memcpy(spec.order, orders[i / 16], sizeof spec.order);
    Mesh m = mesh_of(spec);
    for (AxisSet s = 1; s < AXIS_BIT(AXIS_END); s++)
      if (axes_one_mesh(s) && !(s & AXIS_BIT(AXIS_PP))) look_at_groups(&m, &k, s);
  }
}
END_TEST

/* A ring over machines comes through each of them, too; where NVLink joins but two of
 * their GPUs, through the host. */
START_TEST(rings_pass_through_machines) {
  Cluster k = {.gpus = 8,
               .domain = 2,
               .nvlink_bandwidth = 100,
               .network_bandwidth = 10,
               .host_bandwidth = 5};
  Mesh m = mesh_of((MeshSpec){.dp = 16});
  ck_assert_double_eq(link_of(&m, &k, AXES_DP).bandwidth, 5);
  ck_assert_uint_eq(links_used(&m, &k), 1u << LINK_HOST | 1u << LINK_NETWORK);
  ck_assert_double_eq(link_near(&k, 16).bandwidth, 5);
  k.domain = 8;
  ck_assert_double_eq(link_of(&m, &k, AXES_DP).bandwidth, 80);
}
END_TEST

/* Of a rack of 72 a job of 256 has 64 GPUs, so that groups of 64 lie in one domain; one
 * of 144 has all. */
START_TEST(racks_are_shared_out) {
  const Cluster k = {
      .gpus = 4, .domain = 72, .nvlink_bandwidth = 100, .network_bandwidth = 10};
  Mesh m = mesh_of((MeshSpec){.tp = 64, .dp = 4});
  ck_assert_int_eq(link_kind(&m, &k, AXIS_BIT(AXIS_TP)), LINK_NVLINK);
  ck_assert_double_eq(link_of(&m, &k, AXIS_BIT(AXIS_TP)).bandwidth, 100);
  m = mesh_of((MeshSpec){.tp = 16, .dp = 16});
  ck_assert_int_eq(link_of(&m, &k, AXES_DP).here, 4);
  m = mesh_of((MeshSpec){.tp = 72, .dp = 2});
  ck_assert_int_eq(link_kind(&m, &k, AXIS_BIT(AXIS_TP)), LINK_NVLINK);
  m = mesh_of((MeshSpec){.tp = 48, .dp = 3}); /* two in a rack do not fit */
  ck_assert_int_eq(link_kind(&m, &k, AXIS_BIT(AXIS_TP)), LINK_NETWORK);
}
END_TEST

/* Rings use all cards of a machine; what a rank sends to each other one, or to the next,
 * passes its own. Of 16 ranks half of the bytes leave a machine of 8. */
START_TEST(exchanges_use_one_card) {
  const Cluster k = {.gpus = 8, .nvlink_bandwidth = 100, .network_bandwidth = 10};
  Mesh m = mesh_of((MeshSpec){.cp = 16});
  Link l = link_of(&m, &k, AXIS_BIT(AXIS_CP));
  ck_assert_double_eq_tol(link_ring(&l, 1600, 1, false), 1500 / 80.0, 1e-9);
  ck_assert_double_eq_tol(link_exchange(&l, 1600, 1), 800 / 10.0, 1e-9);
  ck_assert_double_eq_tol(link_shift(&l, 1600, 1), 160, 1e-9);
  m = mesh_of((MeshSpec){.cp = 8, .dp = 2});
  l = link_of(&m, &k, AXIS_BIT(AXIS_CP));
  ck_assert_double_eq_tol(link_exchange(&l, 1600, 1), 1400 / 100.0, 1e-9);
  ck_assert_double_eq_tol(link_shift(&l, 1600, 1), 16, 1e-9);
}
END_TEST

/* Where each pair of GPUs has links of its own, few members have few of them. */
START_TEST(links_of_pairs) {
  const Cluster k = {
      .gpus = 8, .nvlink_bandwidth = 70, .peer_bandwidth = 10, .network_bandwidth = 5};
  Mesh m = mesh_of((MeshSpec){.tp = 2, .pp = 2, .cp = 2});
  ck_assert_double_eq(link_of(&m, &k, AXIS_BIT(AXIS_TP)).bandwidth, 10);
  ck_assert_double_eq(link_pair(&m, &k, 0, 1).bandwidth, 10);
  m = mesh_of((MeshSpec){.tp = 4, .dp = 2});
  ck_assert_double_eq(link_of(&m, &k, AXIS_BIT(AXIS_TP)).bandwidth, 30);
  m = mesh_of((MeshSpec){.cp = 8});
  Link l = link_of(&m, &k, AXIS_BIT(AXIS_CP));
  ck_assert_double_eq(l.bandwidth, 70);
  ck_assert_double_eq_tol(link_shift(&l, 1600, 1), 160, 1e-9);
  ck_assert_double_eq_tol(link_exchange(&l, 1600, 1), 1400 / 70.0, 1e-9);
  /* Two members on each of two machines pass the link between them on the way. */
  m = mesh_of((MeshSpec){.tp = 4, .dp = 4});
  ck_assert_double_eq(link_of(&m, &k, AXES_DP).bandwidth, 10);
}
END_TEST

/* A figure is named when a prediction needs it, not before. */
START_TEST(missing_figures) {
  static const struct {
    const char *gpu;
    int tp, pp;
    const char *lacks;
  } list[] = {
      {"", 1, 1, "cluster.gpu.f32"},
      {"f32 = 1e13", 1, 1, "cluster.gpu.bandwidth"},
      {"f32 = 1e13, bandwidth = 1e12", 1, 1, NULL},
      {"f32 = 1e13, bandwidth = 1e12", 2, 1, "cluster.gpu.nvlink"},
      {"f32 = 1e13, bandwidth = 1e12, nvlink = 1e11", 2, 1, "cluster.gpu.nvlink_latency"},
      {"f32 = 1e13, bandwidth = 1e12", 1, 16, "cluster.gpu.nvlink"}, /* neighbours */
      {"f32 = 1e13, bandwidth = 1e12, nvlink = 1e11, nvlink_latency = 1e-6", 1, 16,
       "cluster.network.per_gpu"},
  };
  for (int i = 0; i < LEN(list); i++) {
    const Plan *p = lang_test_good(
        &t, arena_printf(t.arena, PLAN("weft.cluster { gpus = 8, gpu = { %s } }"),
                         list[i].gpu));
    Mesh m = {0};
    Diags d = {.arena = t.arena};
    MeshSpec spec = {.tp = list[i].tp, .pp = list[i].pp};
    ck_assert(mesh_resolve(&spec, 0, &m, &d));
    const char *lacks = cluster_lacks(p, &m);
    ck_assert_str_eq(lacks ? lacks : "-", list[i].lacks ? list[i].lacks : "-");
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
  lang_test_bad(
      &t, PLAN("'tpu'"),
      "plan.lua:3: error: plan.cluster: there is no GPU \"tpu\" "
      "(known: a100-40gb, a100-80gb, b200, b300, gb200-nvl72, gb300-nvl72, h100-500w, "
      "h100-pcie, h100-sxm, h200, h800, mi300x, v100; of another one give figures: gpu = "
      "{ name = "
      "\"tpu\", memory_gib = ..., bf16 = ..., ... })\n1 error\n");
  lang_test_bad(&t, PLAN("weft.cluster { gpu = 8 }"),
                "plan.lua:3: error: plan.cluster.gpu: expected the name of a GPU, got "
                "number 8\n1 error\n");
  lang_test_bad(&t, PLAN("weft.cluster { nodes = 2 }"),
                "plan.lua:3: error: plan.cluster.gpus: this field is required where no "
                "GPU is named (GPUs of each machine)\n1 error\n");
  lang_test_bad(
      &t, PLAN("weft.cluster { 'h200', 8 }"),
      "plan.lua:3: error: plan.cluster[2]: a list item is not expected here "
      "(values have names: nodes, gpus, reserve_gib, gpu, domain, ...)\n1 error\n");
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
  tcase_add_test(c, figures_of_a_gpu_like_another);
  tcase_add_test(c, library);
  tcase_add_test(c, figures_of_the_plan);
  tcase_add_test(c, what_products_reach);
  tcase_add_test(c, groups_that_reach_into_the_next_machine);
  tcase_add_test(c, links_are_those_of_the_ranks);
  tcase_add_test(c, rings_pass_through_machines);
  tcase_add_test(c, exchanges_use_one_card);
  tcase_add_test(c, links_of_pairs);
  tcase_add_test(c, racks_are_shared_out);
  tcase_add_test(c, missing_figures);
  tcase_add_test(c, a_name_leaves_the_size_open);
  tcase_add_test(c, unknown_gpus);
  tcase_add_test(c, memory_is_a_warning);
  suite_add_tcase(s, c);
  return s;
}
