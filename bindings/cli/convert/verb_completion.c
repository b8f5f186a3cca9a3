/* verb_completion.c - weft completion: what shells complete, and the manual page, made
 * of the verbs and options that the program itself reads. */
#include <lauxlib.h>

#include "bindings/script/library.h"
#include "convert.h"

typedef struct Row {
  const char *name, *shorter;
  unsigned on;
  bool value; /* a value follows */
} Row;

static const Row options[] = {
#define FLAG(member, name, shorter, on)         {name, shorter, on, false},
#define INTEGER(member, name, shorter, on, ...) {name, shorter, on, true},
#define NUMBER(member, name, shorter, on)       {name, shorter, on, true},
#define WORD(member, name, shorter, on)         {name, shorter, on, true},
#define LIST(member, name, shorter, on, n)      {name, shorter, on, true},
#include "bindings/cli/options.def"
};

static const struct {
  unsigned bit;
  const char *name, *args, *summary;
} verbs[] = {
#define VERB(ID, name, takes, needs, args, summary) {ON_##ID, #name, args, summary},
#include "bindings/cli/verbs.def"
};

static void set_string(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

/* The options of a verb: a list of { name =, short =, value = }. */
static void push_options(lua_State *L, unsigned bit) {
  lua_newtable(L);
  for (int i = 0; i < LEN(options); i++) {
    if (!(options[i].on & bit)) continue;
    lua_newtable(L);
    set_string(L, "name", options[i].name);
    set_string(L, "short", options[i].shorter);
    lua_pushboolean(L, options[i].value);
    lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
}

/* The verbs: a list of { name =, args =, summary =, plan =, options = }; `plan` says that
 * the help of plans belongs to it, too. */
static void provide(lua_State *L) {
  lua_newtable(L);
  for (int i = 0; i < LEN(verbs); i++) {
    lua_newtable(L);
    set_string(L, "name", verbs[i].name);
    set_string(L, "args", verbs[i].args);
    set_string(L, "summary", verbs[i].summary);
    lua_pushboolean(L, (verbs[i].bit & PLAN_VERBS) != 0);
    lua_setfield(L, -2, "plan");
    push_options(L, verbs[i].bit);
    lua_setfield(L, -2, "options");
    lua_rawseti(L, -2, i + 1);
  }
  library_provide(L, "verbs");
  lua_pushstring(L, weft_version());
  library_provide(L, "version");
}

int verb_completion(Cli *cli, Arena *arena) {
  return convert_run(cli, "completion/completion", provide);
}
