/* ckpt_hash.h - the checksum of checkpoint data: XXH3, 64 bits. */
#ifndef WEFT_CKPT_HASH_H
#define WEFT_CKPT_HASH_H

#include "vm/base/base.h"

uint64_t ckpt_hash(const void *p, size_t n);
enum { HASH_TEXT = 17 };
/* 16 hexadecimal digits. */
const char *hash_text(uint64_t h, char out[HASH_TEXT]);
/* False if the string is not 16 hexadecimal digits. */
bool hash_parse(const char *s, uint64_t *h);

#endif
