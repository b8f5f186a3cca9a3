/* megatron_files.h - files as Megatron's preprocessing writes them, for tests. */
#ifndef WEFT_TESTS_MEGATRON_H
#define WEFT_TESTS_MEGATRON_H

#include <stdint.h>

/* Writes NAME.bin and NAME.idx to the scratch folder: sequences of these lengths, with
 * ids that count up from `first`, of the type with this code (1 u8, 2 i8, 3 i16, 4 i32, 5
 * i64, 8 u16). Documents: number of sequences of each; NULL: one each. */
typedef struct MegatronFile {
  int type, nlengths, first;
  const int32_t *lengths;
  int ndocuments;
  const int *documents;
} MegatronFile;
void megatron_put(const char *name, const MegatronFile *m);
/* The same, from ids. */
void megatron_put_ids(const char *name, const MegatronFile *m, const int32_t *ids);
/* Writes NAME.mask for NAME.bin: whether each of its n tokens is learnt. */
void mask_put(const char *name, const uint8_t *learnt, int64_t n);

#endif
