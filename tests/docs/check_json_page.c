/* check_json_page.c - what verbs print with --json: each command of docs/json.md prints
 * what its schema says and no more, and every verb with --json is on the page. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "tests/harness/process.h"

/* ---- a schema ---- of the keywords that stdlib/json/schema.lua writes. Members that it
 * does not name are legal for a reader and wrong here. */

static const json_t *root; /* of the schemas */

static bool is_type(const json_t *v, const char *type) {
  switch (json_typeof(v)) {
  case JSON_OBJECT: return str_eq(type, "object");
  case JSON_ARRAY: return str_eq(type, "array");
  case JSON_STRING: return str_eq(type, "string");
  case JSON_INTEGER: return str_eq(type, "integer") || str_eq(type, "number");
  case JSON_REAL: return str_eq(type, "number");
  case JSON_NULL: return str_eq(type, "null");
  default: return str_eq(type, "boolean");
  }
}

/* NULL, or what is wrong with the value at this place. */
static const char *fault(const json_t *schema, json_t *v, const char *at);

static const char *fault_of_object(const json_t *schema, json_t *v, const char *at) {
  const json_t *properties = json_object_get(schema, "properties"), *one;
  const json_t *others = json_object_get(schema, "additionalProperties");
  size_t i;
  const char *name;
  json_t *value;
  json_array_foreach(
      json_object_get(schema, "required"), i,
      one) if (!json_object_get(v,
                                json_string_value(
                                    one))) return arena_printf(scratch_arena,
                                                               "%s has no %s", at,
                                                               json_string_value(one));
  if (!properties && !others) return NULL; /* any object */
  json_object_foreach(v, name, value) {
    const char *place = arena_printf(scratch_arena, "%s.%s", at, name);
    const json_t *is = json_object_get(properties, name);
    if (!is && !others) return arena_printf(scratch_arena, "%s is not in it", place);
    const char *wrong = fault(is ? is : others, value, place);
    if (wrong) return wrong;
  }
  return NULL;
}

static const char *fault_of_any(const json_t *any, json_t *v, const char *at) {
  const char *wrong = "";
  const json_t *one;
  size_t i;
  json_array_foreach(any, i, one) {
    const char *why = fault(one, v, at);
    if (!why) return NULL;
    wrong = arena_printf(scratch_arena, "%s%s; ", wrong, why);
  }
  return wrong;
}

static const char *fault(const json_t *schema, json_t *v, const char *at) {
  const json_t *any = json_object_get(schema, "anyOf"), *items;
  const json_t *is = json_object_get(schema, "const");
  const char *type = json_string_value(json_object_get(schema, "type"));
  if (any) return fault_of_any(any, v, at);
  if (is)
    return str_eq(json_string_value(is), json_string_value(v))
               ? NULL
               : arena_printf(scratch_arena, "%s is not %s", at, json_string_value(is));
  ck_assert_msg(type != NULL, "a schema without a type at %s", at);
  if (!is_type(v, type)) return arena_printf(scratch_arena, "%s is no %s", at, type);
  if (json_is_object(v)) return fault_of_object(schema, v, at);
  if (!json_is_array(v) || !(items = json_object_get(schema, "items"))) return NULL;
  size_t i;
  json_t *one;
  json_array_foreach(v, i, one) {
    const char *wrong = fault(items, one, arena_printf(scratch_arena, "%s[%zu]", at, i));
    if (wrong) return wrong;
  }
  return NULL;
}

static void read_schema(void) {
  Outcome o = process_run(20, "$weft completion schema");
  json_error_t e;
  root = json_loads(o.out, JSON_REJECT_DUPLICATES, &e);
  ck_assert_msg(o.code == 0 && root, "%d: %s%s", o.code, o.err, e.text);
}

/* The schema of "weft ckpt ls" is ckpt-ls. */
static const json_t *schema_of(const char *heading) {
  char *name = arena_strn(scratch_arena, heading, strcspn(heading, "\n")), *to = name;
  for (const char *c = name; *c; c++)
    if (*c != '-' && *c != ' ')
      *to++ = *c;
    else if (to > name && to[-1] != '-')
      *to++ = '-';
  *to = 0;
  const json_t *s = json_object_get(json_object_get(root, "$defs"), name);
  ck_assert_msg(s != NULL, "weft completion schema has no %s", name);
  return s;
}

/* The section of a heading, up to the next one. */
static const char *section_at(const char *heading) {
  const char *next = strstr(heading + 1, "\n#");
  return next ? arena_printf(scratch_arena, "%.*s", (int)(next - heading), heading)
              : heading;
}

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 2 },\n"
    "  mesh = { dp = 2 }, batch = { global = 4, seq = 16 }, train = { steps = 1 },\n"
    "  checkpoint = { dir = 'ckpt', every = 1 } }\n";

static const char wrong_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model 'llama-tiny', mesh = { tp = 3 },\n"
    "  batch = { global = 4, seq = 16 } }\n";

static const char dpo_plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = 2 },\n"
    "  batch = { global = 4, seq = 16 }, packed = { eot = 0, size = 16, alone = true },\n"
    "  data = weft.tokens 'pairs.bin',\n"
    "  loss = { 'dpo', beta = 0.5, reference_file = 'pairs.reference' } }\n";

/* The folder in which the commands run: the tree's plans, a plan with a checkpoint, and
 * one with pairs of documents. */
static void folder(void) {
  uint16_t pairs[16 * 6];
  for (int i = 0; i < LEN(pairs); i++) pairs[i] = (uint16_t)((i + 1) % 6);
  scratch_put("pairs.bin", (char *)pairs, sizeof pairs);
  scratch_put("dpo.lua", dpo_plan, strlen(dpo_plan));
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(60, "sh -c 'ln -s " WEFT_SOURCE_DIR "/plans plans && "
                              "exec $weft run plan.lua --quiet'");
  ck_assert_msg(o.code == 0, "%s", o.err);
}

START_TEST(every_verb_is_on_the_page) {
  static const struct {
    unsigned bit;
    const char *name;
  } verbs[] = {
#define VERB(ID, name, ...) {ON_##ID, #name},
#include "bindings/cli/verbs.def"
  };
#define FLAG(member, name, shorter, on) {name, on},
#define INTEGER(...)
#define NUMBER(...)
#define WORD(...)
#define OUTPUT(...)
#define CHOICE(...)
#define LIST(...)
  static const struct {
    const char *name;
    unsigned on;
  } flags[] = {
#include "bindings/cli/options.def"
  };
  const char *page = scratch_get(WEFT_SOURCE_DIR "/docs/json.md");
  int n = 0;
  for (int f = 0; f < LEN(flags); f++) {
    if (!str_eq(flags[f].name, "--json")) continue;
    for (int v = 0; v < LEN(verbs); v++) {
      if (!(flags[f].on & verbs[v].bit)) continue;
      const char *heading = arena_printf(scratch_arena, "\n## weft %s", verbs[v].name);
      ck_assert_msg(strstr(page, heading) != NULL, "docs/json.md has no%s", heading);
      n++;
    }
  }
  ck_assert_int_gt(n, 12);
}
END_TEST

START_TEST(commands_print_what_the_schema_says) {
  static const char begin[] = "\n## weft ";
  folder();
  read_schema();
  int n = 0;
  for (const char *at = scratch_get(WEFT_SOURCE_DIR "/docs/json.md");
       (at = strstr(at, begin)) != NULL; at++, n++) {
    const char *section = section_at(at), *line = strstr(section, "\n\n`weft ");
    ck_assert_msg(line != NULL, "%s: no command", section);
    const char *command =
        arena_printf(scratch_arena, "%.*s", (int)strcspn(line + 8, "`"), line + 8);
    Outcome o = process_run(100, "$weft %s --json", command);
    json_t *doc = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(doc != NULL, "%s: %s%s", command, o.out, o.err);
    const char *wrong = fault(schema_of(at + strlen(begin)), doc, command);
    ck_assert_msg(!wrong, "%s", wrong);
    json_decref(doc);
  }
  ck_assert_int_eq(n, (int)json_object_size(json_object_get(root, "$defs")));
}
END_TEST

/* What is printed of a wrong plan is that, too; and something else is not. */
START_TEST(the_schema_tells_them_apart) {
  static const char *const commands[] = {"check plan.lua --set mesh.tp=3",
                                         "check none.lua",
                                         "sweep plan.lua",
                                         "run plan.lua --set train.step=1",
                                         "run plan.lua --procs 3",
                                         "diff plan.lua wrong.lua",
                                         "diff plan.lua none.lua",
                                         "diff plan.lua",
                                         "report none.lua",
                                         "import none.yaml",
                                         "export wrong.lua --to deepspeed",
                                         "export plan.lua --to deepspeed -o plan.lua",
                                         "best plan.lua",
                                         "best wrong.lua",
                                         "best none.lua"};
  folder();
  scratch_put("wrong.lua", wrong_plan, strlen(wrong_plan));
  read_schema();
  for (int i = 0; i < LEN(commands); i++) {
    Outcome o = process_run(30, "$weft %s --json", commands[i]);
    json_t *doc = json_loads(o.out, 0, NULL);
    const char *verb = arena_strn(scratch_arena, commands[i], strcspn(commands[i], " "));
    ck_assert_msg(o.code != 0 && doc, "%s: %s", commands[i], o.err);
    const char *wrong = fault(schema_of(verb), doc, verb);
    ck_assert_msg(!wrong, "%s", wrong);
    ck_assert_ptr_nonnull(fault(schema_of("explain"), doc, verb));
    json_object_set_new(doc, "error_count", json_string("1"));
    ck_assert_ptr_nonnull(
        strstr(fault(schema_of(verb), doc, "x"), "x.error_count is no integer"));
    json_object_del(doc, "error_count");
    ck_assert_ptr_nonnull(
        strstr(fault(schema_of(verb), doc, "x"), "x has no error_count"));
    json_decref(doc);
  }
}
END_TEST

/* Objects that lack members, by the state of what they are about, or have others. */
START_TEST(other_results_are_in_the_schema) {
  static const struct {
    const char *command;
    int code;
    const char *schema; /* NULL: that of the first word */
  } ways[] = {
      {"show schedule plan.lua --set mesh={tp=2,pp=2} "
       "--set 'tp_plan={[\"layers.*.no\"]=\"rowwise\"}'",
       0, NULL},
      {"show schedule plan.lua --set strategy=fsdp2 --set schedule=1f1b", 0, NULL},
      {"show mesh plans/qwen3_30b_a3b_ep8.lua", 0, NULL},
      {"show rank 0 reduces.lua", 0, "show-rank"},
      {"show rank 0 plan.lua --set schedule=dualpipe_v --set mesh={pp=2} "
       "--set model.num_hidden_layers=4",
       0, "show-rank"},
      {"show graph plan.lua --logical", 0, "show-graph"},
      {"sim plan.lua --calibration c.lua --compare t.json", 0, NULL},
      {"diff plan.lua batch.global=8", 1, NULL},
      {"report plan.lua --gpu '{ \"h100-sxm\", memory_gib = 2.001 }'", 1, NULL},
      {"report wrong.lua", 1, NULL},
      {"report settings.json", 1, NULL},
      {"import settings.json", 1, NULL},
      {"import settings.json --model llama3-8b --world 8", 0, NULL},
      {"export plan.lua --to megatron", 0, NULL},
      {"export function.lua --to deepspeed", 1, NULL},
      {"sample plan.lua --ckpt ckpt --tokens 1,2 --max-tokens 2", 0, NULL},
      {"sample bytes.lua --ckpt bytes --prompt a --prompt b --max-tokens 2", 0, NULL},
      {"best plans/llama3_70b.lua tp=8 pp=4 micro=1 schedule=1f1b clock=1", 0, NULL},
      {"explain nothing", 2, NULL},
  };
  static const char bytes_plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'llama-tiny', vocab_size = 256 },\n"
      "  batch = { global = 1, seq = 16 }, train = { steps = 1 }, data = weft.text "
      "'text',\n"
      "  checkpoint = { dir = 'bytes', every = 1 } }\n";
  static const char settings[] =
      "{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 8,\n"
      "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001}}}\n";
  static const char function[] =
      "local p = dofile 'plan.lua'\n"
      "p.model = function(m) return m:linear(m:embedding(m:tokens(), 64, 16), 64) end\n"
      "return p\n";
  static const char reduces[] =
      "local weft = require 'weft'\n"
      "local function order(s)\n"
      "  for i = 0, s.microbatches - 1 do s:F(0, i) s:B(0, i) end\n"
      "  s:reduce_grad(0)\n"
      "end\n"
      "return weft.plan { model = weft.model 'llama-tiny', mesh = { dp = 2 },\n"
      "  batch = { global = 4, seq = 16 }, schedule = order }\n";
  static const char machine[] =
      "machine { device = 'cpu', way = 'w', name = 'm', version = '0', date = 'd',\n"
      "  threads = 1, cores = 2, f32 = 1e9, bf16 = 1e9, bandwidth = 1e9 }\n";
  folder();
  scratch_put("reduces.lua", reduces, strlen(reduces));
  scratch_put("c.lua", machine, strlen(machine));
  scratch_put("wrong.lua", wrong_plan, strlen(wrong_plan));
  scratch_put("settings.json", settings, strlen(settings));
  scratch_put("function.lua", function, strlen(function));
  scratch_put("bytes.lua", bytes_plan, strlen(bytes_plan));
  scratch_put("text", "some text to read, longer than sixteen tokens\n", 46);
  Outcome o = process_run(60, "$weft run bytes.lua --quiet");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft run plan.lua --quiet --steps 3 --threads 1 --trace t.json "
                      "--set checkpoint.dir=traced");
  ck_assert_msg(o.code == 0, "%s", o.err);
  read_schema();
  for (int i = 0; i < LEN(ways); i++) {
    o = process_run(100, "$weft %s --json", ways[i].command);
    json_t *doc = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(doc && o.code == ways[i].code, "%s: %d %s%s", ways[i].command, o.code,
                  o.out, o.err);
    const char *verb =
        arena_strn(scratch_arena, ways[i].command, strcspn(ways[i].command, " "));
    const json_t *schema = schema_of(ways[i].schema ? ways[i].schema : verb);
    const char *wrong = fault(schema, doc, ways[i].command);
    ck_assert_msg(!wrong, "%s", wrong);
    json_decref(doc);
  }
}
END_TEST

/* Tables of the page are made of the rows that the schema is made of. */
START_TEST(the_page_shows_the_rows) {
  Outcome o = process_run(30, "sh -c 'cd " WEFT_SOURCE_DIR
                              " && $weft lua tests/docs/json_tables.lua check'");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
}
END_TEST

Suite *json_page_suite(void) {
  Suite *s = suite_create("json_page");
  TCase *t = tcase_create("page");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 200);
  tcase_add_test(t, every_verb_is_on_the_page);
  tcase_add_test(t, commands_print_what_the_schema_says);
  tcase_add_test(t, the_schema_tells_them_apart);
  tcase_add_test(t, other_results_are_in_the_schema);
  tcase_add_test(t, the_page_shows_the_rows);
  suite_add_tcase(s, t);
  return s;
}
