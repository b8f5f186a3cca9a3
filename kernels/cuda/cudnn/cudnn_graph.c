/* cudnn_graph.c - backend descriptors of cuDNN from the tables of attention_graph.h. */
#include "cudnn_plan.h"

typedef cudnnBackendDescriptor_t Desc;

/* ---- descriptors ---- */

static void note(CudnnMaker *m, cudnnStatus_t r, const char *what) {
  if (r == CUDNN_STATUS_SUCCESS || m->status != CUDNN_STATUS_SUCCESS) return;
  m->status = r;
  m->what = what;
}

Desc cudnn_new(CudnnMaker *m, cudnnBackendDescriptorType_t type, const char *what) {
  CudnnPlan *p = m->plan;
  Desc d = NULL;
  if (m->status != CUDNN_STATUS_SUCCESS) return NULL;
  assert(p->n < CUDNN_DESCRIPTORS);
  m->what = what;
  note(m, m->target->lib->BackendCreateDescriptor(type, &d), what);
  if (d) p->made[p->n++] = d;
  return d;
}

void cudnn_set(CudnnMaker *m, Desc d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t n, const void *value) {
  if (m->status != CUDNN_STATUS_SUCCESS) return;
  note(m, m->target->lib->BackendSetAttribute(d, name, type, n, value), m->what);
}

void cudnn_put(CudnnMaker *m, Desc d, cudnnBackendAttributeName_t name, Desc value) {
  cudnn_set(m, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void cudnn_finish(CudnnMaker *m, Desc d) {
  if (m->status != CUDNN_STATUS_SUCCESS) return;
  note(m, m->target->lib->BackendFinalize(d), m->what);
}

static void put_type(CudnnMaker *m, Desc d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t type) {
  cudnn_set(m, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* ---- tensors ---- */

static const cudnnDataType_t type_of[] = {
    [AG_BF16] = CUDNN_DATA_BFLOAT16,
    [AG_F32] = CUDNN_DATA_FLOAT,
    [AG_I32] = CUDNN_DATA_INT32,
    [AG_BOOL] = CUDNN_DATA_BOOLEAN,
};

static Desc tensor(CudnnMaker *m, const AgTensor *t, int64_t identity) {
  Desc d = cudnn_new(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR, t->name);
  int64_t align = 16;
  bool between = t->where == AG_BETWEEN, number = t->where == AG_NUMBER;
  put_type(m, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type_of[t->type]);
  cudnn_set(m, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dim);
  cudnn_set(m, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride);
  cudnn_set(m, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &identity);
  cudnn_set(m, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
  cudnn_set(m, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
  if (number)
    cudnn_set(m, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &number);
  cudnn_finish(m, d);
  return d;
}

/* ---- ops ---- */

static Desc matmul(CudnnMaker *m, const AgNode *n, const Desc *t) {
  Desc how = cudnn_new(m, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
  put_type(m, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  cudnn_finish(m, how);
  Desc op = cudnn_new(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product");
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, t[n->x]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, t[n->b]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, t[n->y]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  return op;
}

static Desc reduction(CudnnMaker *m, const AgNode *n, const Desc *t) {
  cudnnReduceTensorOp_t what =
      n->kind == AG_MOST ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
  Desc how = cudnn_new(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a sum");
  put_type(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  cudnn_set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
            &what);
  cudnn_finish(m, how);
  Desc op = cudnn_new(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a sum");
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, t[n->x]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, t[n->y]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  return op;
}

static Desc view(CudnnMaker *m, const AgNode *n, const Desc *t) {
  Desc op = cudnn_new(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a view");
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, t[n->x]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, t[n->y]);
  return op;
}

static const cudnnPointwiseMode_t mode_of[] = {
    [AG_MUL] = CUDNN_POINTWISE_MUL,          [AG_SUB] = CUDNN_POINTWISE_SUB,
    [AG_ADD] = CUDNN_POINTWISE_ADD,          [AG_DIV] = CUDNN_POINTWISE_DIV,
    [AG_EXP] = CUDNN_POINTWISE_EXP,          [AG_LOG] = CUDNN_POINTWISE_LOG,
    [AG_COPY] = CUDNN_POINTWISE_IDENTITY,    [AG_ROW] = CUDNN_POINTWISE_GEN_INDEX,
    [AG_COLUMN] = CUDNN_POINTWISE_GEN_INDEX, [AG_NOT_LESS] = CUDNN_POINTWISE_CMP_GE,
    [AG_GREATER] = CUDNN_POINTWISE_CMP_GT,   [AG_SELECT] = CUDNN_POINTWISE_BINARY_SELECT,
};

/* Places are added up as integers. */
static cudnnDataType_t precision(const AttentionGraph *g, const AgNode *n) {
  bool compares = n->kind == AG_NOT_LESS || n->kind == AG_GREATER;
  bool sums = n->kind == AG_ADD || n->kind == AG_SUB;
  if (compares) return CUDNN_DATA_BOOLEAN;
  return sums ? type_of[g->tensor[n->y].type] : CUDNN_DATA_FLOAT;
}

static Desc pointwise(CudnnMaker *m, const AttentionGraph *g, const AgNode *n,
                      const Desc *t) {
  cudnnPointwiseMode_t mode = mode_of[n->kind];
  int64_t axis = n->kind == AG_ROW ? 2 : 3;
  Desc how = cudnn_new(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "elements");
  cudnn_set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  put_type(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, precision(g, n));
  if (mode == CUDNN_POINTWISE_GEN_INDEX)
    cudnn_set(m, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  cudnn_finish(m, how);
  Desc op = cudnn_new(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "elements");
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, t[n->x]);
  if (ag_has_b(n->kind)) cudnn_put(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, t[n->b]);
  if (ag_has_t(n->kind)) cudnn_put(m, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t[n->t]);
  cudnn_put(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, t[n->y]);
  return op;
}

static Desc node(CudnnMaker *m, const AttentionGraph *g, const AgNode *n, const Desc *t) {
  bool sums = n->kind == AG_MOST || n->kind == AG_SUM;
  Desc op = n->kind == AG_MATMUL ? matmul(m, n, t)
            : n->kind == AG_VIEW ? view(m, n, t)
            : sums               ? reduction(m, n, t)
                                 : pointwise(m, g, n, t);
  cudnn_finish(m, op);
  return op;
}

Desc cudnn_graph(CudnnMaker *m, const AttentionGraph *g) {
  Desc t[AG_TENSORS] = {0}, op[AG_NODES];
  for (int i = 0; i < g->ntensor; i++)
    if (g->tensor[i].where != AG_NOWHERE) t[i] = tensor(m, &g->tensor[i], i + 1);
  for (int i = 0; i < g->nnode; i++) op[i] = node(m, g, &g->node[i], t);
  Desc d = cudnn_new(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
  cudnn_set(m, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nnode,
            op);
  if (m->target->handle)
    cudnn_set(m, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
              &m->target->handle);
  cudnn_finish(m, d);
  return d;
}
