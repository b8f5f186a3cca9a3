/* check_layouts.c - the number of where a group's operands lie (CommGroup.layout): equal
 * on members that run one program, another one where anything differs. */
#include <check.h>

#include "tests/harness/one_rank_pair.h"
#include "vm/rank/rank.h"

enum { RANKS = 8, GROUPS = 16 };
static uint64_t layout[RANKS][GROUPS];

static ToyOptions meshed(int tp, int pp, int dp, int stage) {
  ToyOptions o = toy_default();
  o.tp = tp, o.pp = pp, o.dp = dp;
  o.layers = pp, o.micro = 1, o.microbatches = pp, o.hidden = 16, o.heads = 2,
  o.kv_heads = 2, o.ffn = 16, o.seq = 4;
  o.sp = tp > 1;
  o.strategy.stage = stage;
  return o;
}

/* Of the groups of a rank, as it is loaded. */
static void load(const Compiled *c, int rank) {
  Device dev;
  Rank *r;
  weft_error e = NO_ERROR;
  ck_assert_int_eq(device_open(&dev, &device_cpu, NULL, rank, 0, 1, &e), WEFT_OK);
  ck_assert_msg(rank_new(NULL, c, rank, &dev, &r, &e) == WEFT_OK, "%s", e.text);
  CommNeeds needs = rank_needs(r);
  ck_assert_int_le(needs.ngroup, GROUPS);
  for (int i = 0; i < needs.ngroup; i++) layout[rank][i] = needs.group[i].layout;
  rank_free(r);
  device_close(&dev);
}

static void load_all(const Compiled *c) {
  for (int r = 0; r < c->mesh.world; r++) load(c, r);
}

/* Whether members of the i-th group of each rank have the same number. */
static bool all_agree(const Compiled *c, int i) {
  int member[RANKS];
  for (int r = 0; r < c->mesh.world; r++) {
    const Program *p = &c->prog[mesh_coord(&c->mesh, r, AXIS_PP)];
    int n = comm_group(&c->mesh, &p->comm[i], r, member);
    for (int k = 0; k < n; k++)
      if (layout[member[k]][i] != layout[r][i]) return false;
  }
  return true;
}

static const int meshes[][4] = {
    {2, 1, 1, 0}, {2, 2, 2, 0}, {2, 1, 4, 2}, {1, 1, 4, 3}, {2, 2, 2, 1}};

START_TEST(members_of_a_stage_agree) {
  const int *m = meshes[_i];
  ToyOptions o = meshed(m[0], m[1], m[2], m[3]);
  Toy t;
  toy_compiles(&t, &o);
  load_all(t.compiled);
  const Program *p = &t.compiled->prog[0];
  int within = 0;
  for (int i = 0; i < p->ncomm; i++) {
    ck_assert(layout[0][i] != 0);
    if (comm_spans_pp(&t.compiled->mesh, &p->comm[i])) continue;
    ck_assert_msg(all_agree(t.compiled, i), "group %s", p->comm[i].name);
    within++;
  }
  ck_assert_int_gt(within, 0);
  toy_free(&t);
}
END_TEST

/* The first collective of a body or of the main list. */
static const Instr *collective(const Program *p, bool in_main) {
  uint32_t from = in_main ? 0 : p->nmain, to = in_main ? p->nmain : p->ncode;
  for (uint32_t i = from; i < to; i++)
    if (instr_is[p->code[i].code] & INSTR_COLL) return &p->code[i];
  return NULL;
}

/* An operand or a result that lies elsewhere, another count, another type. */
START_TEST(what_differs_shows) {
  ToyOptions o = meshed(2, 1, 2, 0);
  Toy t;
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[0];
  const Instr *in = collective(p, _i / 4);
  ck_assert_ptr_nonnull(in);
  load(t.compiled, 0);
  uint64_t before = layout[0][in->comm];
  Operand *src = &p->operand[in->operand];
  switch (_i % 4) {
  case 0: src->off += 64; break;
  case 1: src[in->nin].off += 64; break;
  case 2: src->dim[0]++; break;
  case 3: p->arena_bytes += 256; break;
  }
  load(t.compiled, 0);
  ck_assert(layout[0][in->comm] != before);
  toy_free(&t);
}
END_TEST

/* Programs of stages differ, and so do the numbers of groups over stages. */
START_TEST(stages_differ) {
  ToyOptions o = meshed(1, 2, 1, 0);
  Toy t;
  toy_compiles(&t, &o);
  load_all(t.compiled);
  const Program *p = &t.compiled->prog[0];
  int over = 0;
  for (int i = 0; i < p->ncomm; i++) {
    if (!comm_spans_pp(&t.compiled->mesh, &p->comm[i])) continue;
    ck_assert_msg(!all_agree(t.compiled, i), "group %s", p->comm[i].name);
    over++;
  }
  ck_assert_int_gt(over, 0);
  toy_free(&t);
}
END_TEST

Suite *layouts_suite(void) {
  Suite *s = suite_create("layouts");
  TCase *t = tcase_create("layouts");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, members_of_a_stage_agree, 0, LEN(meshes));
  tcase_add_loop_test(t, what_differs_shows, 0, 8);
  tcase_add_test(t, stages_differ);
  suite_add_tcase(s, t);
  return s;
}
