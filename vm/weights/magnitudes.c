/* magnitudes.c - see magnitudes.h. The base is read in the order in which it lies, a
 * little at a time: a rank with a part of the magnitudes reads the rows of that part, or,
 * of a weight (in, out), all of it. */
#include "magnitudes.h"

#include <math.h>

#include "adapter_files.h"
#include "weights_match.h"

#include "vm/base/f16.h"

enum { READ = 4096, SOME = 1024 }; /* elements of the base, magnitudes at a time */

static float as_read(DType t, float v) {
  if (t == DT_BF16) return bf16_to_f32(bf16_from_f32(v));
  return t == DT_F16 ? f16_to_f32(f16_from_f32(v)) : v;
}

/* Adds the squares of `values`, elements from `at` on of a base of that many columns, to
 * those of features [first, first + n). */
static void add_squares(double *sum, int64_t first, int64_t n, bool columns,
                        int64_t width, const float *values, int64_t at, int64_t count,
                        DType t) {
  for (int64_t k = 0; k < count; k++) {
    int64_t feature = columns ? (at + k) % width : (at + k) / width;
    double v = as_read(t, values[k]);
    if (feature >= first && feature < first + n) sum[feature - first] += v * v;
  }
}

weft_status magnitudes_init(const Compiled *c, int param, const Piece *part,
                            BaseValues *values, const void *ud, float *local,
                            weft_error *e) {
  int base = adapter_base(c, param);
  const CompiledParam weight = weights_as_model(&c->param[base]), *w = &weight;
  bool columns = c->param[param].init == INIT_COLUMN_NORMS;
  int64_t width = w->dim[1], all = param_count(w);
  float some[READ];
  double sum[SOME];
  for (int64_t i = 0, spans = piece_spans(part); i < spans; i++) {
    Span s = piece_span(part, i);
    for (int64_t k = 0, n; k < s.n; k += n) {
      int64_t first = s.global + k;
      n = MIN(s.n - k, (int64_t)SOME);
      int64_t at = columns ? 0 : first * width, end = columns ? all : (first + n) * width;
      memset(sum, 0, sizeof sum);
      for (int64_t count; at < end; at += count) {
        count = MIN(end - at, (int64_t)READ);
        TRY(values(ud, base, at, count, some, e));
        add_squares(sum, first, n, columns, width, some, at, count, c->dtype);
      }
      for (int64_t j = 0; j < n; j++) local[s.local + k + j] = (float)sqrt(sum[j]);
    }
    for (int64_t k = s.n; k < s.n + s.padding; k++) local[s.local + k] = 0;
  }
  return WEFT_OK;
}
