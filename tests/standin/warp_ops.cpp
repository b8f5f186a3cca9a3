/* warp_ops.cpp - see warp_ops.h. Element i of a fragment is what the ISA calls ai, bi,
 * ci; elements are packed two to a register, the first one below. */
#include "warp_ops.h"

#include "kernels/cuda/wgmma.cuh"

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

/* ---- a warpgroup ---- */

namespace {

enum { GROUP = 4 * WARP, EIGHT_ROWS = 1024, HALF = 16 * 128 };

/* 9.7.15.5.1, fragments of wgmma .m64nNk16: of a, and of d. */
At group_a_at(int thread, int i) {
  At at = a_at(thread % WARP, i);
  return At{thread / WARP * 16 + at.row, at.col};
}
At group_d_at(int thread, int i) {
  int lane = thread % WARP;
  return At{thread / WARP * 16 + lane / 4 + (i % 4 < 2 ? 0 : 8),
            8 * (i / 4) + lane % 4 * 2 + i % 2};
}

/* 9.7.15.5.1.2: rows of 128 bytes, eight of which are a pattern; the 16-byte unit of an
 * element is that of its column, xor the number of its row. */
int swizzled(int row, int col) {
  return row * 128 + (((col / 8) ^ (row % 8)) * 16) + col % 8 * 2;
}

/* 9.7.15.5.1.2.2: start address, leading and stride byte offset, each without its last
 * four bits, and 1 for a swizzle of 128 bytes. */
uint64_t descriptor(const void *p, uint64_t leading, uint64_t stride) {
  return (shared_address(p) & 0x3ffff) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 |
         1ull << 62;
}

unsigned char *aligned_room(unsigned char *room) {
  return room + (EIGHT_ROWS - shared_address(room) % EIGHT_ROWS) % EIGHT_ROWS;
}

void put(unsigned char *to, int at, float x) {
  put_shared((bfloat *)(to + at), __float2bfloat16_rn(x));
}

template <typename F> void group(size_t room, F f) {
  emulate::run(Dim3(1), Dim3(GROUP), EIGHT_ROWS + room, [=] {
    SHARED_ROOM(room_here);
    f((int)threadIdx.x, aligned_room(room_here));
  });
}

void all_see() {
  products_see_writes();
  __syncthreads();
}

template <int NT>
void multiply_group(const float *a, const float *b, const float *c, float *d,
                    bool registers, int k0) {
  enum { N = NT * 8, A = 64 * 128, B = N * 128 };
  group(A + B, [=](int thread, unsigned char *as) {
    unsigned char *bs = as + A;
    float sum[NT][4];
    uint32_t ra[4] = {};
    for (int i = thread; i < 64 * 16; i += GROUP)
      put(as, swizzled(i / 16, k0 + i % 16), a[i]);
    for (int i = thread; i < 16 * N; i += GROUP) {
      int k = i / N, j = i % N; /* 64 columns of all 16 rows, and then the next */
      put(bs, registers ? j / 64 * HALF + swizzled(k, j % 64) : swizzled(j, k0 + k),
          b[i]);
    }
    for (int i = 0; i < 8; i++) {
      At at = group_a_at(thread, i);
      set(ra, i, __float2bfloat16_rn(a[at.row * 16 + at.col]).bits);
    }
    for (int i = 0; i < NT * 4; i++) {
      At at = group_d_at(thread, i);
      sum[i / 4][i % 4] = c ? c[at.row * N + at.col] : 0;
    }
    all_see();
    products_begin();
    if (registers) {
      add_columns(sum, ra, descriptor(bs, HALF, EIGHT_ROWS));
    } else if constexpr (NT == 8) {
      uint64_t da = descriptor(as + 2 * k0, 16, EIGHT_ROWS);
      uint64_t db = descriptor(bs + 2 * k0, 16, EIGHT_ROWS);
      if (c)
        product_of_rows<true>(sum, da, db);
      else
        product_of_rows<false>(sum, da, db);
    }
    products_commit();
    products_wait_but<0>();
    for (int i = 0; i < NT * 4; i++) {
      At at = group_d_at(thread, i);
      d[at.row * N + at.col] = sum[i / 4][i % 4];
    }
  });
}

enum { TILE = 64 * 128 };

/* Ones in both tiles. */
void put_ones(int thread, unsigned char *tile) {
  for (int i = thread; i < 2 * 64 * 64; i += GROUP) put(tile, 2 * i, 1);
}

} // namespace

void group_multiply(const float *a, const float *b, const float *c, float *d, int n,
                    bool registers, int k0) {
  if (n == 64)
    multiply_group<8>(a, b, c, d, registers, k0);
  else
    multiply_group<16>(a, b, c, d, registers, k0);
}

void group_waits(float *before, float *after) {
  group(2 * TILE, [=](int thread, unsigned char *tile) {
    float sum[8][4] = {};
    put_ones(thread, tile);
    all_see();
    products_begin();
    uint64_t a = descriptor(tile, 16, EIGHT_ROWS);
    product_of_rows<true>(sum, a, descriptor(tile + TILE, 16, EIGHT_ROWS));
    products_commit();
    if (thread == 77) *before = sum[3][1];
    products_wait_but<0>();
    if (thread == 77) *after = sum[3][1];
  });
}

void group_errs(int mistake) {
  alignas(16) static const uint32_t zeros[4] = {};
  group(2 * TILE, [=](int thread, unsigned char *tile) {
    float sum[8][4] = {};
    uint32_t ra[4] = {1, 2, 3, 4};
    uint64_t a = descriptor(tile, 16, EIGHT_ROWS);
    uint64_t b = descriptor(tile + TILE, HALF, EIGHT_ROWS);
    bool mine = thread == 5, is[GROUP_MISTAKES] = {};
    is[mistake] = true;
    put_ones(thread, tile);
    if (is[GROUP_UNSEEN_COPY] && mine) {
      products_see_writes();
      copy_begin<16>(tile, zeros, true);
      copies_wait();
    } else if (!is[GROUP_UNSEEN_STORE] && !is[GROUP_FENCE_BEHIND_BARRIER] &&
               !(is[GROUP_OTHER_FENCES] && mine)) {
      products_see_writes();
    }
    __syncthreads();
    if (is[GROUP_FENCE_BEHIND_BARRIER]) products_see_writes();
    if (is[GROUP_THREE_WARPS] && thread / WARP == 2) return;
    if (is[GROUP_ONE_AT_BARRIER] && mine) __syncthreads();
    if (is[GROUP_NOT_ALIGNED]) a += 128 >> 4;
    if (is[GROUP_OTHER_SWIZZLE]) a ^= 3ull << 62;
    if (is[GROUP_ODD_BITS]) a |= 1ull << 49;
    if (is[GROUP_OTHER_OPERANDS] && thread / WARP == 3) a += 2;
    if (is[GROUP_OUTSIDE]) b += 2 * TILE >> 4;
    if (!is[GROUP_NOT_BEGUN]) products_begin();
    product_of_rows<true>(sum, a, b);
    products_commit();
    if (is[GROUP_SUMS_TOUCHED] && mine) sum[7][3] = 1;
    if (is[GROUP_SHARED_TOUCHED] && mine) put(tile, 0, 2);
    if (is[GROUP_COPY_BEGUN] && mine) copy_begin<16>(tile + TILE, zeros, true);
    products_wait_but<0>();
    copies_wait();
    if (!is[GROUP_NOT_BEGUN_AGAIN]) products_begin();
    if (is[GROUP_HELD_BEHIND_FENCE]) hold(sum);
    add_columns(sum, ra, b);
    products_commit();
    if (is[GROUP_REGISTERS_TOUCHED] && mine) ra[2]++;
    if (!is[GROUP_NOT_WAITED]) products_wait_but<0>();
  });
}
