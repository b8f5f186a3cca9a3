/* check_quantized_base.c - a base in 4 bits: the bytes that ranks have and gather, its
 * first codes on every mesh, the same steps as on one rank, and what is wrong. That they
 * are those of bitsandbytes, check_nf4.c shows, and twelve steps against PEFT,
 * tests/oracle/adapters.py. */
#include <check.h>
#include <math.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"
#include "tests/harness/scratch.h"
#include "vm/base/nf4.h"
#include "vm/storage/memory_plan.h"
#include "vm/weights/quantized.h"

#define LLAMA                                                                            \
  "'llama', hidden_size = 128, num_hidden_layers = 2, num_attention_heads = 4, "         \
  "num_key_value_heads = 2, intermediate_size = 256, vocab_size = 96"
#define NF4 "adapter = { 'lora', rank = 2, base = 'nf4' },"

static const char *put_plan(const char *model, const char *fields) {
  const char *text = arena_printf(arena,
                                  "local weft = require 'weft'\nreturn weft.plan { model "
                                  "= weft.model { %s },\n batch = { global = 4, micro = "
                                  "1, seq = 8 }, %s }\n",
                                  model, fields);
  return scratch_put("plan.lua", text, strlen(text));
}

static weft_status open_plan(const char *model, const char *fields) {
  return job_open(&job, arena, &(LangOptions){0}, put_plan(model, fields));
}

static const Compiled *compiled(const char *fields) {
  return compiled_job(&job, arena, put_plan(LLAMA, fields), NULL, 0);
}

/* ---- bytes ---- */

static uint64_t stored(const Compiled *c, DType t) {
  const Regions *s = &c->prog[0].regions;
  uint64_t n = 0;
  for (int i = 0; i < s->nregion; i++)
    if (s->region[i].kind == REGION_WORK && s->region[i].dtype == t)
      n += region_bytes(&s->region[i]);
  return n;
}

/* Linears of a layer: q and o, k and v, gate, up and down. */
enum { WEIGHTS = 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256) };

/* Half a byte for each weight, and one for each block; each of 28 parameters is padded.
 */
static void check_bytes(const char *fields, uint64_t want) {
  const Compiled *c = compiled(arena_printf(arena, NF4 "precision = 'bf16', %s", fields));
  uint64_t bytes = stored(c, DT_U8);
  ck_assert_msg(bytes >= want && bytes < want + 28 * ALIGN, "%s: %llu, not %llu", fields,
                (unsigned long long)bytes, (unsigned long long)want);
}

START_TEST(bytes_of_codes) {
  uint64_t want = WEIGHTS / 2 + WEIGHTS / NF4_BLOCK;
  check_bytes("", want);
  ck_assert_uint_eq(job.compiled->params_total,
                    96 * 128 * 2 + 5 * 128 + WEIGHTS +
                        2 * 2 * (2 * 256 + 2 * 192 + 3 * 384));
  job_free(&job);
  check_bytes("mesh = { tp = 2 }", want / 2);
  job_free(&job);
  check_bytes("mesh = { dp = 2 }, strategy = 'fsdp2'", want / 2);
  const Compiled *c = job.compiled;
  uint64_t gathered = 0;
  const Program *p = &c->prog[0];
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Operand *o = &p->operand[p->code[i].operand];
    if (p->code[i].code == I_GATHER && o->dtype == DT_U8) gathered += operand_bytes(o);
  }
  /* the shards of the codes of both layers, once for the forward and once more */
  ck_assert_msg(gathered >= want / 2 && gathered < 4 * (want + 28 * ALIGN), "%llu",
                (unsigned long long)gathered);
  job_free(&job);
}
END_TEST

/* ---- values ---- */

enum { ROWS = 128, COLUMNS = 256, N = ROWS * COLUMNS, BLOCKS = N / NF4_BLOCK };

static float element(int64_t i) { return (float)(sin(0.37 * (double)i) * (1 + i % 7)); }

static weft_status elements(const void *ud, int param, int64_t from, int64_t n, float *to,
                            weft_error *e) {
  for (int64_t i = 0; i < n; i++) to[i] = element(from + i);
  return WEFT_OK;
}

/* What the whole matrix becomes. */
typedef struct Whole {
  float part[QUANT_GROUPS + 1][N / 2]; /* of each QuantPart */
  float offset;
} Whole;

static void quantize(Whole *to) {
  static float w[N], most[BLOCKS];
  uint8_t code[NF4_BYTES], small[NF4_GROUP];
  double sum = 0;
  for (int i = 0; i < N; i++) w[i] = element(i);
  for (int b = 0; b < BLOCKS; b++) {
    nf4_pack(w + b * NF4_BLOCK, code);
    for (int i = 0; i < NF4_BYTES; i++)
      to->part[QUANT_CODES][b * NF4_BYTES + i] = code[i];
    sum += most[b] = nf4_largest(w + b * NF4_BLOCK, NF4_BLOCK);
  }
  to->offset = (float)(sum / BLOCKS);
  for (int g = 0; g < BLOCKS / NF4_GROUP; g++) {
    to->part[QUANT_GROUPS][g] =
        nf4_pack_scales(most + g * NF4_GROUP, NF4_GROUP, to->offset, small);
    for (int i = 0; i < NF4_GROUP; i++)
      to->part[QUANT_SCALES][g * NF4_GROUP + i] = small[i];
  }
  to->part[QUANT_GROUPS][BLOCKS / NF4_GROUP] = to->offset;
}

/* Checks the pieces of all ranks; returns how many elements these have. */
static int64_t check_ranks(const Compiled *c, const Quantized *q, int param,
                           const float *want) {
  int64_t n = 0;
  for (int rank = 0; rank < c->mesh.world; rank++) {
    Piece piece[2];
    if (!state_pieces(c, rank, STATE_PARAM, param, piece)) continue;
    float *local = arena_alloc(arena, sizeof *local * (size_t)(piece->count + 1));
    ck_assert_int_eq(quantized_init(q, param, piece, local, &scratch_error), WEFT_OK);
    for (int64_t i = 0; i < piece_spans(piece); i++) {
      Span s = piece_span(piece, i);
      for (int64_t k = 0; k < s.n; k++, n++)
        ck_assert_msg(local[s.local + k] == want[s.global + k], "%s: %lld",
                      c->param[param].name, (long long)(s.global + k));
    }
  }
  return n;
}

static const struct {
  const char *fields;
  int copies; /* of codes, on all ranks */
} layout[] = {{"", 1},
              {"mesh = { tp = 2 }, strategy = 'fsdp2'", 1},
              {"mesh = { dp = 4 }, strategy = 'fsdp2'", 1},
              {"mesh = { tp = 2, dp = 2, pp = 2 }, strategy = { 'zero', stage = 2 }", 2}};

/* Every rank has its part of the codes of the whole matrix, whose inputs tp cuts. */
START_TEST(cut_from_the_whole) {
  static Whole whole;
  static const int64_t counts[] = {0, N / 2, BLOCKS, BLOCKS / NF4_GROUP + 1};
  const Compiled *c = compiled(arena_printf(arena, NF4 "%s", layout[_i].fields));
  float *offset = NEW_N(arena, float, c->nparam);
  Quantized q = {.c = c, .values = elements, .offset = offset};
  quantize(&whole);
  for (int i = 0, found = 0; i < c->nparam || found != 1; i++) {
    ck_assert_int_lt(i, c->nparam);
    if (!str_eq(c->param[i].name, "model.layers.1.mlp.down_proj.weight")) continue;
    offset[i] = whole.offset;
    for (QuantPart part = QUANT_CODES; part <= QUANT_GROUPS; part++) {
      int k = part == QUANT_CODES ? i : quantized_part(c, i, part);
      ck_assert_int_ge(k, 0);
      ck_assert(part == QUANT_CODES || quantized_codes(c, k) == i);
      int64_t n = check_ranks(c, &q, k, whole.part[part]);
      ck_assert(part == QUANT_GROUPS ? n >= counts[part]
                                     : n == counts[part] * layout[_i].copies);
    }
    found = 1;
  }
  job_free(&job);
}
END_TEST

/* ---- steps ---- */

static const char *const meshes[] = {
    "mesh = { tp = 2 }, strategy = { 'zero', sequence_parallel = true }",
    "mesh = { pp = 2 }, schedule = 'zero_bubble'",
    "mesh = { cp = 2 }, recompute = 'selective'",
    "mesh = { dp = 2 }, strategy = 'fsdp2'",
    "mesh = { dp = 2, tp = 2 }, strategy = 'fsdp2', recompute = 'full'",
    "mesh = { dp = 2 }, strategy = 'fsdp2', precision = 'bf16'",
};
static const char *const options[] = {"", ", dora = true"};

START_TEST(agree_with_one_rank) {
  JobVerify v = {.steps = 3};
  const char *fields =
      arena_printf(arena, "%s, adapter = { 'lora', rank = 4, base = 'nf4'%s }",
                   meshes[_i / LEN(options)], options[_i % LEN(options)]);
  ck_assert_int_eq(open_plan(LLAMA, fields), WEFT_OK);
  ck_assert_msg(job_verify(&job, &v) == WEFT_OK, "%s: %s", fields, job.e.text);
  ck_assert_int_gt(v.report.tensors, 100);
  job_free(&job);
}
END_TEST

/* ---- folders ---- */

static Outcome expect_ok(const char *command) {
  Outcome o = process_run(60, "%s", command);
  ck_assert_msg(o.code == 0, "%s: %s%s", command, o.out, o.err);
  return o;
}

#define PLAN(model)                                                                      \
  "return require 'weft'.plan { model = require 'weft'." model ",\n"                     \
  "data = require 'weft'.synthetic {}, train = { steps = 2 }, "                          \
  "batch = { global = 4, micro = 1, seq = 8 }, %s }\n"

/* The merged model has the tensors of the model, and nothing of how its base was stored.
 */
START_TEST(merged_models_load) {
  const char *to = arena_printf(arena, PLAN("model { %s }"), LLAMA,
                                NF4 "checkpoint = { dir = 'ck', every = 2 }");
  const char *from = arena_printf(arena, PLAN("hf 'merged'"), "");
  SafeTensors *s;
  scratch_put("to.lua", to, strlen(to));
  scratch_put("from.lua", from, strlen(from));
  expect_ok("$weft run -q to.lua");
  expect_ok("$weft ckpt merge to.lua ck merged");
  ck_assert_int_eq(
      st_open(NULL, scratch_path("merged/model.safetensors"), NULL, &s, &scratch_error),
      WEFT_OK);
  ck_assert_int_eq(st_count(s), 2 * 9 + 3);
  st_close(s);
  expect_ok("$weft run -q from.lua");
}
END_TEST

/* ---- what is wrong ---- */

static const struct {
  const char *model, *fields, *says;
} wrong[] = {
    {"'gpt2', n_layer = 1, n_embd = 64, n_head = 4, vocab_size = 64, n_positions = 8",
     NF4,
     "attn.c_attn cannot be stored in 4 bits: its weight lies as (in, out), and blocks "
     "go "
     "along the inputs"},
    {"'llama', hidden_size = 96, num_hidden_layers = 1, num_attention_heads = 4, "
     "intermediate_size = 256, vocab_size = 96",
     NF4,
     "self_attn.q_proj cannot be stored in 4 bits: blocks of 64 would go over the ends "
     "of "
     "its 96 inputs"},
    {LLAMA, NF4 "mesh = { tp = 4 }",
     "4 does not divide the blocks of a row of "
     "model.layers.0.self_attn.o_proj.weight in 4 bits = 2"},
    {LLAMA, "adapter = { 'lora', rank = 2, base = 'nf3' }", "did you mean \"nf4\"?"},
};

START_TEST(named_errors) {
  Text t = {0};
  (void)open_plan(wrong[_i].model, wrong[_i].fields);
  report_text(&job.d, false, &t);
  ck_assert_msg(t.s && strstr(t.s, wrong[_i].says), "%s", t.s ? t.s : "nothing");
  text_free(&t);
  job_free(&job);
}
END_TEST

Suite *quantized_base_suite(void);
Suite *quantized_base_suite(void) {
  Suite *s = suite_create("quantized_base");
  TCase *t = tcase_create("quantized_base");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_add_test(t, bytes_of_codes);
  tcase_add_loop_test(t, cut_from_the_whole, 0, LEN(layout));
  tcase_add_loop_test(t, agree_with_one_rank, 0, LEN(meshes) * LEN(options));
  tcase_add_test(t, merged_models_load);
  tcase_add_loop_test(t, named_errors, 0, LEN(wrong));
  suite_add_tcase(s, t);
  return s;
}
