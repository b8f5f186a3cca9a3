/* nontemporal.h - non-temporal stores for data that is not read soon. They bypass the
 * caches, since an ordinary store first reads the cache line that it overwrites. The
 * writing thread sees its data at once; call nt_done before another thread is told. */
#ifndef WEFT_BASE_NONTEMPORAL_H
#define WEFT_BASE_NONTEMPORAL_H

#include <stddef.h>
#include <stdint.h>

void nt_copy(void *to, const void *from, size_t bytes);
/* bf16 to f32. */
void nt_widen(float *to, const void *halves, size_t n);
void nt_done(void);

#endif
