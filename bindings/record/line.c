/* line.c - the terminal's line for a step. Unknown figures are left out. */
#include "record.h"

#include "bindings/object/format.h"

static void add_rates(const Record *r, Text *out) {
  char rate[32];
  text_printf(out, "  %s tokens/s", format_count(r->tokens_per_s, rate));
  if (r->flops_per_s > 0) text_printf(out, "  %s", format_flops(r->flops_per_s, rate));
  if (r->share > 0) text_printf(out, " (%.1f %%)", 100 * r->share);
}

static void add_left(const Record *r, Text *out) {
  char left[32];
  if (r->left_s >= 0) text_printf(out, "  %s left", format_span(r->left_s, left));
}

/* How many tokens were learnt, where it is not all of them. */
static void add_counts(const StepResult *s, Text *out) {
  char n[32];
  if (!s->partial) return;
  text_printf(out, "  %s learnt", format_count((double)s->tokens, n));
  if (s->padded) text_printf(out, ", %s padded", format_count((double)s->padded, n));
  if (s->left_out) text_printf(out, ", %s dropped", format_count((double)s->left_out, n));
}

void line_of_step(const Record *r, Text *out) {
  const StepResult *s = &r->step;
  char memory[32];
  text_printf(out, "step %6lld/%lld  loss %8.4f  grad %8.4f  lr %.3e", (long long)s->step,
              (long long)r->end, s->loss, s->grad_norm, s->lr);
  add_counts(s, out);
  add_rates(r, out);
  text_printf(out, "  %s  %.1f ms", format_bytes((double)r->memory, memory), s->ms);
  add_left(r, out);
}

void line_of_evaluation(const Record *r, Text *out) {
  const StepResult *s = &r->step;
  char tokens[32];
  text_printf(out, "step %6lld/%lld  evaluation loss %8.4f  %s tokens  %.1f ms",
              (long long)s->step, (long long)r->end, s->eval_loss,
              format_count((double)s->eval_tokens, tokens), s->eval_ms);
}

/* Reported for every skipped step: a few at the start are normal, many are not. */
void line_of_skipped(const Record *r, Text *out) {
  text_printf(out, "step %6lld/%lld  skipped: gradients overflowed at loss scale %g",
              (long long)r->step.step, (long long)r->end, r->step.loss_scale);
}

void line_of_progress(const Record *r, Text *out) {
  text_printf(out, "%lld/%lld  loss %.4f", (long long)r->step.step + 1, (long long)r->end,
              r->step.loss);
  add_rates(r, out);
  add_left(r, out);
}
