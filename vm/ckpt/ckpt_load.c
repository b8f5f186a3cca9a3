/* ckpt_load.c - loads a run from a checkpoint. Every rank reads only the pieces that it
 * holds. */
#include <stdio.h>

#include "ckpt.h"

#include "vm/graph/second_model.h"

/* ---- comparing parameters ---- */

enum { SHOWN = 10 };

static bool same_shape(const CkptParam *a, const CompiledParam *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->dim[d] != b->dim[d]) return false;
  return true;
}

static void shape(Text *t, const int64_t *dim, int n) {
  for (int i = 0; i < n; i++) text_printf(t, "%s%lld", i ? ", " : "[", (long long)dim[i]);
  text_add(t, "]");
}

/* Adds a difference to the list, which shows the first ten. */
static void differs(Text *t, int *n, const char *name, const CkptParam *has,
                    const CompiledParam *want) {
  if ((*n)++ >= SHOWN) return;
  text_printf(t, "\n  %.60s: ", name);
  if (!has || !want) {
    text_add(t, has ? "not in the model" : "missing");
    return;
  }
  text_add(t, "shape ");
  shape(t, has->dim, has->ndim);
  text_add(t, ", the model has ");
  shape(t, want->dim, want->ndim);
}

typedef struct Known {
  const Compiled *to;
  Names names;
  Arena *arena;
} Known;

static void know(void *ud) {
  Known *k = ud;
  for (int i = 0; i < k->to->nparam; i++)
    names_add(k->arena, &k->names, k->to->param[i].name, i);
}

/* Whether the base of a checkpoint, or of a program, is stored in 4 bits. */
static bool has_codes(const Ckpt *c) {
  static const char scales[] = ".nested_absmax";
  for (int i = 0; i < c->m.nparam; i++) {
    size_t n = strlen(c->m.param[i].name), end = sizeof scales - 1;
    if (n > end && str_eq(c->m.param[i].name + n - end, scales)) return true;
  }
  return false;
}

static bool reads_codes(const Compiled *to) {
  for (int i = 0; i < to->nparam; i++)
    if (to->param[i].quant) return true;
  return false;
}

/* A layer that predicts a further token, numbered on from those of the model, has a
 * projection that these do not have. */
static bool is_further_token(const Known *k, const Ckpt *c, const char *name) {
  static const char layers[] = "model.layers.";
  char projection[64];
  size_t n = sizeof layers - 1;
  if (strncmp(name, layers, n) != 0) return false;
  n += strcspn(name + n, ".");
  snprintf(projection, sizeof projection, "%.*s.eh_proj.weight", (int)MIN(n, 40), name);
  return ckpt_param(c, projection) >= 0 && names_find(&k->names, projection) < 0;
}

/* Decoding needs no reference, no teacher and no further tokens: its program leaves them
 * out. */
static bool is_left_out(const Known *k, const Ckpt *c, const char *name) {
  return k->to->context &&
         (second_prefix(name, strlen(name)) || is_further_token(k, c, name));
}

weft_status ckpt_fits(const Ckpt *c, const Compiled *to, CkptUse use, weft_error *e) {
  Text t = {0};
  bool states = use == CKPT_STATES;
  if (states && c->m.optimizer != to->optimizer)
    return err_file(e, WEFT_EUSAGE, c->dir, 0,
                    "has the states of weft.%s, the plan's optimizer is weft.%s",
                    optimizer_title(c->m.optimizer), optimizer_title(to->optimizer));
  int n = 0;
  const char *stateless = NULL; /* the first that learns and has no states */
  const char *whole = NULL;     /* the first that only one steps as a whole */
  Known k = {.to = to, .arena = arena_new(NULL)};
  if (!k.arena || !arena_try(k.arena, know, &k)) {
    arena_free(k.arena);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  for (int i = 0; i < to->nparam; i++) {
    const CompiledParam *p = &to->param[i];
    int at = ckpt_param(c, p->name);
    const CkptParam *has = at < 0 ? NULL : &c->m.param[at];
    if (!has || !same_shape(has, p)) differs(&t, &n, p->name, has, p);
    bool others = has && (has->matrix != p->matrix || has->factors != p->factors);
    if (others && states && !has->frozen && !p->frozen && !whole) whole = p->name;
    if (has && has->frozen && !p->frozen && states && !stateless) stateless = p->name;
  }
  for (int i = 0; i < c->m.nparam; i++)
    if (names_find(&k.names, c->m.param[i].name) < 0 &&
        !is_left_out(&k, c, c->m.param[i].name))
      differs(&t, &n, c->m.param[i].name, &c->m.param[i], NULL);
  arena_free(k.arena);
  if (n > SHOWN) text_printf(&t, "\n  and %d more", n - SHOWN);
  weft_status st = WEFT_OK;
  if (t.oom)
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  else if (n && has_codes(c) != reads_codes(to))
    st = err_file(e, WEFT_EFILE, c->dir, 0,
                  "its base is %sstored in 4 bits, the plan's is%s: "
                  "adapter.base must be that of the checkpoint's plan",
                  has_codes(c) ? "" : "not ", has_codes(c) ? " not" : "");
  else if (n)
    st = err_file(e, WEFT_EFILE, c->dir, 0, "is of another model:%.900s", t.s);
  else if (stateless)
    st = err_file(e, WEFT_EUSAGE, c->dir, 0,
                  "has no optimizer states of %.200s: it was frozen there, and the plan "
                  "trains it",
                  stateless);
  else if (whole)
    st = err_file(e, WEFT_EUSAGE, c->dir, 0,
                  "has %.200s as a matrix of a layer or not, and the plan the other way: "
                  "its states are others",
                  whole);
  text_free(&t);
  return st;
}

/* ---- loading ---- */

typedef struct Load {
  const Ckpt *c;
  const Compiled *to;
  CkptRead *reader; /* one for each reading thread of the run */
} Load;

static weft_status source(void *ud, int reader, StateKind k, int param, const Piece *p,
                          float *to, weft_error *e) {
  Load *l = ud;
  int at = ckpt_param(l->c, l->to->param[param].name);
  return ckpt_read(&l->reader[reader], ckpt_kind(k), at, p, to, e);
}

static weft_status fill_run(Load *l, Run *r, weft_error *e) {
  for (int i = 0; i < run_readers(r); i++) TRY(ckpt_read_begin(l->c, &l->reader[i], e));
  return run_fill(r, source, l, e);
}

weft_status ckpt_load(const Ckpt *c, Run *r, CkptUse use, weft_error *e) {
  Load l = {.c = c, .to = run_compiled(r)};
  size_t bytes = (size_t)run_readers(r) * sizeof *l.reader;
  TRY(ckpt_fits(c, l.to, use, e));
  l.reader = mem_new(NULL, bytes);
  if (!l.reader) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = fill_run(&l, r, e);
  for (int i = 0; i < run_readers(r); i++) ckpt_read_end(&l.reader[i]);
  mem_free(NULL, l.reader, bytes);
  if (st == WEFT_OK) run_set_scaler(r, &c->m.scaler);
  return st;
}
