/* check_shapes.c - what each op of a model takes: one operand or attribute is wrong by as
 * little as can be, and what is said; and what is right at the same border. */
#include <check.h>
#include <stdio.h>

#include "bindings/api/job.h"
#include "tests/harness/scratch.h"

/* The body of a model: x is (batch, seq, 8), t the same as tokens, l the logits of four
 * experts, p(NAME, SIZE, ...) a parameter. */
static const char model[] =
    "local weft = require 'weft'\n"
    "local function model(g)\n"
    "  local function p(name, ...)\n"
    "    local dims = {}\n"
    "    for i, n in ipairs { ... } do dims[i] = { 'hidden', n } end\n"
    "    return g:param(name, dims)\n"
    "  end\n"
    "  local x = g:embedding(g:tokens(), p('e', 16, 8))\n"
    "  local t = g:flatten(x)\n"
    "  local l = g:router_logits(t, p('r', 4, 8))\n"
    "  %s\n"
    "  return g:cross_entropy(g:linear(x, p('h', 16, 8)), g:labels())\n"
    "end\n"
    "return weft.plan { model = model, batch = { global = 2, micro = 2, seq = 4 }%s }\n";

/* What is said; "" if all is well. */
static const char *said_of(const char *body) {
  Job j;
  Arena *a = arena_new(NULL);
  bool packed = strstr(body, "doc_starts") != NULL;
  const char *text =
      arena_printf(scratch_arena, model, body, packed ? ", packed = { eot = 3 }" : "");
  const char *path = scratch_put("plan.lua", text, strlen(text));
  weft_status st = job_load(&j, a, &(LangOptions){0}, path);
  if (st == WEFT_OK) st = job_mesh(&j, 0);
  if (st == WEFT_OK) st = job_graph(&j);
  const char *said = st == WEFT_OK    ? ""
                     : j.d.list.n > 0 ? j.d.list.at[0].summary
                                      : j.e.text;
  said = arena_str(scratch_arena, said);
  job_free(&j);
  arena_free(a);
  return said;
}

#define ROPE(head, rest) "g:rope(x, g:positions(), { head_dim = " #head rest " })"
#define ATTEND(q, k, v, rest)                                                            \
  "g:attention(g:linear(x, p('q', " #q ", 8)), g:linear(x, p('k', " #k                   \
  ", 8)), g:linear(x, p('v', " #v ", 8)), { scale = 1, " rest " })"
#define ROUTE(rest)   "local w, ids = g:route(l, { " rest " })"
#define PERMUTE(rest) ROUTE("topk = 2") " g:permute(t, ids, w, { experts = 4, " rest " })"
#define ROWS          PERMUTE("") " local rows, ends, at = g:permute(t, ids, w, { experts = 4 })"
#define JOIN(a, b, dim, part)                                                            \
  "g:join_heads(g:linear(x, p('a', " a ")), g:linear(x, p('b', " b                       \
  ")), { head_dim = " dim ", head_part = " part " })"
#define COUNTS(rest)                                                                     \
  ROUTE("topk = 2")                                                                      \
  " local tl = g:flatten(g:labels()) g:expert_counts(" rest ", { experts = 4 })"
#define LOSS(rest)                                                                       \
  ROUTE("topk = 2")                                                                      \
  " local tl = g:flatten(g:labels()) local n = g:expert_counts(ids, tl, { experts = 4 "  \
  "}) g:router_loss(" rest ", { topk = 2, aux = 0.1 })"
/* Logits u and v, with maximum and sums, and labels tl of the rows of u. */
#define TOP(u) "g:ce_max(" u ", { vocab = 8 })"
#define STATS(u, v)                                                                      \
  "local u, v, tl = " u ", " v ", g:flatten(g:labels()) local mu, mv = " TOP(            \
      "u") ", " TOP("v") " local su = g:ce_sum(u, tl, mu, { vocab = 8 }) "
#define SCAN(x, d, a, b, c, rest)                                                        \
  "local s, r = g:ssm_steps(p('s', 2, 4, 2), p('i', 2), p('j', 2), { eps = 0, limit = "  \
  "1 }) local s5 = g:ssm_steps(p('s5', 2, 5, 2), p('i', 2), p('j', 2), { eps = 0, "      \
  "limit = 1 }) g:ssm_scan(" x ", " d ", " a ", " b ", " c ", p('D', 2)" rest            \
  ", { head_dim = 4 })"
#define GROUPED(rest) ROWS " g:grouped_linear(" rest ")"
#define COMBINE(rest) ROWS " g:combine(" rest ")"

static const struct {
  const char *body, *said;
} cases[] = {
#include "shapes.def"
};

START_TEST(what_ops_take) {
  const char *said = said_of(cases[_i].body);
  ck_assert_msg(str_eq(said, cases[_i].said), "%s\nsays:   %s\nshould: %s",
                cases[_i].body, said, cases[_i].said);
}
END_TEST

Suite *shapes_suite(void);
Suite *shapes_suite(void) {
  Suite *s = suite_create("shapes");
  TCase *t = tcase_create("ops");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, what_ops_take, 0, LEN(cases));
  suite_add_tcase(s, t);
  return s;
}
