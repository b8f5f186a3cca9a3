/* reference_ops.c - reference ops: naive, in f64, in the order of ops.def. */
#include "reference_ops.h"

#include <math.h>
#include <stdlib.h>

#include "vm/base/f16.h"
#include "vm/base/philox.h"
#include "vm/program/program.h"

#define IN(i)  (a->in[i].v)
#define OUT(i) (a->out[i].v)

int64_t ref_count(const RefTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->dim[i];
  return n;
}

static int64_t last(const RefTensor *t) { return t->dim[t->ndim - 1]; }
static int64_t rows(const RefTensor *t) { return ref_count(t) / last(t); }

/* Gradients of parameters start from 0 or accumulate. */
static void start(RefArgs *a, int out) {
  if (a->accumulate) return;
  for (int64_t i = 0; i < ref_count(&a->out[out]); i++) OUT(out)[i] = 0;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

#include "reference_experts.h"

/* ---- forward ---- */

static int64_t table_row(const RefArgs *a, double id, int64_t v) {
  int64_t r = (int64_t)id;
  if (a->attr->cut) r -= a->index * v;
  return r < 0 || r >= v ? -1 : r;
}

static void embedding(RefArgs *a) {
  int64_t v = a->in[1].dim[0], c = a->in[1].dim[1];
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    int64_t r = table_row(a, IN(0)[i], v);
    for (int64_t j = 0; j < c; j++) OUT(0)[i * c + j] = r < 0 ? 0 : IN(1)[r * c + j];
  }
}

/* Element (o, i) of a weight in either layout. */
static int64_t weight_at(const RefArgs *a, int64_t o, int64_t i, int64_t O, int64_t I) {
  return a->attr->layout == 0 ? o * I + i : i * O + o;
}

static void linear(RefArgs *a) {
  int64_t I = last(&a->in[0]), O = last(&a->out[0]);
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t o = 0; o < O; o++) {
      double sum = 0;
      for (int64_t i = 0; i < I; i++)
        sum += IN(0)[r * I + i] * IN(1)[weight_at(a, o, i, O, I)];
      OUT(0)[r * O + o] = sum;
    }
}

/* The levels of NF4, and what a code of its scales stands for: of 2^k equal parts of
 * [0.1, 1] times 10^(k - 6) the middle, with both signs, and 0 and 1. */
static const double nf4_values[] = {-1,          -0.69619280, -0.52507305, -0.39491749,
                                    -0.28444138, -0.18477343, -0.0910500,  0,
                                    0.07958030,  0.16093020,  0.24611230,  0.33791524,
                                    0.44070983,  0.56261700,  0.72295684,  1};

static double scale_value(int code) {
  int n = code < 127 ? 127 - code : code - 127, k = 0;
  if (n == 0) return 0;
  if (n == 128) return 1;
  while (2 << k <= n) k++;
  double part = 0.9 / (1 << k), middle = 0.1 + (n - (1 << k) + 0.5) * part;
  return (code < 127 ? -1 : 1) * pow(10, k - 6) * middle;
}

static void nf4(RefArgs *a) {
  int64_t R = a->out[0].dim[0], I = a->out[0].dim[1], all = I, first = 0;
  int64_t parts = 1, n = 1, at = 0;
  const double *group = IN(2), offset = group[a->in[2].dim[0] - 1];
  if (a->attr->cut && a->attr->dim == 1) all = I * a->attr->n, first = I * a->index;
  if (a->attr->cut && a->attr->dim == 0)
    parts = a->attr->parts, n = a->attr->n, at = a->index;
  for (int64_t r = 0; r < R; r++)
    for (int64_t i = 0; i < I; i++) {
      int64_t each = R / parts, part = r / each;
      int64_t row = part * each * n + at * each + r % each;
      int64_t block = (row * all + first + i) / 64;
      int byte = (int)IN(0)[(r * I + i) / 2], code = i % 2 ? byte % 16 : byte / 16;
      double scale = scale_value((int)IN(1)[(r * I + i) / 64]) * group[block / 256];
      OUT(0)[r * I + i] = nf4_values[code] * (scale + offset);
    }
}

static void feature_sqnorms(RefArgs *a) {
  int64_t R = a->in[1].dim[0], I = a->in[1].dim[1], O = a->in[2].dim[0];
  for (int64_t o = 0; o < O; o++) {
    OUT(0)[o] = 0;
    for (int64_t i = 0; i < I; i++) {
      double v = IN(0)[weight_at(a, o, i, O, I)];
      for (int64_t r = 0; r < R; r++)
        v += a->attr->scale * IN(2)[o * R + r] * IN(1)[r * I + i];
      OUT(0)[o] += v * v;
    }
  }
}

static void feature_scale(RefArgs *a) {
  int64_t n = last(&a->in[0]);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] * IN(1)[i % n] / sqrt(IN(2)[i % n]);
}

static void add_bias(RefArgs *a) {
  int64_t n = last(&a->in[0]);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = IN(0)[i] + IN(1)[i % n];
}

static void add(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = IN(0)[i] + IN(1)[i];
}

static void mul(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = IN(0)[i] * IN(1)[i];
}

static void scale(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] * a->attr->scale;
}

/* What an element is multiplied by: 0 where its word is among the smallest. */
static double kept(const RefArgs *a, double token, int64_t column, uint32_t place,
                   uint32_t also) {
  uint32_t word[4],
      key[] = {(uint32_t)a->attr->seed, (uint32_t)(a->attr->seed >> 32) + also};
  uint32_t counter[] = {(uint32_t)(int32_t)token, (uint32_t)(column / 4), place, a->unit};
  if (a->attr->rate == 0) return 1;
  philox4x32(counter, key, word);
  return word[column % 4] < floor(a->attr->rate * 0x1p32) ? 0 : 1 / (1 - a->attr->rate);
}

static void dropout(RefArgs *a) {
  int64_t c = last(&a->in[0]), first = a->attr->cut ? a->index * c : 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)
  [i] = IN(0)[i] * kept(a, IN(1)[i / c], first + i % c, (uint32_t)a->attr->site, 0);
}

static void noise(RefArgs *a) {
  int64_t c = last(&a->in[0]), first = a->attr->cut ? a->index * c : 0;
  uint32_t key[] = {(uint32_t)a->attr->seed, (uint32_t)(a->attr->seed >> 32)}, word[4];
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    int64_t column = first + i % c;
    uint32_t counter[] = {(uint32_t)(int32_t)IN(1)[i / c], (uint32_t)(column / 4),
                          (uint32_t)a->attr->site, a->unit};
    philox4x32(counter, key, word);
    OUT(0)[i] = IN(0)[i] + a->attr->rate * (word[column % 4] / 0x1p31 - 1);
  }
}

static double gelu_of(double x, int kind) {
  if (kind == 1) return 0.5 * x * (1 + erf(x / sqrt(2)));
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void gelu(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = gelu_of(IN(0)[i], a->attr->kind);
}

static void silu(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] * sigmoid(IN(0)[i]);
}

static void relu(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = fmax(IN(0)[i], 0);
}

static void soft_cap(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = a->attr->soft_cap * tanh(IN(0)[i] / a->attr->soft_cap);
}

/* ---- xielu ---- its numbers, and what the second one is multiplied by */

static double softplus(double x) { return log1p(exp(x)); }
static double below_0(const RefArgs *a, double x) {
  return expm1(fmin(x, a->attr->eps)) - x;
}

static void xielu(RefArgs *a) {
  double p = softplus(*IN(1)), n = a->attr->beta + softplus(*IN(2));
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(0)[i];
    OUT(0)[i] = (x > 0 ? p * x * x : n * below_0(a, x)) + a->attr->beta * x;
  }
}

static void xielu_dx(RefArgs *a) {
  double p = softplus(*IN(1)), n = a->attr->beta + softplus(*IN(2));
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(0)[i], below = n * ((x > a->attr->eps ? 0 : exp(x)) - 1);
    OUT(0)[i] = IN(3)[i] * ((x > 0 ? 2 * p * x : below) + a->attr->beta);
  }
}

static void xielu_dw(RefArgs *a) {
  start(a, 0);
  start(a, 1);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(0)[i], dy = IN(3)[i];
    if (x > 0)
      *OUT(0) += dy * x * x * sigmoid(*IN(1));
    else
      *OUT(1) += dy * below_0(a, x) * sigmoid(*IN(2));
  }
}

/* One pair (g, u) of clamped_swiglu. */
typedef struct RefGate {
  double g, u, s;
} RefGate;

static RefGate gate_of(const RefArgs *a, int64_t i) {
  double most = a->attr->limit, g = fmin(IN(0)[2 * i], most);
  return (RefGate){g, fmax(fmin(IN(0)[2 * i + 1], most), -most),
                   sigmoid(a->attr->scale * g)};
}

static void clamped_swiglu(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    RefGate p = gate_of(a, i);
    OUT(0)[i] = p.g * p.s * (p.u + 1);
  }
}

static void clamped_swiglu_dx(RefArgs *a) {
  double most = a->attr->limit, alpha = a->attr->scale;
  for (int64_t i = 0; i < ref_count(&a->in[1]); i++) {
    RefGate p = gate_of(a, i);
    double slope = p.s + alpha * p.g * p.s * (1 - p.s), dy = IN(1)[i];
    OUT(0)[2 * i] = IN(0)[2 * i] > most ? 0 : dy * (p.u + 1) * slope;
    OUT(0)[2 * i + 1] = fabs(IN(0)[2 * i + 1]) > most ? 0 : dy * p.g * p.s;
  }
}

static void silu_mul(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] * sigmoid(IN(0)[i]) * IN(1)[i];
}

static void swiglu(RefArgs *a) {
  int64_t c = last(&a->out[0]);
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    const double *u = IN(0) + i / c * 2 * c + i % c, *g = u + c;
    OUT(0)[i] = *g * sigmoid(*g) * *u;
  }
}

/* Element i of operand k, the weight of a norm. */
static double weight(const RefArgs *a, int k, int64_t i) {
  return IN(k)[i] + (a->attr->zero_centered ? 1 : 0);
}

/* Elements of a group of a norm, and where the weight of element i is. */
static int64_t norm_group(const RefArgs *a, const RefTensor *w) {
  return a->attr->head_dim ? a->attr->head_dim : last(w);
}

static void rmsnorm(RefArgs *a) {
  int64_t g = norm_group(a, &a->in[1]), all = last(&a->in[1]);
  for (int64_t r = 0; r < ref_count(&a->in[0]) / g; r++) {
    double sum = 0;
    for (int64_t i = 0; i < g; i++) sum += IN(0)[r * g + i] * IN(0)[r * g + i];
    OUT(1)[r] = 1 / sqrt(sum / (double)g + a->attr->eps);
    for (int64_t i = 0; i < g; i++)
      OUT(0)[r * g + i] = IN(0)[r * g + i] * OUT(1)[r] * weight(a, 1, (r * g + i) % all);
  }
}

static void layernorm(RefArgs *a) {
  int64_t c = last(&a->in[0]);
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    double mean = 0, var = 0;
    for (int64_t i = 0; i < c; i++) mean += IN(0)[r * c + i] / (double)c;
    for (int64_t i = 0; i < c; i++) var += pow(IN(0)[r * c + i] - mean, 2) / (double)c;
    double rstd = 1 / sqrt(var + a->attr->eps);
    OUT(1)[2 * r] = mean;
    OUT(1)[2 * r + 1] = rstd;
    for (int64_t i = 0; i < c; i++)
      OUT(0)[r * c + i] = (IN(0)[r * c + i] - mean) * rstd * weight(a, 1, i) + IN(2)[i];
  }
}

static double row_mean(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return sum / (double)n;
}

static void center(RefArgs *a) {
  int64_t c = last(&a->in[0]);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] - row_mean(IN(0) + i / c * c, c);
}

static void gate(RefArgs *a) {
  int64_t c = ref_count(&a->in[0]) / ref_count(&a->in[1]);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double s = IN(1)[i / c];
    OUT(0)[i] = IN(0)[i] * (a->attr->kind ? log1p(exp(s)) : sigmoid(s));
  }
}

static void split(RefArgs *a) {
  int64_t n = last(&a->in[0]), c = n / a->nout;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(i % n / c)[i / n * c + i % c] = IN(0)[i];
}

/* The angle per position of pair i of a head, with Llama 3's scaling of long
 * wavelengths. */
static double frequency(const OpAttr *at, int i, int d) {
  double f = pow(at->theta, -2.0 * i / d);
  if (at->rope_factors[0] != 0) f /= at->rope_factors[i];
  if (at->rope_factor == 0) return f;
  if (at->yarn) {
    double low = at->rope_low, slow = (i - low) / (at->rope_high - low);
    slow = fmin(fmax(slow, 0), 1);
    return slow * (f / at->rope_factor) + (1 - slow) * f;
  }
  double turns = at->rope_original * f / (2 * M_PI); /* in the original context */
  if (turns > at->rope_high) return f;
  if (turns < at->rope_low) return f / at->rope_factor;
  double keep = (turns - at->rope_low) / (at->rope_high - at->rope_low);
  return keep * f + (1 - keep) * f / at->rope_factor;
}

static void add_rmsnorm(RefArgs *a) {
  RefArgs norm = *a;
  add(a);
  norm.in[0] = a->out[0], norm.in[1] = a->in[2];
  norm.out[0] = a->out[1], norm.out[1] = a->out[2];
  rmsnorm(&norm);
}

static void rope(RefArgs *a) {
  const OpAttr *at = a->attr;
  int64_t n = last(&a->in[0]), d = at->head_dim,
          turn = at->rotary_dim ? at->rotary_dim : d;
  double scale = at->rope_scale != 0 ? at->rope_scale : 1;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = IN(0)[i];
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t h = 0; h < n / d; h++)
      for (int64_t i = 0; i < turn / 2; i++) {
        double angle = IN(1)[r] * frequency(at, (int)i, (int)turn);
        if (at->inverse) angle = -angle;
        double far = at->length_scale != 0 ? log(1 + floor(IN(1)[r] / at->length)) : 0;
        double by = scale * (1 + at->length_scale * far);
        int64_t p = r * n + h * d + at->rotary_from + (at->interleaved ? 2 * i : i);
        int64_t q = at->interleaved ? p + 1 : p + turn / 2;
        double u = IN(0)[p], v = IN(0)[q]; /* read first: the result may be in place */
        OUT(0)[p] = by * (u * cos(angle) - v * sin(angle));
        OUT(0)[q] = by * (v * cos(angle) + u * sin(angle));
      }
}

static void rope_pair(RefArgs *a) {
  for (int k = 0; k < 2; k++) {
    RefArgs one = *a;
    one.in[0] = a->in[k], one.in[1] = a->in[2], one.out[0] = a->out[k];
    rope(&one);
  }
}

/* Copies between columns of wide rows and dense rows. */
static void from_columns(const RefTensor *wide, int64_t column, const RefTensor *part) {
  for (int64_t i = 0, n = last(part); i < ref_count(part); i++)
    part->v[i] = wide->v[i / n * last(wide) + column + i % n];
}

static void to_columns(const RefTensor *wide, int64_t column, const RefTensor *part) {
  for (int64_t i = 0, n = last(part); i < ref_count(part); i++)
    wide->v[i / n * last(wide) + column + i % n] = part->v[i];
}

static void rope_qkv(RefArgs *a) {
  int64_t column = 0;
  for (int k = 2; k >= 0; k--) {
    RefArgs one = *a;
    one.in[0] = one.out[0] = a->out[k];
    from_columns(&a->in[0], column, &a->out[k]);
    if (k < 2) rope(&one);
    column += last(&a->out[k]);
  }
}

static void rope_qkv_dx(RefArgs *a) {
  int64_t column = last(&a->in[2]);
  to_columns(&a->out[0], 0, &a->in[2]);
  for (int k = 1; k >= 0; k--) {
    RefArgs one = *a;
    one.in[0] = one.out[0] = a->in[k], one.in[1] = a->in[3];
    one.out[0].v = calloc((size_t)ref_count(&a->in[k]), sizeof(double));
    rope(&one);
    to_columns(&a->out[0], column, &one.out[0]);
    free(one.out[0].v);
    column += last(&a->in[k]);
  }
}

/* Element i of the whole is at this index of the first part or, if negative (from -1 on),
 * of the second, which may be shared by all heads. */
static int64_t head_place(const OpAttr *at, int64_t heads, bool shared, int64_t i) {
  int64_t d = at->head_dim, p = at->head_part, head = i / d, c = i % d;
  if (c < p) return head * p + c;
  return -1 - ((shared ? head / heads : head) * (d - p) + c - p);
}

static void split_heads(RefArgs *a) {
  int64_t heads = last(&a->in[0]) / a->attr->head_dim;
  bool shared = last(&a->out[1]) != heads * (a->attr->head_dim - a->attr->head_part);
  for (int64_t i = 0; i < ref_count(&a->out[1]); i++) OUT(1)[i] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    int64_t to = head_place(a->attr, heads, shared, i);
    if (to >= 0)
      OUT(0)[to] = IN(0)[i];
    else
      OUT(1)[-1 - to] += IN(0)[i];
  }
}

static void join_heads(RefArgs *a) {
  int64_t heads = last(&a->out[0]) / a->attr->head_dim;
  bool shared = last(&a->in[1]) != heads * (a->attr->head_dim - a->attr->head_part);
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    int64_t from = head_place(a->attr, heads, shared, i);
    OUT(0)[i] = from >= 0 ? IN(0)[from] : IN(1)[-1 - from];
  }
}

#include "reference_attention.h"

/* ---- backward ---- */

static void acc(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) {
    OUT(0)[i] = 0;
    for (int k = 0; k < a->nin; k++) OUT(0)[i] += IN(k)[i];
  }
}

static void copy(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) a->out[0].v[i] = a->in[0].v[i];
}

static void cast(RefArgs *a) {
  start(a, 0);
  if (a->attr->cut && a->index > 0) return;
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] += IN(0)[i];
}

static void embedding_dw(RefArgs *a) {
  int64_t v = a->out[0].dim[0], c = a->out[0].dim[1];
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    int64_t r = table_row(a, IN(0)[i], v);
    if (r < 0) continue;
    for (int64_t j = 0; j < c; j++) OUT(0)[r * c + j] += IN(1)[i * c + j];
  }
}

static void linear_dx(RefArgs *a) {
  int64_t O = last(&a->in[0]), I = last(&a->out[0]);
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t i = 0; i < I; i++) {
      double sum = 0;
      for (int64_t o = 0; o < O; o++)
        sum += IN(0)[r * O + o] * IN(1)[weight_at(a, o, i, O, I)];
      OUT(0)[r * I + i] = sum;
    }
}

static void linear_dw(RefArgs *a) {
  int64_t I = last(&a->in[0]), O = last(&a->in[1]);
  start(a, 0);
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t o = 0; o < O; o++)
      for (int64_t i = 0; i < I; i++)
        OUT(0)[weight_at(a, o, i, O, I)] += IN(1)[r * O + o] * IN(0)[r * I + i];
}

static void bias_dw(RefArgs *a) {
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i % last(&a->in[0])] += IN(0)[i];
}

static void feature_scale_dw(RefArgs *a) {
  int64_t n = last(&a->in[0]);
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i % n] += IN(0)[i] * IN(2)[i] / sqrt(IN(1)[i % n]);
}

static void gelu_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double x = IN(0)[i], d;
    if (a->attr->kind == 1) {
      d = 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    } else {
      double th = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
      double du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
      d = 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * du;
    }
    OUT(0)[i] = d * IN(1)[i];
  }
}

static double silu_slope(double x) { return sigmoid(x) + x * sigmoid(x) * sigmoid(-x); }

static void silu_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(1)[i] * silu_slope(IN(0)[i]);
}

static void relu_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] > 0 ? IN(1)[i] : 0;
}

static void clamp(RefArgs *a) {
  double most = a->attr->limit;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = fmin(fmax(IN(0)[i], -most), most);
}

static void clamp_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = fabs(IN(0)[i]) <= (double)a->attr->limit ? IN(1)[i] : 0;
}

static void soft_cap_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(1)[i] * (1 - pow(IN(0)[i] / a->attr->soft_cap, 2));
}

static void silu_mul_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    OUT(0)[i] = IN(2)[i] * IN(1)[i] * silu_slope(IN(0)[i]);
    OUT(1)[i] = IN(2)[i] * IN(0)[i] * sigmoid(IN(0)[i]);
  }
}

static void swiglu_dx(RefArgs *a) {
  int64_t c = last(&a->in[1]);
  for (int64_t i = 0; i < ref_count(&a->in[1]); i++) {
    int64_t at = i / c * 2 * c + i % c;
    double u = IN(0)[at], g = IN(0)[at + c];
    OUT(0)[at] = IN(1)[i] * g * sigmoid(g);
    OUT(0)[at + c] = IN(1)[i] * u * silu_slope(g);
  }
}

static void rmsnorm_dx(RefArgs *a) {
  int64_t g = norm_group(a, &a->in[1]), all = last(&a->in[1]);
  for (int64_t r = 0; r < ref_count(&a->in[0]) / g; r++) {
    const double *x = IN(0) + r * g, *dy = IN(3) + r * g;
    double s = IN(2)[r], mean = 0;
    for (int64_t i = 0; i < g; i++)
      mean += dy[i] * weight(a, 1, (r * g + i) % all) * x[i] * s / (double)g;
    for (int64_t i = 0; i < g; i++)
      OUT(0)[r * g + i] = s * (dy[i] * weight(a, 1, (r * g + i) % all) - x[i] * s * mean);
  }
}

static void rmsnorm_dw(RefArgs *a) {
  int64_t g = norm_group(a, &a->out[0]), all = last(&a->out[0]);
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i % all] += IN(2)[i] * IN(0)[i] * IN(1)[i / g];
}

static void rmsnorm_back(RefArgs *a) {
  RefArgs dx = *a, dw = *a;
  dx.out[0] = a->out[1], dw.in[1] = a->in[2], dw.in[2] = a->in[3];
  rmsnorm_dx(&dx);
  rmsnorm_dw(&dw);
  for (int64_t i = 0; a->nin > 4 && i < ref_count(&a->in[0]); i++) OUT(1)[i] += IN(4)[i];
}

static void gate_ds(RefArgs *a) {
  int64_t c = ref_count(&a->in[0]) / ref_count(&a->in[1]);
  for (int64_t r = 0; r < ref_count(&a->in[1]); r++) {
    double s = IN(1)[r], slope = sigmoid(s) * (a->attr->kind ? 1 : sigmoid(-s));
    OUT(0)[r] = 0;
    for (int64_t i = r * c; i < r * c + c; i++) OUT(0)[r] += IN(0)[i] * IN(2)[i] * slope;
  }
}

static void layernorm_dx(RefArgs *a) {
  int64_t c = last(&a->in[0]);
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    const double *x = IN(0) + r * c, *dy = IN(3) + r * c;
    double mean = IN(2)[2 * r], rstd = IN(2)[2 * r + 1], m1 = 0, m2 = 0;
    for (int64_t i = 0; i < c; i++) {
      m1 += dy[i] * weight(a, 1, i) / (double)c;
      m2 += dy[i] * weight(a, 1, i) * (x[i] - mean) * rstd / (double)c;
    }
    for (int64_t i = 0; i < c; i++) OUT(0)
    [r * c + i] = rstd * (dy[i] * weight(a, 1, i) - m1 - (x[i] - mean) * rstd * m2);
  }
}

static void layernorm_dw(RefArgs *a) {
  int64_t c = last(&a->in[0]);
  start(a, 0);
  start(a, 1);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double mean = IN(1)[i / c * 2], rstd = IN(1)[i / c * 2 + 1];
    OUT(0)[i % c] += IN(2)[i] * (IN(0)[i] - mean) * rstd;
    OUT(1)[i % c] += IN(2)[i];
  }
}

static void concat(RefArgs *a) {
  int64_t n = last(&a->out[0]), c = n / a->nin;
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++)
    OUT(0)[i] = IN(i % n / c)[i / n * c + i % c];
}

#include "reference_cross_entropy.h"
#include "reference_fp8.h"
#include "reference_losses.h"
#include "reference_ssm.h"
#include "reference_step.h"

#define all_reduce     NULL
#define all_gather     NULL
#define reduce_scatter NULL
#define all_to_all     NULL
#define all_to_all_v   NULL
#define shift          NULL
RefFn *const ref_ops[OP_N] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) [OP_##name] = name,
#include "vm/graph/ops.def"
};
