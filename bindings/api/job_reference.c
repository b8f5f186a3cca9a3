/* job_reference.c - the losses of a reference that a plan's loss reads from a file: where
 * the file is, and which model it has to be of. */
#include "job.h"

#include <unistd.h>

const char *job_reference_path(Job *j, bool write) {
  Folders in = lang_folders(j->lp);
  const char *name = j->plan.loss.file, *plan = in.plan ? in.plan : "";
  return write ? folders_below(j->arena, plan, name) : folders_find(&in, j->arena, name);
}

/* ---- the model ---- */

/* Without weights a model begins at the values of the seed. */
static weft_status add_values(Job *j, uint64_t *h, weft_error *e) {
  SafeTensors *weights = NULL;
  TRY(job_weights(j, NULL, &weights, e));
  if (!weights) {
    *h = hash_bytes(*h, &j->plan.seed, sizeof j->plan.seed);
    return WEFT_OK;
  }
  weft_status st = st_look(weights, 0, h, e);
  st_close(weights);
  return st;
}

/* How much each module's adapter counts, whichever settings say so and in any order; what
 * else it is, its files say. */
static uint64_t add_adapter(uint64_t h, const Compiled *c, const Adapter *a) {
  uint64_t all = 0;
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    if (p->adapter != ADAPTER_A) continue;
    double scale = plan_adapter_scale(a, p->dim[p->ndim - 2], p->alpha);
    all += hash_bytes(hash_bytes(0, p->name, strlen(p->name)), &scale, sizeof scale);
  }
  return hash_bytes(h, &all, sizeof all);
}

/* An adapter that begins at its initial values adds nothing. */
weft_status job_reference_model(Job *j, uint64_t *hash, weft_error *e) {
  const Adapter *a = &j->plan.adapter;
  Text model = {0};
  weft_status st = lang_config_text(j->lp, &model, e);
  uint64_t h = hash_bytes(0, model.s, model.n);
  text_free(&model);
  TRY(st);
  if (a->base != BASE_UNQUANTIZED) h = hash_bytes(h, &a->base, sizeof a->base);
  if (a->from) h = add_adapter(h, j->compiled, a);
  TRY(add_values(j, &h, e));
  *hash = h;
  return WEFT_OK;
}

weft_status job_reference(Job *j, weft_error *e) {
  DataSpec *d = &j->plan.data;
  if (j->plan.loss.second != SECOND_FILE || d->reference) return WEFT_OK;
  TRY(job_reference_model(j, &d->reference_model, e));
  Folders in = lang_folders(j->lp);
  const char *path = job_reference_path(j, false);
  if (access(path, F_OK) != 0)
    return err_file(e, WEFT_EFILE, path, 0,
                    "is not there; weft eval PLAN --reference writes it");
  TRY(folders_hold(&in, path, e));
  d->reference = path;
  return WEFT_OK;
}
