/* nontemporal.c - non-temporal stores with SSE2 on x86-64, plain stores elsewhere. */
#include "nontemporal.h"

#include <string.h>

#include "bf16.h"

static void widen(float *to, const char *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint16_t half;
    memcpy(&half, from + i * sizeof half, sizeof half);
    to[i] = bf16_to_f32(half);
  }
}

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64 };

/* Bytes to the next cache line, at most `n`. */
static size_t to_line(const void *p, size_t n) {
  size_t k = -(uintptr_t)p & (LINE - 1);
  return k < n ? k : n;
}

void nt_copy(void *to, const void *from, size_t bytes) {
  char *t = to;
  const char *f = from;
  size_t head = to_line(t, bytes);
  memcpy(t, f, head);
  t += head, f += head, bytes -= head;
  for (; bytes >= LINE; t += LINE, f += LINE, bytes -= LINE)
    for (int k = 0; k < LINE; k += 16)
      _mm_stream_si128((__m128i *)(void *)(t + k),
                       _mm_loadu_si128((const __m128i *)(const void *)(f + k)));
  memcpy(t, f, bytes);
}

void nt_widen(float *to, const void *halves, size_t n) {
  const char *f = halves;
  size_t head = to_line(to, n * sizeof *to) / sizeof *to;
  widen(to, f, head);
  to += head, f += 2 * head, n -= head;
  for (; n >= 16; to += 16, f += 32, n -= 16)
    for (int k = 0; k < 2; k++) {
      __m128i zero = _mm_setzero_si128();
      __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(f + 16 * k));
      __m128i *t = (__m128i *)(void *)(to + 8 * k);
      _mm_stream_si128(t, _mm_unpacklo_epi16(zero, x));
      _mm_stream_si128(t + 1, _mm_unpackhi_epi16(zero, x));
    }
  widen(to, f, n);
}

void nt_done(void) { _mm_sfence(); }

#else

void nt_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

void nt_widen(float *to, const void *halves, size_t n) { widen(to, halves, n); }

void nt_done(void) {}

#endif
