/* weights_folder.h - a folder of Hugging Face files that is written piece by piece, by
 * threads and processes together. */
#ifndef WEFT_EXEC_WEIGHTS_OUT_H
#define WEFT_EXEC_WEIGHTS_OUT_H

#include "weights_match.h"

typedef struct WeightsFile {
  const char *name, *data;
  size_t bytes;
} WeightsFile;

typedef struct WeightsOutOptions {
  const Dir *in;           /* has the folder; NULL: `dir` is a path that the user gives */
  const char *dir;         /* its name: new, or an empty folder */
  const SafeTensors *like; /* names, order of rows and types are those of its tensors;
                              NULL: the parameters' names, but for */
  const char *const *packed; /* modules that such files have as one: weights_packed */
  DType dtype;               /* of all tensors; DT_ACT: as in `like`, else f32 */
  uint64_t shard_bytes;      /* of a file, unless one tensor is larger; 0: 5 GB */
  bool adapter;              /* adapters alone, as PEFT has them; else all but them */
  const WeightsFile *file;   /* what else is in the folder: config.json ... */
  int nfile;
} WeightsOutOptions;
enum { WEIGHTS_SHARD_GB = 5 };
/* Which files may be beside the weights, and whether a name is one that such a folder
 * has. */
enum { WEIGHTS_BESIDE = 10 };
extern const char *const weights_beside[WEIGHTS_BESIDE];
bool weights_out_owns(const char *name);

typedef struct WeightsOut WeightsOut;
/* Takes the space of all files. */
weft_status weights_out_open(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, WeightsOut **out, weft_error *e);
/* The names under which another process finds the files while they are written: a block
 * of bytes whose size follows from the options. */
size_t weights_out_names_bytes(const Compiled *c, const WeightsOutOptions *o);
void weights_out_names(const WeightsOut *w, char *names, size_t bytes);
weft_status weights_out_join(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, const char *names,
                             WeightsOut **out, weft_error *e);
/* Whether the folder has this parameter. */
bool weights_out_has(const WeightsOut *w, const CompiledParam *p);
/* Elements [from, from + n) of a parameter, which are overwritten. Thread-safe. */
weft_status weights_out_put(const WeightsOut *w, int param, int64_t from, int64_t n,
                            float *values, weft_error *e);
/* In a process that joined: syncs. In the first one, after the others: the folder
 * appears. Frees `w` also after an error, when nothing is left of it. */
weft_status weights_out_finish(WeightsOut *w, weft_error *e);
void weights_out_drop(WeightsOut *w); /* may be NULL */

#endif
