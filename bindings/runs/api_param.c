/* api_param.c - parameters, gradients and states of a run for its host, by name: how many
 * elements they have, reading and writing them. */
#include "api_run.h"

#include "vm/weights/param_gather.h"
#include "vm/base/c_locale.h"
#include "vm/base/plural.h"

static const StateKind kinds[] = {
    [WEFT_PARAM] = STATE_PARAM,
    [WEFT_GRAD] = STATE_GRAD,
    [WEFT_MOMENT1] = STATE_OPT1,
    [WEFT_MOMENT2] = STATE_OPT2,
};

static weft_status find_param(const weft_run *r, weft_state what, const char *name,
                              int *param, weft_error *err) {
  if ((unsigned)what >= LEN(kinds))
    return err_set(err, WEFT_EUSAGE, "there is no weft_state %d", (int)what);
  const OptimizerInfo *o = &optimizer_info[r->c->optimizer];
  if (what >= WEFT_MOMENT1 && (int)(what - WEFT_MOMENT1) >= o->states)
    return err_set(err, WEFT_EUSAGE, "weft.%s keeps %d state%s of a parameter, not %d",
                   optimizer_title(r->c->optimizer), o->states, plural(o->states, "s"),
                   what - WEFT_MOMENT1 + 1);
  *param = name ? api_find_param(r->c, name) : -1;
  if (*param < 0)
    return err_set(err, WEFT_EUSAGE, "there is no parameter \"%s\"", name ? name : "");
  return WEFT_OK;
}

static weft_status kept_by_none(const weft_run *r, weft_state what, int param,
                                weft_error *err) {
  const CompiledParam *p = &r->c->param[param];
  if (p->frozen)
    return err_set(err, WEFT_EUSAGE, "%s is frozen: it has no gradient and no state",
                   p->name);
  int n = optimizer_states(r->c->optimizer, p->matrix);
  return err_set(err, WEFT_EUSAGE, "weft.%s keeps %d state%s of %s, not %d",
                 optimizer_title(r->c->optimizer), n, plural(n, "s"), p->name,
                 what - WEFT_MOMENT1 + 1);
}

weft_status weft_run_count(const weft_run *r, weft_state what, const char *name,
                           size_t *out, weft_error *err) {
  int param = 0;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(out, "the output argument for the number of elements", err));
  *out = 0;
  TRY(find_param(r, what, name, &param, err));
  if (what == WEFT_GRAD || run_keeps(r->c, kinds[what], param))
    *out = (size_t)kept_count(r->c, kinds[what], param);
  return WEFT_OK;
}

/* `zeros`: the gradient that nobody keeps is 0. */
static weft_status find_here(const weft_run *r, weft_state what, const char *name,
                             bool zeros, const float *at, size_t n, int *param,
                             weft_error *err) {
  TRY(find_param(r, what, name, param, err));
  if (!run_keeps(r->c, kinds[what], *param) && !(zeros && what == WEFT_GRAD))
    return kept_by_none(r, what, *param, err);
  bool needed = run_rank(r->s.run) == 0;
  long long count = kept_count(r->c, kinds[what], *param);
  if (needed && (!at || n != (size_t)count))
    return err_set(err, WEFT_EUSAGE, "%s has %lld elements, there is room for %zu", name,
                   count, at ? n : 0);
  return WEFT_OK;
}

/* Only the first process needs room: what is wrong with it is told to all. */
static weft_status find(const weft_run *r, weft_state what, const char *name, bool zeros,
                        const float *at, size_t n, int *param, weft_error *err) {
  err_clear(err);
  TRY(need(r, "the run", err));
  return run_agree(r->s.run, find_here(r, what, name, zeros, at, n, param, err), err);
}

weft_status weft_run_get(weft_run *r, weft_state what, const char *name, float *out,
                         size_t n, weft_error *err) {
  IN_C_LOCALE;
  int param = 0;
  TRY(find(r, what, name, true, out, n, &param, err));
  TRY(api_run_filled(r, err));
  return run_get(r->s.run, kinds[what], param, out, err);
}

weft_status weft_run_set(weft_run *r, weft_state what, const char *name, const float *in,
                         size_t n, weft_error *err) {
  IN_C_LOCALE;
  int param = 0;
  TRY(find(r, what, name, false, in, n, &param, err));
  return run_set(r->s.run, kinds[what], param, in, err);
}
