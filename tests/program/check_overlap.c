/* check_overlap.c - program_check() refuses results that lie over each other or over what
 * a kernel reads, for every op that compiled programs have, in bodies and in the main
 * list, for shards and on the host; and the rows of in_place.def are those that programs
 * need. */
#include <check.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/generate/program_builder.h"
#include "tests/harness/scratch.h"
#include "tests/harness/run_bits.h"
#include "vm/plan/optimizer.h"
#include "vm/program/program_check.h"

/* ---- programs that have every op ---- */

static ToyOptions dense(void) {
  ToyOptions o = meshed(2, 2, 2);
  o.sp = o.bias = o.fuses = o.post_validation = true, o.vocab = 51;
  return o;
}

static ToyOptions experts(void) {
  ToyOptions o = meshed(1, 2, 2);
  o.experts = 4, o.topk = 2, o.ep = 2, o.etp = 1, o.aux = 0.1f, o.running = true;
  o.post_validation = true, o.dtype = DT_BF16;
  return o;
}

static ToyOptions places_of_rows(void) {
  ToyOptions o = experts();
  o.dispatcher = MOE_ALLTOALL, o.post_validation = false;
  o.bound = 1.5f, o.drop = DROP_POSITION;
  return o;
}

static ToyOptions long_sequence(void) {
  ToyOptions o = meshed(1, 1, 1);
  o.cp = 4, o.seq = 16, o.packed = o.fuses = true, o.how.comm = CP_RING;
  return o;
}

static ToyOptions offloaded(void) {
  ToyOptions o = meshed(1, 1, 4);
  o.dtype = DT_BF16;
  o.strategy = (Strategy){.stage = 3, .offload_state = true, .offload_params = true};
  return o;
}

static ToyOptions spread(void) {
  ToyOptions o = meshed(1, 2, 2);
  o.strategy.stage = 1, o.reduce = DT_BF16, o.eval_every = 1;
  return o;
}

static ToyOptions (*const toys[])(void) = {dense,         experts,   places_of_rows,
                                           long_sequence, offloaded, spread};

/* ---- planting ---- */

static weft_error err;

/* What the check says, or "". */
static const char *said(const Compiled *c) {
  err = (weft_error){.rank = -1};
  return program_check(c, &err) == WEFT_OK ? "" : err.text;
}

/* Places of two operands, the first of which is written, are made to overlap: the same
 * where that is forbidden, a little off where it is not. False if there is no way. */
static bool plant(Operand *x, const Operand *y, bool same, int by) {
  int64_t off = (int64_t)y->off + (same ? by * dtype_size((DType)x->dtype) : 0);
  if (!operand_count(x) || !operand_count(y) || off < 0) return false;
  if (off % dtype_size((DType)x->dtype)) return false;
  if (same && operand_bytes(x) <= (uint64_t)dtype_size((DType)x->dtype)) return false;
  x->slot = y->slot, x->off = (uint64_t)off;
  return on_host(x->off) == on_host(y->off);
}

static bool may_be_one(const Program *p, const Instr *in, int x, int y) {
  for (int i = 0; i < op_places; i++) {
    const OpPlace *r = &op_place[i];
    int result = in->nin + r->result, other = r->twice ? in->nin + r->other : r->other;
    if (op_place_is(r, in->op, &p->attr[in->attr]) &&
        ((result == x && other == y) || (r->twice && result == y && other == x)))
      return true;
  }
  return false;
}

/* One kernel, with each of its results over everything else that it touches; how many
 * pairs could be planted. */
static int planted(const Compiled *c, Program *p, const Instr *in) {
  int n = 0;
  for (int x = in->nin; x < instr_operands(in); x++)
    for (int y = 0; y < instr_operands(in); y++) {
      Operand *o = &p->operand[in->operand], was = o[x];
      if (x == y) continue;
      bool tried = false, found = false;
      for (int by = -1; by <= 1 && !found; by += 2) {
        if (plant(&o[x], &o[y], may_be_one(p, in, x, y), by) &&
            !strstr(said(c), "the reach")) { /* it fits there */
          tried = true;
          found = strstr(err.text, op_info[in->op].name) &&
                  (strstr(err.text, "lies over") || strstr(err.text, "which it changes"));
        }
        o[x] = was;
      }
      ck_assert_msg(!tried || found, "%s: operand %d over %d: \"%s\"",
                    op_info[in->op].name, x, y, err.text);
      n += tried;
    }
  return n;
}

/* The first kernel of each op, with as many operands, in main and in bodies. */
START_TEST(no_kernel_writes_over_what_it_touches) {
  Toy t;
  ToyOptions o = toys[_i]();
  int ops = 0;
  toy_compiles(&t, &o);
  ck_assert_str_eq(said(t.compiled), "");
  for (int pp = 0; pp < o.pp; pp++) {
    Program *p = &t.compiled->prog[pp];
    bool seen[OP_N] = {0};
    for (const Instr *in = p->code; in < p->code + p->ncode; in++) {
      if (in->code != I_KERNEL || seen[in->op]) continue;
      seen[in->op] = planted(t.compiled, p, in) > 0;
      ops += seen[in->op];
    }
  }
  ck_assert_int_ge(ops, 20);
  ck_assert_str_eq(said(t.compiled), "");
  toy_free(&t);
}
END_TEST

/* Scalars are changed where they are: a result beside them would have one of them only.
 */
START_TEST(scalars_are_changed_in_place) {
  Toy t;
  ToyOptions o = toys[_i]();
  int n = 0;
  toy_compiles(&t, &o);
  for (int pp = 0; pp < o.pp; pp++) {
    Program *p = &t.compiled->prog[pp];
    for (const Instr *in = p->code; in < p->code + p->ncode; in++)
      for (int k = 0; k < op_places && in->code == I_KERNEL; k++) {
        if (op_place[k].op != in->op || op_place[k].when != PLACE_ALWAYS) continue;
        uint32_t result = (uint32_t)in->nin + op_place[k].result;
        Operand *x = &p->operand[in->operand + result], was = *x;
        x->off += operand_bytes(x); /* behind them, over nothing that it reads */
        ck_assert_msg(strstr(said(t.compiled), "which it changes"), "%s: \"%s\"",
                      op_info[in->op].name, err.text);
        *x = was, n++;
      }
  }
  ck_assert_int_ge(n, 4);
  toy_free(&t);
}
END_TEST

/* ---- what a call binds ---- */

/* A kernel of the call's body with a result in slot *x and an operand in slot *y, both of
 * the slots that are bound anew for each call. */
static bool two_slots(const Program *p, const Call *k, int *x, int *y) {
  const Body *b = &p->body[k->body];
  for (const Instr *in = &p->code[b->first]; in < &p->code[b->first + b->n]; in++)
    for (int i = in->nin; in->code == I_KERNEL && i < in->nin + in->nout; i++)
      for (int j = 0; j < in->nin; j++) {
        const Operand *o = &p->operand[in->operand];
        *x = o[i].slot - 1 - k->nbind, *y = o[j].slot - 1 - k->nbind;
        if (*x >= 0 && *y >= 0 && *x != *y && o[i].off == 0 && o[j].off == 0) return true;
      }
  return false;
}

START_TEST(no_call_binds_one_place_twice) {
  Toy t;
  ToyOptions o = toys[_i]();
  toy_compiles(&t, &o);
  int n = 0;
  for (int pp = 0; pp < o.pp; pp++) {
    Program *p = &t.compiled->prog[pp];
    for (uint32_t i = 0; i < p->ncall; i++) {
      Call *k = &p->call[i];
      int x, y;
      if (!two_slots(p, k, &x, &y)) continue;
      uint64_t *dyn = &p->dyn[k->dyn], was = dyn[x];
      dyn[x] = dyn[y];
      ck_assert_msg(strstr(said(t.compiled), "lies over") && strstr(err.text, "calls it"),
                    "call %u: \"%s\"", i, err.text);
      dyn[x] = was, n++;
    }
  }
  ck_assert_int_gt(n, 0);
  toy_free(&t);
}
END_TEST

/* Bodies write gradients where calls bind them, and no other region. */
START_TEST(no_body_writes_state) {
  static const RegionKind kind[] = {REGION_WORK, REGION_STATE1, REGION_STATE2,
                                    REGION_GRAD};
  Toy t;
  ToyOptions o = toys[_i]();
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[0];
  const Instr *in = p->code + p->nmain; /* the bodies */
  while (in->code != I_KERNEL || p->operand[in->operand + (uint32_t)in->nin].slot)
    ck_assert(++in < p->code + p->ncode);
  Operand *out = &p->operand[in->operand + (uint32_t)in->nin], was = *out;
  for (int i = 0; i < LEN(kind); i++) {
    const Region *r = NULL;
    for (int j = 0; j < p->regions.nregion && !r; j++)
      if (p->regions.region[j].kind == kind[i] && !on_host(p->regions.region[j].off))
        r = &p->regions.region[j];
    if (!r) continue; /* it lies on the host */
    out->off = r->off + 256;
    ck_assert_msg(strstr(said(t.compiled), "where a region of the rank lies") &&
                      strstr(err.text, region_name[kind[i]]),
                  "%s: \"%s\"", region_name[kind[i]], err.text);
    *out = was;
  }
  toy_free(&t);
}
END_TEST

START_TEST(no_call_binds_gradients_to_parameters) {
  ToyOptions o = dense();
  Toy t;
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[0];
  for (uint32_t i = 0; i < p->ncall; i++) {
    const Call *k = &p->call[i];
    if (p->body[k->body].phase == PH_F || k->nbind < 2) continue;
    int np = k->nbind / 2;
    uint64_t was = p->bind[k->bind + (uint32_t)np].off;
    p->bind[k->bind + (uint32_t)np].off = p->bind[k->bind].off;
    const char *text = said(t.compiled);
    ck_assert_msg(strstr(text, "where a region of the rank lies: work") ||
                      strstr(text, "lies over"),
                  "\"%s\"", text);
    p->bind[k->bind + (uint32_t)np].off = was;
  }
  ck_assert_str_eq(said(t.compiled), "");
  toy_free(&t);
}
END_TEST

/* ---- regions ---- */

/* Whatever two of them, the scalars, sums of units and inputs are. */
START_TEST(no_region_lies_over_another) {
  ToyOptions o = toys[_i]();
  Toy t;
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[o.pp - 1];
  for (int i = 0; i < p->regions.nregion; i++) {
    Region *r = &p->regions.region[i];
    uint64_t was = r->off, at[2 + IN_N] = {p->scalars};
    int n = 1;
    if (p->sums_bytes) at[n++] = p->sums;
    for (int k = 0; k < IN_SEED; k++)
      if (p->input[k] != UINT64_MAX) at[n++] = p->input[k];
    for (int j = 0; j < p->regions.nregion; j++) {
      const Region *other = &p->regions.region[j];
      if (i == j || region_bytes(r) > region_bytes(other)) continue;
      r->off = other->off + region_bytes(other) - region_bytes(r);
      ck_assert_msg(strstr(said(t.compiled), "lies over"), "%d, %d: \"%s\"", i, j,
                    err.text);
    }
    for (int j = 0; j < n; j++) {
      r->off = at[j];
      const char *text = said(t.compiled);
      ck_assert_msg(strstr(text, "lies over") || strstr(text, "the end of a region"),
                    "\"%s\"", text);
    }
    r->off = was;
  }
  ck_assert_str_eq(said(t.compiled), "");
  toy_free(&t);
}
END_TEST

/* ---- copies that undo a step ---- */

static Instr *main_kernel(Program *p, int op, int skip) {
  for (Instr *in = p->code; in < p->code + p->nmain; in++)
    if (in->code == I_KERNEL && in->op == op && skip-- == 0) return in;
  return NULL;
}

/* Copies of one run of parameters where those of another are, which is no overlap of one
 * kernel's operands. */
START_TEST(copies_are_not_overwritten) {
  ToyOptions o = experts();
  Toy t;
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[0];
  const Instr *a = main_kernel(p, OP_adamw_try, 0), *b = main_kernel(p, OP_adamw_try, 1);
  const Instr *undo = main_kernel(p, OP_step_undo, 0);
  ck_assert(a && b && undo);
  Operand *kept = &p->operand[b->operand + (uint32_t)b->nin + 4], was = *kept;
  kept->off = p->operand[a->operand + (uint32_t)a->nin + 4].off;
  ck_assert_msg(strstr(said(t.compiled), "is written by main[") &&
                    strstr(err.text, "before it is read"),
                "\"%s\"", err.text);
  *kept = was;
  Operand *back = &p->operand[undo->operand + 1];
  back->off += 256;
  ck_assert_msg(strstr(said(t.compiled), "is not what main["), "\"%s\"", err.text);
  toy_free(&t);
}
END_TEST

START_TEST(an_undo_has_a_step) {
  ToyOptions o = experts();
  Toy t;
  toy_compiles(&t, &o);
  Program *p = &t.compiled->prog[0];
  main_kernel(p, OP_adamw_try, 0)->op = OP_adamw_try;
  Instr *undo = main_kernel(p, OP_step_undo, 0);
  p->operand[undo->operand + (uint32_t)undo->nin].off += 256;
  ck_assert_msg(strstr(said(t.compiled), "no step before it keeps") ||
                    strstr(err.text, "lies over"),
                "\"%s\"", err.text);
  toy_free(&t);
}
END_TEST

/* ---- the table ---- */

static void mark_needed(const Compiled *c, bool *needed) {
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    for (const Instr *in = p->code; in < p->code + p->ncode; in++)
      for (int k = 0; k < op_places && in->code == I_KERNEL; k++) {
        const OpPlace *r = &op_place[k];
        const Operand *x = &p->operand[in->operand];
        if (!op_place_is(r, in->op, &p->attr[in->attr])) continue;
        const Operand *y = &x[r->twice ? in->nin + r->other : r->other];
        x += in->nin + r->result;
        needed[k] |= x->slot == y->slot && x->off == y->off;
      }
  }
}

/* A router with a bias that moves, and a blend of data. */
static const char moving[] =
    "local weft = require 'weft'\n"
    "return weft.plan { mesh = { dp = 2, ep = 2 }, model = weft.model { 'deepseek_v3',\n"
    "  vocab_size = 96, hidden_size = 32, num_attention_heads = 4,\n"
    "  num_key_value_heads = 4, num_hidden_layers = 2, first_k_dense_replace = 1,\n"
    "  intermediate_size = 24, moe_intermediate_size = 8, n_routed_experts = 8,\n"
    "  num_experts_per_tok = 2, n_group = 2, topk_group = 1, q_lora_rank = 12,\n"
    "  kv_lora_rank = 10, qk_nope_head_dim = 6, qk_rope_head_dim = 4, v_head_dim = 5 },\n"
    "  batch = { global = 2, micro = 1, seq = 16 }, moe = { bias_update_rate = 0.01 },\n"
    "  data = weft.tokens { files = { 'a', 'b' }, weights = { 0.5, 0.5 } } }\n";

/* Gradients of a divergence over logits. */
static const char apart[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
    "  loss = { function(g, x) return g:sum_all(g:divergence(x.logits, x.reference,\n"
    "    x.labels, { beta = 0 })) end, reference = 'copy' } }\n";

static void plan_needs(const char *name, const char *plan, bool *needed) {
  Job j;
  const char *path = scratch_put(name, plan, strlen(plan));
  weft_status st = job_open(&j, scratch_arena, &(LangOptions){0}, path);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, j.e.text);
  mark_needed(j.compiled, needed);
  job_free(&j);
}

/* Every row is one that some program needs, or it would hide what it allows. */
START_TEST(every_row_is_needed) {
  bool *needed = calloc((size_t)op_places, sizeof *needed);
  for (int i = 0; i < LEN(toys) * OPTIMIZER_N; i++) {
    ToyOptions o = toys[i / OPTIMIZER_N]();
    Toy t;
    o.optimizer = i % OPTIMIZER_N;
    /* Such an optimizer has no states on the host, and takes no step back. */
    if (optimizer_info[o.optimizer].matrices || optimizer_info[o.optimizer].factored) {
      if (o.strategy.offload_state) continue;
      o.post_validation = false;
    }
    toy_compiles(&t, &o);
    mark_needed(t.compiled, needed);
    toy_free(&t);
  }
  Job j;
  const char *plan = scratch_put("moving.lua", moving, sizeof moving - 1);
  ck_assert_int_eq(job_open(&j, scratch_arena, &(LangOptions){0}, plan), WEFT_OK);
  mark_needed(j.compiled, needed);
  Program *p = &j.compiled->prog[0];
  ck_assert_int_gt(planted(j.compiled, p, main_kernel(p, OP_bias_step, 0)), 0);
  job_free(&j);
  plan_needs("apart.lua", apart, needed);
  for (int k = 0; k < op_places; k++) {
    bool collective = op_place[k].op == OP_all_reduce; /* no kernel */
    ck_assert_msg(needed[k] || collective, "%s: result %d over %d: no program does that",
                  op_info[op_place[k].op].name, op_place[k].result, op_place[k].other);
  }
  free(needed);
}
END_TEST

Suite *overlap_suite(void);
Suite *overlap_suite(void) {
  Suite *s = suite_create("overlap");
  TCase *c = tcase_create("planted");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_loop_test(c, no_kernel_writes_over_what_it_touches, 0, LEN(toys));
  tcase_add_loop_test(c, scalars_are_changed_in_place, 0, LEN(toys));
  tcase_add_loop_test(c, no_call_binds_one_place_twice, 0, LEN(toys));
  tcase_add_loop_test(c, no_body_writes_state, 0, LEN(toys));
  tcase_add_test(c, no_call_binds_gradients_to_parameters);
  tcase_add_loop_test(c, no_region_lies_over_another, 0, LEN(toys));
  tcase_add_test(c, copies_are_not_overwritten);
  tcase_add_test(c, an_undo_has_a_step);
  tcase_add_test(c, every_row_is_needed);
  suite_add_tcase(s, c);
  return s;
}
