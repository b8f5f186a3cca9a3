/* rank_file.h - the file of one rank in a checkpoint: safetensors, whose metadata holds
 * each tensor's place in the whole parameter and the checksums of its data. */
#ifndef WEFT_CKPT_SHARD_H
#define WEFT_CKPT_SHARD_H

#include "ckpt.h"

/* Tests: called before each disk operation; true makes it fail. */
typedef struct RankFile {
  bool (*fault)(void *ud); /* NULL: none fails */
  void *fault_ud;
} RankFile;
weft_status disk_step(RankFile *d, const char *path, weft_error *e);

/* Writes a rank's share of the state, `data`, into the folder. `out->bytes` is 0 if
 * none. */
weft_status shard_write(RankFile *d, const Dir *in, const char *id, const Compiled *c,
                        int rank, const char *data, CkptFile *out, weft_error *e);
/* True if it is the name of such a file. */
bool shard_owns(const char *name);
/* Adds the tensors of file `number` to `list`. */
typedef VEC(CkptPiece) CkptPieces;
weft_status shard_read(Ckpt *c, int number, CkptPieces *list, weft_error *e);
/* The checksum of a file's header. */
weft_status shard_header(const File *f, uint64_t *hash, weft_error *e);

#endif
