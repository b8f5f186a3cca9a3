/* check_field_names.c - fields whose value is one of some names: what each name stands
 * for. */
#include <check.h>

#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

#define AT(member) offsetof(Plan, member), sizeof(((Plan *)0)->member)
#define TOKENS     "data = weft.tokens { 'a', "
#define CP         "mesh = { cp = 4 }, "
#define PACKED     "packed = { eot = 7, "

static const struct Named {
  const char *text; /* fields of a plan */
  size_t at, size;
  int is;
} named[] = {
    {"pp_plan = { balance = 'even' }", AT(pp.by_cost), 0},
    {"pp_plan = { balance = 'cost' }", AT(pp.by_cost), 1},
    {"precision = { param_dtype = 'float32' }", AT(dtype), DT_F32},
    {"precision = { param_dtype = 'bf16' }", AT(dtype), DT_BF16},
    {"precision = { param_dtype = 'fp16' }", AT(dtype), DT_F16},
    {"precision = { reduce_dtype = 'f32' }", AT(reduce), DT_F32},
    {"precision = { reduce_dtype = 'bfloat16' }", AT(reduce), DT_BF16},
    {"optimizer = weft.adamw { state_dtype = 'f32' }", AT(opt.state), DT_F32},
    {"optimizer = weft.adamw { state_dtype = 'bf16' }", AT(opt.state), DT_BF16},
    {PACKED "size = 16, too_long = 'error' }", AT(packed.too_long), TOO_LONG_ERROR},
    {PACKED "size = 16, too_long = 'split' }", AT(packed.too_long), TOO_LONG_SPLIT},
    {PACKED "size = 16, too_long = 'drop' }", AT(packed.too_long), TOO_LONG_DROP},
    {PACKED "labels = 'all' }", AT(packed.within), 0},
    {PACKED "labels = 'within' }", AT(packed.within), 1},
    {CP "cp = { comm = 'all_gather' }", AT(cp.comm), CP_ALLGATHER},
    {CP "cp = { comm = 'ulysses' }", AT(cp.comm), CP_A2A},
    {CP "cp = { comm = 'p2p' }", AT(cp.comm), CP_RING},
    {CP "cp = { comm = 'a2a+p2p', heads_size = 2 }", AT(cp.comm), CP_A2A_RING},
    {CP "cp = { balance = 'zigzag' }", AT(cp.in_order), 0},
    {CP "cp = { balance = 'none' }", AT(cp.in_order), 1},
    {"moe = { dispatcher = 'allgather' }", AT(moe.dispatcher), MOE_ALLGATHER},
    {"moe = { dispatcher = 'alltoall' }", AT(moe.dispatcher), MOE_ALLTOALL},
    {"moe = { capacity_factor = 1, drop_policy = 'probs' }", AT(moe.drop), DROP_PROBS},
    {"moe = { capacity_factor = 1, drop_policy = 'position' }", AT(moe.drop),
     DROP_POSITION},
    {TOKENS "format = 'auto' }", AT(data.format), TOKENS_AUTO},
    {TOKENS "format = 'raw', dtype = 'u16' }", AT(data.format), TOKENS_RAW},
    {TOKENS "format = 'llm_c' }", AT(data.format), TOKENS_LLMC},
    {TOKENS "format = 'nemo' }", AT(data.format), TOKENS_AUTOMODEL},
    {TOKENS "format = 'megatron' }", AT(data.format), TOKENS_MEGATRON},
    {TOKENS "dtype = 'uint16' }", AT(data.width), 2},
    {TOKENS "dtype = 'u32' }", AT(data.width), 4},
};

START_TEST(what_a_name_stands_for) {
  const struct Named *n = &named[_i];
  const char *model = strncmp(n->text, "moe", 3) == 0
                          ? "weft.model { 'mixtral', vocab_size = 64, hidden_size = 32, "
                            "num_hidden_layers = 2, num_attention_heads = 8 }"
                          : "weft.model 'llama-tiny'";
  const Plan *p =
      lang_test_good(&t, arena_printf(t.arena,
                                      HEAD "return weft.plan { model = %s, %s,\n"
                                           "  batch = { global = 8, seq = 16 } }",
                                      model, n->text));
  const char *at = (const char *)p + n->at;
  int got = n->size == sizeof(bool) ? *(const bool *)at : *(const int *)at;
  ck_assert_msg(got == n->is, "%s: %d instead of %d", n->text, got, n->is);
}
END_TEST

Suite *field_names_suite(void);
Suite *field_names_suite(void) {
  Suite *s = suite_create("field_names");
  TCase *c = tcase_create("values");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, what_a_name_stands_for, 0, LEN(named));
  suite_add_tcase(s, c);
  return s;
}
