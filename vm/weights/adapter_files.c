/* adapter_files.c - see adapter_files.h. PEFT puts "base_model.model." before the names
 * of the model, and finds the modules again by target_modules: a name there stands for
 * every module of that name or that ends with it. */
#include "adapter_files.h"

#include "vm/base/json.h"
#include "weights_match.h"

const char *adapter_tensor(Arena *a, const char *param) {
  return arena_printf(a, ADAPTER_PREFIX "%s", param);
}

/* ".weight" at the end of a name, or its end. */
static size_t module_length(const char *param) {
  size_t n = strlen(param), end = strlen(".weight");
  return n > end && strcmp(param + n - end, ".weight") == 0 ? n - end : n;
}

int adapter_part(const Compiled *c, int base, AdapterPart part) {
  const char *module = c->param[base].name;
  const char *end = adapter_suffix(part);
  size_t n = module_length(module);
  for (int i = 0; i < c->nparam; i++)
    if (c->param[i].adapter == part && strncmp(c->param[i].name, module, n) == 0 &&
        strcmp(c->param[i].name + n, end) == 0)
      return i;
  return -1;
}

int adapter_base(const Compiled *c, int part) {
  const char *name = c->param[part].name;
  size_t n = strlen(name) - strlen(adapter_suffix((AdapterPart)c->param[part].adapter));
  for (int i = 0; i < c->nparam; i++) {
    const char *base = c->param[i].name;
    if (!c->param[i].adapter && module_length(base) == n && strncmp(base, name, n) == 0)
      return i;
  }
  return -1;
}

bool adapter_of_in_out(const Graph *g, const char *base) {
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    if (op->code == OP_linear && str_eq(g->t.at[op->in[1]].name, base))
      return op->attr.layout == 1;
  }
  return false;
}

/* ---- adapter_config.json ---- */

/* The last part of a module's name. */
static const char *last_part(Arena *a, const char *param) {
  const char *s = arena_strn(a, param, module_length(param)), *dot = strrchr(s, '.');
  return dot ? dot + 1 : s;
}

/* Whether all matrices whose modules are called so have an adapter: then the name stands
 * for them. */
static bool stands_for_all(const Compiled *c, Arena *a, const char *name) {
  for (int i = 0; i < c->nparam; i++)
    if (!c->param[i].adapter && c->param[i].ndim == 2 &&
        str_eq(last_part(a, c->param[i].name), name) && adapter_part(c, i, ADAPTER_A) < 0)
      return false;
  return true;
}

static void write_targets(const Compiled *c, Arena *a, Json *j) {
  VEC(const char *) told = {0};
  json_open(j, "target_modules", '[');
  for (int i = 0; i < c->nparam; i++) {
    if (c->param[i].adapter || adapter_part(c, i, ADAPTER_A) < 0) continue;
    const char *param = c->param[i].name, *name = last_part(a, param);
    if (!stands_for_all(c, a, name)) name = arena_strn(a, param, module_length(param));
    bool known = false;
    for (int k = 0; k < told.n; k++) known |= str_eq(told.at[k], name);
    if (known) continue;
    *VEC_PUSH(a, told) = name;
    json_str(j, NULL, name);
  }
  json_close(j, ']');
}

static bool any_in_out(const Compiled *c, const Graph *g) {
  for (int i = 0; i < c->nparam; i++)
    if (!c->param[i].adapter && adapter_part(c, i, ADAPTER_A) >= 0)
      return adapter_of_in_out(g, c->param[i].name);
  return false;
}

static void write_settings(const Plan *p, Json *j) {
  const Adapter *a = &p->adapter;
  json_int(j, "r", a->rank);
  json_num(j, "lora_alpha", a->alpha > 0 ? a->alpha : (double)a->rank);
  json_num(j, "lora_dropout", a->dropout);
  json_bool(j, "use_rslora", a->rslora);
  json_bool(j, "use_dora", a->dora);
  json_str(j, "bias", "none");
  json_bool(j, "init_lora_weights", true);
  json_bool(j, "inference_mode", true);
  json_none(j, "modules_to_save");
  json_open(j, "rank_pattern", '{');
  json_close(j, '}');
  json_open(j, "alpha_pattern", '{');
  json_close(j, '}');
}

void adapter_config(const Compiled *c, const Plan *p, const Graph *g, const char *folder,
                    Text *out) {
  Arena *a = arena_new(NULL);
  Json j = {.out = out, .pretty = true};
  if (!a || setjmp(*arena_guard(a))) {
    out->oom = true;
    arena_free(a);
    return;
  }
  json_open(&j, NULL, '{');
  json_str(&j, "peft_type", "LORA");
  json_str(&j, "task_type", "CAUSAL_LM");
  json_str(&j, "base_model_name_or_path", folder);
  write_settings(p, &j);
  json_bool(&j, "fan_in_fan_out", any_in_out(c, g));
  write_targets(c, a, &j);
  json_close(&j, '}');
  text_add(out, "\n");
  arena_free(a);
}

weft_status adapter_fits(const Compiled *c, const char *const *packed, weft_error *e) {
  char name[512];
  int64_t rows, first;
  for (int i = 0; i < c->nparam; i++)
    if (adapter_part(c, i, ADAPTER_A) >= 0 &&
        weights_packed(c, packed, i, name, &rows, &first))
      return err_set(
          e, WEFT_EPLAN,
          "%s has an adapter, but files of this model have it as a part of %s, "
          "which has one for all: weft ckpt merge writes the model with it",
          c->param[i].name, name);
  return WEFT_OK;
}
