/* manifest.h - what a checkpoint says about itself: docs/checkpoints.md lists the
 * members. It is written last, and ends with a checksum of all that is before it. */
#ifndef WEFT_CKPT_MANIFEST_H
#define WEFT_CKPT_MANIFEST_H

#include "ckpt_hash.h"
#include "vm/weights/snapshot.h"

#define MANIFEST_NAME "manifest.json"
enum { CKPT_VERSION = 1 };

typedef struct CkptFile {
  char name[32];   /* "rank-00003.safetensors" */
  uint64_t bytes;  /* 0: the rank writes none */
  uint64_t header; /* checksum of its header, which has those of its data */
} CkptFile;

typedef struct CkptParam {
  const char *name;
  int ndim;
  int64_t dim[MAX_DIM];
} CkptParam;

typedef struct Manifest {
  char id[HASH_TEXT]; /* of this checkpoint, in each of its files */
  int64_t step;       /* the next one of the run */
  int64_t saved_at;   /* nanoseconds since 1970 */
  int64_t samples;    /* of the data that the run has seen */
  int64_t seed;
  double lr;     /* of the next step */
  Scaler scaler; /* on, scale, good, patience, skipped */
  const char *weft, *name, *mesh;
  int world;
  const char *plan, *plan_hash; /* the text of the plan's file, and its checksum */
  const RunFact *fact;          /* what it was trained with, field by field */
  int nfact;
  const CkptParam *param;
  int nparam;
  const CkptFile *file;
  int nfile;
} Manifest;

void manifest_write(const Manifest *m, Text *out);
/* `path` is the manifest's; all texts lie in the arena. */
weft_status manifest_read(Arena *a, const char *path, Manifest *out, weft_error *e);
/* The value of a fact, or NULL. */
const char *manifest_fact(const Manifest *m, const char *what);

#endif
