/* dynamic8.h - averages in blocks of 256 codes of 8 bits, as bitsandbytes has them
 * (Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv:2110.02861).
 *
 * A code stands for a value of the dynamic map times the largest magnitude of its block.
 * The signed map is that of scales of NF4 (nf4.h), without a -1; the unsigned one has
 * twice as many values above 0. A number is rounded twice, as bitsandbytes' CPU kernels
 * do: to one of 65536 points of [-1, 1], then to the value of the map next to that. So 0
 * beside larger numbers becomes the value next to 1 / 65535. */
#ifndef WEFT_DYNAMIC8_H
#define WEFT_DYNAMIC8_H

#include <stdbool.h>
#include <stdint.h>

/* States of parameters with fewer elements than the least stay in f32, as there. */
enum { DYNAMIC8_BLOCK = 256, DYNAMIC8_CODES = 256, DYNAMIC8_LEAST = 4096 };

/* As it lies in memory. All bytes 0: numbers that are 0. */
typedef struct Dynamic8 {
  uint8_t code[DYNAMIC8_BLOCK];
  float largest;
} Dynamic8;

typedef struct Dynamic8Map {
  float value[DYNAMIC8_CODES];
  float middle[DYNAMIC8_CODES]; /* of a value and the next; the last is infinite */
} Dynamic8Map;
void dynamic8_map(bool is_signed, Dynamic8Map *out);

/* Numbers [from, from + n) of a block. */
void dynamic8_unpack(const Dynamic8Map *m, const Dynamic8 *b, int from, int n, float *to);
/* A block of n numbers; the rest of it is 0. */
void dynamic8_pack(const Dynamic8Map *m, const float *x, int n, Dynamic8 *to);
/* The same of numbers that may have been unpacked: these unpack to the same bits again,
 * which the block with the same largest magnitude need not, as no code of the signed map
 * is -1. Other numbers are packed. */
void dynamic8_pack_again(const Dynamic8Map *m, const float *x, int n, Dynamic8 *to);

#endif
