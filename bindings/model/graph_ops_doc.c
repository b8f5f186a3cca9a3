/* graph_ops_doc.c - writes the table of ops in docs/models.md from ops.def and the
 * attributes that the methods of `g` read, so that page and methods agree. */
#include "graph_userdata.h"
#include "model.h"

static void add_attributes(const OpKeys *k, Text *out) {
  for (int i = 0; i < MAX_ATTR && k->key[i]; i++)
    text_printf(out, "%s`%s`%s", i ? ", " : "", k->key[i],
                i < k->need ? " (needed)" : "");
}

static void add_count(int n, Text *out) {
  if (n < 0)
    text_add(out, "any");
  else
    text_printf(out, "%d", n);
}

void graph_ops_markdown(Text *out) {
  text_add(out, "\n| method | tensors | attributes | meaning |\n"
                "| --- | --- | --- | --- |\n");
  for (int code = 0; code < OP_N; code++) {
    const OpInfo *op = &op_info[code];
    if (!op->infer) continue; /* no method, as in graph_push_ops */
    text_printf(out, "| `g:%s` | ", op->name);
    add_count(op->nin, out);
    text_add(out, " | ");
    add_attributes(graph_op_keys(code), out);
    text_printf(out, " | `%s` |\n", op->doc);
  }
}
