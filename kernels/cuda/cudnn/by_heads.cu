/* by_heads.cu - numbers of a head's tokens side by side, for cuDNN: a block turns tiles
 * of 32 tokens by 32 heads. */
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/kernel.cuh"

enum { TILE = 32, SIDE_BY_SIDE = BLOCK / TILE };
constexpr int64_t BATCH_MOST = 65535;

/* (B,T,H), where the next sequence is `apart` rows further, to (B,H,T). Grid: tiles of
 * tokens, of heads, sequences. */
__global__ void __launch_bounds__(BLOCK)
    turn_by_heads(const float *from, float *to, int64_t batch, int64_t rows,
                  int64_t heads, int64_t apart) {
  __shared__ float tile[TILE][TILE + 1];
  int lane = threadIdx.x % TILE, mine = threadIdx.x / TILE;
  int64_t r0 = (int64_t)blockIdx.x * TILE, h0 = (int64_t)blockIdx.y * TILE;
  for (int64_t b = blockIdx.z; b < batch; b += gridDim.z) {
    const float *x = from + b * apart * heads;
    float *y = to + b * rows * heads;
    for (int i = mine; i < TILE; i += SIDE_BY_SIDE)
      if (r0 + i < rows && h0 + lane < heads)
        tile[i][lane] = x[(r0 + i) * heads + h0 + lane];
    __syncthreads();
    for (int i = mine; i < TILE; i += SIDE_BY_SIDE)
      if (h0 + i < heads && r0 + lane < rows)
        y[(h0 + i) * rows + r0 + lane] = tile[lane][i];
    __syncthreads();
  }
}

void cuda_by_heads(Device *d, const float *from, float *to, int64_t batch, int64_t rows,
                   int64_t heads, int64_t apart) {
  Dim3 grid((unsigned)((rows + TILE - 1) / TILE), (unsigned)((heads + TILE - 1) / TILE),
            (unsigned)(batch < BATCH_MOST ? batch : BATCH_MOST));
  LAUNCH((turn_by_heads), grid, BLOCK, cuda_stream(d), from, to, batch, rows, heads,
         apart);
}
