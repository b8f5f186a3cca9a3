/* reference_ssm.h - the reference of state-space layers: the recurrence itself, token by
 * token, and its gradient with all states kept. For reference_ops.c. */

static int64_t doc_start(const RefArgs *a, int i, int64_t row) {
  return a->nin > i ? (int64_t)IN(i)[row] : 0;
}

/* f(y's element, w's, x's) for each product of the convolution of x(B,T,C) or dy. */
static void conv_products(const RefArgs *a, int starts, const RefTensor *rows, int64_t K,
                          void f(const RefArgs *, int64_t, int64_t, int64_t)) {
  int64_t T = rows->dim[1], C = rows->dim[2];
  for (int64_t r = 0; r < rows->dim[0] * T; r++)
    for (int64_t k = 0; k < K && r % T - k >= doc_start(a, starts, r); k++)
      for (int64_t c = 0; c < C; c++) f(a, r * C + c, c * K + K - 1 - k, (r - k) * C + c);
}
static void conv_y(const RefArgs *a, int64_t y, int64_t w, int64_t x) {
  OUT(0)[y] += IN(1)[w] * IN(0)[x];
}
static void conv_dx(const RefArgs *a, int64_t y, int64_t w, int64_t x) {
  OUT(0)[x] += IN(0)[w] * IN(1)[y];
}
static void conv_dw(const RefArgs *a, int64_t y, int64_t w, int64_t x) {
  OUT(0)[w] += IN(1)[y] * IN(0)[x];
}

static void clear(RefArgs *a, int out) {
  for (int64_t i = 0; i < ref_count(&a->out[out]); i++) OUT(out)[i] = 0;
}

static void causal_conv(RefArgs *a) {
  clear(a, 0);
  conv_products(a, 2, &a->in[0], last(&a->in[1]), conv_y);
}
static void causal_conv_dx(RefArgs *a) {
  clear(a, 0);
  conv_products(a, 2, &a->in[1], last(&a->in[0]), conv_dx);
}
static void causal_conv_dw(RefArgs *a) {
  start(a, 0);
  conv_products(a, 2, &a->in[0], last(&a->out[0]), conv_dw);
}

static double step_of(const RefArgs *a, int64_t i, double *slope) {
  double z = IN(0)[i] + IN(1)[i % last(&a->in[0])], d = log1p(exp(z));
  double most = a->attr->limit != 0 ? (double)a->attr->limit : INFINITY;
  *slope = d < a->attr->eps || d > most ? 0 : 1 / (1 + exp(-z));
  return fmin(fmax(d, a->attr->eps), most);
}

static void ssm_steps(RefArgs *a) {
  double slope;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    OUT(0)[i] = step_of(a, i, &slope);
    OUT(1)[i] = -exp(IN(2)[i % last(&a->in[0])]) * OUT(0)[i];
  }
}
static void ssm_steps_dx(RefArgs *a) {
  double slope;
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    step_of(a, i, &slope);
    OUT(0)[i] = (IN(3)[i] - exp(IN(2)[i % last(&a->in[0])]) * IN(4)[i]) * slope;
  }
}
static void ssm_steps_dw(RefArgs *a) {
  int64_t H = last(&a->in[0]);
  double slope;
  start(a, 0), start(a, 1);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++) {
    double d = step_of(a, i, &slope), left = -exp(IN(2)[i % H]) * IN(4)[i];
    OUT(0)[i % H] += (IN(3)[i] + left) * slope;
    OUT(1)[i % H] += left * d;
  }
}

/* A head of a sequence: its state behind each token, state[t][p][n]. */
typedef struct RefScan {
  int64_t T, H, P, G, N, b, h;
  double *state;
} RefScan;

static RefScan ref_scan(const RefArgs *a) {
  RefScan s = {.T = a->in[0].dim[1], .H = a->in[1].dim[2], .N = a->attr->head_dim};
  s.P = a->in[0].dim[2] / s.H, s.G = a->in[3].dim[2] / s.N;
  s.state = calloc((size_t)(s.T * s.P * s.N), sizeof(double));
  return s;
}
static int64_t head_row(const RefScan *s, int64_t t) {
  return (s->b * s->T + t) * s->H + s->h;
}
static int64_t group_row(const RefScan *s, int64_t t) {
  return ((s->b * s->T + t) * s->G + s->h / (s->H / s->G)) * s->N;
}
/* What is left of the state behind token t - 1 at token t; the state there, or NULL. */
static const double *before(const RefArgs *a, const RefScan *s, int starts, int64_t t,
                            double *left) {
  *left = exp(IN(2)[head_row(s, t)]);
  bool first = t == doc_start(a, starts, s->b * s->T + t);
  return first ? NULL : s->state + (t - 1) * s->P * s->N;
}
static void ref_states(const RefArgs *a, RefScan *s, int starts) {
  for (int64_t t = 0; t < s->T; t++)
    for (int64_t i = 0; i < s->P * s->N; i++) {
      double left, d = IN(1)[head_row(s, t)], x = IN(0)[head_row(s, t) * s->P + i / s->N];
      const double *old = before(a, s, starts, t, &left);
      s->state[t * s->P * s->N + i] =
          (old ? left * old[i] : 0) + d * x * IN(3)[group_row(s, t) + i % s->N];
    }
}

static void ssm_scan(RefArgs *a) {
  RefScan s = ref_scan(a);
  for (s.b = 0; s.b < a->in[0].dim[0]; s.b++)
    for (s.h = 0; s.h < s.H; s.h++) {
      ref_states(a, &s, 6);
      for (int64_t t = 0; t < s.T; t++)
        for (int64_t p = 0; p < s.P; p++) {
          int64_t i = head_row(&s, t) * s.P + p;
          OUT(0)[i] = IN(5)[s.h] * IN(0)[i];
          for (int64_t n = 0; n < s.N; n++)
            OUT(0)[i] += s.state[(t * s.P + p) * s.N + n] * IN(4)[group_row(&s, t) + n];
        }
    }
  free(s.state);
}

/* Token by token from the end; `ds` is the gradient of the state behind the token. */
static void scan_back(RefArgs *a, RefScan *s, double *ds) {
  for (int64_t i = 0; i < s->P * s->N; i++) ds[i] = 0;
  for (int64_t t = s->T - 1; t >= 0; t--) {
    int64_t row = head_row(s, t), of = group_row(s, t);
    double left, d = IN(1)[row];
    const double *old = before(a, s, 7, t, &left);
    OUT(1)[row] = OUT(2)[row] = 0;
    for (int64_t p = 0; p < s->P; p++) {
      double x = IN(0)[row * s->P + p], dy = IN(6)[row * s->P + p], du = 0;
      for (int64_t n = 0; n < s->N; n++) {
        int64_t i = p * s->N + n;
        ds[i] += dy * IN(4)[of + n];
        OUT(4)[of + n] += dy * s->state[t * s->P * s->N + i];
        OUT(3)[of + n] += ds[i] * d * x;
        du += ds[i] * IN(3)[of + n];
        if (old) OUT(2)[row] += ds[i] * left * old[i];
        ds[i] = old ? ds[i] * left : 0;
      }
      OUT(0)[row * s->P + p] = d * du + IN(5)[s->h] * dy;
      OUT(1)[row] += x * du;
    }
  }
}
static void ssm_scan_dx(RefArgs *a) {
  RefScan s = ref_scan(a);
  double *ds = calloc((size_t)(s.P * s.N), sizeof(double));
  clear(a, 3), clear(a, 4);
  for (s.b = 0; s.b < a->in[0].dim[0]; s.b++)
    for (s.h = 0; s.h < s.H; s.h++) {
      ref_states(a, &s, 7);
      scan_back(a, &s, ds);
    }
  free(ds);
  free(s.state);
}
static void ssm_scan_dw(RefArgs *a) {
  int64_t H = last(&a->out[0]), P = last(&a->in[0]) / H;
  start(a, 0);
  for (int64_t i = 0; i < ref_count(&a->in[0]); i++)
    OUT(0)[i / P % H] += IN(0)[i] * IN(1)[i];
}
