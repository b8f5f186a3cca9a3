/* weights_open.c - see weights_open.h. */
#include "weights_open.h"

#include "adapter_files.h"
#include "adapter_settings.h"
#include "weights_match.h"
#include "vm/graph/second_model.h"

static weft_status add_adapter(const weft_alloc *a, SafeTensors *to, const Adapter *of,
                               const Folders *in, Arena *scratch, weft_error *e) {
  if (setjmp(*arena_guard(scratch))) return err_set(e, WEFT_ENOMEM, "out of memory");
  const char *folder = folders_find(in, scratch, of->from);
  const char *config = arena_printf(scratch, "%s/" ADAPTER_CONFIG, folder);
  const char *weights = arena_printf(scratch, "%s/" ADAPTER_WEIGHTS, folder);
  TRY(folders_hold(in, config, e));
  TRY(folders_hold(in, weights, e));
  TRY(st_also(to, weights, e));
  return adapter_settings(a, config, of, to, e);
}

static weft_status open_teacher(const weft_alloc *a, const char *teacher,
                                const Folders *in, Arena *scratch, SafeTensors **out,
                                weft_error *e) {
  if (setjmp(*arena_guard(scratch))) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(st_open(a, folders_find(in, scratch, teacher), in, out, e));
  return st_prefix(*out, TEACHER_PREFIX, e);
}

/* Adds those of the teacher, or opens them alone. */
static weft_status add_teacher(const weft_alloc *a, const char *teacher,
                               const Folders *in, SafeTensors **out, weft_error *e) {
  SafeTensors *own = NULL;
  Arena *scratch = arena_new(a);
  weft_status st = scratch ? open_teacher(a, teacher, in, scratch, &own, e)
                           : err_set(e, WEFT_ENOMEM, "out of memory");
  arena_free(scratch);
  if (st == WEFT_OK && !*out)
    *out = own;
  else if (st == WEFT_OK)
    st = st_take(*out, own, e);
  else
    st_close(own);
  if (st == WEFT_OK) return st;
  st_close(*out);
  *out = NULL;
  return st;
}

/* Files that have them already, as those of a model that was grown and trained, stay. */
static weft_status grow(SafeTensors *s, VocabGrowth by, weft_error *e) {
  for (int i = 0; i < st_count(s); i++)
    if (weights_of_tokens(st_at(s, i)->name) && st_at(s, i)->ndim &&
        st_at(s, i)->dim[0] == by.from)
      TRY(st_grow(s, i, by.to, e));
  return WEFT_OK;
}

weft_status weights_open_model(const weft_alloc *a, const char *path, const Folders *in,
                               const Plan *plan, SafeTensors **out, weft_error *e) {
  *out = NULL;
  if (!path) return WEFT_OK;
  TRY(st_open(a, path, in, out, e));
  weft_status st = plan->grown.to ? grow(*out, plan->grown, e) : WEFT_OK;
  if (st == WEFT_OK) return st;
  st_close(*out);
  *out = NULL;
  return st;
}

static weft_status open_own(const weft_alloc *a, const char *path, const Folders *in,
                            const Plan *plan, const Folders *of_plan, SafeTensors **out,
                            weft_error *e) {
  *out = NULL;
  if (!path && plan->adapter.from)
    return err_set(e, WEFT_EPLAN,
                   "adapter.from: the model has no weights that %s could be of: weft.hf "
                   "reads some",
                   plan->adapter.from);
  TRY(weights_open_model(a, path, in, plan, out, e));
  weft_status st = WEFT_OK;
  if (plan->adapter.from) {
    Arena *scratch = arena_new(a);
    st = scratch ? add_adapter(a, *out, &plan->adapter, of_plan, scratch, e)
                 : err_set(e, WEFT_ENOMEM, "out of memory");
    arena_free(scratch);
  }
  if (st == WEFT_OK) return st;
  st_close(*out);
  *out = NULL;
  return st;
}

weft_status weights_open(const weft_alloc *a, const char *path, const Folders *in,
                         const Plan *plan, const Folders *of_plan, SafeTensors **out,
                         weft_error *e) {
  TRY(open_own(a, path, in, plan, of_plan, out, e));
  if (plan->loss.second != SECOND_TEACHER) return WEFT_OK;
  return add_teacher(a, plan->loss.teacher, of_plan, out, e);
}
