/* cudnn.cpp - cuDNN's backend by evaluation: a graph is read back from its descriptors,
 * and executing a plan queues that graph, in f64 with each tensor rounded to its type, on
 * the stream of the handle. Nothing is known here of attention, but for what engines are
 * known to do wrong. What is not finalized, not aligned, not there or of the wrong size
 * is refused; a handle that goes after all others finds no descriptor left. */
#include "cudnn.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/cudnn/cudnn_lib.h"
#include "emulate.h"
#include "tests/reference/attention_graph_run.h"
#include "tests/standin/standin.h"

typedef cudnnBackendDescriptor_t Desc;

struct StandinCudnn {
  cudaStream_t stream = nullptr;
};

/* A graph that was read back, with the identity of each tensor. */
struct ReadGraph {
  AttentionGraph g = {};
  std::vector<int64_t> identity;
  size_t work = 0;
  bool views = false; /* as those of gradients have */
};

struct StandinDescriptor {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<char>> attribute;
  bool finalized = false;
  std::shared_ptr<ReadGraph> graph; /* of a graph, a plan, and between them */

  bool has(int name) const { return attribute.count(name) > 0; }
  template <typename T> T get(int name, size_t i = 0) const {
    auto a = attribute.find(name);
    T x = T();
    if (a != attribute.end() && a->second.size() >= (i + 1) * sizeof x)
      memcpy(&x, a->second.data() + i * sizeof x, sizeof x);
    return x;
  }
  size_t bytes(int name) const { return has(name) ? attribute.at(name).size() : 0; }
};

namespace {

std::recursive_mutex lock;
int handles, descriptors, executed;
char last[128];

cudnnStatus_t refused(cudnnStatus_t r, const char *why) {
  snprintf(last, sizeof last, "%s", why);
  return r;
}

size_t size_of(cudnnBackendAttributeType_t t) {
  switch (t) {
  case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
  case CUDNN_TYPE_INT64: return sizeof(int64_t);
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
  default: return sizeof(int);
  }
}

/* ---- reading a graph back ---- */

struct Reader {
  ReadGraph &to;
  cudnnStatus_t bad;

  uint8_t tensor(Desc d) {
    if (!d || d->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || !d->finalized) {
      bad = refused(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a tensor is missing");
      return 0;
    }
    int64_t id = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (size_t i = 0; i < to.identity.size(); i++)
      if (to.identity[i] == id) return (uint8_t)i;
    AgTensor t = {};
    int type = d->get<int>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.name = "";
    t.type = type == CUDNN_DATA_BFLOAT16 ? AG_BF16
             : type == CUDNN_DATA_FLOAT  ? AG_F32
             : type == CUDNN_DATA_INT32  ? AG_I32
                                         : AG_BOOL;
    t.where = d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)  ? AG_NUMBER
              : d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) ? AG_BETWEEN
                                                           : AG_IN;
    for (int k = 0; k < 4; k++) {
      t.dim[k] = d->get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, (size_t)k);
      t.stride[k] = d->get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, (size_t)k);
    }
    to.g.tensor[to.g.ntensor++] = t;
    to.identity.push_back(id);
    return (uint8_t)(to.g.ntensor - 1);
  }

  AgKind kind(Desc op) {
    Desc how = op->get<Desc>(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (!how || !how->finalized) bad = CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (bad) return AG_COPY;
    switch (how->get<int>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_ADD: return AG_ADD;
    case CUDNN_POINTWISE_MUL: return AG_MUL;
    case CUDNN_POINTWISE_DIV: return AG_DIV;
    case CUDNN_POINTWISE_SUB: return AG_SUB;
    case CUDNN_POINTWISE_EXP: return AG_EXP;
    case CUDNN_POINTWISE_LOG: return AG_LOG;
    case CUDNN_POINTWISE_IDENTITY: return AG_COPY;
    case CUDNN_POINTWISE_CMP_GE: return AG_NOT_LESS;
    case CUDNN_POINTWISE_CMP_GT: return AG_GREATER;
    case CUDNN_POINTWISE_BINARY_SELECT: return AG_SELECT;
    case CUDNN_POINTWISE_GEN_INDEX:
      return how->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) == 2 ? AG_ROW : AG_COLUMN;
    }
    bad = refused(CUDNN_STATUS_NOT_SUPPORTED, "a mode that is not known");
    return AG_COPY;
  }

  AgNode node(Desc op) {
    auto at = [&](int name) {
      return op->has(name) ? tensor(op->get<Desc>(name)) : (uint8_t)0;
    };
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {AG_MATMUL, at(CUDNN_ATTR_OPERATION_MATMUL_CDESC),
              at(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
              at(CUDNN_ATTR_OPERATION_MATMUL_BDESC), 0};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
      Desc how = op->get<Desc>(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
      int what = how ? how->get<int>(CUDNN_ATTR_REDUCTION_OPERATOR) : -1;
      return {what == CUDNN_REDUCE_TENSOR_MAX ? AG_MOST : AG_SUM,
              at(CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
              at(CUDNN_ATTR_OPERATION_REDUCTION_XDESC), 0, 0};
    }
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {AG_VIEW, at(CUDNN_ATTR_OPERATION_RESHAPE_YDESC),
              at(CUDNN_ATTR_OPERATION_RESHAPE_XDESC), 0, 0};
    default:
      return {kind(op), at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
              at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
              at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              at(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)};
    }
  }
};

/* Before 9.26 Ampere's engines for gradients do not look at the strides of their operand
 * in f32, the softmax's statistics (NVIDIA/cudnn-frontend, pull request 304). */
void overlook_strides(ReadGraph &graph) {
  if (standin_is()->capability >= 90 || standin_is()->cudnn >= 92600) return;
  std::vector<bool> given(AG_TENSORS);
  for (int i = 0; i < graph.g.nnode; i++) given[graph.g.node[i].y] = true;
  for (int i = 0; i < graph.g.ntensor; i++) {
    AgTensor &t = graph.g.tensor[i];
    if (t.where != AG_IN || t.type != AG_F32 || given[(size_t)i]) continue;
    t.stride[3] = 1;
    for (int k = 2; k >= 0; k--) t.stride[k] = t.stride[k + 1] * t.dim[k + 1];
  }
}

/* As Ampere's engines: of the first product, queries by keys, rows of both in f32. */
size_t work_of_gradients(const AttentionGraph &g) {
  for (int i = 0; i < g.nnode; i++) {
    if (g.node[i].kind != AG_MATMUL) continue;
    const AgTensor &y = g.tensor[g.node[i].y], &x = g.tensor[g.node[i].x];
    int64_t rows = (y.dim[2] + 7) / 8 * 8 + y.dim[3];
    return (size_t)(y.dim[0] * y.dim[1] * rows * x.dim[3]) * sizeof(float);
  }
  return 0;
}

cudnnStatus_t read_graph(Desc d) {
  auto to = std::make_shared<ReadGraph>();
  Reader r{*to, CUDNN_STATUS_SUCCESS};
  size_t n = d->bytes(CUDNN_ATTR_OPERATIONGRAPH_OPS) / sizeof(Desc);
  if (!d->get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
    return refused(CUDNN_STATUS_BAD_PARAM, "a graph without a handle");
  for (size_t i = 0; i < n; i++) {
    Desc op = d->get<Desc>(CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
    if (!op || !op->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (i >= AG_NODES) return refused(CUDNN_STATUS_NOT_SUPPORTED, "too many ops");
    AgNode &node = to->g.node[i] = r.node(op);
    to->views |= node.kind == AG_VIEW;
  }
  to->g.nnode = (int)n;
  if (to->views) overlook_strides(*to);
  to->work = 256 + (to->views ? work_of_gradients(to->g) : 0);
  d->graph = to;
  return r.bad;
}

/* ---- running ---- */

double load(const AgTensor &t, const void *p, int64_t i) {
  if (t.type == AG_I32) return ((const int32_t *)p)[i];
  if (t.type == AG_F32) return ((const float *)p)[i];
  return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void store(const AgTensor &t, void *p, int64_t i, double x) {
  if (t.type == AG_F32)
    ((float *)p)[i] = (float)x;
  else
    ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)x);
}

double number_of(const AgTensor &t) {
  return t.type == AG_I32 ? (double)t.count : (double)t.number;
}

/* Whether element k of a tensor, in the order of dimensions, is of the last row of the
 * last head. */
bool last_row(const AgTensor &t, int64_t k) { return k >= graph_count(&t) - t.dim[3]; }

/* What no op gives is read before; what one gives is written after, to memory that was
 * spoiled meanwhile, as the scratch was. */
void evaluate(const ReadGraph &graph, const std::vector<void *> &at, void *work) {
  const AttentionGraph &g = graph.g;
  std::vector<std::vector<double>> value((size_t)g.ntensor);
  double *memory[AG_TENSORS];
  bool given[AG_TENSORS] = {};
  for (int i = 0; i < graph.g.nnode; i++) given[graph.g.node[i].y] = true;
  memset(work, 0xff, graph.work);
  for (int i = 0; i < g.ntensor; i++) {
    const AgTensor &t = g.tensor[i];
    value[(size_t)i].assign((size_t)graph_extent(&t), __builtin_nan(""));
    memory[i] = value[(size_t)i].data();
    for (int64_t n = graph_count(&t); n-- > 0 && !given[i];) {
      int64_t k = graph_place(&t, n);
      memory[i][k] = t.where == AG_NUMBER ? number_of(t) : load(t, at[(size_t)i], k);
    }
  }
  graph_run(&g, memory, true, GRAPH_RIGHT);
  int written = graph.views ? CUDNN_GRADIENTS : 0;
  for (int i = 0; i < g.ntensor; i++) {
    if (!given[i] || !at[(size_t)i]) continue;
    const AgTensor &t = g.tensor[i];
    bool wrong = ++written == standin_is()->cudnn_wrong;
    for (int64_t k = 0; k < graph_count(&t); k++) {
      int64_t to = graph_place(&t, k);
      store(t, at[(size_t)i], to, wrong && last_row(t, k) ? 0 : memory[i][to]);
    }
  }
}

cudnnStatus_t execute(cudnnHandle_t h, Desc plan, Desc pack) {
  if (!plan->finalized || !pack->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  auto graph = std::make_shared<ReadGraph>(*plan->graph);
  std::vector<void *> at((size_t)graph->g.ntensor);
  void *work = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  size_t n = pack->bytes(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) / sizeof(int64_t);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < at.size(); k++)
      if (graph->identity[k] == pack->get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i))
        at[k] = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
  for (size_t k = 0; k < at.size(); k++) {
    AgTensor &t = graph->g.tensor[k];
    bool number = t.where == AG_NUMBER;
    if ((t.where == AG_BETWEEN) == (at[k] != nullptr))
      return refused(CUDNN_STATUS_BAD_PARAM, "an address too few or too many");
    if (!number && (uintptr_t)at[k] % 16)
      return refused(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "an address");
    if (number) memcpy(&t.count, at[k], sizeof t.count), at[k] = nullptr;
  }
  if (!work) return refused(CUDNN_STATUS_BAD_PARAM, "no workspace");
  if (standin_fails(h->stream)) return refused(CUDNN_STATUS_EXECUTION_FAILED, "a launch");
  {
    std::lock_guard<std::recursive_mutex> g(lock);
    if (++executed == standin_is()->cudnn_fails)
      return refused(CUDNN_STATUS_NOT_SUPPORTED, "as it was told");
  }
  emulate::enqueue(h->stream, [=] { evaluate(*graph, at, work); });
  return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cudnnStatus_t finalize(Desc d) {
  if (d->finalized) return refused(CUDNN_STATUS_BAD_PARAM, "finalized twice");
  cudnnStatus_t r = CUDNN_STATUS_SUCCESS;
  Desc from = nullptr;
  if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) r = read_graph(d);
  if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    from = d->get<Desc>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    from = d->get<Desc>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (from) d->graph = from->graph;
  bool needs = d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR ||
               d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  if (needs && !d->graph) return refused(CUDNN_STATUS_BAD_PARAM, "there is no graph");
  if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
      !d->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
    return refused(CUDNN_STATUS_BAD_PARAM, "a plan without a handle");
  d->finalized = r == CUDNN_STATUS_SUCCESS;
  return r;
}

cudnnStatus_t set(Desc d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *p) {
  if (d->finalized) return refused(CUDNN_STATUS_BAD_PARAM, "set after it was finalized");
  const char *c = (const char *)p;
  d->attribute[name].assign(c, c + (size_t)n * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

/* One engine, whatever was asked; and what a plan needs. */
cudnnStatus_t get(Desc d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *p) {
  if (!d->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  *n = 1;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *(int64_t *)p = (int64_t)d->graph->work + standin_is()->cudnn_work;
  } else if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && room > 0) {
    Desc to = *(Desc *)p;
    to->graph = d->graph, to->finalized = true;
  } else {
    return refused(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not known");
  }
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" weft_status cudnn_lib_open(CudnnLib *lib, weft_error *e) {
  typedef std::lock_guard<std::recursive_mutex> Guard;
  if (!standin_is()->cudnn) {
    e->code = WEFT_EUSAGE;
    snprintf(
        e->text, sizeof e->text,
        "attention_backend: cuDNN 9 cannot be opened (libcudnn.so.9: cannot open it)");
    return e->code;
  }
  lib->GetVersion = [] { return (size_t)standin_is()->cudnn; };
  lib->Create = [](cudnnHandle_t *h) {
    Guard g(lock);
    handles++;
    *h = new StandinCudnn;
    return CUDNN_STATUS_SUCCESS;
  };
  lib->Destroy = [](cudnnHandle_t h) {
    Guard g(lock);
    delete h;
    if (--handles == 0 && descriptors > 0) {
      fprintf(stderr, "cuDNN: %d descriptors are left\n", descriptors);
      abort();
    }
    return CUDNN_STATUS_SUCCESS;
  };
  lib->SetStream = [](cudnnHandle_t h, cudaStream_t s) {
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
  };
  lib->GetErrorString = [](cudnnStatus_t r) {
    return r ? "CUDNN_STATUS_BAD" : "success";
  };
  lib->GetLastErrorString = [](char *text, size_t n) { snprintf(text, n, "%s", last); };
  lib->BackendCreateDescriptor = [](cudnnBackendDescriptorType_t type, Desc *d) {
    Guard g(lock);
    descriptors++;
    *d = new StandinDescriptor;
    (*d)->type = type;
    return CUDNN_STATUS_SUCCESS;
  };
  lib->BackendDestroyDescriptor = [](Desc d) {
    Guard g(lock);
    descriptors--;
    delete d;
    return CUDNN_STATUS_SUCCESS;
  };
  lib->BackendFinalize = finalize;
  lib->BackendSetAttribute = set;
  lib->BackendGetAttribute = get;
  lib->BackendExecute = execute;
  return WEFT_OK;
}
