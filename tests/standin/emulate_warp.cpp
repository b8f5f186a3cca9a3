/* emulate_warp.cpp - instructions of a warp, on what its 32 lanes bring. Layouts are
 * those of the PTX ISA, mma.m16n8k16 for floating point types and ldmatrix .m8n8. */
#include "emulate_warp.h"

namespace emulate {
namespace {

enum { M = 16, N = 8, K = 16, SIDE = 8 };

float number(uint32_t pair, int i) {
  return __bfloat162float(__nv_bfloat16{(uint16_t)(pair >> 16 * i)});
}

struct Product {
  float *c;
  const uint32_t *a, *b;
};

/* Where register r of a lane begins: its row and column in a, c; b is turned. */
struct Place {
  int row, col;
};
Place place(int lane, int r) {
  return Place{lane / 4 + r % 2 * SIDE, lane % 4 * 2 + r / 2 * SIDE};
}

void multiply(void *const *lane) {
  float a[M][K], b[K][N], c[M][N];
  for (int l = 0; l < 32; l++) {
    const Product *p = (const Product *)lane[l];
    for (int i = 0; i < 2; i++) {
      for (int r = 0; r < 4; r++)
        a[place(l, r).row][place(l, r).col + i] = number(p->a[r], i);
      for (int r = 0; r < 2; r++) {
        b[l % 4 * 2 + r * SIDE + i][l / 4] = number(p->b[r], i);
        c[place(l, r).row][place(l, r).col + i] = p->c[2 * r + i];
      }
    }
  }
  for (int i = 0; i < M; i++)
    for (int k = 0; k < K; k++)
      for (int j = 0; j < N; j++) c[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; l++)
    for (int r = 0; r < 2; r++)
      memcpy(&((const Product *)lane[l])->c[2 * r], &c[place(l, r).row][place(l, r).col],
             2 * sizeof(float));
}

struct Rows {
  uint32_t *r;
  const uint16_t *row;
};

/* Of matrix m lane l gets row l / 4, or what is at its place in the turned one. */
template <bool TURNED> void load_rows(void *const *lane) {
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < 4; m++) {
      uint16_t pair[2];
      for (int i = 0; i < 2; i++) {
        int row = l / 4, col = l % 4 * 2 + i;
        int y = TURNED ? col : row, x = TURNED ? row : col;
        pair[i] = ((const Rows *)lane[m * SIDE + y])->row[x];
      }
      ((const Rows *)lane[l])->r[m] = (uint32_t)pair[1] << 16 | pair[0];
    }
}

} // namespace

void mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
  Product p = {c, a, b};
  together(multiply, &p);
}

void load_matrices(uint32_t *r, const void *row, bool turned) {
  if ((uintptr_t)row % 16 != 0) refuse("ldmatrix of a row that is not aligned");
  if (!in_room(row, 16))
    refuse("ldmatrix of what is not the shared memory of the launch");
  Rows rows = {r, (const uint16_t *)row};
  together(turned ? load_rows<true> : load_rows<false>, &rows);
}

} // namespace emulate
