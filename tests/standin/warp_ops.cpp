/* warp_ops.cpp - see warp_ops.h. Element i of a fragment is what the ISA calls ai, bi,
 * ci; elements are packed two to a register, the first one below. */
#include "warp_ops.h"

#include "kernels/cuda/mma.cuh"

namespace {

struct At {
  int row, col;
};

/* 9.7.14.5.8, mma.m16n8k16 with floating point type. */
At a_at(int lane, int i) {
  int group = lane >> 2, in_group = lane % 4;
  bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  return At{upper ? group : group + 8, in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
At b_at(int lane, int i) {
  int group = lane >> 2, in_group = lane % 4;
  return At{in_group * 2 + (i & 1) + (i < 2 ? 0 : 8), group};
}
At c_at(int lane, int i) {
  int group = lane >> 2, in_group = lane % 4;
  return At{i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}
/* 9.7.14.5.15, ldmatrix: thread 0 has the first two elements of row 0, thread 4 those of
 * row 1, and so on; with .trans rows are columns. */
At matrix_at(int lane, int i) { return At{lane / 4, lane % 4 * 2 + i}; }

void set(uint32_t *r, int i, uint16_t bits) {
  int shift = 16 * (i % 2);
  r[i / 2] = (r[i / 2] & ~(0xffffu << shift)) | (uint32_t)bits << shift;
}

template <typename F> void warp(size_t room, F f) {
  emulate::run(Dim3(1), Dim3(WARP), room, f);
}

} // namespace

void warp_multiply(const float *a, const float *b, const float *c, float *d) {
  warp(0, [=] {
    int lane = threadIdx.x;
    uint32_t ra[4] = {}, rb[2] = {};
    float rc[4];
    for (int i = 0; i < 8; i++) {
      At at = a_at(lane, i);
      set(ra, i, __float2bfloat16_rn(a[at.row * 16 + at.col]).bits);
    }
    for (int i = 0; i < 4; i++) {
      At at = b_at(lane, i);
      set(rb, i, __float2bfloat16_rn(b[at.row * 8 + at.col]).bits);
    }
    for (int i = 0; i < 4; i++) rc[i] = c[c_at(lane, i).row * 8 + c_at(lane, i).col];
    mma_bf16(rc, ra, rb[0], rb[1]);
    for (int i = 0; i < 4; i++) d[c_at(lane, i).row * 8 + c_at(lane, i).col] = rc[i];
  });
}

void warp_load(const uint16_t *from, uint16_t *got, bool turned, int skew) {
  enum { MATRIX = 64, ALL = 4 * MATRIX };
  warp(ALL * sizeof *from, [=] {
    SHARED_ROOM(room);
    int lane = threadIdx.x;
    uint32_t r[4];
    for (int i = lane; i < ALL; i += WARP) ((uint16_t *)room)[i] = from[i];
    __syncthreads();
    const unsigned char *row = room + lane * 16 + (lane == WARP - 1 ? skew : 0);
    if (turned)
      load_turned(r, row);
    else
      load_matrices(r, row);
    for (int m = 0; m < 4; m++)
      for (int i = 0; i < 2; i++) {
        At at = matrix_at(lane, i);
        got[m * MATRIX + at.row * 8 + at.col] = (uint16_t)(r[m] >> 16 * i);
      }
  });
}

void warp_copy(const uint32_t *from, uint32_t *before, uint32_t *after) {
  warp(WARP * 4, [=] {
    SHARED_ROOM(room);
    uint32_t *words = (uint32_t *)room;
    int lane = threadIdx.x, other = WARP - 1 - lane;
    words[lane] = 77;
    copy_begin<4>(words + lane, from + lane, lane % 2 == 0);
    __syncthreads();
    before[lane] = words[other];
    __syncthreads();
    copies_wait();
    __syncthreads();
    after[lane] = words[other];
  });
}

void warp_forget(const uint32_t *from) {
  warp(WARP * 4, [=] {
    SHARED_ROOM(room);
    copy_begin<4>(room + threadIdx.x * 4, from + threadIdx.x, true);
    if (threadIdx.x != 5) copies_wait();
  });
}
