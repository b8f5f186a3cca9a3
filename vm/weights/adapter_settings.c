/* adapter_settings.c - see adapter_settings.h. Of adapter_config.json every key is known:
 * those that say what the plan says, too, those that say nothing about numbers, and those
 * of which one value is what weft does. A key of a later PEFT with another value than
 * none, false or empty is an error, since it may change the numbers. */
#include "adapter_settings.h"

#include <math.h>

#include "vm/io/file.h"
#include "vm/io/json_text.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

enum { CONFIG_MAX = 16 << 20 };

/* Of no consequence for the numbers of a run: names, or what tensors show, or how
 * training began, or (dropout) what the plan says anew. */
static const char *const passed[] = {
    "auto_mapping",        "base_model_name_or_path", "revision",
    "task_type",           "inference_mode",          "peft_version",
    "target_modules",      "exclude_modules",         "fan_in_fan_out",
    "layers_to_transform", "layers_pattern",          "megatron_config",
    "megatron_core",       "qalora_group_size",       "lora_dropout",
    "ensure_weight_tying", "runtime_config",
};

static bool is_passed(const char *key) {
  for (int i = 0; i < LEN(passed); i++)
    if (str_eq(key, passed[i])) return true;
  return false;
}

/* None, false or empty: a setting that is not used. */
static bool is_off(const json_t *v) {
  return json_is_null(v) || json_is_false(v) ||
         (json_is_array(v) && !json_array_size(v)) ||
         (json_is_object(v) && !json_object_size(v));
}

static weft_status check_number(const char *file, const char *key, const json_t *v,
                                const char *field, double want, weft_error *e) {
  if (!json_is_number(v)) FAIL(file, "\"%s\" is not a number", key);
  if (json_number_value(v) != want)
    FAIL(file, "\"%s\" is %g, the plan's adapter.%s %g", key, json_number_value(v), field,
         want);
  return WEFT_OK;
}

static weft_status check_flag(const char *file, const char *key, const json_t *v,
                              const char *field, bool want, weft_error *e) {
  if (!json_is_boolean(v)) FAIL(file, "\"%s\" is neither true nor false", key);
  if (json_is_true(v) != want)
    FAIL(file, "\"%s\" is %s, the plan's adapter.%s %s", key, want ? "false" : "true",
         field, want ? "true" : "false");
  return WEFT_OK;
}

static weft_status check_text(const char *file, const char *key, const json_t *v,
                              const char *want, weft_error *e) {
  const char *s = json_string_value(v);
  if (!s || !str_eq(s, want))
    FAIL(file, "\"%s\" is %s, weft reads \"%s\" alone", key, s ? s : "not a text", want);
  return WEFT_OK;
}

/* Ways to begin that leave the base as it is. */
static weft_status check_init(const char *file, const char *key, const json_t *v,
                              weft_error *e) {
  const char *s = json_string_value(v);
  if (json_is_boolean(v) || (s && (str_eq(s, "gaussian") || str_eq(s, "orthogonal"))))
    return WEFT_OK;
  FAIL(file, "\"%s\" is %s: it may be of a base that was changed with it", key,
       s ? s : "no known value");
}

/* ---- patterns ---- */

/* What may be before the name of a module without meaning more. */
static const char *const before[] = {"^", ".*\\.", "(.*\\.)?", "model.", "transformer."};
/* Parts of regular expressions, and what a pattern of the plan has there. */
static const char *const part[][2] = {
    {"\\.", "."}, {"\\d+", "*"}, {"[0-9]+", "*"}, {"$", ""}};

/* A key as the plan would have it: "model\.layers\.\d+\.mlp" -> "layers.*.mlp". Others
 * stay as they are, and so are none of the plan's. */
static const char *as_pattern(Arena *a, const char *key) {
  char *name = arena_alloc(a, strlen(key) + 1), *to = name; /* no part becomes longer */
  for (const char *s = key; *s;) {
    int k = 0;
    while (k < LEN(part) && strncmp(s, part[k][0], strlen(part[k][0])) != 0) k++;
    if (k == LEN(part)) {
      *to++ = *s++;
      continue;
    }
    memcpy(to, part[k][1], strlen(part[k][1]));
    to += strlen(part[k][1]), s += strlen(part[k][0]);
  }
  return name;
}

static const char *without_before(const char *s) {
  for (int i = 0; i < LEN(before); i++) {
    size_t n = strlen(before[i]);
    if (strncmp(s, before[i], n) == 0) s += n;
  }
  return s;
}

static bool same_pattern(Arena *a, const char *key, const char *pattern) {
  const char *x = as_pattern(a, without_before(key));
  return str_eq(without_before(x), without_before(pattern));
}

static weft_status compare_patterns(Arena *a, const char *file, const char *key,
                                    const json_t *v, PatternNumbers want, weft_error *e) {
  bool *found = NEW_N(a, bool, want.n + 1);
  const char *name;
  json_t *number;
  json_object_foreach((json_t *)v, name, number) {
    int i = 0;
    while (i < want.n && !same_pattern(a, name, want.at[i].pattern)) i++;
    if (!json_is_number(number))
      FAIL(file, "\"%s\" of \"%s\" is not a number", name, key);
    double n = json_number_value(number);
    if (i == want.n)
      FAIL(file, "\"%s\" has \"%s\": %g, the plan's adapter.%s has no such pattern", key,
           name, n, key);
    if (want.at[i].number != n)
      FAIL(file, "\"%s\" of \"%s\" is %g, the plan's adapter.%s %g", name, key, n, key,
           want.at[i].number);
    found[i] = true;
  }
  for (int i = 0; i < want.n; i++)
    if (!found[i])
      FAIL(file, "\"%s\" has no \"%s\", the plan's adapter.%s %g", key,
           want.at[i].pattern, key, want.at[i].number);
  return WEFT_OK;
}

/* Both name modules by patterns, and say a number of each. */
static weft_status check_patterns(const char *file, const char *key, const json_t *v,
                                  PatternNumbers want, weft_error *e) {
  if (!json_is_object(v) && !json_is_null(v)) FAIL(file, "\"%s\" is not an object", key);
  Arena *a = arena_new(NULL);
  weft_status st = a && !setjmp(*arena_guard(a))
                       ? compare_patterns(a, file, key, v, want, e)
                       : err_set(e, WEFT_ENOMEM, "out of memory");
  arena_free(a);
  return st;
}

/* Names that the plan gives as patterns: which modules they are the tensors tell. */
static weft_status check_names(const char *file, const json_t *config, const char *key,
                               Patterns want, weft_error *e) {
  const json_t *v = json_object_get(config, key);
  bool on = v && !is_off(v);
  if (on && !want.n) FAIL(file, "\"%s\" is set, the plan's adapter.%s is not", key, key);
  if (!on && want.n) FAIL(file, "\"%s\" is not set, the plan's adapter.%s is", key, key);
  return WEFT_OK;
}

/* ---- the file ---- */

static weft_status check_key(const char *file, const char *key, const json_t *v,
                             const Adapter *a, weft_error *e) {
  double alpha = a->alpha > 0 ? a->alpha : (double)a->rank;
  if (str_eq(key, "peft_type")) return check_text(file, key, v, "LORA", e);
  if (str_eq(key, "bias")) return check_text(file, key, v, "none", e);
  if (str_eq(key, "r")) return check_number(file, key, v, "rank", (double)a->rank, e);
  if (str_eq(key, "lora_alpha")) return check_number(file, key, v, "alpha", alpha, e);
  if (str_eq(key, "use_rslora")) return check_flag(file, key, v, "rslora", a->rslora, e);
  if (str_eq(key, "use_dora")) return check_flag(file, key, v, "dora", a->dora, e);
  if (str_eq(key, "init_lora_weights")) return check_init(file, key, v, e);
  if (str_eq(key, "rank_pattern")) return check_patterns(file, key, v, a->ranks, e);
  if (str_eq(key, "alpha_pattern")) return check_patterns(file, key, v, a->alphas, e);
  if (str_eq(key, "target_parameters") || str_eq(key, "modules_to_save")) return WEFT_OK;
  if (is_passed(key) || is_off(v)) return WEFT_OK;
  FAIL(file, "\"%s\" is set, which weft does not have", key);
}

static weft_status check_config(const char *file, const json_t *config, const Adapter *a,
                                weft_error *e) {
  static const char *const needed[] = {"peft_type", "r", "lora_alpha"};
  const char *key;
  json_t *value;
  if (!json_is_object(config)) FAIL(file, "is not an object");
  for (int i = 0; i < LEN(needed); i++)
    if (!json_object_get(config, needed[i])) FAIL(file, "has no \"%s\"", needed[i]);
  json_object_foreach((json_t *)config, key, value)
      TRY(check_key(file, key, value, a, e));
  TRY(check_names(file, config, "target_parameters", a->experts, e));
  TRY(check_names(file, config, "modules_to_save", a->saved, e));
  /* what PEFT leaves out is off */
  if (a->ranks.n && !json_object_get(config, "rank_pattern"))
    FAIL(file, "has no \"rank_pattern\", the plan's adapter.rank_pattern is set");
  if (a->alphas.n && !json_object_get(config, "alpha_pattern"))
    FAIL(file, "has no \"alpha_pattern\", the plan's adapter.alpha_pattern is set");
  if (a->dora && !json_object_get(config, "use_dora"))
    FAIL(file, "has no \"use_dora\", the plan's adapter.dora is true");
  if (a->rslora && !json_object_get(config, "use_rslora"))
    FAIL(file, "has no \"use_rslora\", the plan's adapter.rslora is true");
  return WEFT_OK;
}

weft_status adapter_settings(const weft_alloc *a, const char *file, const Adapter *of,
                             weft_error *e) {
  char *text;
  size_t bytes;
  TRY(file_read(a, file, CONFIG_MAX, &text, &bytes, e));
  json_t *config = bytes ? json_text(file, "", text, bytes, e) : NULL;
  mem_free(a, text, bytes + 1);
  if (!bytes) FAIL(file, "is empty");
  if (!config) return WEFT_EFILE;
  weft_status st = check_config(file, config, of, e);
  json_decref(config);
  return st;
}
