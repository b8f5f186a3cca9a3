/* cudnn_attention.h - attention through cuDNN: scratch sizes and execution plans built
 * from attention_graph.h. The library is opened with the first plan. */
#ifndef WEFT_CUDNN_ATTENTION_H
#define WEFT_CUDNN_ATTENTION_H

#include "attention_graph.h"
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cudnn_rule.c: known without cuDNN; cudnn_refuses (device.h) is there, too ---- */
/* Bytes of scratch of an op that has attr->backend = BACKEND_CUDNN: the most of any of
 * its blocks on any rank. */
uint64_t cudnn_work(int op, const KernelArgs *a);
/* What cuDNN has of that for itself in a block. */
int64_t cudnn_own_work(int op, const KernelArgs *a, const AttentionBlock *b);
/* An error if this version of cuDNN is known to compute this op wrongly. */
weft_status cudnn_sound(size_t version, int op, const KernelArgs *a, weft_error *e);
/* Bytes of Kernel state. */
enum { CUDNN_STATE = 2304 };

/* ---- by_heads.cu ---- */
/* to(B,H,T) = from(B,T,H), in f32, where sequences of `from` are `apart` rows apart. */
void cuda_by_heads(Device *d, const float *from, float *to, int64_t batch, int64_t rows,
                   int64_t heads, int64_t apart);

/* ---- block_rows.cu ---- results of a block to their places */
/* Rows [first, first + rows) of each sequence, without gaps; p NULL: none. */
typedef struct BlockRows {
  const void *p;
  DType type;
  int64_t first, rows;
} BlockRows;
/* out(B,T,W) = base + block, with 0 for a `base` of NULL and outside of the block. `base`
 * may be `out`. The block is bf16 or, with out and base, f32. */
void cuda_put_rows(Device *d, const KTensor *out, const KTensor *base, BlockRows block);
/* o(B,T,H*D) and lse(B,T,H) of all keys of two parts: o0 and lse0 in f32, and a block, o
 * in bf16, of some of the rows; D a multiple of 8 and at most 128. o may be o0, and lse
 * lse0. */
void cuda_merge_rows(Device *d, const KTensor *o, const KTensor *lse, const KTensor *o0,
                     const KTensor *lse0, BlockRows block, const float *block_lse,
                     int head_dim);

/* ---- cudnn_staged.c ---- */
/* After a block has run: its staged results to those of the op, to what earlier steps
 * of the ring gave, and, `again`, to what the block before it did. */
void cudnn_put_staged(Device *d, int op, const KernelArgs *a, const AttentionGraph *g,
                      const AttentionBlock *b, bool again);
/* Results of a step in which no query sees a key: those of the steps before. */
void cudnn_pass_on(Device *d, int op, const KernelArgs *a);

/* ---- cudnn_run.c ---- */
/* DeviceKind.attention_version on a GPU for which cuDNN is taken. */
int cudnn_version(char why[DEVICE_WAY]);
/* The plan of an op, made when a program is loaded and kept in KernelArgs.state. */
weft_status cudnn_prepare(Device *d, int op, KernelArgs *a, weft_error *e);
void cudnn_release(Device *d, KernelArgs *a);
/* Whether cuDNN has plans for a prepared op. */
bool cudnn_takes(const KernelArgs *a);
/* False if the op does not use cuDNN: nothing was enqueued. What cuDNN refuses is in
 * CudaContext.refused. */
bool cudnn_run(Device *d, const KernelArgs *a);
void cudnn_close(Device *d);

#ifdef __cplusplus
}
#endif

#endif
