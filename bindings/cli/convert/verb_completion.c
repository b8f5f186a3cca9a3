/* verb_completion.c - weft completion: what shells complete, and the manual page, made
 * of the verbs and options that the program itself reads. */
#include <lauxlib.h>

#include "bindings/sandbox/lua_fields.h"
#include "bindings/script/library.h"
#include "convert.h"

typedef struct Row {
  const char *name, *shorter;
  unsigned on;
  bool value;          /* a value follows */
  const char *choices; /* of names, or NULL */
} Row;

static const Row options[] = {
#define FLAG(member, name, shorter, on)            {name, shorter, on, false, NULL},
#define INTEGER(member, name, shorter, on, ...)    {name, shorter, on, true, NULL},
#define NUMBER(member, name, shorter, on)          {name, shorter, on, true, NULL},
#define WORD(member, name, shorter, on)            {name, shorter, on, true, NULL},
#define OUTPUT(member, name, shorter, on)          {name, shorter, on, true, NULL},
#define CHOICE(member, name, shorter, on, choices) {name, shorter, on, true, choices},
#define LIST(member, name, shorter, on, n)         {name, shorter, on, true, NULL},
#include "bindings/cli/options.def"
};

static const struct {
  unsigned bit;
  const char *name, *args, *summary;
} verbs[] = {
#define VERB(ID, name, takes, needs, args, summary, groups)                              \
  {ON_##ID, #name, args, summary},
#include "bindings/cli/verbs.def"
};

/* The options of a verb: a list of { name =, short =, value =, choices = }. */
static void push_options(lua_State *L, unsigned bit) {
  lua_newtable(L);
  for (int i = 0; i < LEN(options); i++) {
    if (!(options[i].on & bit)) continue;
    lua_newtable(L);
    set_text(L, "name", options[i].name);
    set_text(L, "short", options[i].shorter);
    set_text(L, "choices", options[i].choices);
    set_boolean(L, "value", options[i].value);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
}

/* The codes of weft explain: a list of { name =, about = }. */
static void push_codes(lua_State *L) {
  int n;
  const DiagCode *code = diag_codes(&n);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_newtable(L);
    set_text(L, "name", code[i].name);
    set_text(L, "about", code[i].summary);
    lua_rawseti(L, -2, i + 1);
  }
}

/* The GPUs that a cluster may name: a list. */
static void push_gpus(lua_State *L) {
  int n;
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) luaL_error(L, "not enough memory");
  const char *const *gpus = stdlib_names(a, "clusters", &n);
  push_texts(L, gpus, n);
  lua_remove(L, -2);
}

/* The verbs: a list of { name =, args =, summary =, plan =, options = }; `plan` says that
 * the help of plans belongs to it, too. */
static void provide(lua_State *L) {
  lua_newtable(L);
  for (int i = 0; i < LEN(verbs); i++) {
    lua_newtable(L);
    set_text(L, "name", verbs[i].name);
    set_text(L, "args", verbs[i].args);
    set_text(L, "summary", verbs[i].summary);
    set_boolean(L, "plan", (verbs[i].bit & PLAN_VERBS) != 0);
    push_options(L, verbs[i].bit);
    lua_setfield(L, -2, "options");
    lua_rawseti(L, -2, i + 1);
  }
  library_provide(L, "verbs");
  push_gpus(L);
  library_provide(L, "gpus");
  push_codes(L);
  library_provide(L, "codes");
  lua_pushstring(L, weft_version());
  library_provide(L, "version");
}

int verb_completion(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "completion/completion", provide);
}
