/* nontemporal.h - writes to memory that nobody reads soon, past the caches: a store of
 * the usual kind first reads the line that it is about to overwrite. The thread itself
 * sees what it wrote; before others are told of it, it calls nt_done. */
#ifndef WEFT_BASE_NONTEMPORAL_H
#define WEFT_BASE_NONTEMPORAL_H

#include <stddef.h>
#include <stdint.h>

void nt_copy(void *to, const void *from, size_t bytes);
/* bf16 to f32. */
void nt_widen(float *to, const void *halves, size_t n);
void nt_done(void);

#endif
