/* check_mesh.c - coordinates and groups against tables written by hand, and every rule
 * that a mesh can break. */
#include <check.h>
#include <stdlib.h>

#include "vm/mesh/mesh.h"

static Arena *arena;
static Diags diags;

static void setup(void) {
  arena = arena_new(NULL);
  diags = (Diags){.arena = arena};
}

static void teardown(void) { arena_free(arena); }

static Mesh resolve(MeshSpec spec, int64_t world) {
  Mesh m;
  bool ok = mesh_resolve(&spec, world, &m, &diags);
  ck_assert_msg(ok, "%s", diags.list.n ? diags.list.at[0].summary : "no message");
  ck_assert_int_eq(diags.list.n, 0);
  return m;
}

static void check_group(const Mesh *m, AxisSet s, int rank, int n, const int *want) {
  int out[64];
  ck_assert_int_eq(mesh_size(m, s), n);
  ck_assert_int_eq(mesh_group(m, s, rank, out), n);
  for (int i = 0; i < n; i++) {
    ck_assert_int_eq(out[i], want[i]);
    ck_assert_int_eq(mesh_index(m, s, out[i]), i);
  }
}
#define CHECK_GROUP(m, s, rank, ...)                                                     \
  check_group((m), (s), (rank), LEN(((int[]){__VA_ARGS__})), (int[]){__VA_ARGS__})

/* ---- coordinates and groups ---- */

START_TEST(one_rank) {
  Mesh m = resolve((MeshSpec){0}, 0);
  ck_assert_int_eq(m.world, 1);
  for (int a = 0; a < AXIS_N; a++) {
    ck_assert_int_eq(m.size[a], 1);
    ck_assert_int_eq(mesh_coord(&m, 0, a), 0);
  }
  for (int a = AXIS_N; a < AXIS_END; a++) ck_assert_int_eq(m.size[a], 1);
  CHECK_GROUP(&m, AXES_ALL, 0, 0);
}
END_TEST

/* pp 2, dp 2, tp 2: rank = 4 pp + 2 dp + tp. */
START_TEST(eight_ranks) {
  Mesh m = resolve((MeshSpec){.tp = 2, .pp = 2}, 8);
  static const int want[8][AXIS_N] = {
      {0, 0, 0, 0, 0}, {0, 0, 0, 0, 1}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 1},
      {1, 0, 0, 0, 0}, {1, 0, 0, 0, 1}, {1, 0, 1, 0, 0}, {1, 0, 1, 0, 1},
  };
  for (int r = 0; r < 8; r++) {
    for (int a = 0; a < AXIS_N; a++) ck_assert_int_eq(mesh_coord(&m, r, a), want[r][a]);
  }
  CHECK_GROUP(&m, AXIS_BIT(AXIS_TP), 6, 6, 7);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_PP), 6, 2, 6);
  CHECK_GROUP(&m, AXES_DP, 5, 5, 7);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_PP) | AXIS_BIT(AXIS_TP), 3, 2, 3, 6, 7);
  CHECK_GROUP(&m, AXES_ALL, 3, 0, 1, 2, 3, 4, 5, 6, 7);
  CHECK_GROUP(&m, 0, 3, 3);
}
END_TEST

/* pp 2, rep 2, shard 4, cp 2, tp 2: rank = 32 pp + 16 rep + 4 shard + 2 cp + tp. */
START_TEST(sixty_four_ranks) {
  Mesh m = resolve((MeshSpec){.tp = 2, .pp = 2, .cp = 2, .dp_replicate = 2}, 64);
  ck_assert_int_eq(m.size[AXIS_DP_SHARD], 4);
  static const int at45[] = {1, 0, 3, 0, 1}, at22[] = {0, 1, 1, 1, 0};
  for (int a = 0; a < AXIS_N; a++) {
    ck_assert_int_eq(mesh_coord(&m, 45, a), at45[a]);
    ck_assert_int_eq(mesh_coord(&m, 22, a), at22[a]);
  }
  CHECK_GROUP(&m, AXIS_BIT(AXIS_DP_REPLICATE), 45, 45, 61);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_DP_SHARD), 45, 33, 37, 41, 45);
  CHECK_GROUP(&m, AXES_DP, 22, 2, 6, 10, 14, 18, 22, 26, 30);
  CHECK_GROUP(&m, AXES_DP_SHARD_CP, 45, 33, 35, 37, 39, 41, 43, 45, 47);
  CHECK_GROUP(&m, AXES_DP_CP, 0, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
              30);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_CP) | AXIS_BIT(AXIS_TP), 45, 44, 45, 46, 47);
}
END_TEST

/* tp 8 as 2 x 4: neighbours have the same key-value head. */
START_TEST(parts_of_tp) {
  Mesh m = resolve((MeshSpec){.tp = 8, .dp = 2}, 16);
  AxisSet kv = AXIS_BIT(AXIS_TP_KV), copies = AXIS_BIT(AXIS_TP_REP);
  ck_assert_uint_eq(mesh_axes(&m, kv), AXIS_BIT(AXIS_TP));
  ck_assert_uint_eq(mesh_axes(&m, copies | AXES_ALL), mesh_axes(&m, AXES_ALL));
  mesh_split_tp(&m, 4);
  CHECK_GROUP(&m, copies, 13, 12, 13, 14, 15);
  CHECK_GROUP(&m, kv, 13, 9, 13);
  CHECK_GROUP(&m, kv | copies, 13, 8, 9, 10, 11, 12, 13, 14, 15);
  CHECK_GROUP(&m, copies | AXES_DP, 13, 4, 5, 6, 7, 12, 13, 14, 15);
  ck_assert_int_eq(mesh_stride(&m, AXIS_TP_KV), 4);
  ck_assert_uint_eq(mesh_axes(&m, kv | AXIS_BIT(AXIS_PP)), kv);
  mesh_split_tp(&m, 8);
  ck_assert_uint_eq(mesh_axes(&m, copies), AXIS_BIT(AXIS_TP));
}
END_TEST

/* dp_shard 8 as 2 x 4, beside dp_replicate and tp. */
START_TEST(parts_of_dp_shard) {
  Mesh m = resolve((MeshSpec){.tp = 2, .dp = 16, .dp_replicate = 2}, 32);
  AxisSet outer = AXIS_BIT(AXIS_DP_OUTER), inner = AXIS_BIT(AXIS_DP_INNER);
  ck_assert_uint_eq(mesh_axes(&m, outer), AXIS_BIT(AXIS_DP_SHARD));
  mesh_split_dp(&m, 4);
  CHECK_GROUP(&m, inner, 11, 9, 11, 13, 15);
  CHECK_GROUP(&m, outer, 11, 3, 11);
  CHECK_GROUP(&m, outer | inner, 27, 17, 19, 21, 23, 25, 27, 29, 31);
  ck_assert_int_eq(mesh_index(&m, inner, 13), 2);
  ck_assert_int_eq(mesh_index(&m, AXES_DP, 27), 13);
  ck_assert_int_eq(mesh_stride(&m, AXIS_DP_INNER), 2);
  ck_assert_int_eq(mesh_stride(&m, AXIS_DP_OUTER), 8);
  ck_assert_uint_eq(axes_whole(inner), AXIS_BIT(AXIS_DP_SHARD));
}
END_TEST

/* Groups over any set part the ranks: each rank is in one, at its own index. */
START_TEST(groups_of_every_set_are_partitions) {
  const char *order[] = {"cp", "dp_shard", "tp", "pp", "dp_replicate", NULL};
  MeshSpec spec = {.tp = 2, .pp = 3, .cp = 2, .dp = 4, .dp_replicate = 2};
  memcpy(spec.order, order, sizeof order);
  Mesh m = resolve(spec, 0);
  ck_assert_int_eq(m.world, 48);
  for (AxisSet s = 0; s <= AXES_ALL; s++) {
    int seen[48] = {0};
    for (int r = 0; r < m.world; r++) {
      int out[48], n = mesh_group(&m, s, r, out);
      ck_assert_int_eq(out[mesh_index(&m, s, r)], r);
      for (int i = 0; i < n; i++) seen[out[i]]++;
    }
    for (int r = 0; r < m.world; r++) ck_assert_int_eq(seen[r], mesh_size(&m, s));
  }
}
END_TEST

/* tp outermost, dp (written as one name) innermost: rank = 4 tp + 2 pp + dp. */
START_TEST(order_override) {
  Mesh m = resolve((MeshSpec){.tp = 2, .pp = 2, .order = {"tp", "cp", "pp", "dp"}}, 8);
  ck_assert_int_eq(m.stride[AXIS_TP], 4);
  ck_assert_int_eq(m.stride[AXIS_PP], 2);
  ck_assert_int_eq(m.stride[AXIS_DP_SHARD], 1);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_TP), 3, 3, 7);
  CHECK_GROUP(&m, AXIS_BIT(AXIS_PP), 3, 1, 3);
  CHECK_GROUP(&m, AXES_DP, 6, 6, 7);
}
END_TEST

/* ---- experts ---- */

/* pp 2, dp 2, cp 2, tp 2 with ep 4: inside a stage etp (= tp) is fastest, then ep. */
START_TEST(expert_mesh) {
  Mesh m = resolve((MeshSpec){.tp = 2, .pp = 2, .cp = 2, .ep = 2}, 16);
  ck_assert_int_eq(m.size[AXIS_EP], 2);
  ck_assert_int_eq(m.size[AXIS_ETP], 2);
  ck_assert_int_eq(m.size[AXIS_EP_SHARD], 2);
  static const int want[8][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1},
                                 {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
  for (int r = 0; r < 16; r++) {
    for (int i = 0; i < 3; i++)
      ck_assert_int_eq(mesh_coord(&m, r, (Axis)(AXIS_EP_SHARD + i)), want[r % 8][i]);
  }
}
END_TEST

static void check_expert(const Mesh *m, int rank, int shard, int ep, int etp) {
  ck_assert_int_eq(mesh_coord(m, rank, AXIS_EP_SHARD), shard);
  ck_assert_int_eq(mesh_coord(m, rank, AXIS_EP), ep);
  ck_assert_int_eq(mesh_coord(m, rank, AXIS_ETP), etp);
}

/* With etp 1 experts take the tp ranks as well: ep = 8 over dp 4 * tp 2. */
START_TEST(experts_over_tp_ranks) {
  Mesh m = resolve((MeshSpec){.tp = 2, .ep = 8, .etp = 1}, 8);
  ck_assert_int_eq(m.size[AXIS_EP_SHARD], 1);
  for (int r = 0; r < 8; r++) {
    check_expert(&m, r, 0, r, 0);
  }
}
END_TEST

/* pp between the others: its ranks are not neighbours, the flat index still counts on. */
START_TEST(experts_with_pp_inside) {
  Mesh m = resolve(
      (MeshSpec){.tp = 2, .pp = 2, .ep = 2, .order = {"dp", "pp", "cp", "tp"}}, 8);
  check_expert(&m, 7, 0, 1, 1); /* dp 1, pp 1, tp 1 */
  check_expert(&m, 2, 0, 0, 0); /* dp 0, pp 1, tp 0 */
}
END_TEST

/* The groups of every set of expert axes, counted without strides: two ranks are in one
 * group if they agree in all axes of the expert mesh that are not in the set. The number
 * of a rank in the row of its pp rank is how many ranks of that come before it when
 * coordinates are compared axis by axis in mesh order. */

static int row_number(const Mesh *m, int rank) {
  int before = 0;
  for (int r = 0; r < m->world; r++) {
    if (mesh_coord(m, r, AXIS_PP) != mesh_coord(m, rank, AXIS_PP)) continue;
    for (int i = 0; i < AXIS_N; i++) {
      int x = mesh_coord(m, r, m->order[i]), y = mesh_coord(m, rank, m->order[i]);
      if (x == y) continue;
      before += x < y;
      break;
    }
  }
  return before;
}

static int expert_by_hand(const Mesh *m, int rank, Axis a) {
  int at = row_number(m, rank);
  if (a == AXIS_PP) return mesh_coord(m, rank, AXIS_PP);
  if (a == AXIS_ETP) return at % m->size[AXIS_ETP];
  at /= m->size[AXIS_ETP];
  return a == AXIS_EP ? at % m->size[AXIS_EP] : at / m->size[AXIS_EP];
}

static const Axis expert_axes[] = {AXIS_PP, AXIS_EP_SHARD, AXIS_EP, AXIS_ETP};

/* Number of a rank over the axes in `set` (or those that are not). */
static int number_by_hand(const Mesh *m, AxisSet set, bool in, int rank) {
  int n = 0;
  for (int i = 0; i < LEN(expert_axes); i++) {
    Axis a = expert_axes[i];
    if (((set & AXIS_BIT(a)) != 0) == in) n = n * m->size[a] + expert_by_hand(m, rank, a);
  }
  return n;
}

static void check_expert_set(const Mesh *m, AxisSet set) {
  int group[64], at[64], rest[64];
  for (int r = 0; r < m->world; r++) {
    at[r] = number_by_hand(m, set, true, r);
    rest[r] = number_by_hand(m, set, false, r);
  }
  for (int r = 0; r < m->world; r++) {
    int n = mesh_group(m, set, r, group);
    ck_assert_int_eq(n, mesh_size(m, set));
    ck_assert_int_eq(mesh_index(m, set, r), at[r]);
    for (int q = 0; q < m->world; q++)
      ck_assert_msg(rest[q] != rest[r] || group[at[q]] == q,
                    "set %x: rank %d has rank %d at %d, not %d", set, r, group[at[q]],
                    at[q], q);
  }
}

START_TEST(expert_groups) {
  const MeshSpec spec[] = {
      {.tp = 2, .pp = 2, .dp = 4, .ep = 4, .etp = 1},
      {.tp = 2, .pp = 3, .cp = 2, .dp = 4, .dp_replicate = 2, .ep = 4},
      {.tp = 4, .dp = 3, .ep = 3, .etp = 2},
      {.tp = 3, .dp = 4, .ep = 2, .etp = 3, .order = {"tp", "cp", "dp"}},
      {.tp = 2, .pp = 2, .dp = 6, .ep = 6, .order = {"dp", "pp", "cp", "tp"}},
      {.tp = 2,
       .pp = 2,
       .cp = 2,
       .dp = 2,
       .ep = 8,
       .etp = 1,
       .order = {"cp", "tp", "dp_shard", "pp", "dp_replicate"}},
      {.tp = 2, .pp = 4, .ep = 1, .etp = 1}};
  for (int i = 0; i < LEN(spec); i++) {
    MeshSpec s = spec[i];
    if (i == 3) s.order[3] = "pp";
    Mesh m = resolve(s, 0);
    ck_assert_int_le(m.world, 64);
    for (int k = 1; k < 1 << LEN(expert_axes); k++) {
      AxisSet set = 0;
      for (int b = 0; b < LEN(expert_axes); b++)
        if (k >> b & 1) set |= AXIS_BIT(expert_axes[b]);
      if (axes_expert(set)) check_expert_set(&m, set);
    }
  }
}
END_TEST

/* ---- world ---- */

START_TEST(world_is_given_or_the_product) {
  ck_assert_int_eq(resolve((MeshSpec){.world = 64, .tp = 8, .pp = 4}, 0).world, 64);
  ck_assert_int_eq(resolve((MeshSpec){.tp = 8, .pp = 4}, 64).size[AXIS_DP_SHARD], 2);
  ck_assert_int_eq(resolve((MeshSpec){.tp = 8, .dp = 3}, 0).world, 24);
  ck_assert_int_eq(resolve((MeshSpec){.world = 24, .tp = 8, .dp = 3}, 24).world, 24);
  ck_assert_int_eq(resolve((MeshSpec){.tp = 4, .pp = 2}, 0).world, 8);
}
END_TEST

/* With nothing known, dp is the least that the experts and replicas allow. */
START_TEST(open_world_is_the_smallest_legal) {
  ck_assert_int_eq(resolve((MeshSpec){.tp = 2, .ep = 8}, 0).world, 16);
  ck_assert_int_eq(resolve((MeshSpec){.tp = 2, .cp = 4, .ep = 8}, 0).world, 16);
  ck_assert_int_eq(resolve((MeshSpec){.tp = 2, .ep = 8, .etp = 1}, 0).world, 8);
  ck_assert_int_eq(resolve((MeshSpec){.ep = 4, .dp_replicate = 6}, 0).world, 12);
}
END_TEST

START_TEST(largest_world) {
  Mesh m = resolve((MeshSpec){.tp = 46340, .pp = 46340}, 0);
  ck_assert_int_eq(m.world, 46340 * 46340);
  static const int last[] = {46339, 0, 0, 0, 46339};
  for (int a = 0; a < AXIS_N; a++)
    ck_assert_int_eq(mesh_coord(&m, m.world - 1, a), last[a]);
  ck_assert_int_eq(mesh_index(&m, AXES_ALL, m.world - 1), m.world - 1);
  ck_assert_int_eq(resolve((MeshSpec){.pp = INT32_MAX}, 0).world, INT32_MAX);
}
END_TEST

/* ---- errors ---- */

/* Expects exactly these "path: summary" lines, in order of arrival. */
static void check_errors(MeshSpec spec, int64_t world, int n, const char *const *want) {
  Mesh m;
  diags.list.n = diags.errors = 0;
  ck_assert(!mesh_resolve(&spec, world, &m, &diags));
  ck_assert_int_eq(m.world, 0);
  for (int i = 0; i < diags.list.n; i++) {
    const Diag *d = &diags.list.at[i];
    const char *got = arena_printf(arena, "%s: %s", d->path, d->summary);
    ck_assert_msg(i < n, "unexpected: %s", got);
    ck_assert_str_eq(got, want[i]);
    ck_assert_int_eq(d->severity, DIAG_ERROR);
  }
  ck_assert_int_eq(diags.list.n, n);
  ck_assert_int_eq(diags.errors, n);
}
#define CHECK_ERRORS(spec, world, ...)                                                   \
  check_errors((spec), (world), LEN(((const char *[]){__VA_ARGS__})),                    \
               (const char *[]){__VA_ARGS__})

static const char *hint(int i) { return diags.list.at[i].suggestion; }

START_TEST(product_must_divide_world) {
  CHECK_ERRORS(((MeshSpec){.tp = 8, .pp = 3}), 64,
               "mesh.pp: tp * pp * cp = 24 does not divide world = 64");
  ck_assert_str_eq(hint(0), "the nearest that do are 16 and 32");
  CHECK_ERRORS(((MeshSpec){.cp = 3, .world = 8}), 0,
               "mesh.cp: tp * pp * cp = 3 does not divide world = 8");
  CHECK_ERRORS(((MeshSpec){.tp = 16}), 8,
               "mesh.tp: tp * pp * cp = 16 does not divide world = 8");
  ck_assert_str_eq(hint(0), "the largest that does is 8");
  /* 4 and 4 divide 8, 16 does not: none of the two is to blame. */
  CHECK_ERRORS(((MeshSpec){.tp = 4, .pp = 4}), 8,
               "mesh: tp * pp * cp = 16 does not divide world = 8");
  CHECK_ERRORS(((MeshSpec){.tp = 1000000000}), INT32_MAX,
               "mesh.tp: tp * pp * cp = 1000000000 does not divide world = 2147483647");
  ck_assert_str_eq(hint(0), "the nearest that do are 1 and 2147483647");
}
END_TEST

START_TEST(stated_dp_must_fit) {
  CHECK_ERRORS(((MeshSpec){.tp = 8, .dp = 4}), 64,
               "mesh.dp: dp = 4, but world / (tp * pp * cp) = 64 / 8 = 8");
  ck_assert_str_eq(hint(0), "leave dp out or make it 8");
}
END_TEST

START_TEST(stated_world_must_be_the_real_one) {
  CHECK_ERRORS(((MeshSpec){.world = 64, .tp = 8}), 8,
               "mesh.world: 64 ranks are stated, but there are 8");
}
END_TEST

START_TEST(replicas_must_divide_dp) {
  CHECK_ERRORS(((MeshSpec){.dp_replicate = 3}), 8,
               "mesh.dp_replicate: dp_replicate = 3 does not divide dp = 8");
  ck_assert_str_eq(hint(0), "1, 2, 4 or 8 would");
  CHECK_ERRORS(((MeshSpec){.dp_replicate = 2}), 1,
               "mesh.dp_replicate: dp_replicate = 2 does not divide dp = 1");
  ck_assert_str_eq(hint(0), "1 would");
}
END_TEST

START_TEST(experts_must_fit) {
  CHECK_ERRORS(((MeshSpec){.tp = 2, .cp = 2, .ep = 3}), 16,
               "mesh.ep: ep = 3 does not divide dp * cp = 8");
  ck_assert_str_eq(hint(0), "1, 2, 4 or 8 would; or set etp, which defaults to tp");
  CHECK_ERRORS(((MeshSpec){.tp = 2, .ep = 8, .etp = 4}), 16,
               "mesh.ep: ep * etp = 32 does not divide dp * cp * tp = 16");
  CHECK_ERRORS(((MeshSpec){.tp = 2, .etp = 3}), 8,
               "mesh.etp: ep * etp = 3 does not divide dp * cp * tp = 8");
  ck_assert_str_eq(hint(0), "the nearest that do are 2 and 4");
}
END_TEST

START_TEST(sizes_must_be_in_range) {
  CHECK_ERRORS(
      ((MeshSpec){.tp = -2, .pp = (int64_t)1 << 31, .dp = INT64_MIN}), 8,
      "mesh.tp: must be at least 1, is -2",
      "mesh.pp: 2147483648 is more than the 2147483647 ranks that a mesh can have",
      "mesh.dp: must be at least 1, is -9223372036854775808");
  CHECK_ERRORS(
      ((MeshSpec){.world = -8, .ep = -1, .etp = -1, .cp = -1, .dp_replicate = -1}), 0,
      "mesh.world: must be at least 1, is -8", "mesh.cp: must be at least 1, is -1",
      "mesh.ep: must be at least 1, is -1", "mesh.etp: must be at least 1, is -1",
      "mesh.dp_replicate: must be at least 1, is -1");
  CHECK_ERRORS(
      ((MeshSpec){.tp = 1}), (int64_t)1 << 40,
      "mesh.world: 1099511627776 is more than the 2147483647 ranks that a mesh can have");
}
END_TEST

START_TEST(products_do_not_overflow) {
  enum { BIG = INT32_MAX };
  static const char model[] =
      "mesh: tp * pp * cp is more than the 2147483647 ranks that a mesh can have";
  static const char all[] =
      "mesh: tp * pp * cp * dp is more than the 2147483647 ranks that a mesh can have";
  CHECK_ERRORS(((MeshSpec){.tp = BIG, .pp = BIG, .cp = BIG}), 0, model);
  CHECK_ERRORS(((MeshSpec){.tp = 65536, .pp = 32768}), 64, model);
  CHECK_ERRORS(((MeshSpec){.tp = 65536, .dp = 32768}), 0, all);
  CHECK_ERRORS(((MeshSpec){.ep = BIG, .etp = BIG, .dp_replicate = BIG - 1}), 0, all);
  CHECK_ERRORS(((MeshSpec){.dp = BIG, .cp = BIG, .tp = BIG, .ep = BIG, .etp = BIG}), 8,
               model);
}
END_TEST

START_TEST(order_must_name_every_axis_once) {
  CHECK_ERRORS(((MeshSpec){.order = {"pp", "dq", "cp", "tp"}}), 8,
               "mesh.order: unknown axis \"dq\"");
  ck_assert_str_eq(hint(0), "did you mean \"dp\"?");
  CHECK_ERRORS(((MeshSpec){.order = {"pp", "dp_shrd", "dp_replicate", "cp", "tp"}}), 8,
               "mesh.order: unknown axis \"dp_shrd\"");
  ck_assert_str_eq(hint(0), "did you mean \"dp_shard\"?");
  CHECK_ERRORS(((MeshSpec){.order = {"pp", "dp_shard", "tp"}}), 8,
               "mesh.order: does not name dp_replicate, cp");
  CHECK_ERRORS(((MeshSpec){.order = {"pp", "dp", "cp", "tp", "dp_shard"}}), 8,
               "mesh.order: axis \"dp_shard\" is named twice");
  CHECK_ERRORS(((MeshSpec){.order = {"tp", "dp", "cp", "tp"}}), 8,
               "mesh.order: axis \"tp\" is named twice", "mesh.order: does not name pp");
  CHECK_ERRORS(
      ((MeshSpec){.order = {"pp", "dp", "ep", "cp", "tp"}}), 8,
      "mesh.order: \"ep\" is an axis of the expert mesh, whose order follows from "
      "this one");
  CHECK_ERRORS(((MeshSpec){.order = {"pipeline", "dp", "cp", "tp"}}), 8,
               "mesh.order: unknown axis \"pipeline\"", "mesh.order: does not name pp");
  CHECK_ERRORS(((MeshSpec){.order = {"world"}}), 8, "mesh.order: unknown axis \"world\"",
               "mesh.order: does not name pp, dp_replicate, dp_shard, cp, tp");
}
END_TEST

START_TEST(all_errors_come_together) {
  CHECK_ERRORS(((MeshSpec){.world = 64,
                           .tp = 3,
                           .dp = 8,
                           .dp_replicate = 5,
                           .ep = 7,
                           .order = {"tp", "cp", "dp"}}),
               32, "mesh.world: 64 ranks are stated, but there are 32",
               "mesh.tp: tp * pp * cp = 3 does not divide world = 64",
               "mesh.dp_replicate: dp_replicate = 5 does not divide dp = 8",
               "mesh.ep: ep = 7 does not divide dp * cp = 8",
               "mesh.order: does not name pp");
}
END_TEST

START_TEST(sizes_are_written_back) {
  Mesh m = resolve((MeshSpec){.tp = 2, .pp = 3, .cp = 2, .dp = 4, .dp_replicate = 2}, 0);
  MeshSpec spec = {0};
  mesh_write_sizes(&m, &spec);
  Mesh again = resolve(spec, 0);
  ck_assert_int_eq(again.world, 48);
  for (int a = 0; a < AXIS_END; a++) ck_assert_int_eq(again.size[a], m.size[a]);
}
END_TEST

/* ---- names ---- */

/* Both are the dense axes, each once. */
START_TEST(axes_in_other_orders) {
  AxisSet named = 0, shrunk = 0;
  for (int i = 0; i < AXIS_N; i++) {
    named |= AXIS_BIT(axis_by_name(i));
    shrunk |= AXIS_BIT(axis_to_shrink(i));
    if (i)
      ck_assert(strcmp(axis_name(axis_by_name(i - 1)), axis_name(axis_by_name(i))) < 0);
  }
  ck_assert_uint_eq(named, AXES_ALL);
  ck_assert_uint_eq(shrunk, AXES_ALL);
  ck_assert_int_eq(axis_to_shrink(AXIS_N - 1), AXIS_TP);
}
END_TEST

START_TEST(sets_have_names) {
  char buf[64];
  static const char *const names[] = {
      "pp",    "dp_replicate", "dp_shard", "cp",    "tp",       "dp",
      "dp_cp", "dp_shard_cp",  "world",    "pp+tp", "pp+dp+tp", "dp_replicate+cp"};
  for (int i = 0; i < LEN(names); i++)
    ck_assert_str_eq(axes_name(axes_parse(names[i]), buf), names[i]);
  for (AxisSet s = 1; s <= AXES_ALL; s++)
    ck_assert_uint_eq(axes_parse(axes_name(s, buf)), s);
  ck_assert_uint_eq(axes_parse("ep_shard+ep"),
                    AXIS_BIT(AXIS_EP_SHARD) | AXIS_BIT(AXIS_EP));
  ck_assert_str_eq(axes_name(axes_parse("etp+pp"), buf), "pp+etp");
  ck_assert_uint_eq(axes_rest(AXIS_BIT(AXIS_EP)), axes_parse("pp+ep_shard+etp"));
  ck_assert_uint_eq(axes_rest(AXES_DP), axes_parse("pp+cp+tp"));
  AxisSet kv = AXIS_BIT(AXIS_TP_KV), copies = AXIS_BIT(AXIS_TP_REP);
  ck_assert_uint_eq(axes_join(kv | copies | AXES_DP), axes_parse("dp+tp"));
  ck_assert_uint_eq(axes_rest(AXES_DP | kv), axes_parse("pp+cp") | copies);
  ck_assert_uint_eq(axes_whole(copies), AXIS_BIT(AXIS_TP));
  ck_assert_uint_eq(axes_parse("dp_cp"), AXES_DP_CP);
  static const char *const bad[] = {"",    "ep+tp", "dp+etp",   "world+ep", "tp+",
                                    "+tp", "tp+tp", "dp+dp_cp", "TP"};
  for (int i = 0; i < LEN(bad); i++) ck_assert_uint_eq(axes_parse(bad[i]), 0);
  ck_assert_str_eq(axis_name(AXIS_DP_SHARD), "dp_shard");
}
END_TEST

Suite *mesh_suite(void);
Suite *mesh_suite(void) {
  Suite *s = suite_create("mesh");
  TCase *t = tcase_create("mesh");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_test(t, one_rank);
  tcase_add_test(t, eight_ranks);
  tcase_add_test(t, sixty_four_ranks);
  tcase_add_test(t, parts_of_tp);
  tcase_add_test(t, parts_of_dp_shard);
  tcase_add_test(t, groups_of_every_set_are_partitions);
  tcase_add_test(t, order_override);
  tcase_add_test(t, expert_mesh);
  tcase_add_test(t, experts_over_tp_ranks);
  tcase_add_test(t, experts_with_pp_inside);
  tcase_add_test(t, expert_groups);
  tcase_add_test(t, world_is_given_or_the_product);
  tcase_add_test(t, open_world_is_the_smallest_legal);
  tcase_add_test(t, largest_world);
  tcase_add_test(t, product_must_divide_world);
  tcase_add_test(t, stated_dp_must_fit);
  tcase_add_test(t, stated_world_must_be_the_real_one);
  tcase_add_test(t, replicas_must_divide_dp);
  tcase_add_test(t, experts_must_fit);
  tcase_add_test(t, sizes_must_be_in_range);
  tcase_add_test(t, products_do_not_overflow);
  tcase_add_test(t, order_must_name_every_axis_once);
  tcase_add_test(t, all_errors_come_together);
  tcase_add_test(t, sizes_are_written_back);
  tcase_add_test(t, axes_in_other_orders);
  tcase_add_test(t, sets_have_names);
  suite_add_tcase(s, t);
  return s;
}
