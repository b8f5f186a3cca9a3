/* reference_attention.h - a part of reference_ops.c: attention, in pieces and with a
 * cache, and its gradients. */

/* One query of attention: indices, and the range of keys that it sees. */
typedef struct Query {
  int64_t d, e, H, K, T, keys, b, t, h, from, at; /* at: its position; T: queries */
  const int64_t *key_at;                          /* positions of the keys */
  double scale, *score;                           /* one of each key that it sees */
} Query;

/* Heads of q and of k have d elements, those of v and of o have e. */
static int64_t q_row(const Query *q) { return (q->b * q->T + q->t) * q->H + q->h; }
static int64_t k_row(const Query *q, int64_t s) {
  return (q->b * q->keys + s) * q->K + q->h * q->K / q->H;
}
static int64_t q_at(const Query *q) { return q_row(q) * q->d; }
static int64_t k_at(const Query *q, int64_t s) { return k_row(q, s) * q->d; }
static int64_t o_at(const Query *q) { return q_row(q) * q->e; }
static int64_t v_at(const Query *q, int64_t s) { return k_row(q, s) * q->e; }
static int64_t value_dim(const OpAttr *at) {
  return at->value_dim ? at->value_dim : at->head_dim;
}
/* In four sums, as one waits for itself: half the time of all suites of kernels is here.
 */
static double dot(const double *x, const double *y, int64_t n) {
  double sum[4] = {0};
  for (int64_t i = 0; i < n; i++) sum[i % 4] += x[i] * y[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

/* That of a query x and a key: x becomes c tanh(x / c). */
static double key_score(const RefArgs *a, const Query *q, int64_t s) {
  double x = q->scale * dot(IN(0) + q_at(q), IN(1) + k_at(q, s), q->d),
         c = a->attr->soft_cap;
  return c > 0 ? c * tanh(x / c) : x;
}

static bool sees(const Query *q, int64_t key) {
  return q->key_at[key] >= q->from && q->key_at[key] <= q->at;
}

/* The factor of a query's probability for a key; token_numbers are the last operand. */
static double kept_key(const RefArgs *a, const Query *q, int64_t s) {
  int64_t head = a->heads_index * q->H + q->h;
  double token = a->attr->rate > 0 ? IN(a->nin - 1)[q->b * q->T + q->t] : 0;
  return kept(a, token, q->key_at[s], (uint32_t)(a->attr->site * 65536 + head), 1u << 31);
}

/* The position of row i of `rows` of a sequence of T: of 2n runs, piece p has the p-th
 * from the front and then the p-th from the back (zigzag); without zigzag the p-th of
 * n. */
static int64_t position(const RefArgs *a, int64_t T, int64_t rows, int64_t p, int64_t i) {
  int64_t half = a->attr->mirror ? rows / 2 : rows;
  if (rows == T) return i;
  return i < half ? p * half + i : T - (p + 1) * half + i - half;
}

/* Documents with a zigzag of their own: positions and starts of the rows of sequence b in
 * slot order, where a document's rows are contiguous. */
static void map_documents(const RefArgs *a, int starts, int64_t b, int64_t T, int64_t *at,
                          int64_t *from) {
  for (int64_t y = 0; y < T; y++) {
    from[y] = (int64_t)a->in[starts].v[b * T + y];
    at[y] = from[y];
    for (int64_t z = 0; z < y; z++)
      at[y] += (int64_t)a->in[starts].v[b * T + z] == from[y];
  }
}

/* Calls fn for every query; `starts` is the operand that holds doc_starts, if given. */
static void each_query(RefArgs *a, int starts, void (*fn)(RefArgs *, const Query *)) {
  int64_t d = a->attr->head_dim, B = a->in[0].dim[0], T = a->in[0].dim[1];
  Query q = {.d = d,
             .e = value_dim(a->attr),
             .T = T,
             .keys = a->in[1].dim[1],
             .H = a->in[0].dim[2] / d,
             .K = a->in[1].dim[2] / d,
             .scale = a->attr->scale};
  int64_t n = a->attr->n > 1 ? a->attr->n : 1, from = (a->index - a->attr->step + n) % n;
  int64_t all = n * T, *map = calloc((size_t)(3 * all), sizeof *map);
  int64_t *start_of = map + all, *key_at = start_of + all;
  bool documents = a->attr->parts > 0;
  q.key_at = key_at;
  q.score = calloc((size_t)q.keys, sizeof *q.score);
  for (int64_t y = 0; y < all; y++) map[y] = y;
  for (q.b = 0; q.b < B; q.b++) {
    if (documents) map_documents(a, starts, q.b, all, map, start_of);
    for (int64_t i = 0; i < q.keys; i++)
      key_at[i] = map[position(a, all, q.keys, from, i)];
    for (q.t = 0; q.t < T; q.t++)
      for (q.h = 0; q.h < q.H; q.h++) {
        int64_t y = position(a, all, T, a->index, q.t);
        q.at = map[y];
        q.from = documents ? start_of[y]
                 : a->nin - (a->attr->rate > 0) > starts && a->in[starts].ndim == 2
                     ? (int64_t)IN(starts)[q.b * T + q.t]
                     : 0;
        if (a->attr->window)
          q.from = q.from > q.at - a->attr->window ? q.from : q.at - a->attr->window + 1;
        fn(a, &q);
      }
  }
  free(map), free(q.score);
}

/* The score of the sink of head h of those of this rank, of H; -inf without sinks, which
 * are the only list among the operands from `first` on. */
static double sink_of(const RefArgs *a, int first, int64_t H, int64_t h) {
  for (int i = first; i < a->nin; i++)
    if (a->in[i].ndim == 1) return IN(i)[a->heads_index * H + h];
  return -INFINITY;
}

static void attention_query(RefArgs *a, const Query *q) {
  int64_t stat = q_row(q);
  bool on = a->attr->step > 0;
  double sink = on ? -INFINITY : sink_of(a, 3, q->H, q->h);
  double most = on ? IN(4)[stat] : sink, sum = 0;
  for (int64_t s = 0; s < q->keys; s++)
    if (sees(q, s)) most = fmax(most, q->score[s] = key_score(a, q, s));
  sum = on ? exp(IN(4)[stat] - most) : sink > -INFINITY ? exp(sink - most) : 0;
  for (int64_t s = 0; s < q->keys; s++)
    if (sees(q, s)) sum += q->score[s] = exp(q->score[s] - most);
  double *o = OUT(0) + o_at(q);
  for (int64_t i = 0; i < q->e; i++)
    o[i] = on ? IN(3)[o_at(q) + i] * exp(IN(4)[stat] - most) / sum : 0;
  for (int64_t s = 0; s < q->keys; s++) {
    if (!sees(q, s)) continue;
    double p = q->score[s] / sum * kept_key(a, q, s);
    for (int64_t i = 0; i < q->e; i++) o[i] += p * IN(2)[v_at(q, s) + i];
  }
  OUT(1)[stat] = most + log(sum);
}

static void attention(RefArgs *a) {
  each_query(a, a->attr->step > 0 ? 5 : 3, attention_query);
}
static void attention_part(RefArgs *a) { attention(a); }

/* Head h, of size d, of row r of the KV cache. */
static double *kept_row(RefArgs *a, int out, int64_t b, int64_t r, int64_t h, int64_t d) {
  int64_t rows = a->out[out].dim[1], width = a->out[out].dim[2];
  return OUT(out) + (b * rows + r) * width + h * d;
}

static void attention_step(RefArgs *a) {
  int64_t d = a->attr->head_dim, e = value_dim(a->attr), B = a->in[0].dim[0],
          H = a->in[0].dim[2] / d, K = a->in[1].dim[2] / d;
  for (int64_t b = 0; b < B; b++) {
    int64_t pos = (int64_t)IN(3)[b];
    for (int64_t i = 0; i < K * d; i++)
      kept_row(a, 1, b, pos, 0, d)[i] = IN(1)[b * K * d + i];
    for (int64_t i = 0; i < K * e; i++)
      kept_row(a, 2, b, pos, 0, e)[i] = IN(2)[b * K * e + i];
    for (int64_t h = 0; h < H; h++) {
      const double *q = IN(0) + (b * H + h) * d;
      double sum = exp(sink_of(a, 4, H, h)), *o = OUT(0) + (b * H + h) * e;
      for (int64_t i = 0; i < e; i++) o[i] = 0;
      for (int64_t r = 0; r <= pos; r++) {
        if (a->attr->window && r <= pos - a->attr->window) continue;
        double x = a->attr->scale * dot(q, kept_row(a, 1, b, r, h * K / H, d), d);
        if (a->attr->soft_cap > 0) x = a->attr->soft_cap * tanh(x / a->attr->soft_cap);
        double p = exp(x);
        sum += p;
        for (int64_t i = 0; i < e; i++) o[i] += p * kept_row(a, 2, b, r, h * K / H, e)[i];
      }
      for (int64_t i = 0; i < e; i++) o[i] /= sum;
    }
  }
}

/* ---- backward ---- */

/* operands q, k, v, o, lse, do */
static double term(const RefArgs *a, double x) {
  return a->mode == REF_SUMS ? x : fabs(x);
}

static double sizes_dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += fabs(x[i] * y[i]);
  return sum;
}

static void attention_dx_query(RefArgs *a, const Query *q) {
  const double *x = IN(0) + q_at(q), *dy = IN(5) + o_at(q), *o = IN(3) + o_at(q);
  double lse = IN(4)[q_row(q)];
  double delta = dot(dy, o, q->e);
  for (int64_t s = 0; s < q->keys; s++) {
    if (!sees(q, s)) continue;
    int64_t k = k_at(q, s), v = v_at(q, s);
    double x_k = key_score(a, q, s), p = exp(x_k - lse);
    double m = kept_key(a, q, s), dp = m * dot(dy, IN(2) + v, q->e) - delta;
    if (a->mode == REF_PARTS)
      dp = m * sizes_dot(dy, IN(2) + v, q->e) + sizes_dot(dy, o, q->e);
    double ds = p * dp * q->scale, cap = a->attr->soft_cap;
    if (cap > 0) ds *= 1 - x_k / cap * x_k / cap;
    for (int64_t i = 0; i < q->d; i++) {
      OUT(0)[q_at(q) + i] += term(a, ds * IN(1)[k + i]);
      OUT(1)[k + i] += term(a, ds * x[i]);
    }
    for (int64_t i = 0; i < q->e; i++) OUT(2)[v + i] += term(a, p * m * dy[i]);
  }
}
static void attention_dx(RefArgs *a) {
  for (int i = 0; i < 3; i++) start(a, i);
  bool on = a->attr->step > 0;
  for (int64_t i = 0; i < ref_count(&a->in[0]) && on; i++)
    OUT(0)[i] = a->mode == REF_SIZES ? 0 : term(a, IN(6)[i]);
  each_query(a, on ? 7 : 6, attention_dx_query);
}
static void attention_part_dx(RefArgs *a) { attention_dx(a); }

static void attention_sinks_dw(RefArgs *a) {
  int64_t H = last(&a->in[2]), e = last(&a->in[1]) / H;
  start(a, 0);
  for (int64_t r = 0; r < ref_count(&a->in[2]); r++) {
    int64_t all = a->heads_index * H + r % H;
    OUT(0)[all] -= exp(IN(0)[all] - IN(2)[r]) * dot(IN(1) + r * e, IN(3) + r * e, e);
  }
}
