/* kernel_problem.c - the operands of a case: their shapes from its row, their numbers by
 * a seed. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "kernel_cases.h"
#include "vm/program/program.h"

const char *op_title(int op) {
  static const char *const name[] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) #name,
#include "vm/graph/ops.def"
  };
  return name[op];
}

/* ---- numbers ---- */

static double uniform(uint64_t *s) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (double)(*s >> 11) / 9007199254740992.0;
}

/* Roughly normal: mean 0, variance 1. */
static double normal(uint64_t *s) {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += uniform(s);
  return sum;
}

static int64_t value_count(const Value *x) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim; i++) n *= x->dim[i];
  return n;
}

/* Rounds to the nearest number of the type: a bf16 has 8 significant bits, an f16 11 and
 * none below 2^-24. */
static double rounded(double v, DType t) {
  if (t == DT_F32) return (float)v;
  if ((t != DT_BF16 && t != DT_F16) || v == 0 || !isfinite(v)) return v;
  int e, bits = t == DT_BF16 ? 8 : 11;
  double m = frexp(v, &e);
  if (t == DT_F16 && e < -13) return ldexp(rint(ldexp(v, 24)), -24);
  return ldexp(rint(ldexp(m, bits)), e - bits);
}

static void fill_scalars(double *v, char kind) {
  for (int i = 0; i < SC_N; i++) v[i] = 0.25 * i;
  v[SC_LR] = 0.01;
  v[SC_STEP] = kind == '1' ? 1 : 3;
  v[SC_BC1] = 0.19;
  v[SC_BC2] = 0.0975;
  v[SC_SCALE] = 4;
  v[SC_CLIP] = 0.5;
  v[SC_CAREFUL] = kind == 'c';
  v[SC_HOLD] = kind == 'k';
  v[SC_UNDO] = kind == 'u';
  v[SC_GUESS] = kind == 'u' || kind == 'n' ? 0.25 : 0;
  v[SC_NORM2] = kind == 'n' ? INFINITY : 9.0;
}

static void fill_starts(const Value *x, uint64_t *s) {
  for (int64_t i = 0; i < value_count(x); i++) {
    int64_t t = i % x->dim[1];
    x->v[i] = t == 0 ? 0 : uniform(s) < 0.03 ? (double)t : x->v[i - 1];
  }
}

/* Row offsets of the experts; some experts have no rows. */
static void fill_offsets(Value *x, uint64_t *s) {
  int64_t n = value_count(x), each = 2 * x->limit / (n - 1);
  for (int64_t i = 1; i < n; i++) {
    double more = uniform(s) < 0.2 ? 0 : floor(uniform(s) * (double)each);
    x->v[i] = fmin((double)x->limit, x->v[i - 1] + more);
  }
}

/* A distinct row for each choice, in any order; some have none (elsewhere or dropped). */
static void fill_rows(Value *x, uint64_t *s) {
  int64_t n = value_count(x), used = 0;
  for (int64_t i = 0; i < n; i++)
    x->v[i] = uniform(s) < 0.2 ? (double)(-1 - i % 2) : (double)used++;
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = (int64_t)(uniform(s) * (double)(i + 1));
    double v = x->v[i];
    x->v[i] = x->v[j], x->v[j] = v;
  }
}

/* The same in slot order: index i of slot c has position slots*(i+1)-1-c. */
static void fill_slots(Value *x, uint64_t *s) {
  int64_t T = x->dim[1], each = T / x->limit, n = value_count(x);
  double *to = calloc((size_t)n, sizeof *to);
  fill_starts(x, s);
  for (int64_t k = 0; k < n; k++) {
    int64_t y = k % T, c = y / each, i = y % each;
    to[k] = x->v[k - y + x->limit * (i + 1) - 1 - c];
  }
  free(x->v);
  x->v = to;
}

/* A number of an operand of this kind. */
static double drawn(const Value *x, uint64_t *s) {
  switch (x->kind) {
  case 't':
  case 'i':
  case 'l': return floor(uniform(s) * (double)x->limit);
  case 'a': return floor(uniform(s) * 256);
  case 'v':
  case 'j':
  case 'p': return 0.01 + uniform(s);
  case 'd': return -uniform(s);
  case 'm': return (x->limit ? (double)x->limit : 4) - 0.5 + uniform(s);
  case 'q': return floor(32 * uniform(s) - 16) / 8;
  default: return normal(s);
  }
}

static void fill(Value *x, uint64_t *s) {
  int64_t n = value_count(x);
  x->v = calloc((size_t)n, sizeof(double));
  if (x->kind == 's') fill_starts(x, s);
  if (x->kind == 'z') fill_slots(x, s);
  if (strchr("gkncu1", x->kind)) fill_scalars(x->v, x->kind);
  if (x->kind == 'o') fill_offsets(x, s);
  if (x->kind == 'r') fill_rows(x, s);
  if (strchr("gkncu1sorz", x->kind)) return;
  for (int64_t i = 0; i < n; i++) {
    double v = drawn(x, s);
    if (x->kind == 'l' && i % 3 == 1) v = -100;
    if (x->kind == 'e' || (x->kind == 'y' && i % 3 == 1)) v = 0;
    x->v[i] = rounded(v, x->type);
  }
}

static int parse(const char *text, Value *x, DType dtype) {
  int n = 0;
  for (const char *p = text; *p; n++) {
    char *end = (char *)p + 1;
    x[n] = (Value){.kind = *p, .alias = -1};
    if (isdigit((unsigned char)p[1])) x[n].limit = strtol(p + 1, &end, 10);
    if (*p == '=') x[n].alias = (int)x[n].limit;
    x[n].type = strchr("xwbq", *p)      ? dtype
                : strchr("fvmyed", *p)  ? DT_F32
                : strchr("hp", *p)      ? DT_BF16
                : strchr("tlisorz", *p) ? DT_I32
                : *p == 'a'             ? DT_U8
                                        : DT_F64;
    p = end;
    if (*p == ' ' && x[n].alias < 0) do
        x[n].dim[x[n].ndim++] = strtol(p + 1, (char **)&p, 10);
      while (*p == ',');
    while (*p == ' ') p++;
  }
  return n;
}

uint64_t problem_seed(const KernelCase *c) {
  const char *op = op_title(c->op);
  uint64_t h = hash_bytes(0, op, strlen(op));
  h = hash_bytes(h, c->in, strlen(c->in));
  return hash_bytes(h, c->out, strlen(c->out));
}

void problem_make(Problem *p, const KernelCase *c, DType dtype, uint64_t seed) {
  *p = (Problem){.op = c->op, .attr = c->attr, .index = c->index};
  p->nin = parse(c->in, p->in, dtype);
  p->nout = parse(c->out, p->out, dtype);
  for (int i = 0; i < p->nin; i++) fill(&p->in[i], &seed);
  for (int i = 0; i < p->nout; i++) {
    int alias = p->out[i].alias;
    if (alias < 0) {
      fill(&p->out[i], &seed);
    } else {
      p->out[i] = p->in[alias];
      p->out[i].alias = alias;
    }
  }
}

void problem_narrow(Problem *p, DType gradients) {
  for (int i = 0; i < p->nout && p->adds; i++) {
    p->out[i].type = gradients;
    for (int64_t j = 0; j < value_count(&p->out[i]); j++)
      p->out[i].v[j] = rounded(p->out[i].v[j], gradients);
  }
}

void problem_free(Problem *p) {
  for (int i = 0; i < p->nin; i++) free(p->in[i].v);
  for (int i = 0; i < p->nout; i++)
    if (p->out[i].alias < 0) free(p->out[i].v);
}

static RefTensor view(const Value *x) {
  RefTensor t = {.v = x->v, .ndim = x->ndim};
  memcpy(t.dim, x->dim, sizeof t.dim);
  return t;
}

RefArgs problem_ref(const Problem *p, bool accumulate) {
  RefArgs a = {.attr = &p->attr,
               .nin = p->nin,
               .nout = p->nout,
               .accumulate = accumulate,
               .index = p->index,
               .heads_index = KERNEL_HEADS,
               .shard = p->index,
               .unit = KERNEL_UNIT,
               .type = p->in[0].type};
  for (int i = 0; i < p->nin; i++) a.in[i] = view(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = view(&p->out[i]);
  return a;
}

static Value copy_of(const Value *x) {
  Value y = *x;
  size_t bytes = (size_t)value_count(x) * sizeof(double);
  y.v = malloc(bytes);
  memcpy(y.v, x->v, bytes);
  return y;
}

static Value random_like(const Value *x, uint64_t *seed) {
  Value y = *x;
  y.kind = 'x';
  fill(&y, seed);
  return y;
}

static Value loss_seed(void) {
  Value y = {.kind = 'f', .alias = -1, .type = DT_F32, .ndim = 1, .dim = {1}};
  y.v = calloc(1, sizeof(double));
  y.v[0] = 0.125;
  return y;
}

void problem_grad(Problem *p, Problem *forward, const GradCase *g, const KernelCase *c,
                  DType dtype, uint64_t seed) {
  Problem f;
  problem_make(&f, c, dtype, seed);
  RefArgs ref = problem_ref(&f, false);
  ref_ops[f.op](&ref);
  for (int i = 0; i < f.nout; i++)
    for (int64_t j = 0; j < value_count(&f.out[i]); j++)
      f.out[i].v[j] = rounded(f.out[i].v[j], f.out[i].type);
  *p = (Problem){.op = g->op, .attr = c->attr, .index = c->index};
  if (g->inverse) p->attr.inverse = !c->attr.inverse;
  for (const char *s = g->in; *s; s++) {
    if (!isalpha((unsigned char)*s)) continue;
    int i = s[1] - '0';
    if (*s == 'u') p->in[p->nin++] = loss_seed();
    if (*s == 'x' && i < f.nin) p->in[p->nin++] = copy_of(&f.in[i]);
    if (*s == 'y') p->in[p->nin++] = copy_of(&f.out[i]);
    if (*s == 'd' && s[1] != '*') p->in[p->nin++] = random_like(&f.out[i], &seed);
    for (int k = 0; s[1] == '*' && k < f.nout; k++)
      p->in[p->nin++] = random_like(&f.out[k], &seed);
  }
  for (const char *s = g->grad; *s; s++) {
    if (*s == ' ') continue;
    const Value *x = &f.in[*s - '0'];
    bool parameter = x->kind == 'w' || x->kind == 'b';
    Value y = *x;
    y.type = parameter ? DT_F32 : x->type;
    p->adds |= parameter;
    p->out[p->nout++] = random_like(&y, &seed);
  }
  if (forward)
    *forward = f;
  else
    problem_free(&f);
}
