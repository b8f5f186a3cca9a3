/* weights.c - which tensor of a file holds which parameter, and what does not fit.
 *
 * Files of the hub differ in small things: a base model's names lack the prefix of the
 * model with a head, old files hold buffers that are computed, and some repeat a tied
 * embedding as the head. */
#include "weights.h"

#include <stdlib.h>

/* ---- names ---- */

static const char *const bases[] = {"model.", "transformer."};
static const char head[] = "lm_head.weight";

/* A parameter's tensor: by its name, or by that of the model without a head. */
static const SafeTensor *find(const SafeTensors *s, const char *param) {
  const SafeTensor *t = st_find(s, param);
  for (int i = 0; i < LEN(bases) && !t; i++) {
    size_t n = strlen(bases[i]);
    if (strncmp(param, bases[i], n) == 0) t = st_find(s, param + n);
  }
  return t;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* Masks and frequencies, which follow from the configuration. */
static bool is_buffer(const char *name) {
  static const char *const buffers[] = {".rotary_emb.inv_freq", ".attn.bias",
                                        ".attn.masked_bias"};
  for (int i = 0; i < LEN(buffers); i++)
    if (ends_with(name, buffers[i])) return true;
  return false;
}

/* The embedding that the head of a tied model reads; -1 if the model has a head. */
static int tied_embedding(const Compiled *c) {
  int at = -1;
  for (int i = 0; i < c->nparam; i++) {
    if (strcmp(c->param[i].name, head) == 0) return -1;
    if (ends_with(c->param[i].name, ".embed_tokens.weight") ||
        ends_with(c->param[i].name, ".wte.weight"))
      at = i;
  }
  return at;
}

/* ---- what does not fit ---- */

static void dims_text(Text *t, const int64_t *dim, int n) {
  text_add(t, "[");
  for (int i = 0; i < n; i++) text_printf(t, "%s%lld", i ? ", " : "", (long long)dim[i]);
  text_add(t, "]");
}

static bool same_shape(const CompiledParam *p, const SafeTensor *t) {
  if (p->ndim != t->ndim) return false;
  for (int i = 0; i < p->ndim; i++)
    if (p->dim[i] != t->dim[i]) return false;
  return true;
}

static bool is_real(const SafeTensor *t) {
  return strchr("FB", t->type[0]) && strcmp(t->type, "BOOL") != 0;
}

typedef struct Misfits {
  Text text;
  int n;
} Misfits;

/* Whether tensor `t`, found under the name `name`, can be what `p` wants. */
static bool fits(const CompiledParam *p, const char *name, const SafeTensor *t,
                 Misfits *m) {
  if (!same_shape(p, t)) {
    text_printf(&m->text, "\n  %s: shape ", name);
    dims_text(&m->text, t->dim, MIN(t->ndim, 8));
    text_add(&m->text, ", the model has ");
    dims_text(&m->text, p->dim, p->ndim);
  } else if (!is_real(t)) {
    text_printf(&m->text, "\n  %s: holds integers (%s), weights are F32, BF16, F16 or F64",
                name, t->type);
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

static void compare(const Compiled *c, const SafeTensors *s, const SafeTensor **sorted,
                    Misfits *m) {
  int n = 0, tied = tied_embedding(c);
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    const SafeTensor *t = find(s, p->name);
    if (t) {
      (void)fits(p, p->name, t, m);
      sorted[n++] = t;
      continue;
    }
    m->n++;
    text_printf(&m->text, "\n  %s: missing", p->name);
  }
  qsort(sorted, (size_t)n, sizeof *sorted, by_address);
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *t = st_at(s, i);
    if (bsearch(&t, sorted, (size_t)n, sizeof *sorted, by_address)) continue;
    if (is_buffer(t->name)) continue;
    if (tied >= 0 && strcmp(t->name, head) == 0) {
      (void)fits(&c->param[tied], head, t, m);
      continue;
    }
    m->n++;
    text_printf(&m->text, "\n  %s: not in the model", t->name);
  }
}

/* What has no place in the error is counted. */
static weft_status report(const Misfits *m, weft_error *e) {
  const int room = 900;
  int n = (int)m->text.n, shown = 0;
  if (n > room) {
    n = room;
    while (n > 0 && m->text.s[n] != '\n') n--;
  }
  for (int i = 0; i < n; i++) shown += m->text.s[i] == '\n';
  if (shown == m->n)
    return err_set(e, WEFT_EFILE, "the weights do not fit the model:%.*s", n, m->text.s);
  return err_set(e, WEFT_EFILE, "the weights do not fit the model:%.*s\n  and %d more", n,
                 m->text.s, m->n - shown);
}

static size_t list_bytes(const Compiled *c) {
  return sizeof(SafeTensor *) * (size_t)MAX(c->nparam, 1);
}

weft_status weights_fit(const Compiled *c, const SafeTensors *s, const weft_alloc *a,
                        weft_error *e) {
  const SafeTensor **sorted = mem_new(a, list_bytes(c));
  if (!sorted) return err_set(e, WEFT_ENOMEM, "out of memory");
  Misfits m = {.text = {.alloc = a}};
  compare(c, s, sorted, &m);
  weft_status st = WEFT_OK;
  if (m.text.oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  else if (m.n) st = report(&m, e);
  text_free(&m.text);
  mem_free(a, sorted, list_bytes(c));
  return st;
}

int64_t weights_largest(const Compiled *c) {
  int64_t most = 0;
  for (int i = 0; i < c->nparam; i++)
    most = MAX(most, param_count(&c->param[i]));
  return most;
}

uint64_t weights_bytes(const Compiled *c) {
  return MAX(list_bytes(c), (uint64_t)weights_largest(c) * sizeof(float));
}

const SafeTensor *weights_of(const SafeTensors *s, const CompiledParam *p) {
  return find(s, p->name);
}

weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e) {
  int tied = tied_embedding(c);
  const SafeTensor *again = st_find(s, head);
  if (tied < 0 || !again) return WEFT_OK;
  const SafeTensor *first = find(s, c->param[tied].name);
  enum { BLOCK = 4096 };
  float x[BLOCK], y[BLOCK];
  int64_t n = param_count(&c->param[tied]);
  for (int64_t at = 0, some; at < n; at += some) {
    some = MIN(n - at, (int64_t)BLOCK);
    TRY(st_read_part(first, at, some, x, e));
    TRY(st_read_part(again, at, some, y, e));
    if (memcmp(x, y, (size_t)some * sizeof *x) != 0)
      return err_set(
          e, WEFT_EFILE,
          "the weights do not fit the model:\n  %s: differs from %s, which the "
          "model's head is tied to (tie_word_embeddings)",
          head, c->param[tied].name);
  }
  return WEFT_OK;
}
