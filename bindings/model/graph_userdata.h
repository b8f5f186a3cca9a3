/* graph_userdata.h - shared by the files of the `g` userdata. */
#ifndef WEFT_BINDINGS_GRAPH_INT_H
#define WEFT_BINDINGS_GRAPH_INT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/plan/plan.h"

#define GRAPH_TYPE  "weft.graph"
#define TENSOR_TYPE "weft.tensor"

/* The userdata `g`. `graph` is NULL once the model function has ended. */
typedef struct GraphUd {
  Graph *graph;
  const MoePlan *moe;
  const char *source; /* "@plan.lua": the file whose lines ops remember, or NULL */
  bool out_of_memory; /* an allocation of the graph's arena failed */
} GraphUd;

/* A tensor; its user value is the GraphUd that made it. */
typedef struct TensorUd {
  GraphUd *owner;
  Tid id;
} TensorUd;

/* Argument 1 as a graph that is still being built; raises otherwise. */
GraphUd *graph_self(lua_State *L);
/* The tensor at `arg`, which must belong to `u`; `what` is named in the error. */
Tid graph_tensor_arg(lua_State *L, GraphUd *u, int arg, const char *what);
void graph_push_tensor(lua_State *L, int self, GraphUd *u, Tid t);
/* Line of the model's file that is executing, 0 if it is not a user's file. */
int graph_line(lua_State *L, const GraphUd *u);

/* Runs `fn(arg)`, which may allocate from the graph's arena but must not touch Lua. A
 * failed allocation would jump over Lua's frames to the arena's owner: this catches it
 * and raises a Lua error instead. Raises too if `fn` returns an error in `e`. */
typedef weft_status (*GraphWork)(void *arg, weft_error *e);
void graph_do(lua_State *L, GraphUd *u, GraphWork fn, void *arg);

/* g:param */
int graph_param_method(lua_State *L);

/* Which attributes a forward op takes; the first `need` must be given. */
enum { MAX_ATTR = 12 };
typedef struct OpKeys {
  int code, need;
  const char *key[MAX_ATTR];
} OpKeys;
const OpKeys *graph_op_keys(int code);
/* Adds one method per forward op, and cross_entropy, to the table on top. */
void graph_push_ops(lua_State *L);

#endif
