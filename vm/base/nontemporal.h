/* nontemporal.h - non-temporal stores for data that is not read soon: they bypass the
 * caches, whereas an ordinary store first reads the cache line. The writing thread sees
 * its data at once; call nt_done before another thread reads it. */
#ifndef WEFT_BASE_NONTEMPORAL_H
#define WEFT_BASE_NONTEMPORAL_H

#include <stddef.h>
#include <stdint.h>

void nt_copy(void *to, const void *from, size_t bytes);
/* bf16 to f32. */
void nt_widen(float *to, const void *halves, size_t n);
void nt_done(void);

#endif
