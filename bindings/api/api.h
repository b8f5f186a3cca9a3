/* api.h - the handles of weft.h that are made from a loaded plan. */
#ifndef WEFT_API_H
#define WEFT_API_H

#include "vm/base/budget.h"
#include "job.h"
#include "vm/mesh/mesh_handle.h"

struct weft_plan {
  weft_alloc alloc;
  Budget budget; /* of the arena */
  Arena *arena;
  LangOptions opt; /* copies, in the arena */
  const char *path;
  Job job;
  bool from_value;  /* not from a file */
  bool loaded;      /* without an error */
  bool spent;       /* the memory ran out: only reports and free are left */
  Diags after_load; /* what a compile starts from */
  struct weft_mesh mesh;
  Text text; /* what the last query returned */
};

/* weft_plan_load with a table in place of a file. */
weft_status api_plan_take(const weft_plan_options *options, const LangValue *value,
                          weft_plan **out, weft_error *err);
/* The parameter called `name`, or -1. */
int api_find_param(const Compiled *c, const char *name);
/* A stop flag of weft.h. A lock-free atomic int is an int in memory. */
const StopFlag *api_stop(const volatile int *stop);
/* The end of a call on a job: the error of its diagnostics or its own goes to `err`. */
weft_status api_end(const Job *j, weft_status st, weft_error *err);

#endif
