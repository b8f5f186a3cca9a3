/* cudnn_attention.h - attention through cuDNN: scratch sizes and execution plans built
 * from attention_graph.h. The library is opened with the first plan. */
#ifndef WEFT_CUDNN_ATTENTION_H
#define WEFT_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cudnn_rule.c: known without cuDNN; cudnn_refuses (device.h) is there, too ---- */
/* Bytes of scratch of an op that has attr->backend = BACKEND_CUDNN. */
uint64_t cudnn_work(int op, const KernelArgs *a);
/* An error if this version of cuDNN is known to compute this op wrongly. */
weft_status cudnn_sound(size_t version, int op, const KernelArgs *a, weft_error *e);
/* Bytes of Kernel state. */
enum { CUDNN_STATE = 1024 };

/* ---- by_heads.cu ---- */
/* to(B,H,T) = from(B,T,H), in f32. */
void cuda_by_heads(Device *d, const float *from, float *to, int64_t batch, int64_t rows,
                   int64_t heads);

/* ---- cudnn_run.c ---- */
/* DeviceKind.attention_version on a GPU for which cuDNN is taken. */
int cudnn_version(char why[DEVICE_WAY]);
/* The plan of an op, made when a program is loaded and kept in KernelArgs.state. */
weft_status cudnn_prepare(Device *d, int op, KernelArgs *a, weft_error *e);
void cudnn_release(Device *d, KernelArgs *a);
/* False if the op does not use cuDNN: nothing was enqueued. What cuDNN refuses is in
 * CudaContext.refused. */
bool cudnn_run(Device *d, const KernelArgs *a);
void cudnn_close(Device *d);

/* ---- cudnn_trial.c ---- */
/* Runs a prepared op and weft's own kernel on the same operands, in memory of its own,
 * and compares. An error says which result differs, or why they cannot be compared. */
weft_status cudnn_trial(Device *d, int op, const KernelArgs *a, bool *differs,
                        weft_error *e);

#ifdef __cplusplus
}
#endif

#endif
