/* cudnn_plan.h - cuDNN's descriptors and execution plan for an attention graph. */
#ifndef WEFT_CUDA_CUDNN_PLAN_H
#define WEFT_CUDA_CUDNN_PLAN_H

#include "attention_graph.h"
#include "cudnn_lib.h"

/* The GPU that plans are made for: that of a handle or, without one, a described GPU. */
typedef struct CudnnTarget {
  const CudnnLib *lib;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t elsewhere;
} CudnnTarget;

enum { CUDNN_DESCRIPTORS = AG_TENSORS + 2 * AG_NODES + 8 };

/* Descriptors in order of creation, which live as long as the plan, the last of them. */
typedef struct CudnnPlan {
  cudnnBackendDescriptor_t made[CUDNN_DESCRIPTORS], plan;
  int n;
} CudnnPlan;

/* ---- cudnn_graph.c ---- */
typedef struct CudnnMaker {
  const CudnnTarget *target;
  CudnnPlan *plan;
  cudnnStatus_t status; /* of the first failed call; later calls are skipped */
  const char *what;     /* what that call should have made */
} CudnnMaker;

cudnnBackendDescriptor_t cudnn_new(CudnnMaker *m, cudnnBackendDescriptorType_t type,
                                   const char *what);
void cudnn_set(CudnnMaker *m, cudnnBackendDescriptor_t d,
               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t n, const void *value);
void cudnn_put(CudnnMaker *m, cudnnBackendDescriptor_t d,
               cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void cudnn_finish(CudnnMaker *m, cudnnBackendDescriptor_t d);
/* The graph as a cuDNN descriptor. Tensor i has the identity i + 1. */
cudnnBackendDescriptor_t cudnn_graph(CudnnMaker *m, const AttentionGraph *g);

/* ---- cudnn_plan.c ---- */
/* The first plan that cuDNN proposes with at most `work` bytes of workspace. Destroys
 * everything on an error. */
weft_status cudnn_plan(const CudnnTarget *t, const AttentionGraph *g, uint64_t work,
                       CudnnPlan *p, weft_error *e);
void cudnn_plan_free(const CudnnLib *lib, CudnnPlan *p);
/* The error that cuDNN returned for `what`. */
weft_status cudnn_failed(const CudnnLib *lib, cudnnStatus_t r, const char *what,
                         weft_error *e);
/* Workspace bytes of a plan. */
int64_t cudnn_plan_work(const CudnnLib *lib, cudnnBackendDescriptor_t plan);

#endif
