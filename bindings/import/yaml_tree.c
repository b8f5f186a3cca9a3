/* yaml_tree.c - YAML by libyaml, event by event, as the tree of settings.h. One document;
 * tags that would make objects and keys that are no scalars are errors. Of a key that is
 * there twice the last one counts, as to PyYAML, by which all these systems read. */
#include <lauxlib.h>
#include <yaml.h>

#include "bindings/sandbox/lua_fields.h"
#include "bindings/script/library.h"
#include "settings.h"
#include "vm/base/terminal.h"

typedef struct Reader {
  lua_State *L;
  const char *name;
  yaml_parser_t parser;
  yaml_event_t event;
  bool parsing, held; /* what is to be freed */
  int anchors;        /* index of the table of nodes by anchor */
  int nodes;
} Reader;

/* What a node counts for: itself and all below it. */
typedef struct Extent {
  int nodes, depth;
} Extent;

static int free_reader(lua_State *L) {
  Reader *r = lua_touserdata(L, 1);
  if (r->held) yaml_event_delete(&r->event);
  if (r->parsing) yaml_parser_delete(&r->parser);
  r->held = r->parsing = false;
  return 0;
}

static Reader *push_reader(lua_State *L) {
  Reader *r = lua_newuserdatauv(L, sizeof *r, 0);
  *r = (Reader){.L = L};
  set_gc(L, "weft.yaml", free_reader);
  return r;
}

static int line_of(const Reader *r) { return (int)r->event.start_mark.line + 1; }

static void next(Reader *r) {
  if (r->held) yaml_event_delete(&r->event);
  r->held = false;
  if (!yaml_parser_parse(&r->parser, &r->event))
    library_error(r->L, "%s:%d: is no YAML: %s", r->name,
                  (int)r->parser.problem_mark.line + 1,
                  r->parser.problem ? r->parser.problem : "out of memory");
  r->held = true;
}

static void count(Reader *r, Extent more, int depth) {
  if (more.nodes > SETTINGS_NODES - r->nodes)
    library_error(r->L, "%s:%d: has more than %d values, aliases counted", r->name,
                  line_of(r), SETTINGS_NODES);
  if (depth + more.depth > SETTINGS_DEPTH)
    library_error(r->L, "%s:%d: is nested more than %d deep", r->name, line_of(r),
                  SETTINGS_DEPTH);
  r->nodes += more.nodes;
}

static void check_tag(Reader *r, const yaml_char_t *tag) {
  static const char *const plain[] = {"!",
                                      "tag:yaml.org,2002:str",
                                      "tag:yaml.org,2002:int",
                                      "tag:yaml.org,2002:float",
                                      "tag:yaml.org,2002:bool",
                                      "tag:yaml.org,2002:null",
                                      "tag:yaml.org,2002:map",
                                      "tag:yaml.org,2002:seq"};
  for (int i = 0; tag && i < LEN(plain); i++)
    if (strcmp((const char *)tag, plain[i]) == 0) tag = NULL;
  if (tag)
    library_error(r->L,
                  "%s:%d: the tag %s would make an object; only plain values are read",
                  r->name, line_of(r), SHOWN((const char *)tag));
}

static void push_node(Reader *r, const char *kind) {
  lua_createtable(r->L, 0, 4);
  lua_pushstring(r->L, kind);
  lua_setfield(r->L, -2, "kind");
  lua_pushinteger(r->L, line_of(r));
  lua_setfield(r->L, -2, "line");
}

/* The node on top has this name from now on, for aliases behind it. */
static void keep_anchor(Reader *r, const char *anchor, Extent x) {
  lua_State *L = r->L;
  lua_createtable(L, 3, 0);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, 1);
  lua_pushinteger(L, x.nodes);
  lua_rawseti(L, -2, 2);
  lua_pushinteger(L, x.depth);
  lua_rawseti(L, -2, 3);
  lua_setfield(L, r->anchors, anchor);
}

static Extent read_alias(Reader *r, int depth) {
  lua_State *L = r->L;
  Extent x;
  const char *name = (const char *)r->event.data.alias.anchor;
  if (lua_getfield(L, r->anchors, name) != LUA_TTABLE)
    library_error(L, "%s:%d: *%s stands for nothing that ends before it", r->name,
                  line_of(r), SHOWN(name));
  lua_rawgeti(L, -1, 2);
  lua_rawgeti(L, -2, 3);
  x = (Extent){(int)lua_tointeger(L, -2), (int)lua_tointeger(L, -1)};
  lua_pop(L, 2);
  count(r, x, depth);
  lua_rawgeti(L, -1, 1);
  lua_remove(L, -2);
  return x;
}

static Extent read_node(Reader *r, int depth);

static Extent read_scalar(Reader *r, int depth) {
  const Extent one = {1, 0};
  lua_State *L = r->L;
  bool quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  const yaml_char_t *tag = r->event.data.scalar.tag;
  count(r, one, depth);
  check_tag(r, tag);
  push_node(r, "scalar");
  lua_pushlstring(L, (const char *)r->event.data.scalar.value,
                  r->event.data.scalar.length);
  lua_setfield(L, -2, "text");
  set_boolean(L, "quoted",
              quoted || (tag && strcmp((const char *)tag, YAML_STR_TAG) == 0));
  return one;
}

static Extent read_list(Reader *r, int depth) {
  lua_State *L = r->L;
  Extent all = {1, 0};
  count(r, all, depth);
  push_node(r, "list");
  lua_newtable(L);
  for (int i = 1; next(r), r->event.type != YAML_SEQUENCE_END_EVENT; i++) {
    Extent x = read_node(r, depth + 1);
    all.nodes += x.nodes, all.depth = MAX(all.depth, x.depth + 1);
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, -2, "items");
  return all;
}

/* Pushes the text of a key. Which keys there are is in the table below; returns whether
 * this one is. */
static bool push_key(Reader *r) {
  lua_State *L = r->L;
  if (r->event.type != YAML_SCALAR_EVENT)
    library_error(L, "%s:%d: a key is no name", r->name, line_of(r));
  check_tag(r, r->event.data.scalar.tag);
  lua_pushlstring(L, (const char *)r->event.data.scalar.value,
                  r->event.data.scalar.length);
  lua_pushvalue(L, -1);
  bool again = lua_rawget(L, -3) == LUA_TTABLE;
  lua_pop(L, 1);
  return again;
}

/* Stack: map, keys, at, key. The value that the key has had so far does not count, and is
 * told: { key =, node =, line = of the key that does } in the map's list `before`. */
static void keep_before(Reader *r) {
  lua_State *L = r->L;
  int map = lua_gettop(L) - 3;
  if (lua_getfield(L, map, "before") == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, map, "before");
  }
  lua_createtable(L, 0, 3);
  lua_pushvalue(L, map + 3);
  lua_setfield(L, -2, "key");
  lua_pushvalue(L, map + 3);
  lua_rawget(L, map + 2);
  lua_setfield(L, -2, "node");
  set_integer(L, "line", line_of(r));
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 1);
}

static Extent read_map(Reader *r, int depth) {
  lua_State *L = r->L;
  Extent all = {1, 0};
  count(r, all, depth);
  push_node(r, "map");
  lua_newtable(L); /* keys */
  lua_newtable(L); /* at */
  for (int i = 1; next(r), r->event.type != YAML_MAPPING_END_EVENT;) {
    if (push_key(r)) {
      keep_before(r);
    } else {
      lua_pushvalue(L, -1);
      lua_rawseti(L, -4, i++);
    }
    int line = line_of(r);
    next(r);
    Extent x = read_node(r, depth + 1);
    /* An empty value is where its key is, not where the next one begins. */
    set_integer(L, "key_line", line);
    all.nodes += x.nodes, all.depth = MAX(all.depth, x.depth + 1);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -3, "at");
  lua_setfield(L, -2, "keys");
  return all;
}

/* Pushes the node that begins with the event that is held. */
static Extent read_node(Reader *r, int depth) {
  char anchor[128] = "";
  const yaml_char_t *name = NULL, *tag = NULL;
  Extent x = {0, 0};
  luaL_checkstack(r->L, 12, "settings are nested too deeply");
  switch (r->event.type) {
  case YAML_ALIAS_EVENT: return read_alias(r, depth);
  case YAML_SCALAR_EVENT: name = r->event.data.scalar.anchor; break;
  case YAML_SEQUENCE_START_EVENT:
    name = r->event.data.sequence_start.anchor;
    tag = r->event.data.sequence_start.tag;
    break;
  case YAML_MAPPING_START_EVENT:
    name = r->event.data.mapping_start.anchor;
    tag = r->event.data.mapping_start.tag;
    break;
  default: library_error(r->L, "%s:%d: a value is missing", r->name, line_of(r));
  }
  if (name && strlen((const char *)name) >= sizeof anchor)
    library_error(r->L, "%s:%d: an anchor has a name of %d bytes or more", r->name,
                  line_of(r), (int)sizeof anchor);
  if (name) memcpy(anchor, name, strlen((const char *)name) + 1);
  check_tag(r, tag);
  if (r->event.type == YAML_SCALAR_EVENT)
    x = read_scalar(r, depth);
  else if (r->event.type == YAML_SEQUENCE_START_EVENT)
    x = read_list(r, depth);
  else
    x = read_map(r, depth);
  if (anchor[0]) keep_anchor(r, anchor, x);
  return x;
}

void yaml_tree(lua_State *L, const char *text, size_t n, const char *name) {
  Reader *r = push_reader(L);
  r->name = name;
  if (!yaml_parser_initialize(&r->parser)) library_error(L, "not enough memory");
  r->parsing = true;
  yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
  if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3, n -= 3; /* a mark */
  yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, n);
  lua_newtable(L);
  r->anchors = lua_gettop(L);
  next(r); /* the stream begins */
  next(r);
  if (r->event.type == YAML_STREAM_END_EVENT) library_error(L, "%s: is empty", name);
  next(r); /* the document has begun */
  read_node(r, 0);
  next(r);
  next(r);
  if (r->event.type != YAML_STREAM_END_EVENT)
    library_error(L, "%s:%d: a second document begins; one file is one set of settings",
                  name, line_of(r));
}
