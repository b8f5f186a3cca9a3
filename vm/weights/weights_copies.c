/* weights_copies.c - whether tensors that repeat a parameter have its numbers: heads that
 * are tied, copies in layers for further tokens, and what an adapter's folder has of its
 * base. */
#include "vm/base/f16.h"
#include "vm/base/plural.h"
#include "vm/graph/second_model.h"
#include "vm/io/safetensors/st_type.h"
#include "weights_match.h"

enum { BLOCK = 4096, WIDEST = sizeof(double) };

/* How both are compared: in f32, or as this type. */
typedef struct Narrowed {
  bool on;
  DType to;
} Narrowed;

static void narrow(Narrowed by, int64_t n, float *x) {
  unsigned char raw[BLOCK * WIDEST];
  if (by.on && st_from_f32(by.to, x, (size_t)n, raw)) memcpy(x, raw, (size_t)n * 2);
}

/* A model that was loaded in another type than its files have was rounded to that, or is
 * in a wider one; what both can say is in the narrower. */
static Narrowed narrower(const SafeTensor *base, const SafeTensor *again) {
  const StType *x = st_type(base->type), *y = st_type(again->type);
  const StType *to = y->size < x->size ? y : x;
  bool half = to->dtype == DT_BF16 || to->dtype == DT_F16;
  return (Narrowed){.on = x != y && half, .to = to->dtype};
}

static weft_status same(const SafeTensor *first, int64_t skip, const SafeTensor *again,
                        Narrowed by, int64_t n, bool *out, weft_error *e) {
  float x[BLOCK], y[BLOCK];
  *out = true;
  for (int64_t at = 0, some; at < n && *out; at += some) {
    some = MIN(n - at, (int64_t)BLOCK);
    TRY(st_read_part(first, skip + at, some, x, e));
    TRY(st_read_part(again, at, some, y, e));
    narrow(by, some, x);
    narrow(by, some, y);
    *out = memcmp(x, y, (size_t)some * (by.on ? 2 : sizeof *x)) == 0;
  }
  return WEFT_OK;
}

/* That the tensor of this name, if there is one, is parameter `tied`. */
static weft_status check_again(const Compiled *c, const SafeTensors *s, const char *name,
                               int tied, const char *why, weft_error *e) {
  const SafeTensor *again = st_find(s, name);
  if (tied < 0 || !again) return WEFT_OK;
  bool equal;
  TRY(same(weights_source(c, s, tied).t, 0, again, (Narrowed){0},
           param_count(&c->param[tied]), &equal, e));
  if (equal) return WEFT_OK;
  return err_set(e, WEFT_EFILE,
                 "the weights do not fit the model:\n  %s: differs from %s, which %s",
                 name, c->param[tied].name, why);
}

static weft_status check_head(const Compiled *c, const SafeTensors *s, const char *name,
                              weft_error *e) {
  return check_again(c, s, name, weights_tied(c, name),
                     "the model's head is tied to (tie_word_embeddings)", e);
}

static weft_status check_base(const Compiled *c, const SafeTensors *s,
                              const SafeTensor *again, weft_error *e) {
  int param = weights_of_base(c, again->name);
  if (param < 0) return WEFT_OK;
  const CompiledParam *p = &c->param[param];
  WeightSource from = weights_source(c, s, param);
  bool equal;
  TRY(same(from.t, from.first, again, narrower(from.t, again), param_weights(p), &equal,
           e));
  if (equal) return WEFT_OK;
  return err_set(e, WEFT_EFILE,
                 "the weights do not fit the model:\n  %s: differs from %s of the plan's "
                 "base: the adapter was trained on another one",
                 again->name, p->name);
}

/* That a buffer is what the model computes with, as far as the type of the file can say
 * that. */
static weft_status check_buffer(const Compiled *c, const SafeTensor *t, weft_error *e) {
  const Buffer *b = weights_buffer(c, t->name);
  if (!b) return WEFT_OK;
  float is, wanted = b->value;
  DType type = st_type(t->type)->dtype;
  if (t->ndim != 0)
    return err_set(e, WEFT_EFILE,
                   "the weights do not fit the model:\n  %s: has %d dimension%s, the "
                   "model's is one number",
                   t->name, t->ndim, plural(t->ndim, "s"));
  TRY(st_read_part(t, 0, 1, &is, e));
  if (type == DT_BF16) wanted = bf16_to_f32(bf16_from_f32(wanted));
  if (type == DT_F16) wanted = f16_to_f32(f16_from_f32(wanted));
  if (is == wanted) return WEFT_OK;
  return err_set(
      e, WEFT_EFILE,
      "the weights do not fit the model:\n  %s: is %g, the model computes with "
      "%g",
      t->name, (double)is, (double)b->value);
}

weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e) {
  TRY(check_head(c, s, WEIGHTS_HEAD, e));
  for (int i = 0; i < st_count(s); i++) {
    const char *name = st_at(s, i)->name;
    TRY(check_again(c, s, name, weights_copied(c, name),
                    "layers for further tokens (mtp) share with the model", e));
    TRY(check_base(c, s, st_at(s, i), e));
    TRY(check_buffer(c, st_at(s, i), e));
  }
  return check_head(c, s, TEACHER_PREFIX WEIGHTS_HEAD, e);
}
