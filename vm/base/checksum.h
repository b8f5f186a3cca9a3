/* checksum.h - the checksum of data of a run: XXH3, 64 bits. */
#ifndef WEFT_CHECKSUM_H
#define WEFT_CHECKSUM_H

#include "vm/base/base.h"

uint64_t checksum(const void *p, size_t n);
enum { CHECKSUM_TEXT = 17 };
/* 16 hexadecimal digits. */
const char *checksum_text(uint64_t h, char out[CHECKSUM_TEXT]);
/* False if the string is not 16 hexadecimal digits. */
bool checksum_parse(const char *s, uint64_t *h);

#endif
