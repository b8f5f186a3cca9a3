/* weights_open.c - see weights_open.h. Of adapter_config.json every key is known: those
 * that say what the plan says, too, those that say nothing about numbers, and those of
 * which one value is what weft does. A key of a later PEFT with another value than none,
 * false or empty is an error, since it may change the numbers. */
#include "weights_open.h"

#include <math.h>

#include "adapter_files.h"
#include "vm/graph/second_model.h"

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
  /* what PEFT leaves out is off */
  if (a->dora && !json_object_get(config, "use_dora"))
    FAIL(file, "has no \"use_dora\", the plan's adapter.dora is true");
  if (a->rslora && !json_object_get(config, "use_rslora"))
    FAIL(file, "has no \"use_rslora\", the plan's adapter.rslora is true");
  return WEFT_OK;
}

static weft_status read_config(const weft_alloc *a, const char *file, const Adapter *of,
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

static weft_status add_adapter(const weft_alloc *a, SafeTensors *to, const Adapter *of,
                               const Folders *in, Arena *scratch, weft_error *e) {
  if (setjmp(*arena_guard(scratch))) return err_set(e, WEFT_ENOMEM, "out of memory");
  const char *folder = folders_find(in, scratch, of->from);
  const char *config = arena_printf(scratch, "%s/" ADAPTER_CONFIG, folder);
  const char *weights = arena_printf(scratch, "%s/" ADAPTER_WEIGHTS, folder);
  TRY(folders_hold(in, config, e));
  TRY(folders_hold(in, weights, e));
  TRY(read_config(a, config, of, e));
  return st_also(to, weights, e);
}

static weft_status open_teacher(const weft_alloc *a, const char *teacher,
                                const Folders *in, Arena *scratch, SafeTensors **out,
                                weft_error *e) {
  if (setjmp(*arena_guard(scratch))) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(st_open(a, folders_find(in, scratch, teacher), in, out, e));
  return st_prefix(*out, TEACHER_PREFIX, e);
}

/* Adds those of the teacher, or opens them alone. */
static weft_status add_teacher(const weft_alloc *a, const char *teacher,
                               const Folders *in, SafeTensors **out, weft_error *e) {
  SafeTensors *own = NULL;
  Arena *scratch = arena_new(a);
  weft_status st = scratch ? open_teacher(a, teacher, in, scratch, &own, e)
                           : err_set(e, WEFT_ENOMEM, "out of memory");
  arena_free(scratch);
  if (st == WEFT_OK && !*out)
    *out = own;
  else if (st == WEFT_OK)
    st = st_take(*out, own, e);
  else
    st_close(own);
  if (st == WEFT_OK) return st;
  st_close(*out);
  *out = NULL;
  return st;
}

static weft_status open_model(const weft_alloc *a, const char *path, const Folders *in,
                              const Plan *plan, const Folders *of_plan, SafeTensors **out,
                              weft_error *e) {
  *out = NULL;
  if (!path && plan->adapter.from)
    return err_set(e, WEFT_EPLAN,
                   "adapter.from: the model has no weights that %s could be of: weft.hf "
                   "reads some",
                   plan->adapter.from);
  if (path) TRY(st_open(a, path, in, out, e));
  if (!plan->adapter.from) return WEFT_OK;
  Arena *scratch = arena_new(a);
  weft_status st = scratch ? add_adapter(a, *out, &plan->adapter, of_plan, scratch, e)
                           : err_set(e, WEFT_ENOMEM, "out of memory");
  arena_free(scratch);
  if (st == WEFT_OK) return st;
  st_close(*out);
  *out = NULL;
  return st;
}

weft_status weights_open(const weft_alloc *a, const char *path, const Folders *in,
                         const Plan *plan, const Folders *of_plan, SafeTensors **out,
                         weft_error *e) {
  TRY(open_model(a, path, in, plan, of_plan, out, e));
  if (plan->loss.second != SECOND_TEACHER) return WEFT_OK;
  return add_teacher(a, plan->loss.teacher, of_plan, out, e);
}
