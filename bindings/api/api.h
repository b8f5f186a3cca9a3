/* api.h - the handles of weft.h that are made from a loaded plan. */
#ifndef WEFT_API_H
#define WEFT_API_H

#include "vm/base/budget.h"
#include "job.h"
#include "vm/mesh/mesh_handle.h"

struct weft_plan {
  weft_alloc alloc;
  Budget budget; /* of the arena's memory */
  Arena *arena;
  LangOptions opt; /* copies of the caller's, in the arena */
  const char *path;
  Job job;
  bool from_value;     /* made from a table, not a file */
  bool loaded;         /* loading has found no error */
  bool spent;          /* memory ran out: only reports and weft_plan_free may be called */
  Diags after_load;    /* diagnostics of loading; each compile starts from a copy */
  Diags after_compile; /* the same of compiling; each check starts from a copy */
  Diags *warnings;     /* made by api_plan_warnings; NULL: not yet */
  struct weft_mesh mesh;
  Text text; /* returned by the last query */
};

/* weft_plan_load with a table in place of a file. */
weft_status api_plan_take(const weft_plan_options *options, const LangValue *value,
                          bool draft, weft_plan **out, weft_error *err);
/* weft_plan_load with the text of a file that need not be there. */
weft_status api_plan_text(const weft_plan_options *options, const char *path,
                          const char *text, weft_plan **out, weft_error *err);
/* The same without checks of the layout (its mesh and what follows from it), as the start
 * of a search for one that is right. `text` may be NULL: the file is read. */
weft_status api_plan_draft(const weft_plan_options *options, const char *path,
                           const char *text, weft_plan **out, weft_error *err);
/* Of a compiled plan: the warnings of `weft check` for which no file is read. They are
 * the plan's. */
weft_status api_plan_warnings(weft_plan *p, const Diags **out, weft_error *err);
/* The parameter called `name`, or -1. */
int api_find_param(const Compiled *c, const char *name);
/* A stop flag of weft.h. A lock-free atomic int is an int in memory. */
const StopFlag *api_stop(const volatile int *stop);
/* Ends a call on a job: copies its error, or the first error of its diagnostics, to
 * `err`. */
weft_status api_end(const Job *j, weft_status st, weft_error *err);

#endif
