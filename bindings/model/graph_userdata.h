/* graph_userdata.h - shared by the files of the `g` userdata. */
#ifndef WEFT_BINDINGS_GRAPH_INT_H
#define WEFT_BINDINGS_GRAPH_INT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/plan/plan.h"

#define GRAPH_TYPE  "weft.graph"
#define TENSOR_TYPE "weft.tensor"

/* The loss of the plan, in calls of its model. */
typedef struct PlanLoss {
  int fn, options; /* registry references; LUA_NOREF: cross entropy */
  SecondKind second;
  Tid other;   /* the logits of the second model */
  bool called; /* g:loss was */
  Tid own;     /* while fn is called: the logits of the model; else -1 */
  bool told;   /* their cross entropy is, for each source of the data */
} PlanLoss;

/* The userdata `g`. `graph` is NULL after the model function has ended. */
typedef struct GraphUd {
  Graph *graph;
  const MoePlan *moe;
  const MtpPlan *mtp;
  double noise_alpha;
  const char *source; /* "@plan.lua": the file whose lines are recorded in ops, or NULL */
  PlanLoss loss;
  bool mtp_asked;     /* g:mtp was called */
  bool noise_asked;   /* g:noise_alpha was called */
  bool out_of_memory; /* an allocation of the graph's arena failed */
} GraphUd;

/* A tensor; its user value is the GraphUd that made it. */
typedef struct TensorUd {
  GraphUd *owner;
  Tid id;
} TensorUd;

/* Makes the types of `g` and its tensors known to Lua. */
void graph_make_types(lua_State *L);
/* Argument 1 as a graph that is still being built; else raises an error. */
GraphUd *graph_self(lua_State *L);
/* The tensor at `arg`, which must belong to `u`; `what` is named in the error. */
Tid graph_tensor_arg(lua_State *L, GraphUd *u, int arg, const char *what);
void graph_push_tensor(lua_State *L, int self, GraphUd *u, Tid t);
/* The line of the model's file that is being executed, 0 in other files. */
int graph_line(lua_State *L, const GraphUd *u);

/* Runs `fn(arg)`, which may allocate from the graph's arena but must not use Lua: a
 * failed allocation jumps over Lua's frames, which this function catches and raises as a
 * Lua error. Also raises the error that `fn` returns in `e`. */
typedef weft_status (*GraphWork)(void *arg, weft_error *e);
void graph_do(lua_State *L, GraphUd *u, GraphWork fn, void *arg);

/* g:param, g:buffer */
int graph_param_method(lua_State *L);
int graph_buffer_method(lua_State *L);

/* The attributes that a forward op takes; the first `need` are required. */
enum { MAX_ATTR = 14 };
typedef struct OpKeys {
  int code, need;
  const char *key[MAX_ATTR];
} OpKeys;
const OpKeys *graph_op_keys(int code);
/* Adds one method per forward op, and those of graph_loss.c, to the table on top. */
void graph_push_ops(lua_State *L);
void graph_push_losses(lua_State *L);

#endif
