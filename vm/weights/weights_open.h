/* weights_open.h - the files that a run of a plan begins at: the folder of its model, and
 * that of its adapter, if it begins at one. */
#ifndef WEFT_WEIGHTS_OPEN_H
#define WEFT_WEIGHTS_OPEN_H

#include "vm/io/io.h"
#include "vm/plan/plan.h"

/* Opens `path` (NULL: the model has no weights, and *out is NULL), within `in` if that is
 * not NULL, and the adapter of the plan, whose folder must be within `of_plan`: its
 * settings are the plan's, or an error names the file and the key; and, likewise, the
 * teacher of the plan's loss, with names that begin with TEACHER_PREFIX. Where the plan's
 * model has more tokens than its folder, embedding and head have further rows, each the
 * mean of those in the file. */
weft_status weights_open(const weft_alloc *a, const char *path, const Folders *in,
                         const Plan *plan, const Folders *of_plan, SafeTensors **out,
                         weft_error *e);

/* The same of the model alone, without an adapter and a teacher: what exported files are
 * like. */
weft_status weights_open_model(const weft_alloc *a, const char *path, const Folders *in,
                               const Plan *plan, SafeTensors **out, weft_error *e);

#endif
