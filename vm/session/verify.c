/* verify.c - compares a parallel run (`many`) with a run on one rank (`one`), step by
 * step.
 *
 * Both start each step from the same parameters and states, so differences do not
 * accumulate. A tensor is compared by the L2 norm of its difference, relative to its own
 * norm. If its true value is (near) zero, such as the gradient of a key bias, it consists
 * of rounding noise, and the norm of its layer is taken instead; a parameter of one
 * element is judged as the elements of others are, not by what its own sum happens to be
 * near 0. Adam turns such noise into steps of full size: so the part of a parameter's
 * difference that follows from the differences of gradients and states, by
 * optimizer_info, is subtracted, and only the rest counts. */
#include "verify_int.h"
#include "vm/base/budget.h"

#include "vm/base/bf16.h"
#include "vm/base/f16.h"
#include "vm/weights/magnitudes.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/snapshot.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

/* A tensor is near zero if its largest element is below this many tolerances of the
 * largest in its layer. A wrong gradient is still noticed down to one tolerance. */
enum { NEAR_ZERO = 10 };

static const char *kind_name(const Verify *v, StateKind k) {
  if (k == STATE_PARAM) return "parameter";
  return k == STATE_GRAD ? "gradient" : v->optimizer->state[k - STATE_OPT1].title;
}

/* ---- norms and tolerance ---- */

static Norms norms(const float *many, const float *one, int64_t n) {
  double d = 0, r = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = (double)many[i] - one[i];
    d += x * x;
    r += (double)one[i] * one[i];
  }
  return (Norms){sqrt(d), sqrt(r)};
}

static double relative(double diff, double ref) {
  if (diff == 0) return 0;
  if (isnan(diff) || isnan(ref)) return INFINITY;
  return ref > 0 ? diff / ref : INFINITY;
}

/* Whether this process compares: gathered tensors are on the process of rank 0. */
static bool compares(const Verify *v) { return run_rank(v->many) == 0; }

/* Records one comparison, of this parameter or -1; `field` points at the figure of the
 * report that it belongs to. */
static void judge(Verify *v, int64_t step, const char *what, int param, double difference,
                  double tolerance, double *field) {
  VerifyReport *out = v->out;
  const char *name = param < 0 ? "" : v->c->param[param].name;
  if (!compares(v)) return;
  if (difference > *field) *field = difference;
  if (difference > v->worst) {
    v->worst = difference;
    snprintf(out->worst, sizeof out->worst, "%s%s%s", what, *name ? " of " : "", name);
  }
  if (difference <= tolerance || !out->ok) return;
  out->ok = false;
  snprintf(out->first_bad, sizeof out->first_bad,
           "step %lld: %s%s%s differs by %.2g (tolerance %.2g)", (long long)step, what,
           *name ? " of " : "", name, difference, tolerance);
}

/* Length of the layer's prefix: "model.layers.3.self_attn.q_proj.bias" ->
 * "model.layers.3". For a name without a number, that of its module. */
static size_t layer_length(const char *name) {
  for (const char *s = name; (s = strchr(s, '.')); s++)
    if (isdigit((unsigned char)s[1])) {
      size_t n = (size_t)(s + 1 - name);
      while (isdigit((unsigned char)name[n])) n++;
      return n;
    }
  const char *last = strrchr(name, '.');
  return last ? (size_t)(last - name) : strlen(name);
}

static void find_layers(Verify *v) {
  const CompiledParam *p = v->c->param;
  for (int i = 0; i < v->c->nparam; i++) {
    size_t n = layer_length(p[i].name);
    int k = 0;
    while (layer_length(p[k].name) != n || strncmp(p[k].name, p[i].name, n) != 0) k++;
    v->layer[i] = k;
  }
}

static double per_element(const Verify *v, StateKind k, int param) {
  return v->norm[param].ref / sqrt((double)kept_count(v->c, k, param));
}

/* Compares v->norm, the norms of all tensors of one kind, from the last tensor to the
 * first: the backward pass computes the last ones first, and an error spreads to those
 * before, so the first difference that is reported is nearest to its cause. */
static void judge_all(Verify *v, int64_t step, StateKind k, double *field) {
  for (int i = v->c->nparam - 1; i >= 0; i--) {
    double scale = 0, own = per_element(v, k, i);
    for (int q = 0; q < v->c->nparam; q++)
      if (v->layer[q] == v->layer[i]) scale = fmax(scale, per_element(v, k, q));
    bool element = kept_count(v->c, k, i) == 1;
    bool near_zero = own < (element ? scale : NEAR_ZERO * v->tolerance * scale);
    double root = sqrt((double)kept_count(v->c, k, i));
    double ref = near_zero ? scale * root : v->norm[i].ref;
    double difference = relative(v->norm[i].diff, ref);
    judge(v, step, kind_name(v, k), i, difference, tolerance_of(v, &v->out->grad, i),
          field);
    if (v->measured) measure(v, i, difference);
    v->out->tensors++;
  }
}

/* ---- state ---- */

static weft_status copy_state(Verify *v, weft_error *e) {
  for (int k = 0; k < kept_kinds(v->c); k++) {
    float *before = k ? v->before[k - 1] : v->value;
    for (int i = 0; i < v->c->nparam; i++) {
      int64_t n = kept_count(v->c, kept_kind(k), i);
      TRY(run_get(v->many, kept_kind(k), i, v->buf[0], e));
      if (compares(v)) TRY(run_set(v->one, kept_kind(k), i, v->buf[0], e));
      if (before) memcpy(before, v->buf[0], (size_t)n * sizeof *before), before += n;
    }
  }
  return WEFT_OK;
}

static weft_status get_both(Verify *v, StateKind k, int param, int at, weft_error *e) {
  TRY(run_get(v->many, k, param, v->buf[at], e));
  return compares(v) ? run_get(v->one, k, param, v->buf[at + 1], e) : WEFT_OK;
}

static weft_status compare_kind(Verify *v, int64_t step, StateKind k, double *field,
                                weft_error *e) {
  for (int i = 0; i < v->c->nparam; i++) {
    TRY(get_both(v, k, i, 0, e));
    v->norm[i] = norms(v->buf[0], v->buf[1], kept_count(v->c, k, i));
    /* The relative difference of a square is twice that of its root, which is what the
     * step uses. */
    if (k >= STATE_OPT1) v->norm[i].diff /= v->optimizer->state[k - STATE_OPT1].power;
  }
  judge_all(v, step, k, field);
  return WEFT_OK;
}

/* Rounds initial values of `one` to the type in which `many` has them: a frozen parameter
 * has no f32 value beside the one that ops read, and without f32 master weights none has.
 */
static void round_as_stored(const Verify *v, int param, float *x) {
  DType to = v->c->param[param].frozen ? v->plan->dtype : v->plan->master;
  if (v->c->param[param].quant) return;     /* stored as on one rank, */
  if (v->c->param[param].share > 0) return; /* and so are biases of routers, in f32 */
  for (int64_t i = 0; i < param_count(&v->c->param[param]); i++)
    x[i] = to == DT_BF16  ? bf16_to_f32(bf16_from_f32(x[i]))
           : to == DT_F16 ? f16_to_f32(f16_from_f32(x[i]))
                          : x[i];
}

/* Initial values must have the same bits on both sides, whatever the mesh; checked before
 * the first step. Magnitudes are norms of what ops read: where `many` rounds that, they
 * are as near as the rounding. */
static weft_status compare_initial(Verify *v, weft_error *e) {
  for (int i = 0; i < v->c->nparam; i++) {
    int64_t n = param_count(&v->c->param[i]);
    TRY(get_both(v, STATE_PARAM, i, 0, e));
    if (compares(v)) round_as_stored(v, i, v->buf[1]);
    bool same = memcmp(v->buf[0], v->buf[1], (size_t)n * sizeof(float)) == 0;
    Norms d = norms(v->buf[0], v->buf[1], n);
    if (magnitudes(&v->c->param[i]) && v->plan->dtype != DT_F32)
      same = relative(d.diff, d.ref) <= v->tolerance;
    judge(v, 0, "initial value", i,
          same ? 0 : fmax(relative(d.diff, d.ref), 2 * v->tolerance), v->tolerance,
          &v->out->param);
  }
  return WEFT_OK;
}

static weft_status compare_params(Verify *v, const StepResult *many, const StepResult *s,
                                  weft_error *e) {
  int64_t first = 0;
  for (int i = 0; i < v->c->nparam; i++) {
    int64_t n = param_count(&v->c->param[i]);
    TRY(get_both(v, STATE_PARAM, i, B_PARAM, e));
    double apart = 0;
    TRY(run_apart(v->many, STATE_PARAM, i, v->buf[0], &apart, e));
    TRY(get_both(v, STATE_GRAD, i, B_GRAD, e));
    for (int k = 0; k < v->optimizer->states; k++)
      TRY(get_both(v, state_opt(k), i, B_STATE + 2 * k, e));
    double step = 0, bound = 0;
    if (compares(v)) TRY(explain_param(v, many, s, i, first, &step, &bound, e));
    first += n;
    v->norm[i] = norms(v->buf[0], v->buf[1], n);
    double far = v->norm[i].diff;
    v->norm[i].diff = far <= bound ? 0 : far - bound; /* NaN stays */
    /* A step may end near 0; the rounding error is relative to the step then. */
    v->norm[i].ref = fmax(v->norm[i].ref, step);
    judge(v, s->step, kind_name(v, STATE_PARAM), i,
          relative(v->norm[i].diff, v->norm[i].ref), tolerance_of(v, &v->out->param, i),
          &v->out->param);
    /* Replicas must be equal bit by bit: no tolerance. */
    judge(v, s->step, "a replica", i,
          apart > 0 ? fmax(relative(apart, v->norm[i].ref), 2 * v->tolerance) : 0,
          v->tolerance, &v->out->param);
    v->out->tensors++;
  }
  return WEFT_OK;
}

/* Runs the step of `many`; one that is skipped because of its loss scale is run again
 * with the smaller scale. */
static weft_status step_of_many(Verify *v, int64_t step, StepResult *out, weft_error *e) {
  enum { TRIES = 100 };
  TRY(run_step_tokens(v->many, v->tokens, v->labels, step, out, e));
  for (int i = 0; out->skipped; i++) {
    if (i == TRIES)
      return err_set(e, WEFT_ERUN, "step %lld: gradients still overflow at loss scale %g",
                     (long long)step, out->loss_scale);
    run_retry(v->many);
    TRY(run_step_tokens(v->many, v->tokens, v->labels, step, out, e));
  }
  return WEFT_OK;
}

/* Copies of states, too, which run_apart does not look at. Processes end with the error.
 */
static weft_status check_replicas(Verify *v, int64_t step, weft_error *e) {
  weft_error why = NO_ERROR;
  weft_status st = run_check_replicas(v->many, &why);
  if (st == WEFT_OK || (st == WEFT_ERUN && !v->out->ok)) return WEFT_OK;
  if (st == WEFT_ERUN && run_is_alone(v->many)) {
    v->out->ok = false;
    snprintf(v->out->first_bad, sizeof v->out->first_bad, "step %lld: %s",
             (long long)step, why.text);
    return WEFT_OK;
  }
  *e = why;
  return st;
}

static weft_status one_step(Verify *v, int64_t step, weft_error *e) {
  StepResult many, one = {0};
  make_tokens(v, step);
  TRY(copy_state(v, e));
  if (v->shakes) TRY(shake_weights(v, step, e));
  TRY(step_of_many(v, step, &many, e));
  if (compares(v)) TRY(run_step_tokens(v->one, v->tokens, v->labels, step, &one, e));
  judge(v, step, "number of label tokens", -1,
        relative(fabs((double)(many.tokens - one.tokens)), (double)one.tokens),
        v->tolerance, &v->out->loss);
  judge(v, step, "loss", -1, relative(fabs(many.loss - one.loss), fabs(one.loss)),
        tolerance_of(v, &v->out->loss, -1), &v->out->loss);
  TRY(compare_kind(v, step, STATE_GRAD, &v->out->grad, e));
  judge(v, step, "gradient norm", -1,
        relative(fabs(many.grad_norm - one.grad_norm), one.grad_norm),
        tolerance_of(v, &v->out->grad_norm, -1), &v->out->grad_norm);
  for (int k = 0; k < v->optimizer->states; k++)
    TRY(compare_kind(v, step, state_opt(k), &v->out->grad, e));
  /* What follows from a rate is explained by it, so that it has to be the same one. */
  judge(v, step, "learning rate", -1, relative(fabs(many.lr - one.lr), one.lr),
        v->tolerance, &v->out->param);
  TRY(compare_params(v, &many, &one, e));
  TRY(check_replicas(v, step, e));
  v->out->steps++;
  return WEFT_OK;
}

/* ---- set up ---- */

static weft_status check_pair(const Compiled *many, const Compiled *one, weft_error *e) {
  int dp = mesh_size(&many->mesh, AXES_DP);
  bool same = many->nparam == one->nparam && one->mesh.world == 1 &&
              many->microbatches == one->microbatches && many->seq == one->seq &&
              many->micro * dp == one->micro;
  for (int i = 0; same && i < many->nparam; i++)
    same = strcmp(many->param[i].name, one->param[i].name) == 0 &&
           param_count(&many->param[i]) == param_count(&one->param[i]);
  if (same) return WEFT_OK;
  return err_set(e, WEFT_EINTERNAL,
                 "verify: the one-rank program is not that of the same plan");
}

static size_t before_bytes(const Verify *v) {
  int64_t n = 0;
  for (int i = 0; i < v->c->nparam; i++) n += param_count(&v->c->param[i]);
  return (size_t)n * sizeof(float);
}

static weft_status set_up(Verify *v, const Compiled *one, int threads, weft_error *e) {
  size_t n = (size_t)v->c->nparam;
  for (int i = 0; i < v->c->nparam; i++)
    v->largest = MAX(v->largest, MAX(param_count(&v->c->param[i]),
                                     param_state_count(&v->c->param[i])));
  v->ids = (int64_t)v->c->microbatches * one->micro * v->c->seq;
  v->vocab = one->vocab;
  bool ok = (v->layer = mem_new(v->alloc, n * sizeof *v->layer)) != NULL;
  ok = (v->norm = mem_new(v->alloc, n * sizeof *v->norm)) && ok;
  ok = (v->tokens = mem_new(v->alloc, (size_t)v->ids * sizeof *v->tokens)) && ok;
  ok = (v->labels = mem_new(v->alloc, (size_t)v->ids * sizeof *v->labels)) && ok;
  for (int i = 0; i < LEN(v->buf); i++)
    ok = (v->buf[i] = mem_new(v->alloc, (size_t)v->largest * sizeof *v->buf[i])) && ok;
  for (int k = 0; k < v->optimizer->states; k++)
    if (v->optimizer->state[k].before)
      ok = (v->before[k] = mem_new(v->alloc, before_bytes(v))) && ok;
  if (v->optimizer->factored) ok = (v->value = mem_new(v->alloc, before_bytes(v))) && ok;
  if (!ok) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (v->optimizer->matrices)
    TRY(orthogonal_open(&v->orthogonal, v->alloc, threads, v->largest, e));
  if (v->vocab == INT32_MAX)
    return err_set(e, WEFT_EUSAGE,
                   "verify: the model reads no tokens and has no loss "
                   "over a vocabulary");
  find_layers(v);
  return WEFT_OK;
}

static void clean_up(Verify *v) {
  size_t n = (size_t)v->c->nparam;
  orthogonal_close(&v->orthogonal);
  for (int k = 0; k < LEN(v->before); k++)
    if (v->before[k]) mem_free(v->alloc, v->before[k], before_bytes(v));
  if (v->value) mem_free(v->alloc, v->value, before_bytes(v));
  for (int i = 0; i < LEN(v->buf); i++)
    mem_free(v->alloc, v->buf[i], (size_t)v->largest * sizeof *v->buf[i]);
  mem_free(v->alloc, v->labels, (size_t)v->ids * sizeof *v->labels);
  mem_free(v->alloc, v->tokens, (size_t)v->ids * sizeof *v->tokens);
  mem_free(v->alloc, v->norm, n * sizeof *v->norm);
  mem_free(v->alloc, v->layer, n * sizeof *v->layer);
  run_close(v->one);
  run_close(v->many);
}

static weft_status compare_runs(Verify *v, const Plan *plan_one, const Compiled *one,
                                int steps, const RunOptions *options, weft_error *e) {
  RunOptions many = options ? *options : (RunOptions){0};
  RunOptions o = {.alloc = v->alloc, .stop = many.stop, .threads = many.threads};
  many.alloc = v->alloc;
  TRY(check_pair(v->c, one, e));
  TRY(set_up(v, one, many.threads, e));
  TRY(run_open(v->plan, v->c, &many, &v->many, e));
  if (compares(v)) TRY(run_open(plan_one, one, &o, &v->one, e));
  TRY(run_init(v->many, e));
  if (compares(v)) TRY(run_init(v->one, e));
  TRY(compare_initial(v, e));
  for (int64_t step = 0; step < steps; step++) TRY(one_step(v, step, e));
  return WEFT_OK;
}

static const OptimizerInfo *fewer_states(const Compiled *many, const Compiled *one) {
  const OptimizerInfo *a = &optimizer_info[many->optimizer],
                      *b = &optimizer_info[one->optimizer];
  return a->states < b->states ? a : b;
}

weft_status verify_runs(Verify *v, const Plan *plan_one, const Compiled *one, int steps,
                        const RunOptions *options, weft_error *e) {
  VerifyReport *out = v->out;
  *out = (VerifyReport){.ok = true};
  v->alloc = budget_below(v->c->arena);
  v->optimizer = fewer_states(v->c, one);
  v->worst = -1;
  weft_status st = compare_runs(v, plan_one, one, steps, options, e);
  const char *why = v->many ? run_not_captured(v->many) : NULL;
  if (why) snprintf(out->not_captured, sizeof out->not_captured, "%s", why);
  for (int i = 0; v->many && (why = run_warning(v->many, i)); i++)
    snprintf(out->warning[i], sizeof out->warning[i], "%s", why);
  clean_up(v);
  return st;
}

weft_status verify(const Plan *plan, const Compiled *many, const Plan *plan_one,
                   const Compiled *one, int steps, double tolerance,
                   const RunOptions *options, VerifyReport *out, weft_error *e) {
  Verify v = {.plan = plan, .c = many, .tolerance = tolerance, .out = out};
  return verify_runs(&v, plan_one, one, steps, options, e);
}
