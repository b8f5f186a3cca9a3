/* adapter_files.c - see adapter_files.h. PEFT puts "base_model.model." before the names
 * of the model, and finds the modules again by target_modules: a name there stands for
 * every module of that name or that ends with it. */
#include "adapter_files.h"

#include <stdio.h>

#include "vm/base/json.h"
#include "module_names.h"
#include "vm/graph/packed_modules.h"
#include "weights_match.h"

bool adapter_has(const CompiledParam *p) { return p->adapter || p->saved; }

static bool of_experts(const CompiledParam *p) { return p->adapter && p->ndim == 3; }

bool adapter_turned(const CompiledParam *p) {
  return of_experts(p) && p->adapter == ADAPTER_B;
}

CompiledParam adapter_shape(const CompiledParam *p) {
  CompiledParam w = *p;
  if (!of_experts(p)) return w;
  w.ndim = 2;
  w.dim[0] = p->dim[p->adapter == ADAPTER_B ? 1 : 0];
  w.dim[1] = p->dim[2];
  w.dim[p->adapter == ADAPTER_B ? 1 : 0] *= p->dim[p->adapter == ADAPTER_B ? 0 : 1];
  return w;
}

/* The module that has the weight: the name of a part without the last three words. */
static size_t holder_length(const CompiledParam *p) {
  size_t n = strlen(p->name) - strlen(adapter_suffix((AdapterPart)p->adapter));
  while (n > 0 && p->name[--n] != '.') continue;
  return n;
}

static void peft_name(const Compiled *c, const char *own, char name[512]) {
  char memory[512];
  module_to_memory(&c->modules, own, memory);
  TextBuf t = textbuf(name, 512);
  textbuf_printf(&t, ADAPTER_PREFIX "%s", c->modules.tensors ? own : memory);
}

void adapter_tensor(const Compiled *c, int param, char name[512]) {
  const CompiledParam *p = &c->param[param];
  if (!of_experts(p)) {
    peft_name(c, p->name, name);
    return;
  }
  size_t n = holder_length(p);
  char own[512];
  TextBuf t = textbuf(own, 512);
  textbuf_printf(&t, "%.*s", (int)n, p->name);
  for (int i = param + 1; i < c->nparam; i++) {
    const CompiledParam *q = &c->param[i];
    bool same = of_experts(q) && q->adapter == p->adapter && holder_length(q) == n;
    if (same && strncmp(p->name, q->name, n) == 0) textbuf_printf(&t, ".base_layer");
  }
  textbuf_printf(&t, "%s", adapter_suffix((AdapterPart)p->adapter));
  peft_name(c, own, name);
}

bool adapter_by_files(const Compiled *c, const char *name, char other[512]) {
  size_t before = strlen(ADAPTER_PREFIX);
  if (strncmp(name, ADAPTER_PREFIX, before) != 0 || strlen(name) >= 512) return false;
  module_to_files(&c->modules, name + before, other);
  return true;
}

/* ".weight" at the end of a name, or its end. */
static size_t module_length(const char *param) {
  size_t n = strlen(param), end = strlen(".weight");
  return n > end && strcmp(param + n - end, ".weight") == 0 ? n - end : n;
}

static int part_of(const Compiled *c, const char *module, AdapterPart part) {
  const char *end = adapter_suffix(part);
  size_t n = module_length(module);
  for (int i = 0; i < c->nparam; i++)
    if (c->param[i].adapter == part && strncmp(c->param[i].name, module, n) == 0 &&
        strcmp(c->param[i].name + n, end) == 0)
      return i;
  return -1;
}

/* The A that the parts of a module share of which the parameter is one; -1: there is
 * none. `whole` is then the parameter's name with the module's in the place of its own.
 */
static int shared_a(const Compiled *c, const char *param, char whole[PACKED_NAME]) {
  PackedName found;
  if (!packed_find(param, NULL, &found)) return -1;
  packed_rename(param, &found, found.of->whole, whole);
  return part_of(c, whole, ADAPTER_A);
}

int adapter_part(const Compiled *c, int base, AdapterPart part) {
  char whole[PACKED_NAME];
  const char *name = c->param[base].name;
  int own = part_of(c, name, part);
  return own >= 0 || part != ADAPTER_A ? own : shared_a(c, name, whole);
}

bool adapter_packed(const Compiled *c, int param, char name[512], int64_t *rows,
                    int64_t *first) {
  const CompiledParam *p = &c->param[param];
  int base =
      p->adapter == ADAPTER_B || p->adapter == ADAPTER_M ? adapter_base(c, param) : -1;
  char whole[PACKED_NAME];
  PackedName found;
  if (base < 0 || part_of(c, c->param[base].name, ADAPTER_A) >= 0 ||
      shared_a(c, c->param[base].name, whole) < 0 || !packed_find(p->name, NULL, &found))
    return false;
  *rows = *first = 0;
  for (int k = 0; k < PACKED_PARTS && found.of->part[k]; k++) {
    packed_rename(p->name, &found, found.of->part[k], whole);
    for (int i = 0; i < c->nparam; i++) {
      if (!str_eq(c->param[i].name, whole)) continue;
      if (k < found.part) *first += param_count(&c->param[i]);
      *rows += c->param[i].dim[0];
    }
  }
  packed_rename(p->name, &found, found.of->whole, whole);
  peft_name(c, whole, name);
  return true;
}

/* Whether A is that of a module whose parts read it. */
static bool is_shared(const Compiled *c, int a) {
  char whole[PACKED_NAME];
  for (int i = 0; i < c->nparam; i++)
    if (!c->param[i].adapter && part_of(c, c->param[i].name, ADAPTER_A) < 0 &&
        shared_a(c, c->param[i].name, whole) == a)
      return true;
  return false;
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
    bool product = op->code == OP_linear || op->code == OP_grouped_linear;
    if (product && str_eq(g->t.at[op->in[1]].name, base)) return op->attr.layout == 1;
  }
  return false;
}

/* ---- adapter_config.json ---- */

/* The last part of a module's name. */
static const char *last_part(Arena *a, const char *param) {
  const char *s = arena_strn(a, param, module_length(param)), *dot = strrchr(s, '.');
  return dot ? dot + 1 : s;
}

/* A weight that may have an adapter, of one matrix (2) or one for each expert (3). */
static bool is_base(const CompiledParam *p, int ndim) {
  return !p->adapter && p->ndim == ndim;
}

/* The weight that PEFT knows: that of the module whose adapter this one has a part of. */
static const char *known_as(const Compiled *c, Arena *a, int base) {
  char whole[PACKED_NAME];
  const char *name = c->param[base].name;
  bool own = part_of(c, name, ADAPTER_A) >= 0 || shared_a(c, name, whole) < 0;
  return own ? name : arena_str(a, whole);
}

/* Whether all weights of such modules have an adapter: then the name stands for them. */
static bool stands_for_all(const Compiled *c, Arena *a, const char *name, int ndim) {
  for (int i = 0; i < c->nparam; i++)
    if (is_base(&c->param[i], ndim) && str_eq(last_part(a, known_as(c, a, i)), name) &&
        adapter_part(c, i, ADAPTER_A) < 0)
      return false;
  return true;
}

typedef VEC(const char *) Told;

/* Writes a module's name that is not among those. */
static void write_new(const Compiled *c, Arena *a, Json *j, Told *told,
                      const char *module) {
  char name[512];
  module_to_memory(&c->modules, module, name);
  for (int k = 0; k < told->n; k++)
    if (str_eq(told->at[k], name)) return;
  *VEC_PUSH(a, *told) = arena_str(a, name);
  json_str(j, NULL, name);
}

/* The linears of which no weight of the model is: heads that read the embeddings. */
static bool of_tied(const Compiled *c, int param) {
  return c->param[param].adapter == ADAPTER_A && c->param[param].ndim == 2 &&
         adapter_base(c, param) < 0 && !is_shared(c, param);
}

static void write_targets(const Compiled *c, Arena *a, const char *key, int ndim,
                          Json *j) {
  Told told = {0};
  json_open(j, key, '[');
  for (int i = 0; i < c->nparam; i++) {
    if (!is_base(&c->param[i], ndim) || adapter_part(c, i, ADAPTER_A) < 0) continue;
    const char *param = known_as(c, a, i), *name = last_part(a, param);
    bool all = stands_for_all(c, a, name, ndim);
    if (!all) name = arena_strn(a, param, module_length(param));
    if (all && ndim == 3) name = arena_printf(a, "experts.%s", name);
    write_new(c, a, j, &told, name);
  }
  for (int i = 0; ndim == 2 && i < c->nparam; i++) {
    const char *end = strstr(c->param[i].name, adapter_suffix(ADAPTER_A));
    if (!end || !of_tied(c, i)) continue;
    const char *name = c->param[i].name;
    write_new(c, a, j, &told, arena_strn(a, name, (size_t)(end - name)));
  }
  json_close(j, ']');
}

/* Full names, since PEFT takes one for each module whose name ends with it. */
static void write_saved(const Compiled *c, Arena *a, Json *j) {
  Told told = {0};
  bool any = false;
  for (int i = 0; i < c->nparam; i++) any |= c->param[i].saved;
  if (!any) {
    json_none(j, "modules_to_save");
    return;
  }
  json_open(j, "modules_to_save", '[');
  for (int i = 0; i < c->nparam; i++) {
    const char *param = c->param[i].name, *dot = strrchr(param, '.');
    if (c->param[i].saved && dot)
      write_new(c, a, j, &told, arena_strn(a, param, (size_t)(dot - param)));
  }
  json_close(j, ']');
}

/* A pattern as the regular expression that PEFT reads, of the end of a name. */
static void write_patterns(const Compiled *c, Arena *a, Json *j, const char *key,
                           PatternNumbers of) {
  json_open(j, key, '{');
  for (int i = 0; i < of.n; i++) {
    char pattern[512];
    module_to_memory(&c->modules, of.at[i].pattern, pattern);
    char *name = arena_alloc(a, 3 * strlen(pattern) + 1), *to = name;
    for (const char *s = pattern; *s; s++) {
      const char *as = *s == '.' ? "\\." : *s == '*' ? "\\d+" : NULL;
      size_t n = as ? strlen(as) : 1;
      memcpy(to, as ? as : s, n);
      to += n;
    }
    json_num(j, name, of.at[i].number);
  }
  json_close(j, '}');
}

static bool any_in_out(const Compiled *c, const Graph *g) {
  for (int i = 0; i < c->nparam; i++)
    if (!c->param[i].adapter && adapter_part(c, i, ADAPTER_A) >= 0)
      return adapter_of_in_out(g, c->param[i].name);
  return false;
}

static void write_settings(const Adapter *a, Json *j) {
  json_int(j, "r", a->rank);
  json_num(j, "lora_alpha", a->alpha > 0 ? a->alpha : (double)a->rank);
  json_num(j, "lora_dropout", a->drops == DROPS_PRE ? a->dropout : 0);
  json_bool(j, "use_rslora", a->rslora);
  json_bool(j, "use_dora", a->dora);
  json_str(j, "bias", "none");
  json_bool(j, "init_lora_weights", true);
  json_bool(j, "inference_mode", true);
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
  write_settings(&p->adapter, &j);
  write_patterns(c, a, &j, "rank_pattern", p->adapter.ranks);
  write_patterns(c, a, &j, "alpha_pattern", p->adapter.alphas);
  write_saved(c, a, &j);
  json_bool(&j, "fan_in_fan_out", any_in_out(c, g));
  write_targets(c, a, "target_modules", 2, &j);
  if (p->adapter.experts.n) write_targets(c, a, "target_parameters", 3, &j);
  json_close(&j, '}');
  text_add(out, "\n");
  arena_free(a);
}

weft_status adapter_fits(const Compiled *c, const char *const *packed, weft_error *e) {
  char name[512];
  int64_t rows, first;
  for (int i = 0; i < c->nparam; i++)
    if (part_of(c, c->param[i].name, ADAPTER_A) >= 0 && !c->param[i].adapter &&
        weights_packed(c, packed, i, name, &rows, &first))
      return err_set(
          e, WEFT_EPLAN,
          "%s has an adapter, but files of this model have it as a part of %s, "
          "which has one for all if it is the target: weft ckpt merge writes the model "
          "with it",
          c->param[i].name, name);
  return WEFT_OK;
}

weft_status adapter_merges(const Compiled *c, weft_error *e) {
  for (int i = 0; i < c->nparam; i++)
    if (of_tied(c, i))
      return err_set(e, WEFT_EPLAN,
                     "%s is of a head that reads the embeddings' table, which it is not "
                     "to change: the adapter cannot be merged into it",
                     c->param[i].name);
  return WEFT_OK;
}
