/* attention_backend.c - which backend computes an attention op: weft's own kernels or the
 * library that the plan names. The choice depends on plan, op and shapes alone. */
#include "unit_code_int.h"

static bool is_attention(int op) {
  return op == OP_attention || op == OP_attention_dx || op == OP_attention_part ||
         op == OP_attention_part_dx;
}

/* Why the library does not compute it; NULL if it does. */
static const char *why_native(const Coder *c, const CodeInstr *x) {
  KernelArgs a = {.attr = &x->attr, .nin = x->i.nin, .nout = x->i.nout};
  for (int k = 0; k < a.nin; k++) a.in[k] = operand_shape(&x->operand[k]);
  for (int k = 0; k < a.nout; k++) a.out[k] = operand_shape(&x->operand[a.nin + k]);
  const char *why = c->device->refuses(x->i.op, &a);
  if (!why && x->i.op == OP_attention_dx && c->plan->deterministic)
    why = "it sums dq in no fixed order, and the plan asks for deterministic = true";
  return why;
}

void coder_backend(Coder *c, const Op *op, CodeInstr *x) {
  AttentionBackend asked = c->plan->attention;
  if (!is_attention(op->code) || asked == ATTENTION_NATIVE || !c->device->refuses) return;
  const char *why = why_native(c, x);
  if (!why)
    x->attr.backend = BACKEND_CUDNN;
  else if (asked == ATTENTION_CUDNN && !c->refused)
    c->refused =
        arena_printf(c->a, "cuDNN does not compute %s of %s: %s", op_info[op->code].name,
                     op->name ? op->name : c->g->unit.at[c->unit].name, why);
}

bool coder_refuses(const Coder *c, Diags *d) {
  if (!c->refused) return false;
  diag_error(d, "attention", "attention_backend", "%s", c->refused)->suggestion =
      "\"auto\" leaves such attention to weft's own kernels";
  return true;
}
