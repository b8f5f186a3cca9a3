/* check_chunked_loss.c - loss_chunks: what the head in pieces leaves out, that it trains
 * the same, and what is in the way of it. */
#include <check.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/plan_bits.h"
#include "tests/harness/scratch.h"

/* A head that is large beside the rest: 4 rows of 32 tokens, 512 columns. */
#define PLAN                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan {\n"                                                                 \
  "  model = weft.model { 'llama', hidden_size = 32, num_hidden_layers = 2,\n"           \
  "    num_attention_heads = 4, intermediate_size = 64, vocab_size = 500,\n"             \
  "    tie_word_embeddings = false },\n"                                                 \
  "  batch = { global = 8, micro = 2, seq = 32 },\n"                                     \
  "  optimizer = weft.adamw { lr = 1e-2 },\n"                                            \
  "  train = { steps = 2 },\n}\n"

static const char *put_plan(void) { return scratch_put("plan.lua", PLAN, strlen(PLAN)); }

static weft_status open_with(const char *const *set, int n) {
  return job_open(&job, arena, &(LangOptions){.set = set, .nset = n}, put_plan());
}

static const Compiled *compiled(const char *const *set, int n) {
  return compiled_job(&job, arena, put_plan(), set, n);
}

/* ---- what is left out ---- */

static uint64_t peak(const Compiled *c) { return c->prog[0].arena_bytes; }

/* The logits, 64 x 4000 in f32, and what was saved of them, give way to a piece. */
START_TEST(no_whole_logits) {
  static const char *const set[] = {"model.vocab_size=4000", "loss_chunks=8"};
  const Compiled *c = compiled(set, 1);
  uint64_t whole = peak(c);
  int ops = program_ops(&c->prog[0], OP_linear);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_ce_stats), 1);
  job_free(&job);
  c = compiled(set, 2);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_linear_ce_stats), 1);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_linear_ce_back), 1);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_ce_stats), 0);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_ce_dx), 0);
  ck_assert_int_eq(program_ops(&c->prog[0], OP_linear), ops - 1);
  ck_assert_uint_ge(whole - peak(c), 64 * 4000 * 4 * 3 / 4);
  job_free(&job);
}
END_TEST

/* What is computed twice is said to be. */
START_TEST(flops_are_counted) {
  static const char *const set[] = {"mesh.tp=1", "loss_chunks=4"};
  const Compiled *c = compiled(set, 1);
  double whole = c->prog[0].flops;
  ck_assert(c->prog[0].recomputed == 0);
  job_free(&job);
  c = compiled(set, 2);
  double head = 2.0 * 8 * 32 * 32 * 500;
  double alone = 8 * 32 * 501; /* ce_stats and ce_dx, which were counted, too */
  ck_assert_double_eq_tol(c->prog[0].flops - whole, head - alone, 1);
  ck_assert_double_eq_tol(c->prog[0].recomputed, head, 1);
  job_free(&job);
}
END_TEST

/* Where I and W are split and W gathers again, I gives both gradients of the head: W has
 * nothing to do there, and gathers nothing. */
START_TEST(w_gathers_nothing) {
  static const char *const set[] = {
      "loss_chunks=4", "mesh.tp=2", "schedule=zero_bubble",
      "strategy={\"zero\",sequence_parallel=true,keep_gathered=false}"};
  const Program *p = &compiled(set, 4)->prog[0];
  for (int i = 0; i < p->nbody; i++)
    if (strcmp(p->body[i].name, "lm_head:W") == 0) ck_assert_uint_eq(p->body[i].n, 0);
  ck_assert_int_gt(program_codes(p, I_COLL), 0);
  job_free(&job);
}
END_TEST

/* "auto": 500 columns of 32 rows read: 16 pieces, but each has 128 rows at least. */
START_TEST(chosen) {
  static const struct {
    const char *seq;
    int pieces;
  } rows[] = {{"batch.seq=32", 1}, {"batch.seq=256", 4}, {"batch.seq=2048", 16}};
  for (int i = 0; i < LEN(rows); i++) {
    const char *set[] = {"loss_chunks=auto", rows[i].seq};
    const Compiled *c = compiled(set, 2);
    int pieces = 0;
    for (uint32_t k = 0; k < c->prog[0].ncode; k++)
      if (c->prog[0].code[k].op == OP_linear_ce_back)
        pieces = c->prog[0].attr[c->prog[0].code[k].attr].n;
    ck_assert_int_eq(pieces, rows[i].pieces);
    job_free(&job);
  }
}
END_TEST

/* ---- the same training ---- */

enum { SETTINGS = 4 };
static const char *const meshes[][SETTINGS] = {
    {"mesh.tp=1"},
    {"mesh.tp=2", "strategy={\"zero\",sequence_parallel=true}"},
    {"mesh.tp=2", "mesh.pp=2", "schedule=zero_bubble"},
    {"mesh.pp=2", "mesh.dp=2", "strategy=fsdp2", "schedule=1f1b"},
    {"mesh.cp=2", "model.tie_word_embeddings=true"},
    {"mesh.tp=2", "model.tie_word_embeddings=true",
     "strategy={\"zero\",sequence_parallel=true}"},
    {"mesh.pp=2", "schedule=zbv", "model.tie_word_embeddings=true",
     "model.num_hidden_layers=4"},
    {"mesh.dp=2", "strategy={\"zero\",stage=2}", "recompute=full"},
    {"mesh.tp=2", "recompute={\"lm_head\"}"},
    {"mesh.tp=2", "freeze={\"lm_head\"}"},
    {"mesh.tp=2", "freeze={\"embed_tokens\",\"layers.*\",\"norm\"}"},
    {"mesh.dp=2", "adapter={\"lora\",rank=4}", "strategy=fsdp2"},
    {"mesh.tp=2", "mesh.pp=2", "schedule=zero_bubble", "model.tie_word_embeddings=true"},
    {"precision=bf16", "mesh.tp=2"},
    {"mesh.tp=2", "mtp={num_layers=1}", "schedule=zero_bubble",
     "strategy={\"fsdp2\",sequence_parallel=true,keep_gathered=false}"},
};

START_TEST(trains_the_same) {
  PlanBits with, without;
  const char *set[SETTINGS + 1];
  int n = 0;
  while (n < SETTINGS && meshes[_i][n]) set[n] = meshes[_i][n], n++;
  bool bf16 = strstr(set[0], "bf16") != NULL;
  set[n] = "loss_chunks=4";
  plan_bits(arena, put_plan(), set, n, &without);
  plan_bits(arena, put_plan(), set, n + 1, &with);
  ck_assert_int_eq(with.n, without.n);
  for (int k = 0; k < 2; k++) {
    ck_assert_double_eq_tol(with.loss[k], without.loss[k], (bf16 ? 1e-4 : 1e-6) * 6.5);
    ck_assert_double_eq_tol(with.norm[k], without.norm[k],
                            (bf16 ? 1e-2 : 1e-5) * without.norm[k]);
  }
  double apart = 0, all = 0;
  for (int64_t i = 0; i < with.n; i++) {
    double d = (double)with.param[i] - without.param[i];
    apart += d * d, all += (double)without.param[i] * without.param[i];
  }
  ck_assert_msg(apart <= all * (bf16 ? 1e-6 : 1e-10), "%g of %g", apart, all);
}
END_TEST

/* ---- what is in the way ---- */

static const struct {
  const char *set[3], *says;
} wrong[] = {
    {{"loss_chunks=3"},
     "loss_chunks: a rank has 64 rows of logits, which 3 pieces do not divide "
     "(loss_chunks = 2)"},
    {{"loss_chunks=0"}, "loss_chunks: expected an integer"},
    {{"loss_chunks=many"}, "loss_chunks: "},
    {{"loss_chunks=4", "mesh.tp=2", "strategy={\"zero\",loss_parallel=false}"},
     "loss_chunks: ranks of tp exchange the logits (`all_gather`) before cross entropy: "
     "they cannot be made in pieces (strategy.loss_parallel = true leaves them cut)"},
    {{"loss_chunks=4", "mesh.tp=2", "tp_plan={lm_head=\"rowwise\"}"},
     "loss_chunks: ranks of tp exchange the logits (`all_reduce`)"},
    {{"loss_chunks=4", "fused_ops=false"}, "loss_chunks: needs fused_ops"},
    {{"loss_chunks=4", "precision={compute_dtype=\"bf16\",grad_dtype=\"bf16\"}"},
     "loss_chunks: each piece would round the gradient of the head to "
     "precision.grad_dtype = bf16"},
};

START_TEST(named_errors) {
  int n = 0;
  while (n < 3 && wrong[_i].set[n]) n++;
  ck_assert_int_eq(open_with(wrong[_i].set, n), WEFT_EPLAN);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s && strstr(t.s, wrong[_i].says), "%s\nsays %s", wrong[_i].set[0],
                t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

#define SCALED                                                                           \
  "local weft = require 'weft'\n"                                                        \
  "local function model(g, c)\n"                                                         \
  "  local table = g:param('table', { { 'vocab', c.vocab }, { 'hidden', c.width } })\n"  \
  "  local head = g:param('head', { { 'vocab', c.vocab }, { 'hidden', c.width } })\n"    \
  "  return g:unit('all', function()\n"                                                  \
  "    local l = g:linear(g:embedding(g:tokens(), table), head)\n"                       \
  "    return g:cross_entropy(g:scale(l, { scale = 0.5 }), g:labels())\n"                \
  "  end)\n"                                                                             \
  "end\n"                                                                                \
  "return weft.plan { model = weft.model { model, vocab = 8, width = 4 },\n"             \
  "  batch = { global = 1, micro = 1, seq = 8 }, loss_chunks = 2 }\n"

START_TEST(logits_of_another_op) {
  const char *path = scratch_put("scaled.lua", SCALED, strlen(SCALED));
  ck_assert_int_eq(job_open(&job, arena, &(LangOptions){0}, path), WEFT_EPLAN);
  Text t = {0};
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s && strstr(t.s, "loss_chunks: logits of this model come from `scale`"),
                "%s", t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

Suite *chunked_loss_suite(void);
Suite *chunked_loss_suite(void) {
  Suite *s = suite_create("chunked_loss");
  TCase *c = tcase_create("pass");
  tcase_add_checked_fixture(c, job_setup, job_teardown);
  tcase_add_test(c, no_whole_logits);
  tcase_add_test(c, flops_are_counted);
  tcase_add_test(c, w_gathers_nothing);
  tcase_add_test(c, chosen);
  tcase_add_loop_test(c, named_errors, 0, LEN(wrong));
  tcase_add_test(c, logits_of_another_op);
  suite_add_tcase(s, c);
  c = tcase_create("runs");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, job_setup, job_teardown);
  tcase_add_loop_test(c, trains_the_same, 0, LEN(meshes));
  suite_add_tcase(s, c);
  return s;
}
