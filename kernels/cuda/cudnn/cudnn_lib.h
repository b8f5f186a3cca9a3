/* cudnn_lib.h - the functions of cuDNN that weft calls, through dlopen, so that the
 * device needs no cuDNN unless a plan uses it. */
#ifndef WEFT_CUDA_CUDNN_LIB_H
#define WEFT_CUDA_CUDNN_LIB_H

#include <cudnn.h>

#include "vm/base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Result type, name, parameters. */
#define CUDNN_FUNCTIONS(F)                                                               \
  F(size_t, GetVersion, (void))                                                          \
  F(cudnnStatus_t, Create, (cudnnHandle_t *))                                            \
  F(cudnnStatus_t, Destroy, (cudnnHandle_t))                                             \
  F(cudnnStatus_t, SetStream, (cudnnHandle_t, cudaStream_t))                             \
  F(const char *, GetErrorString, (cudnnStatus_t))                                       \
  F(void, GetLastErrorString, (char *, size_t))                                          \
  F(cudnnStatus_t, BackendCreateDescriptor,                                              \
    (cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *))                          \
  F(cudnnStatus_t, BackendDestroyDescriptor, (cudnnBackendDescriptor_t))                 \
  F(cudnnStatus_t, BackendFinalize, (cudnnBackendDescriptor_t))                          \
  F(cudnnStatus_t, BackendSetAttribute,                                                  \
    (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, \
     int64_t, const void *))                                                             \
  F(cudnnStatus_t, BackendGetAttribute,                                                  \
    (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, \
     int64_t, int64_t *, void *))                                                        \
  F(cudnnStatus_t, BackendExecute,                                                       \
    (cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t))

typedef struct CudnnLib {
#define CUDNN_FIELD(type, name, params) type(*name) params;
  CUDNN_FUNCTIONS(CUDNN_FIELD)
#undef CUDNN_FIELD
} CudnnLib;

/* cudnn_open.c: loads all functions; an error names what is missing. */
weft_status cudnn_lib_open(CudnnLib *lib, weft_error *e);

#ifdef __cplusplus
}
#endif

#endif
