/* settings.h - settings files of other systems as one neutral tree in Lua, with the line
 * of each value. A node is a table:
 *
 *   { kind = "map", line =, keys = { name, ... }, at = { name = node },
 *     before = nil or a list of { key =, node =, line = } that a later one replaced }
 *   { kind = "list", line =, items = { node, ... } }
 *   { kind = "scalar", line =, text =, quoted = true or false }
 *
 * Nothing of a file is run: what a scalar means is said by stdlib/import/scalar.lua, but
 * where the reader of a format says it, as `value`. Of a
 * YAML anchor all aliases are the same table, counted each time, so that a small file is
 * no large tree. */
#ifndef WEFT_SETTINGS_H
#define WEFT_SETTINGS_H

#include <lua.h>

#include "vm/base/base.h"

enum {
  SETTINGS_BYTES = 4 << 20, /* of a file */
  SETTINGS_NODES = 100000,  /* of a tree, aliases counted as what they stand for */
  SETTINGS_DEPTH = 64
};

/* Gives the library read_settings(path): the tree of a file, YAML or, by its name, JSON;
 * and read_text(path), for formats that stdlib/import reads: the text of a file, its
 * name, and the limits above; and give_settings(path, text), after which both read the
 * text. They raise a text, "recipe.yaml:3: ...", if there is none.
 */
void settings_provide(lua_State *L);

/* ---- yaml_tree.c ---- */
/* Pushes the tree of a text; raises. `name` is what messages call it. */
void yaml_tree(lua_State *L, const char *text, size_t n, const char *name);

/* ---- json_yaml.c ---- */
/* Pushes JSON, which is known to be JSON, as YAML that libyaml reads as the same values
 * in the same lines. */
const char *json_yaml(lua_State *L, const char *text, size_t *n);

#endif
