/* ckpt.h - checkpoints as folders of files, readable on any mesh.
 *
 * A checkpoint is a folder step-00000100 with one file for each rank that writes a share
 * of the state, and a manifest. A reader asks for pieces (vm/storage/piece.h), which are
 * put together from the pieces in the files. Each part is checked against its checksum
 * before it is used. */
#ifndef WEFT_CKPT_CKPT_H
#define WEFT_CKPT_CKPT_H

#include "manifest.h"
#include "vm/io/io.h"

/* Checksums are of so many bytes of a tensor each. */
enum { CKPT_BLOCK = 1 << 20 };
enum { CKPT_KINDS = 3 }; /* of state: names by number, "param", "exp_avg", "exp_avg_sq" */
extern const char *const ckpt_kind_name[CKPT_KINDS];
int ckpt_kind(StateKind k);

/* A tensor of a file. */
typedef struct CkptPiece {
  int kind, param; /* in Manifest.param */
  DType dtype;
  Piece piece;           /* without a region */
  int file;              /* in Manifest.file */
  uint64_t at, bytes;    /* in the file */
  const uint64_t *block; /* checksums */
} CkptPiece;

typedef struct Ckpt {
  Arena *arena;
  const char *dir;
  Manifest m;
  Names names;      /* of parameters */
  File *file;       /* as Manifest.file */
  CkptPiece *piece; /* in the order of tensors */
  int npiece;
  int *first; /* [kinds * nparam + 1]: of each tensor */
} Ckpt;
/* Reads the manifest and the headers of all files, and sees that together they have every
 * element of every tensor once. Data are read later. */
weft_status ckpt_open(const char *dir, Ckpt **out, weft_error *e);
void ckpt_close(Ckpt *c);
/* The number of a parameter, or -1. */
int ckpt_param(const Ckpt *c, const char *name);
const char *ckpt_tensor_name(const Ckpt *c, const CkptPiece *p, char *buf, size_t n);

/* One thread's way of reading. */
typedef struct CkptRead {
  const Ckpt *c;
  char *block; /* CKPT_BLOCK bytes: the part of `in` from `at` on */
  const CkptPiece *in;
  uint64_t at;
  uint64_t read; /* bytes in all */
} CkptRead;
weft_status ckpt_read_begin(const Ckpt *c, CkptRead *r, weft_error *e);
void ckpt_read_end(CkptRead *r);
/* What `want` has of a tensor, as f32; paddings stay as they are. */
weft_status ckpt_read(CkptRead *r, int kind, int param, const Piece *want, float *local,
                      weft_error *e);
/* Elements [from, from + n) of the whole tensor. */
weft_status ckpt_read_part(CkptRead *r, int kind, int param, int64_t from, int64_t n,
                           float *to, weft_error *e);

/* Whether the parameters are those of the programs; lists what differs. */
weft_status ckpt_fits(const Ckpt *c, const Compiled *to, weft_error *e);
/* Fills a run: parameters, moments, loss scale. */
weft_status ckpt_load(const Ckpt *c, Run *r, weft_error *e);
/* Reads all data of all files. */
weft_status ckpt_verify(const Ckpt *c, uint64_t *bytes, weft_error *e);

#endif
