/* weights_fit.c - what of files does not fit a model: all that is wrong is one error. */
#include "weights_match.h"

#include "adapter_files.h"

#include <stdio.h>
#include <stdlib.h>

static void dims_text(Text *t, const int64_t *dim, int n) {
  text_add(t, "[");
  for (int i = 0; i < n; i++) text_printf(t, "%s%lld", i ? ", " : "", (long long)dim[i]);
  text_add(t, "]");
}

/* `rows`: of the tensor; it may hold other parameters below this one. */
static bool same_shape(const CompiledParam *p, int64_t rows, const SafeTensor *t) {
  if (p->ndim != t->ndim) return false;
  for (int i = 0; i < p->ndim; i++)
    if ((i ? p->dim[i] : rows) != t->dim[i]) return false;
  return true;
}

static bool is_real(const SafeTensor *t) {
  return strchr("FB", t->type[0]) && strcmp(t->type, "BOOL") != 0;
}

typedef struct Misfits {
  Text text;
  int n;
} Misfits;

/* Whether what was found under the name `name` can be what `p` wants. */
static bool fits(const CompiledParam *param, const char *name, WeightSource from,
                 Misfits *m) {
  const CompiledParam weight = weights_as_model(param), shape = adapter_shape(&weight);
  const CompiledParam *p = &shape;
  const SafeTensor *t = from.t;
  if (!same_shape(p, from.rows, t)) {
    int64_t want[MAX_DIM];
    for (int i = 0; i < p->ndim; i++) want[i] = i ? p->dim[i] : from.rows;
    text_printf(&m->text, "\n  %s: shape ", name);
    dims_text(&m->text, t->dim, MIN(t->ndim, 8));
    text_add(&m->text, ", the model has ");
    dims_text(&m->text, want, p->ndim);
    if (from.rows != p->dim[0]) text_printf(&m->text, " in %s", t->name);
  } else if (!is_real(t)) {
    text_printf(&m->text,
                "\n  %s: holds integers (%s), weights are F32, BF16, F16 or F64", name,
                t->type);
  } else {
    return true;
  }
  m->n++;
  return false;
}

/* Names are compared once for each tensor, not for each pair: both lists may be long. */
static int by_address(const void *a, const void *b) {
  const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
  return (x > y) - (x < y);
}

/* The experts of a parameter; returns how many of them there are. */
static int compare_pieces(const Compiled *c, const SafeTensors *s, int param,
                          WeightSource from, const SafeTensor **sorted, Misfits *m) {
  const CompiledParam *p = &c->param[param];
  CompiledParam piece = {.ndim = 2, .dim = {from.rows, p->dim[2]}};
  char name[512];
  int n = 0;
  for (int i = 0; i < from.pieces; i++) {
    const SafeTensor *t = weights_piece(c, s, param, i, name);
    if (!t) {
      m->n++;
      text_printf(&m->text, "\n  %s: missing", name);
      continue;
    }
    (void)fits(&piece, name, (WeightSource){.t = t, .rows = from.rows}, m);
    sorted[n++] = t;
  }
  return n;
}

static void compare(const Compiled *c, const SafeTensors *s, const SafeTensor **sorted,
                    Misfits *m) {
  int n = 0;
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    if (weights_initial(c, s, i)) continue; /* the folder has the base */
    if (weights_follow(p)) continue;        /* the folder has the weight */
    WeightSource from = weights_source(c, s, i);
    if (from.pieces > 1) {
      n += compare_pieces(c, s, i, from, sorted + n, m);
      continue;
    }
    if (from.t) {
      (void)fits(p, p->name, from, m);
      sorted[n++] = from.t;
      continue;
    }
    m->n++;
    text_printf(&m->text, "\n  %s: missing", p->name);
  }
  qsort(sorted, (size_t)n, sizeof *sorted, by_address);
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *t = st_at(s, i);
    if (bsearch(&t, sorted, (size_t)n, sizeof *sorted, by_address)) continue;
    if (weights_passed_over(c, s, t)) continue;
    int tied = weights_tied(c, t->name);
    if (tied < 0) tied = weights_copied(c, t->name);
    if (tied < 0) tied = weights_of_base(c, t->name);
    if (tied >= 0) {
      const CompiledParam *p = &c->param[tied];
      (void)fits(p, t->name, (WeightSource){.t = t, .rows = p->dim[0]}, m);
      continue;
    }
    m->n++;
    text_printf(&m->text, "\n  %s: not in the model", t->name);
  }
}

/* The first ten; the others are counted. */
static weft_status report(const Misfits *m, weft_error *e) {
  const int room = 900, most = 10;
  int n = 0, shown = 0;
  for (const char *s = m->text.s; *s && shown < most; shown++) {
    const char *end = strchrnul(s + 1, '\n');
    if (end - m->text.s > room) break;
    n = (int)(end - m->text.s);
    s = end;
  }
  if (shown == m->n)
    return err_set(e, WEFT_EFILE, "the weights do not fit the model:%.*s", n, m->text.s);
  return err_set(e, WEFT_EFILE, "the weights do not fit the model:%.*s\n  and %d more", n,
                 m->text.s, m->n - shown);
}

/* A tensor for each parameter, or two for each expert, and copies and buffers. */
uint64_t weights_fit_bytes(const Compiled *c) {
  uint64_t n = 1 + 2 * NEXT_MOST + (uint64_t)c->nbuffer;
  for (int i = 0; i < c->nparam; i++)
    n += c->param[i].ndim == 3 ? 2 * (uint64_t)c->param[i].dim[0] : 1;
  return sizeof(SafeTensor *) * n;
}

/* Tensors that only weights have which others have quantised. */
static const struct Scheme {
  const char *end, *by;
} scheme[] = {{".quant_state.bitsandbytes__nf4", "bitsandbytes (NF4)"},
              {".quant_state.bitsandbytes__fp4", "bitsandbytes (FP4)"},
              {".SCB", "bitsandbytes (8 bits)"},
              {".qweight", "GPTQ or AWQ"},
              {".weight_packed", "compressed-tensors"}};

static weft_status check_scheme(const SafeTensors *s, weft_error *e) {
  for (int i = 0; i < st_count(s); i++)
    for (int k = 0; k < LEN(scheme); k++)
      if (str_ends(st_at(s, i)->name, scheme[k].end))
        return err_set(e, WEFT_EFILE,
                       "the weights are quantised by %s (%s): weft reads F32, BF16, F16 "
                       "and F64, and stores these in 4 bits itself (adapter.base)",
                       scheme[k].by, st_at(s, i)->name);
  return WEFT_OK;
}

weft_status weights_fit(const Compiled *c, const SafeTensors *s, const weft_alloc *a,
                        weft_error *e) {
  TRY(check_scheme(s, e));
  const SafeTensor **sorted = mem_new(a, weights_fit_bytes(c));
  if (!sorted) return err_set(e, WEFT_ENOMEM, "out of memory");
  Misfits m = {.text = {.alloc = a}};
  compare(c, s, sorted, &m);
  weft_status st = WEFT_OK;
  if (m.text.oom)
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  else if (m.n)
    st = report(&m, e);
  text_free(&m.text);
  mem_free(a, sorted, weights_fit_bytes(c));
  return st;
}
