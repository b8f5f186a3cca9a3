/* fields.c - fields whose values have a form of their own: lists, and what lies in the
 * mesh, the pipeline and the machines. Files beside it have those of other subjects. */
#include "bindings/sandbox/length.h"
#include "schema.h"

/* ---- lists ---- */

int field_list_length(Check *c, int idx, const char *path, const char *want) {
  lua_State *L = c->L;
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx)) {
    check_type(c, path, want, idx);
    return -1;
  }
  lua_Integer n = list_length(L, idx);
  if (n >= 0) return (int)n;
  diag_error(c->d, "type", path, "expected %s, got a table with other keys", want);
  return -1;
}

const char *field_item_path(Check *c, const char *path, int i) {
  return arena_printf(c->arena, "%s[%d]", path, i);
}

const char **field_list_texts(Check *c, int idx, const char *path, const char *want,
                              int *count) {
  lua_State *L = c->L;
  idx = lua_absindex(L, idx);
  int n = field_list_length(c, idx, path, want);
  if (n < 0) return NULL;
  const char **out = NEW_N(c->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    bool ok = lua_type(L, -1) == LUA_TSTRING;
    if (ok)
      out[i] = arena_str(c->arena, lua_tostring(L, -1));
    else
      check_type(c, field_item_path(c, path, i + 1), "a string", -1);
    lua_pop(L, 1);
    if (!ok) return NULL;
  }
  *count = n;
  return out;
}

/* ---- mesh and pipeline ---- */

void field_mesh_order(Check *c, int idx, const char *path) {
  int n;
  const char **axes = field_list_texts(c, idx, path, "a list of axes", &n);
  if (!axes) return;
  if (n > AXIS_N) {
    diag_error(c->d, "range", path, "a mesh has at most %d axes, got %d", AXIS_N, n);
    return;
  }
  memcpy(c->plan->mesh.order, axes, sizeof *axes * (size_t)n);
}

void field_pp_layers(Check *c, int idx, const char *path) {
  if (lua_isinteger(c->L, idx)) {
    check_type(c, path, "a list with the layers of each stage", idx)->suggestion =
        "a number of layers is layers_per_stage";
    return;
  }
  int n = field_list_length(c, idx, path, "a list with the layers of each stage");
  if (n < 0) return;
  int *layers = NEW_N(c->arena, int, n + 1);
  for (int i = 0; i < n; i++) {
    int64_t v = 0;
    lua_rawgeti(c->L, idx, i + 1);
    check_int(c, -1, field_item_path(c, path, i + 1), 0, 1e6, &v);
    layers[i] = (int)v;
    lua_pop(c->L, 1);
  }
  c->plan->pp.layers = layers;
  c->plan->pp.nlayers = n;
}

void field_pp_layout(Check *c, int idx, const char *path) {
  PpPlan *pp = &c->plan->pp;
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "a string such as \"Et*3|(tt|)*29,t|L\"", idx);
    return;
  }
  const char *wrong, *text = arena_str(c->arena, lua_tostring(c->L, idx));
  int n;
  const int *layers = pp_layout(text, c->arena, &n, &pp->layout_further, &wrong);
  if (!layers) {
    diag_error(c->d, "layout", path, "%s", wrong);
    return;
  }
  if (pp->layers) {
    diag_error(c->d, "alias", path, PP_BOTH, "layers", "layout");
    return;
  }
  pp->layout = text;
  pp->layers = layers;
  pp->nlayers = n;
}

void field_pp_modules(Check *c, int idx, const char *path) {
  int n = field_list_length(c, idx, path, "a list with a list of units for each stage");
  if (n < 0) return;
  const char *const **stages = NEW_N(c->arena, const char *const *, n + 1);
  for (int i = 0, count; i < n; i++) {
    lua_rawgeti(c->L, idx, i + 1);
    stages[i] = field_list_texts(c, -1, field_item_path(c, path, i + 1),
                                 "a list of units", &count);
    lua_pop(c->L, 1);
    if (!stages[i]) return;
  }
  c->plan->pp.modules = (const char *const *const *)stages;
  c->plan->pp.nmodules = n;
}

/* ---- machines ---- */

/* Names of NCCL's own list, "Ring,Tree" or "^tree". */
void field_nccl_names(Check *c, int idx, const char *path) {
  static const struct {
    const char *key, *words;
  } lists[] = {
#define INTEGER(key, variable, lo, hi, doc)
#define SWITCH(key, variable, doc)
#define WORD(key, variable, words, doc)
#define WORDS(key, variable, doc)
#define LIST(key, variable, words, doc) {#key, words},
#include "vm/plan/nccl.def"
  };
  const char *key = strrchr(path, '.') + 1, *words = "", *out = "";
  for (int i = 0; i < LEN(lists); i++)
    if (strcmp(lists[i].key, key) == 0) words = lists[i].words;
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "a name, or names with commas", idx);
    return;
  }
  const char *s = lua_tostring(c->L, idx);
  bool without = *s == '^';
  for (s += without;; s++) {
    size_t n = strcspn(s, ",");
    const char *one = check_name(c, words, path, arena_strn(c->arena, s, n));
    if (!one) return;
    out = arena_printf(c->arena, "%s%s%s", out, *out ? "," : without ? "^" : "", one);
    s += n;
    if (!*s) break;
  }
  field_set_text(schema_find("nccl", key), c->plan, out);
}

static void field_gpu_name(Check *c, int idx, const char *path) {
  if (lua_type(c->L, idx) != LUA_TSTRING)
    check_type(c, path, "the name of a GPU", idx);
  else
    cluster_known(c->L, lua_tostring(c->L, idx), path, c->d);
}

/* The GPU of a cluster: a name, or a table of figures, of which the first item may be the
 * name of a known one. */
void field_gpu(Check *c, int idx, const char *path) {
  lua_State *L = c->L;
  bool table = lua_istable(L, idx), item = false;
  if (table) {
    item = lua_rawgeti(L, idx, 1) != LUA_TNIL;
    if (item) field_gpu_name(c, -1, path);
    lua_pop(L, 1);
    check_scope(c, idx, "gpu", path, 1 + item);
  } else {
    field_gpu_name(c, idx, path);
  }
}

/* Of a plan it stays below the plan's folder, as what it reads does. */
void field_checkpoint_dir(Check *c, int idx, const char *path) {
  const char *dir = lua_type(c->L, idx) == LUA_TSTRING ? lua_tostring(c->L, idx) : "";
  Checkpointing *to = &c->plan->checkpoint;
  if (!*dir) {
    check_type(c, path, "the name of a folder", idx);
    return;
  }
  bool named = lang_is_set(c->lp, path);
  to->within = named ? NULL : c->lp->state->dir;
  to->dir = named ? arena_str(c->arena, dir) : folders_below(c->arena, to->within, dir);
  if (!to->dir)
    diag_error(c->d, "outside", path,
               "\"%.100s\" is outside of the plan's folder; give the folder that it may "
               "be on the command line: --set checkpoint.dir=DIR",
               dir);
}

/* Of a run, which has either so many steps or so many epochs. */
void field_epochs(Check *c, int idx, const char *path) {
  double n = lua_type(c->L, idx) == LUA_TNUMBER ? lua_tonumber(c->L, idx) : 0;
  int top = lua_gettop(c->L);
  bool steps = field_push(c->L, PLAN_INDEX, "train") == LUA_TTABLE &&
               field_push(c->L, -1, "steps") != LUA_TNIL;
  lua_settop(c->L, top);
  if (!(n > 0 && n <= 1e6))
    check_type(c, path, "a number above 0, up to 1000000", idx);
  else if (steps)
    diag_error(c->d, "option", path, "says how long a run is, and so does train.steps");
  c->plan->epochs = n;
}
