/* reference_cross_entropy.h - a part of reference_ops.c: cross entropy and its gradient,
 * and a head with its loss. */

/* True if column c of this rank's logits is in the vocabulary; *global is its id. */
static bool is_word(const RefArgs *a, int64_t c, int64_t *global) {
  *global = c + (a->attr->cut ? a->index * last(&a->in[0]) : 0);
  return *global < a->attr->vocab;
}

static void ce_max(RefArgs *a) {
  int64_t v = last(&a->in[0]), id;
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    OUT(0)[r] = -INFINITY;
    for (int64_t c = 0; c < v; c++)
      if (is_word(a, c, &id)) OUT(0)[r] = fmax(OUT(0)[r], IN(0)[r * v + c]);
  }
}

static void ce_sum(RefArgs *a) {
  int64_t v = last(&a->in[0]), id;
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    OUT(0)[2 * r] = OUT(0)[2 * r + 1] = 0;
    for (int64_t c = 0; c < v; c++) {
      if (!is_word(a, c, &id)) continue;
      double l = IN(0)[r * v + c] - IN(2)[r];
      OUT(0)[2 * r] += exp(l);
      if (id == (int64_t)IN(1)[r]) OUT(0)[2 * r + 1] = l;
    }
  }
}

static void ce_stats(RefArgs *a) {
  RefArgs sum = *a;
  ce_max(a);
  sum.in[2] = a->out[0], sum.out[0] = a->out[1];
  ce_sum(&sum);
}

/* The number of columns is attr.n, not an operand's. */
static void ce_shift(RefArgs *a) {
  for (int64_t r = 0; r < ref_count(&a->in[1]); r++) {
    int64_t first = a->attr->cut ? (int64_t)a->index * a->attr->n : 0;
    int64_t label = (int64_t)IN(3)[r], end = first + a->attr->n;
    bool here = label >= first && label < end && label < a->attr->vocab;
    double by = IN(1)[r] - IN(2)[r];
    OUT(0)[2 * r] = IN(0)[2 * r] * exp(by);
    OUT(0)[2 * r + 1] = here ? IN(0)[2 * r + 1] + by : 0;
  }
}

static void ce_loss(RefArgs *a) {
  OUT(0)[0] = 0;
  for (int64_t r = 0; r < ref_count(&a->in[1]); r++) {
    if (IN(1)[r] == -100) continue;
    OUT(0)[0] += log(IN(0)[2 * r]) - IN(0)[2 * r + 1];
    if (a->attr->z != 0) OUT(0)[0] += a->attr->z * pow(IN(2)[r] + log(IN(0)[2 * r]), 2);
  }
}

static void ce_dx(RefArgs *a) {
  int64_t v = last(&a->in[0]), id;
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t c = 0; c < v; c++) {
      double d = 0;
      if (is_word(a, c, &id) && IN(1)[r] != -100) {
        d = exp(IN(0)[r * v + c] - IN(2)[r]) / IN(3)[2 * r];
        d += d * 2 * a->attr->z * (IN(2)[r] + log(IN(3)[2 * r]));
        if (id == (int64_t)IN(1)[r]) d -= 1;
      }
      OUT(0)[r * v + c] = d * IN(4)[ref_count(&a->in[4]) > 1 ? r : 0];
    }
}

/* ---- a head with its loss ---- */

static void round_all(const RefArgs *a, RefTensor *t) {
  for (int64_t i = 0; i < ref_count(t); i++)
    t->v[i] = a->type == DT_BF16  ? bf16_to_f32(bf16_from_f32((float)t->v[i]))
              : a->type == DT_F16 ? f16_to_f32(f16_from_f32((float)t->v[i]))
                                  : (double)(float)t->v[i];
}

/* The logits, made with the op `linear`; `of` is then about them. */
static double *logits_of(const RefArgs *a, RefArgs *of) {
  RefArgs l = *a;
  int64_t v = a->in[1].dim[a->attr->layout ? 1 : 0];
  RefTensor t = {.ndim = 2, .dim = {rows(&a->in[0]), v}};
  t.v = calloc((size_t)ref_count(&t), sizeof *t.v);
  l.out[0] = t;
  linear(&l);
  round_all(a, &t);
  *of = *a;
  of->in[0] = t, of->in[1] = a->in[2];
  return t.v;
}

static void linear_ce_stats(RefArgs *a) {
  RefArgs ce;
  double *l = logits_of(a, &ce);
  ce_stats(&ce);
  free(l);
}

/* In place of the logits, as ce_dx may. */
static double *logits_gradient(const RefArgs *a, RefArgs *ce) {
  double *l = logits_of(a, ce);
  for (int i = 2; i < 5; i++) ce->in[i] = a->in[i + 1];
  ce->out[0] = ce->in[0];
  ce_dx(ce);
  round_all(a, &ce->out[0]);
  return l;
}

static void linear_ce_dw(RefArgs *a) {
  RefArgs ce, dw = *a;
  double *l = logits_gradient(a, &ce);
  dw.in[1] = ce.out[0];
  linear_dw(&dw);
  free(l);
}

static void linear_ce_dx(RefArgs *a) {
  RefArgs ce, dx = *a;
  double *l = logits_gradient(a, &ce);
  dx.in[0] = ce.out[0];
  linear_dx(&dx);
  free(l);
}

static void linear_ce_back(RefArgs *a) {
  RefArgs dx = *a;
  dx.out[0] = a->out[1];
  linear_ce_dw(a);
  linear_ce_dx(&dx);
}
