/* reference_losses.h - a part of reference_ops.c: ops for losses of a plan's own. */

/* ---- tokens, sequences, pairs ---- */

static void ce_losses(RefArgs *a) {
  for (int64_t r = 0; r < ref_count(&a->in[1]); r++)
    OUT(0)[r] = IN(1)[r] == -100 ? 0 : log(IN(0)[2 * r]) - IN(0)[2 * r + 1];
}

static void label_mask(RefArgs *a) {
  for (int64_t r = 0; r < ref_count(&a->in[0]); r++) OUT(0)[r] = IN(0)[r] != -100;
}

static void row_sums(RefArgs *a) {
  int64_t T = last(&a->in[0]);
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    OUT(0)[r] = 0;
    for (int64_t t = 0; t < T; t++) OUT(0)[r] += IN(0)[r * T + t];
  }
}

static void sum_all(RefArgs *a) {
  OUT(0)[0] = 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[0] += IN(0)[i];
}

static void spread(RefArgs *a) {
  int64_t n = ref_count(&a->out[0]), each = n / ref_count(&a->in[0]);
  for (int64_t i = 0; i < n; i++) OUT(0)[i] = IN(0)[i / each];
}

static void split_pairs(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(i % 2)[i / 2] = IN(0)[i];
}

static void join_pairs(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->out[0]); i++) OUT(0)[i] = IN(i % 2)[i / 2];
}

/* ---- elements ---- */

static void divide(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(1)[i] == 0 ? 0 : IN(0)[i] / IN(1)[i];
}

static void divide_db(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] == 0 ? 0 : -IN(2)[i] * IN(1)[i] / IN(0)[i];
}

static void offset(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(0)[i] + a->attr->scale;
}

static void exponential(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) OUT(0)[i] = exp(IN(0)[i]);
}

static void log_sigmoid(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = fmin(IN(0)[i], 0) - log1p(exp(-fabs(IN(0)[i])));
}

static void log_sigmoid_dx(RefArgs *a) {
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i] = IN(1)[i] * sigmoid(-IN(0)[i]);
}

/* ---- divergences ---- by their definitions, of probabilities */

typedef struct Probabilities {
  double p, q, r;
} Probabilities;

static Probabilities probabilities(const RefArgs *a, int64_t row, int64_t at) {
  double beta = a->attr->beta;
  Probabilities x = {.p = exp(IN(0)[at] - IN(3)[row]) / IN(4)[2 * row],
                     .q = exp(IN(1)[at] - IN(5)[row]) / IN(6)[2 * row]};
  x.r = (1 - beta) * x.p + beta * x.q;
  return x;
}

static void divergence_sums(RefArgs *a) {
  int64_t v = last(&a->in[0]), id;
  double beta = a->attr->beta;
  for (int64_t r = 0; r < rows(&a->in[0]); r++) {
    OUT(0)[2 * r] = OUT(0)[2 * r + 1] = 0;
    for (int64_t c = 0; c < v && IN(2)[r] != -100; c++) {
      if (!is_word(a, c, &id)) continue;
      Probabilities x = probabilities(a, r, r * v + c);
      double of_p = x.p * log(x.p / x.r), of_q = x.q * log(x.q / x.r);
      OUT(0)
      [2 * r] += beta == 0 ? of_q : beta == 1 ? of_p : beta * of_q + (1 - beta) * of_p;
      OUT(0)[2 * r + 1] += of_p;
    }
  }
}

static void divergence_rows(RefArgs *a) {
  for (int64_t r = 0; r < rows(&a->in[0]); r++) OUT(0)[r] = IN(0)[2 * r];
}

static void divergence_dx(RefArgs *a) {
  int64_t v = last(&a->in[0]), id;
  double beta = a->attr->beta;
  for (int64_t r = 0; r < rows(&a->in[0]); r++)
    for (int64_t c = 0; c < v; c++) {
      double d = 0;
      if (IN(2)[r] != -100 && is_word(a, c, &id)) {
        Probabilities x = probabilities(a, r, r * v + c);
        d = x.p * (log(x.p / x.r) - IN(7)[2 * r + 1]) * (beta == 1 ? 1 : 1 - beta);
        if (beta == 0) d = x.p - x.q;
      }
      OUT(0)[r * v + c] = d * IN(8)[r];
    }
}
