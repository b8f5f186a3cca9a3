/* adapter_patterns.c - see adapter_patterns.h. PEFT's keys are regular expressions, of
 * which the first that fits the end of a module's name counts; a plan's patterns are
 * not. One thing may be said in many ways, so both are asked about each module that has
 * an adapter, and what they answer is compared. */
#include "adapter_patterns.h"

#include "adapter_files.h"
#include "module_names.h"
#include "vm/rewrite/adapter_targets.h"
#include "vm/text/regex.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

/* One object of the config. */
typedef struct Keys {
  const char *called;
  double otherwise; /* of modules that no key fits */
  void **regex;     /* of each key, in the order of the file */
  double *number;
  int n;
} Keys;

typedef struct Reader {
  const char *file;
  const Adapter *of;
  const RegexApi *api; /* NULL: the config has no keys */
  Arena *arena;
  Keys rank, alpha;
} Reader;

/* ---- the keys ---- */

/* Adds a key as the expression that PEFT makes of it. */
static weft_status add_key(Reader *r, Keys *k, const char *key, const json_t *v,
                           weft_error *e) {
  char why[128] = "";
  if (!json_is_number(v))
    FAIL(r->file, "\"%s\" of \"%s\" is not a number", key, k->called);
  if (!r->api) TRY(regex_api(&r->api, e));
  k->regex[k->n] =
      r->api->compile(arena_printf(r->arena, "\\A(?:.*\\.)?(?:%s)\\z", key), why);
  if (!k->regex[k->n])
    FAIL(r->file, "\"%s\" of \"%s\" is no regular expression: %s", key, k->called, why);
  k->number[k->n++] = json_number_value(v);
  return WEFT_OK;
}

static weft_status read_keys(Reader *r, const json_t *config, const char *called,
                             double otherwise, Keys *k, weft_error *e) {
  const json_t *v = json_object_get(config, called);
  const char *key;
  json_t *number;
  if (v && !json_is_object(v) && !json_is_null(v))
    FAIL(r->file, "\"%s\" is not an object", called);
  size_t n = json_object_size(v);
  *k = (Keys){.called = called,
              .otherwise = otherwise,
              .regex = NEW_N(r->arena, void *, n + 1),
              .number = NEW_N(r->arena, double, n + 1)};
  json_object_foreach((json_t *)v, key, number) TRY(add_key(r, k, key, number, e));
  return WEFT_OK;
}

static void release(const Reader *r, const Keys *k) {
  for (int i = 0; i < k->n; i++) r->api->release(k->regex[i]);
}

/* What the config says of a module. */
static weft_status ask(const Reader *r, const Keys *k, const char *module, double *out,
                       weft_error *e) {
  *out = k->otherwise;
  for (int i = 0; i < k->n; i++) {
    size_t begin, end;
    int found = r->api->search(k->regex[i], module, strlen(module), 0, &begin, &end);
    if (found < 0)
      FAIL(r->file, "a key of \"%s\" takes too long for %s", k->called, module);
    if (!found) continue;
    *out = k->number[i];
    break;
  }
  return WEFT_OK;
}

/* ---- the modules ---- */

/* `module` as the folder calls it. */
static weft_status compare(const Reader *r, const char *module, weft_error *e) {
  char own[512];
  module_to_files(&r->of->modules, module, own);
  AdapterTarget want = adapter_target_of(r->of, own);
  double rank, alpha;
  TRY(ask(r, &r->rank, module, &rank, e));
  TRY(ask(r, &r->alpha, module, &alpha, e));
  if (rank != (double)want.rank)
    FAIL(r->file, "\"r\" and \"rank_pattern\" give %s rank %g, the plan's adapter %lld",
         module, rank, (long long)want.rank);
  if (alpha != want.alpha)
    FAIL(r->file,
         "\"lora_alpha\" and \"alpha_pattern\" give %s alpha %g, the plan's adapter %g",
         module, alpha, want.alpha);
  return WEFT_OK;
}

/* The weights of experts are called by their module and, in patterns alone, by the last
 * word of a pattern. */
static weft_status compare_experts(const Reader *r, const char *module, weft_error *e) {
  for (int i = 0; i < r->of->experts.n; i++) {
    const char *pattern = r->of->experts.at[i], *dot = strrchr(pattern, '.');
    const char *name = arena_printf(r->arena, "%s.%s", module, dot ? dot + 1 : pattern);
    if (adapter_names_module(pattern, name)) TRY(compare(r, name, e));
  }
  return WEFT_OK;
}

static bool cut_end(char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  if (n < m || strcmp(s + n - m, end) != 0) return false;
  s[n - m] = 0;
  return true;
}

/* The module of a tensor `A` of an adapter, or nothing. */
static weft_status compare_tensor(const Reader *r, const char *tensor, weft_error *e) {
  size_t before = strlen(ADAPTER_PREFIX);
  if (strncmp(tensor, ADAPTER_PREFIX, before) != 0) return WEFT_OK;
  char *module = arena_strn(r->arena, tensor + before, strlen(tensor + before));
  if (!cut_end(module, adapter_suffix(ADAPTER_A))) return WEFT_OK;
  while (cut_end(module, ".base_layer")) continue;
  const char *dot = strrchr(module, '.');
  return dot && str_eq(dot, ".experts") ? compare_experts(r, module, e)
                                        : compare(r, module, e);
}

static double number_of(const json_t *config, const char *key) {
  return json_number_value(json_object_get(config, key));
}

static weft_status compare_all(Reader *r, const json_t *config, const SafeTensors *s,
                               weft_error *e) {
  TRY(read_keys(r, config, "rank_pattern", number_of(config, "r"), &r->rank, e));
  TRY(read_keys(r, config, "alpha_pattern", number_of(config, "lora_alpha"), &r->alpha,
                e));
  for (int i = 0; i < st_count(s); i++) TRY(compare_tensor(r, st_at(s, i)->name, e));
  return WEFT_OK;
}

weft_status adapter_patterns(const weft_alloc *a, const char *file, const json_t *config,
                             const Adapter *of, const SafeTensors *s, weft_error *e) {
  Reader r = {.file = file, .of = of, .arena = arena_new(a)};
  weft_status st = r.arena && !setjmp(*arena_guard(r.arena))
                       ? compare_all(&r, config, s, e)
                       : err_set(e, WEFT_ENOMEM, "out of memory");
  release(&r, &r.rank);
  release(&r, &r.alpha);
  arena_free(r.arena);
  return st;
}
