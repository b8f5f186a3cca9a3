/* adapter_settings.c - see adapter_settings.h. Of adapter_config.json every key is known:
 * those that say what the plan says, too, those that say nothing about numbers, and those
 * of which one value is what weft does. A key of a later PEFT with another value than
 * none, false or empty is an error, since it may change the numbers. */
#include "adapter_settings.h"

#include "adapter_patterns.h"
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

/* What has a comparison of its own. */
static const char *const compared[] = {"r",
                                       "lora_alpha",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "target_parameters",
                                       "modules_to_save"};

/* None, false or empty: a setting that is not used. */
static bool is_off(const json_t *v) {
  return json_is_null(v) || json_is_false(v) ||
         (json_is_array(v) && !json_array_size(v)) ||
         (json_is_object(v) && !json_object_size(v));
}

/* Where the folder or the plan has numbers of some modules, adapter_patterns compares
 * those of each. */
static weft_status check_number(const char *file, const json_t *config, const char *key,
                                const char *pattern, const char *field, double want,
                                weft_error *e) {
  const json_t *v = json_object_get(config, key);
  if (!v) FAIL(file, "has no \"%s\"", key);
  if (!json_is_number(v)) FAIL(file, "\"%s\" is not a number", key);
  bool of_each = !pattern || json_object_size(json_object_get(config, pattern));
  if (json_number_value(v) != want && !of_each)
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
  if (str_eq(key, "peft_type")) return check_text(file, key, v, "LORA", e);
  if (str_eq(key, "bias")) return check_text(file, key, v, "none", e);
  if (str_eq(key, "use_rslora")) return check_flag(file, key, v, "rslora", a->rslora, e);
  if (str_eq(key, "use_dora")) return check_flag(file, key, v, "dora", a->dora, e);
  if (str_eq(key, "init_lora_weights")) return check_init(file, key, v, e);
  if (str_index(key, compared, LEN(compared)) >= 0 ||
      str_index(key, passed, LEN(passed)) >= 0 || is_off(v))
    return WEFT_OK;
  FAIL(file, "\"%s\" is set, which weft does not have", key);
}

static weft_status check_config(const char *file, const json_t *config, const Adapter *a,
                                weft_error *e) {
  double alpha = a->alpha > 0 ? a->alpha : (double)a->rank;
  const char *key;
  json_t *value;
  if (!json_is_object(config)) FAIL(file, "is not an object");
  if (!json_object_get(config, "peft_type")) FAIL(file, "has no \"peft_type\"");
  TRY(check_number(file, config, "r", a->ranks.n ? NULL : "rank_pattern", "rank",
                   (double)a->rank, e));
  TRY(check_number(file, config, "lora_alpha", a->alphas.n ? NULL : "alpha_pattern",
                   "alpha", alpha, e));
  json_object_foreach((json_t *)config, key, value)
      TRY(check_key(file, key, value, a, e));
  TRY(check_names(file, config, "target_parameters", a->experts, e));
  TRY(check_names(file, config, "modules_to_save", a->saved, e));
  /* what PEFT leaves out is off */
  if (a->dora && !json_object_get(config, "use_dora"))
    FAIL(file, "has no \"use_dora\", the plan's adapter.dora is true");
  if (a->rslora && !json_object_get(config, "use_rslora"))
    FAIL(file, "has no \"use_rslora\", the plan's adapter.rslora is true");
  return WEFT_OK;
}

weft_status adapter_settings(const weft_alloc *a, const char *file, const Adapter *of,
                             const SafeTensors *s, weft_error *e) {
  char *text;
  size_t bytes;
  TRY(file_read(a, file, CONFIG_MAX, &text, &bytes, e));
  json_t *config = bytes ? json_text(file, "", text, bytes, e) : NULL;
  mem_free(a, text, bytes + 1);
  if (!bytes) FAIL(file, "is empty");
  if (!config) return WEFT_EFILE;
  weft_status st = check_config(file, config, of, e);
  if (st == WEFT_OK) st = adapter_patterns(a, file, config, of, s, e);
  json_decref(config);
  return st;
}
