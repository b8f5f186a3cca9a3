/* rank_file.h - the file of one rank in a checkpoint: safetensors, whose metadata has the
 * place of each tensor in the whole parameter and the checksums of its data. */
#ifndef WEFT_CKPT_SHARD_H
#define WEFT_CKPT_SHARD_H

#include "ckpt.h"

/* Tests: asked before each step that reaches a disk; true: it fails. */
typedef struct RankFile {
  bool (*fault)(void *ud); /* NULL: none fails */
  void *fault_ud;
} RankFile;
weft_status disk_step(RankFile *d, const char *path, weft_error *e);

/* Writes the share of a rank, `data`, into the folder. `out->bytes` is 0 if there is
 * nothing to write. */
weft_status shard_write(RankFile *d, const Dir *in, const char *id, const Compiled *c,
                        int rank, const char *data, CkptFile *out, weft_error *e);
/* Whether it is the name of such a file. */
bool shard_owns(const char *name);
/* Adds the tensors of file `number` to `list`. */
typedef VEC(CkptPiece) CkptPieces;
weft_status shard_read(Ckpt *c, int number, CkptPieces *list, weft_error *e);
/* The checksum of a file's header. */
weft_status shard_header(const File *f, uint64_t *hash, weft_error *e);

#endif
