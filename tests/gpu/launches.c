/* launches.c - see launches.h: a device whose table is that of `cuda` but for what notes.
 */
#include "launches.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/reference/kernel_values.h"
#include "vm/graph/rules.h"

/* Kernels that the device gave, and for what. */
enum { KERNELS = 4 * OP_N };
static struct {
  pthread_mutex_t lock;
  const DeviceVtable *real;
  DeviceVtable vt;
  DeviceKind kind;
  Launches *to;
  struct {
    const Kernel *kernel;
    int op;
  } given[KERNELS];
  int ngiven;
} noting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int op_of(const Kernel *k) {
  for (int i = 0; i < noting.ngiven; i++)
    if (noting.given[i].kernel == k) return noting.given[i].op;
  return -1;
}

static bool shape_is(const KTensor *a, const KTensor *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool same(const Launch *l, int op, const KernelArgs *a) {
  const KernelArgs *b = &l->args;
  if (l->op != op || a->nin != b->nin || a->nout != b->nout ||
      a->accumulate != b->accumulate || memcmp(a->attr, b->attr, sizeof *a->attr) != 0)
    return false;
  for (int i = 0; i < a->nin; i++)
    if (!shape_is(&a->in[i], &b->in[i])) return false;
  for (int i = 0; i < a->nout; i++)
    if (!shape_is(&a->out[i], &b->out[i])) return false;
  return true;
}

static void note(Launches *l, int op, const Kernel *k, const KernelArgs *a) {
  for (int i = 0; i < l->n; i++)
    if (same(&l->at[i], op, a)) {
      l->at[i].times++;
      return;
    }
  if (l->n == l->room) {
    int room = MAX(2 * l->room, 64);
    Launch *more = realloc(l->at, (size_t)room * sizeof *more);
    if (!more) {
      l->lost = true;
      return;
    }
    l->at = more, l->room = room;
  }
  l->at[l->n++] = (Launch){.op = op, .times = 1, .kernel = k, .args = *a};
}

static const Kernel *kernel(Device *d, int op, const KernelArgs *a) {
  const Kernel *k = noting.real->kernel(d, op, a);
  pthread_mutex_lock(&noting.lock);
  if (k && op_of(k) < 0 && noting.ngiven < KERNELS) {
    noting.given[noting.ngiven].kernel = k;
    noting.given[noting.ngiven++].op = op;
  }
  pthread_mutex_unlock(&noting.lock);
  return k;
}

static void launch(Device *d, const Kernel *k, const KernelArgs *a) {
  pthread_mutex_lock(&noting.lock);
  Launches *l = noting.to;
  int op = op_of(k);
  if (l->on && op >= 0 && (!l->device || l->device == d)) {
    l->device = d;
    note(l, op, k, a);
  }
  l->lost |= op < 0;
  pthread_mutex_unlock(&noting.lock);
  noting.real->launch(d, k, a);
}

static const DeviceVtable *load(weft_error *e) {
  noting.real = device_load_cuda(e);
  if (!noting.real) return NULL;
  noting.vt = *noting.real;
  noting.vt.kernel = kernel, noting.vt.launch = launch, noting.vt.keeper = NULL;
  return &noting.vt;
}

const DeviceKind *launches_device(Launches *l, weft_error *e) {
  const DeviceKind *cuda = device_kind("cuda", e);
  if (!cuda) return NULL;
  noting.kind = *cuda;
  noting.kind.load = load, noting.kind.keeps = false;
  noting.to = l;
  return &noting.kind;
}

/* ---- what a launch does ---- */

static Tid tensor(Graph *g, const KTensor *t) {
  Dim dim[MAX_DIM] = {{0}};
  for (int i = 0; i < t->ndim; i++) dim[i].size = t->dim[i];
  return graph_tensor(g, T_VALUE, t->dtype, dim, t->ndim);
}

double launch_flops(const Launch *l) {
  const KernelArgs *a = &l->args;
  Arena *arena = op_info[l->op].cost ? arena_new(NULL) : NULL;
  if (!arena) return 0;
  Graph *g = graph_new(arena, 1, 1);
  Oid o = graph_add(g, l->op, a->nin, a->nout, -1, PH_F);
  Op *op = &g->op.at[o];
  op->attr = *a->attr;
  for (int i = 0; i < a->nin; i++) op->in[i] = tensor(g, &a->in[i]);
  for (int i = 0; i < a->nout; i++) op->out[i] = tensor(g, &a->out[i]);
  double flops = op_info[l->op].cost(g, op);
  arena_free(arena);
  return flops;
}

bool launch_moves(const Launch *l) {
  return !op_info[l->op].cost || op_info[l->op].cost == cost_move;
}

double launch_bytes(const Launch *l) {
  const KernelArgs *a = &l->args;
  double bytes = 0, adds = l->op == OP_embedding_dw;
  if (l->op == OP_embedding) /* as many rows of the table as there are results */
    return (double)(kernel_bytes(&a->in[0]) + 2 * kernel_bytes(&a->out[0]));
  for (int i = 0; i < a->nin; i++) bytes += (double)kernel_bytes(&a->in[i]);
  if (adds && a->accumulate) return bytes + 2.0 * (double)kernel_bytes(&a->in[1]);
  for (int i = 0; i < a->nout; i++)
    bytes += (1 + a->accumulate) * (double)kernel_bytes(&a->out[i]);
  return bytes;
}
