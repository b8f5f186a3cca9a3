/* ckpt.h - checkpoints as folders of files, readable on any mesh.
 *
 * A checkpoint is a folder step-00000100 with a manifest and a file for each rank that
 * writes a share of the state. A reader asks for pieces (vm/storage/piece.h), which are
 * assembled from the pieces in the files. Each part is verified against its checksum
 * before it is used. */
#ifndef WEFT_CKPT_CKPT_H
#define WEFT_CKPT_CKPT_H

#include "manifest.h"
#include "vm/io/io.h"

/* Bytes of a tensor per checksum. */
enum { CKPT_BLOCK = 1 << 20 };
/* Kinds of tensors by number, as kept_kind: "param", then what optimizers.def calls the
 * states of an optimizer. */
enum { CKPT_KINDS_MAX = 1 + OPTIMIZER_STATES };
int ckpt_kinds(int optimizer);
const char *ckpt_kind_name(int optimizer, int kind);
int ckpt_kind(StateKind k);

/* A tensor of a rank file. */
typedef struct CkptPiece {
  int kind, param; /* in Manifest.param */
  DType dtype;
  Piece piece;           /* without a region */
  int file;              /* in Manifest.file */
  uint64_t at, bytes;    /* in the file */
  const uint64_t *block; /* checksums of its blocks */
} CkptPiece;

typedef struct Ckpt {
  Arena *arena;
  const char *dir;
  Manifest m;
  Names names;      /* of parameters */
  File *file;       /* in the order of Manifest.file */
  CkptPiece *piece; /* sorted by tensor */
  int npiece;
  int *first; /* [kinds * nparam + 1]: first piece of each tensor */
} Ckpt;
/* Reads the manifest and the headers of all files, and checks that they have every
 * element of every tensor exactly once. Data are read later. */
weft_status ckpt_open(const char *dir, Ckpt **out, weft_error *e);
void ckpt_close(Ckpt *c);
/* The number of a parameter, or -1. */
int ckpt_param(const Ckpt *c, const char *name);
const char *ckpt_tensor_name(const Ckpt *c, const CkptPiece *p, char *buf, size_t n);

/* The state of one reading thread. */
typedef struct CkptRead {
  const Ckpt *c;
  const StopFlag *stop; /* may be set after ckpt_read_begin: reading is WEFT_EINTR then */
  char *block;          /* CKPT_BLOCK bytes: the verified block at `at` of piece `in` */
  const CkptPiece *in;
  uint64_t at;
  uint64_t read; /* total bytes read */
} CkptRead;
weft_status ckpt_read_begin(const Ckpt *c, CkptRead *r, weft_error *e);
void ckpt_read_end(CkptRead *r);
/* Fills the piece `want` of a tensor, as f32; padding is not written. */
weft_status ckpt_read(CkptRead *r, int kind, int param, const Piece *want, float *local,
                      weft_error *e);
/* Elements [from, from + n) of the whole tensor. */
weft_status ckpt_read_part(CkptRead *r, int kind, int param, int64_t from, int64_t n,
                           float *to, weft_error *e);

/* What is of use of a checkpoint: its parameters, whatever optimizer they come from, or
 * the states of the optimizer, too, with which training goes on. */
typedef enum CkptUse { CKPT_PARAMS, CKPT_STATES } CkptUse;
/* Whether that is as the programs have it; lists what differs. */
weft_status ckpt_fits(const Ckpt *c, const Compiled *to, CkptUse use, weft_error *e);
/* Fills a run: parameters, states of the optimizer if it has some, loss scale. */
weft_status ckpt_load(const Ckpt *c, Run *r, CkptUse use, weft_error *e);
/* Reads and verifies all data of all files. `stop` may be NULL. */
weft_status ckpt_verify(const Ckpt *c, const StopFlag *stop, uint64_t *bytes,
                        weft_error *e);

#endif
