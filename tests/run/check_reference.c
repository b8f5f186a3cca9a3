/* check_reference.c - losses of a reference that are computed ahead: as those of a frozen
 * copy, from any mesh and on any mesh; of another model, of other data, or damaged:
 * refused. */
#include <check.h>
#include <math.h>
#include <unistd.h>

#include "tests/harness/process.h"
#include "tests/harness/run_log.h"
#include "vm/base/rng.h"
#include "vm/base/sha256.h"

enum { STEPS = 5, ROWS = 64 };

/* Documents of 4 to 14 ids, each of which ends with 0. */
static void put_pairs(const char *name, uint64_t seed, int documents) {
  uint16_t id[15 * ROWS];
  Rng rng = rng_make(seed, "pairs");
  uint64_t at = 0;
  int n = 0;
  for (int i = 0; i < documents; i++) {
    for (int k = 4 + (int)(rng_u32(&rng, at++) % 11); k > 0; k--)
      id[n++] = (uint16_t)(1 + rng_u32(&rng, at++) % 89);
    id[n++] = 0;
  }
  scratch_put(name, (char *)id, (size_t)n * sizeof *id);
}

#define PLAN                                                                             \
  "local weft = require 'weft'\n"                                                        \
  "return weft.plan { model = weft.model { 'llama', num_hidden_layers = 4,\n"            \
  "    hidden_size = 16, num_attention_heads = 4, num_key_value_heads = 2,\n"            \
  "    intermediate_size = 24, vocab_size = 96, initializer_range = 0.3 },\n"            \
  "  batch = { global = 8, micro = 2, seq = 16 },\n"                                     \
  "  packed = { eot = 0, size = 16, alone = true },\n"                                   \
  "  optimizer = weft.adamw { lr = 1e-2 },\n"                                            \
  "  train = { steps = 5, seed = 3, eval_every = 5 },\n"                                 \
  "  data = weft.tokens { 'pairs.bin', val = weft.tokens { 'val.bin' } },\n"             \
  "  loss = { 'dpo', beta = 0.5, %s } }\n"

static void put_plan(const char *name, const char *loss) {
  const char *text = arena_printf(scratch_arena, PLAN, loss);
  scratch_put(name, text, strlen(text));
}

static void setup(void) {
  scratch_setup();
  put_pairs("pairs.bin", 1, 50); /* the last step of the file is not full */
  put_pairs("val.bin", 2, 16);
  put_plan("copy.lua", "reference = 'copy'");
  put_plan("plan.lua", "reference_file = 'pairs.reference'");
}

static Outcome ends_with(int code, const char *command) {
  Outcome o = process_run(60, "%s", command);
  ck_assert_msg(o.code == code, "%s: %d\n%s%s", command, o.code, o.out, o.err);
  return o;
}

static const char *with(const char *verb, const char *more) {
  return arena_printf(scratch_arena, "$weft %s plan.lua %s", verb, more);
}

/* ---- as a frozen copy ---- */

static const char *const meshes[] = {
    "",
    "--set mesh={dp=2,tp=2}",
    "--set mesh={pp=2} --set schedule=zbv",
    "--set mesh={cp=2,pp=2} --set recompute=full",
    "--set mesh={cp=2,tp=2,dp=2} --set strategy=fsdp2",
    "--set adapter='{\"lora\",rank=2,dropout=0.5}' --set mesh={dp=2}",
};

static void losses(const char *plan, const char *log, const char *more,
                   double out[STEPS + 1]) {
  json_t *step[STEPS];
  ck_assert_int_eq(run_logged(plan, log, more, step, STEPS), STEPS);
  for (int i = 0; i < STEPS; i++)
    out[i] = json_real_value(json_object_get(step[i], "loss"));
  out[STEPS] = json_real_value(json_object_get(step[STEPS - 1], "eval_loss"));
  for (int i = 0; i < STEPS; i++) json_decref(step[i]);
}

START_TEST(as_a_frozen_copy) {
  const char *mesh = meshes[_i];
  double copy[STEPS + 1], file[STEPS + 1];
  losses("copy.lua", "copy", mesh, copy);
  Outcome o =
      ends_with(0, with("eval", arena_printf(scratch_arena, "--reference %s", mesh)));
  ck_assert_msg(strstr(o.out, "pairs.reference: 50 sequences, mean loss ") &&
                    strstr(o.out, "; 16 for validation, "),
                "%s", o.out);
  losses("plan.lua", "file", mesh, file);
  for (int i = 0; i <= STEPS; i++)
    ck_assert_msg(fabs(copy[i] - file[i]) <= 2e-5 * copy[i], "%d: %.9g, %.9g", i, copy[i],
                  file[i]);
  ck_assert_double_eq_tol(file[0], log(2), 1e-6);
  ck_assert_double_gt(fabs(file[STEPS] - log(2)), 1e-3);
}
END_TEST

/* Numbers from one mesh serve any other. */
START_TEST(from_another_mesh) {
  double one[STEPS + 1], many[STEPS + 1];
  ends_with(0, with("eval", "--reference --set mesh={tp=2,cp=2,pp=2}"));
  losses("plan.lua", "one", "", one);
  losses("plan.lua", "many", "--set mesh={dp=2} --set strategy=fsdp2", many);
  for (int i = 0; i <= STEPS; i++)
    ck_assert_double_eq_tol(one[i], many[i], 2e-5 * one[i]);
}
END_TEST

/* A function reads them by this name, one for each sequence. */
START_TEST(in_a_function) {
  const char *plan = strstr(arena_printf(scratch_arena, PLAN, ""), "local");
  const char *loss_at = strstr(plan, "  loss = ");
  plan = arena_printf(
      scratch_arena,
      "%.*s  loss = { function(g, x, o)\n"
      "    local own = g:row_sums(g:token_losses(x.logits, x.labels))\n"
      "    return g:sum_all(g:add(own, g:scale(x.reference_losses, { scale = -1 })))\n"
      "  end, per = 'sequences', reference_file = 'pairs.reference' } }\n",
      (int)(loss_at - plan), plan);
  double loss[STEPS + 1];
  ends_with(0, with("eval", "--reference"));
  scratch_put("own.lua", plan, strlen(plan));
  losses("own.lua", "own", "", loss);
  ck_assert_double_eq_tol(loss[0], 0, 1e-5);
  ck_assert_double_lt(loss[STEPS - 1], -0.1);
}
END_TEST

/* ---- what is refused ---- */

static void flip(const char *name, long at) {
  FILE *f = fopen(scratch_path(name), "r+b");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
  int c = fgetc(f);
  ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
  ck_assert_int_eq(fputc(c ^ 4, f), c ^ 4);
  fclose(f);
}

static void other_tokens(void) { flip("pairs.bin", 4); }
static void other_head(void) { flip("pairs.reference", 17); }
static void other_number(void) { flip("pairs.reference", 64 + 8 * 20 + 1); }

/* A header of more sequences than any file has, with the checksum that it says: the last
 * eight bytes of 64. */
static void far_too_many(void) {
  unsigned char head[64];
  uint8_t all[SHA256_BYTES];
  int64_t n = INT64_MAX / 64 + 1;
  Sha256 s;
  FILE *f = fopen(scratch_path("pairs.reference"), "rb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fread(head, 1, sizeof head, f), sizeof head);
  fclose(f);
  memcpy(head + 32, &n, sizeof n);
  sha256_begin(&s);
  sha256_add(&s, head, 56);
  sha256_end(&s, all);
  memcpy(head + 56, all, 8);
  scratch_put("pairs.reference", (char *)head, sizeof head);
}

static void no_file(void) { unlink(scratch_path("pairs.reference")); }
static void more_pairs(void) { put_pairs("pairs.bin", 1, 52); }
static void more_val(void) { put_pairs("val.bin", 2, 18); }
static void no_losses(void) { scratch_put("pairs.reference", PLAN, sizeof PLAN); }
static void cut(void) {
  ck_assert_int_eq(truncate(scratch_path("pairs.reference"), 100), 0);
}
static void nothing(void) {}

static const struct {
  void (*change)(void);
  const char *more, *says;
} refused[] = {
    {no_file, "", "is not there; weft eval PLAN --reference writes it"},
    {nothing, "--set train.seed=4", "of another model than the one that the plan begins"},
    {nothing, "--set model.rope_theta=5e5",
     "of another model than the one that the plan"},
    {nothing, "--set batch.seq=32 --set packed.size=32", "is of sequences of 16 tokens"},
    {other_tokens, "", "sequence 0 is of other tokens, or damaged; make it again"},
    {other_number, "", "sequence 20 is of other tokens, or damaged; make it again"},
    {other_head, "", "its header does not have the checksum that it says"},
    {more_pairs, "", "of 50 sequences for training, and the data have 52; make it again"},
    {more_val, "", "of 16 sequences for validation, and the data have 18; make it again"},
    {no_losses, "", "does not begin with WEFTREFL"},
    {far_too_many, "", "says 144115188075855872 sequences"},
    {cut, "", "has 100 bytes; losses of 66 sequences have 592; make it again"},
};

START_TEST(refuses_what_does_not_belong) {
  ends_with(0, with("eval", "--reference"));
  refused[_i].change();
  Outcome o = process_run(60, "$weft run plan.lua -q %s", refused[_i].more);
  ck_assert_msg(o.code != 0 && strstr(o.err, refused[_i].says) &&
                    strstr(o.err, "pairs.reference"),
                "%d: %s", o.code, o.err);
}
END_TEST

/* An adapter's alpha is its rank where none is given, and patterns are part of what it
 * is: neither words that come to the same nor words that do not are taken for the other.
 */
START_TEST(adapters_by_what_they_add) {
  static const char hf[] =
      "local weft = require 'weft'\n"
      "local more = weft.var('from', true) and { from = 'of' } or {}\n"
      "if weft.var('alpha', 0) > 0 then more.alpha = weft.var('alpha', 0) end\n"
      "if weft.var('pattern', false) then more.alpha_pattern = { q_proj = 6 } end\n"
      "local adapter = { 'lora', rank = 2 }\n"
      "for k, v in pairs(more) do adapter[k] = v end\n"
      "return weft.plan { model = weft.hf 'base', adapter = adapter,\n"
      "  batch = { global = 8, micro = 2, seq = 16 },\n"
      "  packed = { eot = 0, size = 16, alone = true },\n"
      "  train = { steps = 1 }, data = weft.tokens { 'pairs.bin' },\n"
      "  loss = weft.var('from', true) and { 'dpo', reference_file = 'r' } or nil }\n";
  scratch_put("hf.lua", hf, sizeof hf - 1);
  ends_with(0, "$weft run copy.lua --set loss=cross_entropy --steps 1 -q --export base");
  ends_with(0, "$weft run hf.lua -D from=false -q --export of");
  ends_with(0, "$weft eval hf.lua --reference");
  ends_with(0, "$weft run hf.lua -q");
  ends_with(0, "$weft run hf.lua -q -D alpha=2");
  const char *path = scratch_path("of/adapter_config.json");
  const char *text = scratch_get(path), *at = strstr(text, "\"alpha_pattern\": {}");
  ck_assert_msg(at, "%s", text);
  text = arena_printf(scratch_arena, "%.*s\"alpha_pattern\": {\"q_proj\": 6}%s",
                      (int)(at - text), text, strchr(at, '}') + 1);
  scratch_put("of/adapter_config.json", text, strlen(text));
  Outcome o = process_run(60, "$weft run hf.lua -q -D pattern=true");
  ck_assert_msg(o.code != 0 && strstr(o.err, "of another model"), "%d: %s", o.code,
                o.err);
}
END_TEST

static const struct {
  const char *command, *says;
} unwritten[] = {
    {"$weft eval copy.lua --reference", "the plan names none"},
    {"$weft eval plan.lua --reference --batches 1",
     "leave out --ckpt, --weights and --batches"},
    {"$weft eval plan.lua --reference --set loss.reference_file=../x",
     "below the plan's folder"},
    {"sh -c \"sed 's/weft.tokens.*/weft.synthetic { val = weft.synthetic {} },/' "
     "plan.lua "
     ">p.lua; $weft eval p.lua --reference\"",
     "made up"},
    {"$weft check plan.lua --set loss.reference=copy", "the plan says reference too"},
    {"$weft check plan.lua --set data.weights={1,1} --set "
     "data.files={'pairs.bin','val.bin'}",
     "blend"},
};

START_TEST(writes_nothing_then) {
  Outcome o = process_run(60, "%s", unwritten[_i].command);
  ck_assert_msg(o.code != 0 && strstr(o.err, unwritten[_i].says), "%d: %s", o.code,
                o.err);
  ck_assert_str_eq(scratch_get(scratch_path("pairs.reference")), "");
}
END_TEST

Suite *reference_suite(void);
Suite *reference_suite(void) {
  Suite *s = suite_create("reference");
  TCase *t = tcase_create("reference");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, as_a_frozen_copy, 0, LEN(meshes));
  tcase_add_test(t, from_another_mesh);
  tcase_add_test(t, in_a_function);
  tcase_add_loop_test(t, refuses_what_does_not_belong, 0, LEN(refused));
  tcase_add_test(t, adapters_by_what_they_add);
  tcase_add_loop_test(t, writes_nothing_then, 0, LEN(unwritten));
  suite_add_tcase(s, t);
  return s;
}
