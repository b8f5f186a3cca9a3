/* check_faults.c - verify must be able to fail: faults planted in right programs, each in
 * another place. Every one must be noticed, and the first thing that verify
 * names must be the tensor (or the loss, or the norm) that the fault reaches first. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "pair.h"

/* ---- editing programs ---- */

/* Takes instruction i out of its program. */
static void cut(Program *p, uint32_t i) {
  memmove(&p->code[i], &p->code[i + 1], sizeof *p->code * (p->ncode - i - 1));
  p->ncode--;
  if (i < p->nmain) p->nmain--;
  for (int b = 0; b < p->nbody; b++) {
    Body *body = &p->body[b];
    if (i < body->first) body->first--;
    else if (i < body->first + body->n) body->n--;
  }
}

/* Moves instruction `from` before instruction `to`, both in main. */
static void move(Program *p, uint32_t from, uint32_t to) {
  Instr x = p->code[from];
  ck_assert(to < from && from < p->nmain);
  memmove(&p->code[to + 1], &p->code[to], sizeof x * (from - to));
  p->code[to] = x;
}

/* Repeats instruction i of main. */
static void repeat(Arena *a, Program *p, uint32_t i) {
  Instr *code = NEW_N(a, Instr, p->ncode + 1);
  memcpy(code, p->code, sizeof *code * (i + 1));
  memcpy(code + i + 1, p->code + i, sizeof *code * (p->ncode - i));
  p->code = code;
  p->ncode++, p->nmain++;
  for (int b = 0; b < p->nbody; b++) p->body[b].first++;
}

/* The wait that belongs to the start at i. */
static uint32_t wait_of(const Program *p, uint32_t i) {
  for (uint32_t k = i + 1; k < p->ncode; k++)
    if (p->code[k].code == I_WAIT && p->code[k].handle == p->code[i].handle) return k;
  ck_abort_msg("nothing waits for instruction %d", (int)i);
}

static void cut_transfer(Program *p, uint32_t i) {
  cut(p, wait_of(p, i));
  cut(p, i);
}

static Body *body_of(Program *p, const char *name) {
  for (int b = 0; b < p->nbody; b++)
    if (strcmp(p->body[b].name, name) == 0) return &p->body[b];
  ck_abort_msg("no body %s", name);
}

static Operand *operand(Program *p, uint32_t i, int k) {
  return &p->operand[p->code[i].operand + (uint32_t)k];
}

/* The n-th (from 0) collective on `comm` from `first` on. */
static uint32_t coll(const Program *p, uint32_t first, uint32_t count, const char *comm,
                     CollKind kind, int n) {
  for (uint32_t i = first; i < first + count; i++) {
    const Instr *x = &p->code[i];
    if (x->code != I_COLL || x->coll != kind) continue;
    if (strcmp(p->comm[x->comm].name, comm) == 0 && n-- == 0) return i;
  }
  ck_abort_msg("no such collective on %s", comm);
}

static uint32_t coll_in(Program *p, const char *body, const char *comm, CollKind kind,
                        int n) {
  const Body *b = body_of(p, body);
  return coll(p, b->first, b->n, comm, kind, n);
}

/* The n-th collective of main whose operand has this type: gradients are f32, scalars
 * f64. */
static uint32_t coll_main(Program *p, const char *comm, DType t, int n) {
  for (int k = 0;; k++) {
    uint32_t i = coll(p, 0, p->nmain, comm, COLL_ALL_REDUCE, k);
    if (operand(p, i, 0)->dtype == t && n-- == 0) return i;
  }
}

static uint32_t kernel(const Program *p, uint32_t first, uint32_t count, int op, int n) {
  for (uint32_t i = first; i < first + count; i++)
    if (p->code[i].code == I_KERNEL && p->code[i].op == op && n-- == 0) return i;
  ck_abort_msg("no kernel %s", op_info[op].name);
}

static uint32_t kernel_in(Program *p, const char *body, int op, int n) {
  const Body *b = body_of(p, body);
  return kernel(p, b->first, b->n, op, n);
}

/* The kernel of main for this parameter. */
static uint32_t kernel_for(const Program *p, int op, const char *what) {
  for (int n = 0;; n++) {
    uint32_t i = kernel(p, 0, p->nmain, op, n);
    if (strcmp(p->what[p->code[i].what], what) == 0) return i;
  }
}

static OpAttr *attr_of(Program *p, uint32_t i) { return &p->attr[p->code[i].attr]; }

/* The n-th call of a body. */
static uint32_t call(const Program *p, const char *body, int n) {
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *x = &p->code[i];
    if (x->code == I_CALL && n >= 0 &&
        strcmp(p->body[p->call[x->call].body].name, body) == 0 && n-- == 0)
      return i;
  }
  ck_abort_msg("no call of %s", body);
}

static Call *call_at(Program *p, uint32_t i) { return &p->call[p->code[i].call]; }

static UnitBind *unit_of(Program *p, const char *name) {
  for (int u = 0; u < p->nunit; u++)
    if (strcmp(p->unit[u].name, name) == 0) return &p->unit[u];
  ck_abort_msg("no unit %s", name);
}

/* ---- the faults ---- */

static void none(Compiled *c) {}

/* Reductions that are missing or wrong. */
static void no_dp_reduction(Compiled *c) {
  cut_transfer(&c->prog[0], coll_main(&c->prog[0], "dp", DT_F32, 2));
}
static void dp_maximum(Compiled *c) {
  c->prog[0].code[coll_main(&c->prog[0], "dp", DT_F32, 0)].red = RED_MAX;
}
static void no_norm_reduction(Compiled *c) {
  cut_transfer(&c->prog[0], coll_main(&c->prog[0], "tp", DT_F32, 0));
}
static void no_tie_reduction(Compiled *c) {
  for (int r = 0; r < 2; r++)
    cut_transfer(&c->prog[r], coll_main(&c->prog[r], "tie(0,1)", DT_F32, 0));
}
static void no_forward_reduction(Compiled *c) {
  cut_transfer(&c->prog[0], coll_in(&c->prog[0], "layer:F", "tp", COLL_ALL_REDUCE, 1));
}
static void no_backward_reduction(Compiled *c) {
  cut_transfer(&c->prog[0], coll_in(&c->prog[0], "layer:I", "tp", COLL_ALL_REDUCE, 0));
}
static void forward_maximum(Compiled *c) {
  Program *p = &c->prog[0];
  p->code[coll_in(p, "layer:F", "tp", COLL_ALL_REDUCE, 0)].red = RED_MAX;
}
static void no_loss_reduction(Compiled *c) {
  Program *p = &c->prog[0];
  cut_transfer(p, coll_main(p, "dp", DT_F64, 1));
}
static void no_softmax_reduction(Compiled *c) {
  Program *p = &c->prog[0];
  cut_transfer(p, coll_in(p, "lm_head:F", "tp", COLL_ALL_REDUCE, 1));
}
/* The last microbatch comes after the reduction. */
static void reduced_too_early(Compiled *c) {
  Program *p = &c->prog[0];
  uint32_t start = coll_main(p, "dp", DT_F32, 0), end = wait_of(p, start);
  uint32_t to = call(p, "lm_head:W", c->microbatches - 1);
  move(p, end, to);
  move(p, start + 1, to);
}

/* Placement. */
static void one_slice_for_all(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "embed_tokens:F", OP_slice, 0))->cut = 0;
}
static void vocabulary_from_zero(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "embed_tokens:F", OP_embedding, 0))->cut = 0;
}
static void vocabulary_of_gradient(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "embed_tokens:W", OP_embedding_dw, 0))->cut = 0;
}
static void labels_from_zero(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "lm_head:F", OP_ce_sum, 0))->cut = 0;
}
static void columns_past_the_vocabulary(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "lm_head:F", OP_ce_max, 0))->vocab = 52;
  attr_of(p, kernel_in(p, "lm_head:F", OP_ce_sum, 0))->vocab = 52;
}
static void gather_of_another_buffer(Compiled *c) {
  Program *p = &c->prog[0];
  uint32_t first = coll_in(p, "layer:F", "tp", COLL_ALL_GATHER, 0);
  uint32_t second = coll_in(p, "layer:F", "tp", COLL_ALL_GATHER, 1);
  ck_assert(operand_bytes(operand(p, first, 0)) == operand_bytes(operand(p, second, 0)));
  *operand(p, second, 0) = *operand(p, first, 0);
}

/* The step. */
static void seed_before_the_count(Compiled *c) {
  Program *p = &c->prog[0];
  uint32_t count = coll_main(p, "dp", DT_F64, 0);
  move(p, kernel(p, 0, p->nmain, OP_seed, 0), count);
}
static void half_of_the_labels(Compiled *c) {
  Program *p = &c->prog[0];
  operand(p, kernel(p, 0, p->nmain, OP_count_labels, 0), 0)->dim[0] /= 2;
}
static void second_microbatch_overwrites(Compiled *c) {
  Program *p = &c->prog[0];
  call_at(p, call(p, "norm:W", 1))->fresh = 1;
}
/* Adds to the gradients of the step before: only the second step can show it. */
static void nothing_overwrites(Compiled *c) {
  Program *p = &c->prog[0];
  call_at(p, call(p, "norm:W", 0))->fresh = 0;
}
static void same_microbatch_twice(Compiled *c) {
  Program *p = &c->prog[0];
  const Call *a = call_at(p, call(p, "embed_tokens:F", 0));
  const Call *b = call_at(p, call(p, "embed_tokens:F", 1));
  bool found = false;
  for (uint32_t i = 0; i < a->ndyn; i++) {
    if (p->dyn[a->dyn + i] != p->input[IN_TOKENS]) continue;
    p->dyn[b->dyn + i] = p->dyn[a->dyn + i];
    found = true;
  }
  ck_assert(found);
}
static void gradient_of_another_layer(Compiled *c) {
  Program *p = &c->prog[0];
  const UnitBind *a = unit_of(p, "layers.0"), *b = unit_of(p, "layers.1");
  uint32_t grad = a->n / 2 + 1;          /* parameters first, then their gradients */
  p->bind[b->first + grad] = p->bind[a->first + grad];
}
static void parameter_of_another_layer(Compiled *c) {
  Program *p = &c->prog[0];
  const UnitBind *a = unit_of(p, "layers.0"), *b = unit_of(p, "layers.1");
  p->bind[b->first + 1] = p->bind[a->first + 1];
}
static void attention_scale_of_one_body(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "layer:I", OP_attention_dx, 0))->scale *= 1.001f;
}
static void rope_is_not_undone(Compiled *c) {
  Program *p = &c->prog[0];
  OpAttr *a = attr_of(p, kernel_in(p, "layer:I", OP_rope, 0));
  a->inverse = !a->inverse;
}
static void norm_epsilon(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_in(p, "norm:F", OP_rmsnorm, 0))->eps = 1e-4f;
}

/* Pipelines. */
static uint32_t transfer(const Program *p, InstrCode code, int n) {
  for (uint32_t i = 0; i < p->nmain; i++)
    if (p->code[i].code == code && n-- == 0) return i;
  ck_abort_msg("no such transfer");
}
static void sends_the_first_again(Compiled *c) {
  Program *p = &c->prog[0];
  Operand *a = operand(p, transfer(p, I_SEND, 0), 0);
  Operand *b = operand(p, transfer(p, I_SEND, 1), 0);
  ck_assert(a->off != b->off && operand_bytes(a) == operand_bytes(b));
  b->off = a->off;
}
static void receives_are_swapped(Compiled *c) {
  Program *p = &c->prog[1];
  Operand *a = operand(p, transfer(p, I_RECV, 0), 0);
  Operand *b = operand(p, transfer(p, I_RECV, 1), 0);
  uint64_t off = a->off;
  ck_assert(a->off != b->off && operand_bytes(a) == operand_bytes(b));
  a->off = b->off, b->off = off;
}
/* Two microbatches are under way at once on the first rank. */
static void frames_of_one_microbatch(Compiled *c) {
  Program *p = &c->prog[0];
  static const char *const body[] = {"layer:F", "layer:I", "layer:W"};
  for (int k = 0; k < LEN(body); k++) {
    const Call *a = call_at(p, call(p, body[k], 0)), *b = call_at(p, call(p, body[k], 1));
    ck_assert(a->mb == 0 && b->mb == 1 && a->unit == b->unit);
    memcpy(&p->dyn[b->dyn], &p->dyn[a->dyn], 3 * sizeof *p->dyn);
  }
}
static void tied_copy_stays_behind(Compiled *c) {
  Program *p = &c->prog[1];
  cut(p, kernel_for(p, OP_adamw, "model.embed_tokens.weight"));
}

/* The update. */
static void norm_counts_twice(Compiled *c) {
  Program *p = &c->prog[0];
  repeat(c->arena, p, kernel_for(p, OP_sqnorm, "model.norm.weight"));
}
static void norm_of_one_shard(Compiled *c) {
  Program *p = &c->prog[0];
  OpAttr *a = attr_of(p, kernel_for(p, OP_sqnorm, "lm_head.weight"));
  ck_assert_int_eq(a->n, SC_NORM2_TP);
  a->n = SC_NORM2;
}
static void decayed_norm(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_for(p, OP_adamw, "model.norm.weight"))->weight_decay = 0.1f;
}
static void other_beta(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_for(p, OP_adamw, "lm_head.weight"))->beta2 = 0.951f;
}
static void other_epsilon(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel_for(p, OP_adamw, "lm_head.weight"))->eps = 1e-6f;
}
static void no_clip(Compiled *c) {
  Program *p = &c->prog[0];
  attr_of(p, kernel(p, 0, p->nmain, OP_clip_coef, 0))->clip = 0;
}
static void update_with_another_gradient(Compiled *c) {
  Program *p = &c->prog[0];
  uint32_t a = kernel_for(p, OP_adamw, "model.layers.0.mlp.up_proj.weight");
  uint32_t b = kernel_for(p, OP_adamw, "model.layers.0.mlp.gate_proj.weight");
  *operand(p, a, 1) = *operand(p, b, 1);
}
static void one_parameter_stays(Compiled *c) {
  Program *p = &c->prog[0];
  cut(p, kernel_for(p, OP_adamw, "model.layers.1.mlp.up_proj.weight"));
}

/* ---- the table ---- */

enum { TP = 1, SP = 2, DP = 4, PP = 8, TIED = 16, TABLE = 32 };

static const struct Fault {
  const char *name;
  int with;
  void (*plant)(Compiled *c);
  const char *names;     /* part of what verify says first; NULL: no fault */
} faults[] = {
#define FAULT(f, with, names) {#f, with, f, names}
    FAULT(none, TP | SP | DP, NULL),
    FAULT(none, PP | TIED | TP, NULL),
    FAULT(none, TP | SP | TABLE, NULL),
    FAULT(no_dp_reduction, DP, "gradient of model.layers.1.self_attn.o_proj.weight"),
    FAULT(dp_maximum, DP, "gradient of lm_head.weight"),
    FAULT(no_norm_reduction, TP | SP, "gradient of model.norm.weight"),
    FAULT(no_tie_reduction, PP | TIED, "gradient of model.embed_tokens.weight"),
    FAULT(no_forward_reduction, TP, "loss"),
    FAULT(no_backward_reduction, TP,
          "gradient of model.layers.1.post_attention_layernorm"),
    FAULT(forward_maximum, TP, "loss"),
    FAULT(no_loss_reduction, DP, "loss"),
    FAULT(no_softmax_reduction, TP, "loss"),
    FAULT(reduced_too_early, DP, "gradient of lm_head.weight"),
    FAULT(one_slice_for_all, TP | SP | TABLE, "loss"),
    FAULT(vocabulary_from_zero, TP, "loss"),
    FAULT(vocabulary_of_gradient, TP, "gradient of model.embed_tokens.weight"),
    FAULT(labels_from_zero, TP, "loss"),
    FAULT(columns_past_the_vocabulary, TP, "loss"),
    FAULT(gather_of_another_buffer, TP | SP, "loss"),
    FAULT(seed_before_the_count, DP, "gradient of lm_head.weight"),
    FAULT(half_of_the_labels, DP, "number of label tokens"),
    FAULT(second_microbatch_overwrites, 0, "gradient of model.norm.weight"),
    FAULT(nothing_overwrites, 0, "step 1: gradient of model.norm.weight"),
    FAULT(same_microbatch_twice, 0, "loss"),
    FAULT(gradient_of_another_layer, 0,
          "gradient of model.layers.1.self_attn.q_proj.weight"),
    FAULT(parameter_of_another_layer, 0, "loss"),
    FAULT(attention_scale_of_one_body, 0,
          "gradient of model.layers.1.self_attn.v_proj.weight"),
    FAULT(rope_is_not_undone, 0, "gradient of model.layers.1.self_attn.k_proj.weight"),
    FAULT(norm_epsilon, 0, "loss"),
    FAULT(sends_the_first_again, PP, "loss"),
    FAULT(receives_are_swapped, PP, "loss"),
    FAULT(frames_of_one_microbatch, PP,
          "gradient of model.layers.0.mlp.down_proj.weight"),
    FAULT(tied_copy_stays_behind, PP | TIED, "a replica of model.embed_tokens.weight"),
    FAULT(norm_counts_twice, 0, "gradient norm"),
    FAULT(norm_of_one_shard, TP, "gradient norm"),
    FAULT(decayed_norm, 0, "parameter of model.norm.weight"),
    FAULT(other_beta, 0, "second moment of lm_head.weight"),
    FAULT(other_epsilon, 0, "parameter of lm_head.weight"),
    FAULT(no_clip, 0, "first moment of lm_head.weight"),
    FAULT(update_with_another_gradient, 0,
          "first moment of model.layers.0.mlp.up_proj.weight"),
    FAULT(one_parameter_stays, 0, "first moment of model.layers.1.mlp.up_proj.weight"),
};

/* The usual plan but for the table, which stays whole and is read by pieces of rows. */
static const TpRule whole_table[] = {
    {"layers.*.self_attn.q_proj", STYLE_COLWISE, true},
    {"layers.*.self_attn.k_proj", STYLE_COLWISE, true},
    {"layers.*.self_attn.v_proj", STYLE_COLWISE, true},
    {"layers.*.self_attn.o_proj", STYLE_ROWWISE, true},
    {"layers.*.mlp.gate_proj", STYLE_COLWISE, true},
    {"layers.*.mlp.up_proj", STYLE_COLWISE, true},
    {"layers.*.mlp.down_proj", STYLE_ROWWISE, true},
    {"lm_head", STYLE_COLWISE, true},
};

static ToyOptions options(int with) {
  ToyOptions o = toy_default();
  o.layers = 2, o.microbatches = 3;
  o.tp = with & TP ? 2 : 1, o.pp = with & PP ? 2 : 1, o.dp = with & DP ? 2 : 1;
  o.sp = with & SP, o.tied = with & TIED;
  if (with & TP) o.vocab = 51;         /* the last column of the last shard is padding */
  if (with & TABLE) o.rules = whole_table, o.nrules = LEN(whole_table);
  return o;
}

START_TEST(planted) {
  const struct Fault *f = &faults[_i];
  ToyOptions o = options(f->with);
  Pair p;
  pair_compile(&p, &o);
  f->plant(p.many.compiled);
  pair_verify(&p, 2, 1e-5);
  const char *said = p.report.first_bad;
  if (getenv("WEFT_TEST_SHOW")) fprintf(stderr, "%s: %s\n", f->name, said);
  if (!f->names) {
    ck_assert_msg(p.report.ok, "without a fault: %s", said);
    ck_assert_str_eq(said, "");
  } else {
    ck_assert_msg(!p.report.ok, "%s was not noticed", f->name);
    ck_assert_msg(strstr(said, f->names) != NULL, "%s: \"%s\" is not in \"%s\"", f->name,
                  f->names, said);
    ck_assert_str_ne(p.report.worst, "");
  }
  pair_free(&p);
}
END_TEST

Suite *faults_suite(void) {
  Suite *s = suite_create("faults");
  TCase *c = tcase_create("verify");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, planted, 0, LEN(faults));
  suite_add_tcase(s, c);
  return s;
}
