/* graph_json.c - a graph as JSON; keys of objects are in alphabetical order. */
#include "graph_json.h"

/* An object of the axes that place_str names, each with its state. */
static void json_place(Place p, Json *out) {
  char text[PLACE_STR], *word[AX_N], *rest;
  int n = 0;
  place_str(p, text);
  for (char *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
    int at = n++;
    for (; at > 0 && strcmp(word[at - 1], w) > 0; at--) word[at] = word[at - 1];
    word[at] = w;
  }
  json_open(out, "placement", '{');
  for (int i = 0; i < n; i++) {
    char *state = strchr(word[i], ':');
    if (!state) continue;
    *state = 0;
    json_str(out, word[i], state + 1);
  }
  json_close(out, '}');
}

static void json_tensors(const Graph *g, const char *key, const Tid *list, int n,
                         Json *out) {
  char label[96];
  json_open(out, key, '[');
  for (int i = 0; i < n; i++) {
    const Tensor *t = &g->t.at[list[i]];
    json_open(out, NULL, '{');
    json_open(out, "dims", '[');
    for (int k = 0; k < t->ndim; k++) json_int(out, NULL, t->dim[k].local);
    json_close(out, ']');
    json_str(out, "dtype", dtype_name((DType)t->dtype));
    json_int(out, "id", list[i]);
    json_str(out, "name", tensor_label(g, list[i], label));
    json_place(t->place, out);
    json_close(out, '}');
  }
  json_close(out, ']');
}

void graph_json(const Graph *g, const char *key, Json *out) {
  static const char *const phase[PH_UPDATE + 1] = {"F", "I", "W", "B", "update"};
  json_open(out, key, '[');
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    json_open(out, NULL, '{');
    json_tensors(g, "in", op->in, op->nin, out);
    json_int(out, "line", op->line);
    json_str(out, "name", op->name);
    json_str(out, "op", op_info[op->code].name);
    json_tensors(g, "out", op->out, op->nout, out);
    json_str(out, "phase", phase[op->phase]);
    json_bool(out, "recomputed", op->recomputed && op->phase != PH_F);
    json_str(out, "unit", op->unit >= 0 ? g->unit.at[op->unit].name : NULL);
    json_close(out, '}');
  }
  json_close(out, ']');
}
