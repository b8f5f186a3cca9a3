/* attention_backend.c - which backend computes an attention op: weft's own kernels or the
 * library that the plan names; and linears in fp8 that a device's library does not
 * multiply. Both depend on plan, op and shapes alone. */
#include "unit_code_int.h"
#include "vm/graph/op_fp8.h"

static bool is_forward(int op) { return op == OP_attention || op == OP_attention_part; }

static bool is_attention(int op) {
  return is_forward(op) || op == OP_attention_dx || op == OP_attention_part_dx;
}

static KernelArgs shapes_of(const CodeInstr *x) {
  KernelArgs a = {.attr = &x->attr, .nin = x->i.nin, .nout = x->i.nout};
  for (int k = 0; k < a.nin; k++) a.in[k] = operand_shape(&x->operand[k]);
  for (int k = 0; k < a.nout; k++) a.out[k] = operand_shape(&x->operand[a.nin + k]);
  return a;
}

static const char *refusal(const Coder *c, const CodeInstr *x) {
  KernelArgs a = shapes_of(x);
  return c->device->refuses(x->i.op, &a);
}

/* "auto" leaves to weft's kernels what the machine's version does wrong; one that is
 * asked for ends the run that loads it. */
static bool unsound(const Coder *c, const CodeInstr *x) {
  KernelArgs a = shapes_of(x);
  int version = c->plan->attention_library;
  return c->plan->attention == ATTENTION_AUTO && version > 0 &&
         c->device->unsound(version, x->i.op, &a);
}

/* Whether doc_starts is among the operands. */
static bool documents(const Op *op, const Graph *g) {
  for (int i = 0; i < op->nin; i++)
    if (op->in[i] >= 0 && g->t.at[op->in[i]].dtype == DT_I32) return true;
  return false;
}

/* Why the library does not compute it; NULL if it does. Ranks that repeat an attention
 * step copies of its weights, whose gradients nobody adds up, and of all before it: with
 * "auto", where each rank has what its machine makes of it, that is so forward, too. */
static const char *why_native(const Coder *c, const Op *op, const CodeInstr *x) {
  const char *why = refusal(c, x);
  bool back = op->code == OP_attention_dx || op->code == OP_attention_part_dx;
  bool either = c->plan->attention == ATTENTION_AUTO;
  if (!why && unsound(c, x)) return "this version of it computes it wrongly";
  if (why || !(back || either)) return why;
  if (either && documents(op, c->g))
    return "weft's own kernel leaves out what lies outside of documents";
  if (back && c->plan->deterministic)
    return "it sums dq in no fixed order, and the plan asks for deterministic = true";
  if (coder_copies(c, op) > 1)
    return "it sums dq in no fixed order, and ranks of tp repeat this attention: their "
           "copies of its weights would drift apart";
  return NULL;
}

static void look_at_fp8(Coder *c, const Op *op, const CodeInstr *x) {
  const char *why = c->no_fp8 ? NULL : refusal(c, x);
  if (why)
    c->no_fp8 = arena_printf(c->a, "device %s does not multiply %s of %s in fp8: %s",
                             c->device->name, op_info[op->code].name, op->name, why);
}

void coder_backend(Coder *c, const Op *op, CodeInstr *x) {
  AttentionBackend asked = c->plan->attention;
  if (is_linear_fp8(op->code) && c->device->refuses) look_at_fp8(c, op, x);
  if (!is_attention(op->code) || !c->device->refuses) return;
  if (is_forward(op->code) && coder_copies(c, op) > 1) x->attr.backend = BACKEND_COPIES;
  if (asked == ATTENTION_NATIVE) return;
  if (asked == ATTENTION_AUTO && c->plan->attention_library == LIBRARY_NONE) return;
  const char *why = why_native(c, op, x);
  if (!why)
    x->attr.backend = asked == ATTENTION_AUTO && !c->plan->deterministic ? BACKEND_EITHER
                                                                         : BACKEND_CUDNN;
  else if (asked == ATTENTION_CUDNN && !c->refused)
    c->refused =
        arena_printf(c->a, "cuDNN does not compute %s of %s: %s", op_info[op->code].name,
                     op->name ? op->name : c->g->unit.at[c->unit].name, why);
}

bool coder_refuses(const Coder *c, Diags *d) {
  if (c->no_fp8)
    diag_error(d, "fp8", "precision", "%s", c->no_fp8)->suggestion =
        "precision.exclude leaves linears in param_dtype";
  if (!c->refused) return c->no_fp8 != NULL;
  diag_error(d, "attention", "attention_backend", "%s", c->refused)->suggestion =
      "\"auto\" leaves such attention to weft's own kernels";
  return true;
}
