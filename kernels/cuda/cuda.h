/* cuda.h - the interface of the CUDA kernels: one function per op, a table, scratch
 * sizes. */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H

#include "vm/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP(name, nin, nout, infer, grad, shard, cost, doc)                               \
  extern void cuda_##name(Device *d, const KernelArgs *a);
#include "vm/graph/ops.def"

/* Indexed by OpCode; run is NULL where there is no kernel. */
extern const Kernel cuda_kernels[OP_N];

/* merge.cu: on a queue of the device's choice. */
void cuda_merge(void *stream, const DeviceMerge *m);
/* progress_words.cu: DeviceVtable.tell. */
void cuda_tell(Device *d, void *stream, uint64_t *n, uint64_t *to, bool begins,
               uint32_t name);
/* Workspace of linear and its gradients. */
uint64_t cuda_gemm_work(const KernelArgs *a);
enum { CUDA_LT_STATE = 128 };
/* Loads the kernel of cuda_tell. */
void cuda_tell_load(void *ctx);
/* cuda_graph.c: hash_bytes, for C++. */
uint64_t cuda_hash(uint64_t h, const void *p, size_t n);
/* cuda_workspace.c: dtype_size, for C++. */
int cuda_dtype_size(DType t);
/* Sums over rows: rows per part, and parts at most. */
enum { CUDA_PART_ROWS = 64, CUDA_PARTS_MAX = 256 };
int64_t cuda_part_rows(int64_t rows);
int64_t cuda_parts(int64_t rows);
/* Tokens that a block of the embedding's gradient sums. */
enum { CUDA_EMBEDDING_SEGMENT = 32 };
/* Blocks that sum the losses of so many rows, `each` at a time; their sums are f64 in
 * scratch. */
enum { CUDA_LOSS_ROWS = 256 };
int cuda_loss_blocks(int64_t rows, int each);
/* Blocks of a squared norm at most. */
enum { CUDA_NORM_BLOCKS = 256 };

#ifdef __cplusplus
}
#endif

/* ---- shapes ---- */

static inline int64_t cuda_count(const KTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}
static inline int64_t cuda_last(const KTensor *t) { return t->dim[t->ndim - 1]; }
static inline int64_t cuda_rows(const KTensor *t) {
  return t->ndim ? cuda_count(t) / cuda_last(t) : 1;
}

/* One launch of a kernel. */
typedef struct CudaLaunch {
  const void *kernel;
  unsigned grid[3], block[3];
  size_t room; /* bytes of dynamic shared memory */
} CudaLaunch;

/* What Device.ctx points to. */
typedef struct CudaContext {
  void *stream;   /* of the compute queue */
  void *lt;       /* cublasLtHandle_t, or NULL: weft's own kernels multiply */
  void *cudnn;    /* of cudnn_plan.c; NULL: not used yet */
  void *hopper;   /* Tried of attention_hopper_choice.c; NULL: not used yet */
  int capability; /* 90; of weft's own kernels: at most WEFT_GPU */
  struct GemmChoices *choices;  /* cublaslt_int.h; NULL: products are not timed */
  uint64_t print;               /* DeviceCapture.print: fingerprint of launches so far */
  struct LoadedKernels *loaded; /* cuda_launch.c */
  char refused[520];  /* why the first launch or product that failed did, or "" */
  char came[160];     /* Device.kernels */
  char instead[340];  /* Device.instead */
  char fallback[420]; /* Device.fallback */
  double others;      /* GiB of the GPU that others held before; 0: hardly any */
} CudaContext;

#ifdef __cplusplus
extern "C" {
#endif
/* launch/cuda_launch.c. Loads the kernel, allows it the shared memory that it needs, and
 * looks whether the launch fits on the GPU; if not, CudaContext.refused says why. Without
 * a context it allows the memory alone. */
bool cuda_launch_fits(CudaContext *c, const CudaLaunch *l);
/* A launch that CUDA refused: `error` is a cudaError_t. */
void cuda_launch_failed(CudaContext *c, const CudaLaunch *l, int error);
#ifdef __cplusplus
}
#include "launch/queue.h"
static inline CudaQueue cuda_stream(const Device *d) {
  CudaContext *c = (CudaContext *)d->ctx;
  return c ? CudaQueue((cudaStream_t)c->stream, c, d->dry, d->loads) : CudaQueue(0);
}
#endif

#endif
