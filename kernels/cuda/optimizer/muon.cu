/* muon.cu - what the step of whole matrices has besides products; see
 * kernels/cpu/optimizer/muon.c. */
#include "step_kernels.cuh"

#include "vm/graph/matrix_places.h"

struct Average {
  double momentum;
  bool ahead, by_chance;
  uint32_t seed;
};

template <typename G, typename S>
__global__ void __launch_bounds__(BLOCK)
    average_elements(const Average a, const G *g, const S *m0, S *m1, float *u,
                     const double *scal, int64_t n) {
  bool hold = scal[SC_HOLD] != 0;
  float clip = (float)scal[SC_CLIP];
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  EACH_ELEMENT(i, n) {
    if (hold) {
      u[i] = 0;
      continue;
    }
    float x = load(g[i]) * clip, m = average(load(m0[i]), x, a.momentum);
    u[i] = a.ahead ? x + (float)a.momentum * (m - x) : m;
    uint32_t r = a.by_chance ? chance(x, m, number, a.seed) : 0;
    m1[i] = rounded_by<S>(m, a.by_chance, r);
  }
}

static uint32_t seed_of(const OpAttr *a) {
  return (uint32_t)(a->seed ^ a->seed >> 32) * 0xc2b2ae35u;
}

void cuda_matrix_average(Device *d, const KernelArgs *k) {
  int64_t n = cuda_count(&k->in[1]);
  Average a;
  memset(&a, 0, sizeof a);
  a.momentum = k->attr->momentum, a.ahead = k->attr->nesterov != 0;
  a.by_chance = k->attr->kind != 0, a.seed = seed_of(k->attr);
  by_type(k->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) G;
    by_type(k->in[1].dtype, [&](auto *q) {
      typedef TYPE_OF(q) S;
      LAUNCH((average_elements<G, S>), blocks_for(n), BLOCK, cuda_stream(d), a,
             data<const G>(&k->in[0]), data<const S>(&k->in[1]), data<S>(&k->out[0]),
             data<float>(&k->out[1]), data<const double>(&k->in[2]), n);
    });
  });
}

/* ---- pieces of matrices ---- */

static MatrixPlaces places_of(const OpAttr *attr, const KTensor *x,
                              const KTensor *boxes) {
  bool turned = attr->inverse != 0;
  return matrix_places(x->dim[turned], x->dim[!turned], attr->dim, attr->parts,
                       (int)boxes->dim[0], boxes->dim[1], (int64_t)attr->first);
}

__global__ void __launch_bounds__(BLOCK)
    take_elements(const MatrixPlaces p, const float *from, float *to, int64_t n,
                  int64_t cols, bool turned) {
  EACH_ELEMENT(k, n) {
    int64_t r = k / cols, c = k % cols;
    to[k] = from[matrix_place(&p, turned ? c : r, turned ? r : c)];
  }
}

void cuda_matrix_take(Device *d, const KernelArgs *a) {
  const KTensor *x = &a->out[0];
  int64_t n = cuda_count(x);
  if (a->index != a->attr->from) return;
  LAUNCH((take_elements), blocks_for(n), BLOCK, cuda_stream(d),
         places_of(a->attr, x, &a->in[0]), data<const float>(&a->in[0]), data<float>(x),
         n, x->dim[1], a->attr->inverse != 0);
}

/* Over the rows and columns of all pieces; `mine`: the matrix is this rank's. */
__global__ void __launch_bounds__(BLOCK)
    put_elements(const MatrixPlaces p, const float *from, float *to, int64_t rows,
                 int64_t cols, bool turned, bool mine, float scale) {
  int64_t n = rows * p.cols * p.pieces;
  EACH_ELEMENT(k, n) {
    int64_t j = k % p.cols, i = k / p.cols % rows, piece = k / p.cols / rows;
    float *at = to + piece * p.box + p.first + i * p.cols + j;
    bool has = matrix_element(&p, piece, &i, &j) && mine;
    *at = has ? scale * from[turned ? j * cols + i : i * cols + j] : 0;
  }
}

void cuda_matrix_put(Device *d, const KernelArgs *a) {
  const KTensor *x = &a->in[0];
  bool turned = a->attr->inverse != 0;
  MatrixPlaces p = places_of(a->attr, x, &a->out[0]);
  int64_t rows = piece_rows(&p, x->dim[turned]);
  LAUNCH((put_elements), blocks_for(rows * p.cols * p.pieces), BLOCK, cuda_stream(d), p,
         data<const float>(x), data<float>(&a->out[0]), rows, x->dim[1], turned,
         a->index == a->attr->from, a->attr->scale);
}

/* ---- the step ---- */

struct Along {
  double decay, factor;
  bool by_chance;
  uint32_t seed;
};

template <typename P, typename T>
__global__ void __launch_bounds__(BLOCK)
    step_along(const Along a, const P *p, const float *o, P *to, T *copy,
               const double *scal, int64_t n) {
  if (scal[SC_HOLD] != 0) return;
  float lr = (float)(a.factor * scal[SC_LR]);
  float keep = (float)(1.0 - a.factor * scal[SC_LR] * a.decay);
  uint32_t number = (uint32_t)(uint64_t)scal[SC_STEP];
  bool copies = (const void *)copy != (const void *)to;
  EACH_ELEMENT(i, n) {
    float was = load(p[i]), x = was * keep - lr * o[i];
    uint32_t r = a.by_chance ? chance(o[i], was, number, a.seed) : 0;
    to[i] = rounded_by<P>(x, a.by_chance, r);
    if (copies) copy[i] = rounded<T>(sizeof(P) == 2 ? load(to[i]) : x);
  }
}

void cuda_matrix_step(Device *d, const KernelArgs *k) {
  int64_t n = cuda_count(&k->in[0]);
  Along a;
  memset(&a, 0, sizeof a);
  a.decay = k->attr->weight_decay, a.factor = attr_lr(k->attr, 1);
  a.by_chance = k->attr->kind != 0, a.seed = seed_of(k->attr);
  by_type(k->in[0].dtype, [&](auto *p) {
    typedef TYPE_OF(p) P;
    by_type(k->out[1].dtype, [&](auto *q) {
      typedef TYPE_OF(q) T;
      LAUNCH((step_along<P, T>), blocks_for(n), BLOCK, cuda_stream(d), a,
             data<const P>(&k->in[0]), data<const float>(&k->in[1]), data<P>(&k->out[0]),
             data<T>(&k->out[1]), data<const double>(&k->in[2]), n);
    });
  });
}
