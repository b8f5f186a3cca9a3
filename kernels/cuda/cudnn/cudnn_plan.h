/* cudnn_plan.h - descriptors and the execution plan that cuDNN makes of an attention
 * graph. */
#ifndef WEFT_CUDA_CUDNN_PLAN_H
#define WEFT_CUDA_CUDNN_PLAN_H

#include "attention_graph.h"
#include "cudnn_lib.h"

/* For whom plans are made: the GPU of a handle, or, without one, one that is elsewhere.
 */
typedef struct CudnnTarget {
  const CudnnLib *lib;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t elsewhere;
} CudnnTarget;

enum { CUDNN_DESCRIPTORS = AG_TENSORS + 2 * AG_NODES + 8 };

/* What was made, in order; it lives as long as the plan, which is the last one. */
typedef struct CudnnPlan {
  cudnnBackendDescriptor_t made[CUDNN_DESCRIPTORS], plan;
  int n;
} CudnnPlan;

/* ---- cudnn_graph.c ---- */
typedef struct CudnnMaker {
  const CudnnTarget *target;
  CudnnPlan *plan;
  cudnnStatus_t status; /* of the first call that failed; then nothing more is called */
  const char *what;     /* and what it was to make */
} CudnnMaker;

cudnnBackendDescriptor_t cudnn_new(CudnnMaker *m, cudnnBackendDescriptorType_t type,
                                   const char *what);
void cudnn_set(CudnnMaker *m, cudnnBackendDescriptor_t d,
               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *value);
void cudnn_put(CudnnMaker *m, cudnnBackendDescriptor_t d,
               cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void cudnn_finish(CudnnMaker *m, cudnnBackendDescriptor_t d);
/* The graph as cuDNN has it. Tensor i has the identity i + 1. */
cudnnBackendDescriptor_t cudnn_graph(CudnnMaker *m, const AttentionGraph *g);

/* ---- cudnn_plan.c ---- */
/* Of the plans that cuDNN proposes the first one that needs no more than `work` bytes for
 * itself. After an error nothing is left. */
weft_status cudnn_plan(const CudnnTarget *t, const AttentionGraph *g, uint64_t work,
                       CudnnPlan *p, weft_error *e);
void cudnn_plan_free(const CudnnLib *lib, CudnnPlan *p);
/* Bytes that a plan needs for itself. */
int64_t cudnn_plan_work(const CudnnLib *lib, cudnnBackendDescriptor_t plan);

#endif
