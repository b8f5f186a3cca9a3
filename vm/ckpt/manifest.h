/* manifest.h - the metadata of a checkpoint: docs/checkpoints.md lists the members. It is
 * written last, and ends with a checksum of everything before it. */
#ifndef WEFT_CKPT_MANIFEST_H
#define WEFT_CKPT_MANIFEST_H

#include "vm/base/checksum.h"
#include "vm/weights/snapshot.h"

#define MANIFEST_NAME "manifest.json"
enum { CKPT_VERSION = 1 };

typedef struct CkptFile {
  char name[32];   /* "rank-00003.safetensors" */
  uint64_t bytes;  /* 0: the rank has no file */
  uint64_t header; /* checksum of the file's header, which has those of its data */
} CkptFile;

typedef struct CkptParam {
  const char *name;
  int ndim;
  int64_t dim[MAX_DIM];
  bool frozen;     /* it has a value, and no states of the optimizer */
  bool matrix;     /* stepped as a whole: it has the first of the states */
  int64_t factors; /* see CompiledParam */
} CkptParam;

typedef struct Manifest {
  char id[CHECKSUM_TEXT]; /* of this checkpoint, repeated in each of its files */
  int64_t step;           /* the step that a resumed run takes next */
  int64_t saved_at;       /* nanoseconds since 1970 */
  int64_t samples;        /* training samples that the run has used */
  int64_t seed;
  double lr;     /* of the next step */
  int optimizer; /* OptimizerKind, whose states it has */
  BestEval best; /* of the run so far */
  Scaler scaler; /* loss scaler: on, scale, good, patience, skipped */
  const char *weft, *name, *mesh;
  int world;
  const char *plan, *plan_hash; /* content of the plan's file, and its checksum */
  const RunFact *fact;          /* what a resuming run has to share, field by field */
  int nfact;
  const CkptParam *param;
  int nparam;
  const CkptFile *file;
  int nfile;
} Manifest;

/* Whether a parameter has tensors of this kind: see kept_kind. */
static inline bool manifest_has(const Manifest *m, int kind, int param) {
  const CkptParam *p = &m->param[param];
  return kind <= (p->frozen ? 0 : optimizer_states(m->optimizer, p->matrix));
}

/* A parameter with the shape that its tensors of this kind have: averages of rows and
 * columns are those of each expert. */
static inline CkptParam manifest_shape(const Manifest *m, int kind, int param) {
  CkptParam p = m->param[param];
  if (!kind || !p.factors) return p;
  int experts = p.ndim > 2 ? 1 : 0;
  p.ndim = experts + 1;
  p.dim[experts] = p.factors;
  return p;
}

void manifest_write(const Manifest *m, Text *out);
/* Reads the manifest at `path`; all strings are in the arena. */
weft_status manifest_read(Arena *a, const char *path, Manifest *out, weft_error *e);
/* The value of a fact, or NULL. */
const char *manifest_fact(const Manifest *m, const char *what);

#endif
