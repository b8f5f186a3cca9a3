/* resume.c - compares the facts of a job with those stored in a checkpoint, by
 * resume.def. */
#include <stdlib.h>

#include "resume.h"

#include <stdio.h>

#include "bindings/lang/plan_key.h"
#include "bindings/schema/schema.h"
#include "vm/base/plural.h"
#include "vm/plan/plan.h"

enum { WIDTH = 48, SHOWN = 10 };

typedef enum { REFUSE, NOTE, FREE } Rule;
typedef enum { ALIKE, OTHER } Evaluations;
static const struct Row {
  const char *what;
  Rule rule;
  Evaluations evaluations;
  const char *why;
} rows[] = {
#define RESUME(what, rule, evaluations, why) {what, rule, evaluations, why},
#include "resume.def"
};

static const struct Row *row_of(const char *what) {
  static const struct Row noted = {"", NOTE, ALIKE, ""};
  for (int i = 0; i < LEN(rows); i++) {
    size_t n = strlen(rows[i].what);
    bool below = rows[i].what[n - 1] == '.';
    if (below ? strncmp(what, rows[i].what, n) == 0 : str_eq(what, rows[i].what))
      return &rows[i];
  }
  return &noted;
}

/* ---- facts ---- */

typedef struct Facts {
  Arena *a;
  VEC(RunFact) list;
  /* The first `placed` have their value from Plan, and what is written tells more; those
   * from there to `known` are computed here, and stay. */
  int placed, known;
} Facts;

static void add_fact(Facts *f, const char *what, const char *value) {
  *VEC_PUSH(f->a, f->list) = (RunFact){what, value, FACT_SAME, NULL};
}

/* A field that is no place of Plan: a list, a function, an option of a loss. Several rows
 * may have one path, of which one is written at most. */
static void add_written(void *ud, const Field *field, const char *text) {
  Facts *f = ud;
  const char *what = arena_printf(f->a, "plan.%s", schema_path(f->a, field));
  const char *value = text ? arena_str(f->a, text) : "not given";
  if (row_of(what)->rule == FREE) return;
  /* A model of the library is told by its config. */
  if (str_eq(what, "plan.model") && strncmp(value, "function", 8) != 0) return;
  for (int i = 0; i < f->list.n; i++) {
    RunFact *x = &f->list.at[i];
    if (!str_eq(x->what, what)) continue;
    /* A name that Plan has as it is written. */
    bool same = str_eq(value, arena_printf(f->a, "\"%s\"", x->value));
    if (text && !same && (i < f->placed || i >= f->known)) x->value = value;
    return;
  }
  add_fact(f, what, value);
}

weft_status resume_facts(Job *j, const JobFacts *f, const RunFact **out, int *n,
                         weft_error *e) {
  Arena *a = f->arena;
  const Plan *p = &j->plan;
  const LrSchedule *lr = &p->opt.lr;
  static const char *const kind[] = {
#define LR(ID, name) #name,
#include "vm/plan/lr.def"
  };
  Text model = {0};
  weft_status st = lang_config_text(j->lp, &model, e);
  if (st != WEFT_OK) text_free(&model);
  TRY(st);
  const char *config = arena_take(a, &model);
  Facts all = {.a = a, .placed = f->n};
  for (int i = 0; i < f->n; i++) *VEC_PUSH(a, all.list) = f->fact[i];
  add_fact(&all, "model", config);
  add_fact(&all, "plan.optimizer.lr", kind[lr->kind]);
  add_fact(&all, "plan.optimizer.betas",
           arena_printf(a, "%.17g, %.17g", p->opt.beta1, p->opt.beta2));
  add_fact(&all, "plan.packed",
           p->packed.on
               ? arena_printf(a, "%s of token %d", p->packed.first ? "first" : "last",
                              p->packed.separator)
               : "no");
  all.known = all.list.n;
  TRY(plan_written(j->lp, add_written, &all, e));
  *out = all.list.at;
  *n = all.list.n;
  return WEFT_OK;
}

/* ---- comparing ---- */

/* An axis of the mesh that the plan does not name is 0. */
static const char *shown(const char *what, const char *value) {
  bool axis = strncmp(what, "plan.mesh.", 10) == 0;
  return axis && str_eq(value, "0") ? "not given" : value;
}

/* Facts have all digits of a number, to be compared; one reads 0.1, not
 * 0.10000000000000001. */
static void add_number(Text *t, const char *s, size_t n) {
  char digits[64], fewer[32];
  if (n >= sizeof digits) {
    text_addn(t, s, n);
    return;
  }
  snprintf(digits, sizeof digits, "%.*s", (int)n, s);
  double v = strtod(digits, NULL);
  snprintf(fewer, sizeof fewer, "%.15g", v);
  text_add(t, strpbrk(digits, ".e") && strtod(fewer, NULL) == v ? fewer : digits);
}

static void add_short(Text *t, const char *s) {
  while (*s) {
    size_t word =
        strspn(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.");
    size_t number = strspn(s, "0123456789.");
    if (number && s[number] == 'e' && strspn(s + number + 1, "+-0123456789"))
      number += 1 + strspn(s + number + 1, "+-0123456789");
    if (number && *s != '.' && number >= word)
      add_number(t, s, number), s += number;
    else
      text_addn(t, s, MAX(word, 1)), s += MAX(word, 1);
  }
}

static void add_part(Text *t, const char *s, size_t from) {
  bool whole = strlen(s) <= from + WIDTH;
  text_printf(t, "%s%.*s%s", from ? "..." : "", WIDTH, s + from, whole ? "" : "...");
}

/* Shows two values; long ones, such as that of a model, from where they differ. */
static void add_values(Text *t, const char *was, const char *is) {
  Text a = {0}, b = {0};
  size_t same = 0;
  add_short(&a, was);
  add_short(&b, is);
  was = a.s ? a.s : "", is = b.s ? b.s : "";
  while (was[same] && was[same] == is[same]) same++;
  size_t long_one = MAX(strlen(was), strlen(is));
  size_t from = long_one > WIDTH && same > 20 ? same - 20 : 0;
  add_part(t, was, from);
  text_add(t, " in the checkpoint, ");
  add_part(t, is, from);
  text_add(t, " now");
  text_free(&a);
  text_free(&b);
}

static const RunFact *find(const RunFact *fact, int n, const char *what) {
  for (int i = 0; i < n; i++)
    if (str_eq(fact[i].what, what)) return &fact[i];
  return NULL;
}

/* Without an alpha, which is 0, it is the rank. */
static const char *resolved(const RunFact *list, int n, const RunFact *f) {
  bool none = str_eq(f->what, "plan.adapter.alpha") && str_eq(f->value, "0");
  const RunFact *rank = none ? find(list, n, "plan.adapter.rank") : NULL;
  return rank ? rank->value : f->value;
}

/* Whether two facts of one name say the same. Data are described, "1 file (raw u16), 4 k
 * tokens", before their fingerprint, "(33243da4)": the same tokens in files of another
 * format differ by the description alone. */
static bool says_same(const char *what, const char *was, const char *is) {
  bool data = str_eq(what, "data") || str_eq(what, "data for validation");
  const char *a = data ? strrchr(was, '(') : NULL, *b = data ? strrchr(is, '(') : NULL;
  return str_eq(a && b ? a : was, a && b ? b : is);
}

/* What an adapter of these facts is multiplied by, and its rank; 0: there is none. */
static double scale_of(const RunFact *list, int n, int64_t *rank) {
  const RunFact *r = find(list, n, "plan.adapter.rank"),
                *a = find(list, n, "plan.adapter.alpha"),
                *root = find(list, n, "plan.adapter.rslora");
  *rank = r ? strtoll(r->value, NULL, 10) : 0;
  if (*rank < 1 || !a) return 0;
  Adapter of = {.rank = *rank, .rslora = root && str_eq(root->value, "true")};
  return plan_adapter_scale(&of, *rank, strtod(resolved(list, n, a), NULL));
}

/* Another rank is another model. */
static void note_scale(const Ckpt *c, const RunFact *fact, int n, Text *notes) {
  int64_t rank_was, rank;
  double was = scale_of(c->m.fact, c->m.nfact, &rank_was), is = scale_of(fact, n, &rank);
  if (was > 0 && is > 0 && was != is && rank == rank_was)
    text_printf(notes,
                "plan.adapter.alpha: what the adapter adds is multiplied by %g, and was "
                "by %g in the run that wrote %s\n",
                is, was, c->dir);
}

/* A learning rate that is constant on both sides has steps that nothing depends on. */
static bool is_constant(const Ckpt *c, const RunFact *fact, int n) {
  static const char kind[] = "plan.optimizer.lr";
  const RunFact *was = find(c->m.fact, c->m.nfact, kind), *is = find(fact, n, kind);
  return was && is && str_eq(was->value, "constant") && str_eq(is->value, "constant");
}

static bool is_moot(const char *what, bool constant) {
  return constant &&
         (str_eq(what, "plan.train.steps") || str_eq(what, "plan.optimizer.lr.steps"));
}

/* How another run of the same model begins where this one has ended. An adapter is
 * exported by itself. */
static void add_way_on(const Ckpt *c, Text *way) {
  int64_t rank;
  scale_of(c->m.fact, c->m.nfact, &rank);
  text_printf(
      way,
      "\n  (a new run begins with its weights, at step 0: weft ckpt export PLAN %s "
      "DIR, then %s\"DIR\" in the plan)",
      c->dir, rank ? "adapter.from = " : "model = weft.hf ");
}

/* A fact that only one side has comes from another version of weft and is ignored. */
weft_status resume_check(const Ckpt *c, const RunFact *fact, int n, Text *notes,
                         weft_error *e) {
  enum { ROOM = 950 }; /* of the text of an error */
  Text bad = {0}, way = {0};
  int refused = 0;
  bool other_model = false;
  bool constant = is_constant(c, fact, n);
  for (int i = 0; i < c->m.nfact; i++) {
    const RunFact *was = &c->m.fact[i], *is = find(fact, n, was->what);
    const struct Row *row = row_of(was->what);
    if (!is || row->rule == FREE) continue;
    const char *then = resolved(c->m.fact, c->m.nfact, was), *now = resolved(fact, n, is);
    if (says_same(was->what, then, now)) continue;
    if (is_moot(was->what, constant)) continue;
    Text *to = row->rule == REFUSE ? &bad : notes;
    if (row->rule == REFUSE) other_model |= str_eq(was->what, "model");
    if (row->rule == REFUSE && ++refused > SHOWN) continue;
    if (row->rule == REFUSE) text_add(to, "\n  ");
    text_printf(to, "%s: ", was->what);
    add_values(to, shown(was->what, then), shown(was->what, now));
    text_printf(to, "%s%s%s", *row->why ? " (" : "", row->why, *row->why ? ")" : "");
    if (row->rule == NOTE) text_add(to, "\n");
  }
  note_scale(c, fact, n, notes);
  if (refused > SHOWN) text_printf(&bad, "\n  and %d more", refused - SHOWN);
  if (refused && !other_model) add_way_on(c, &way);
  weft_status st = WEFT_OK;
  if (bad.oom || way.oom)
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  else if (refused)
    st = err_file(e, WEFT_EUSAGE, c->dir, 0, "belongs to another run:%.*s%s",
                  ROOM - (int)MIN(way.n, (size_t)ROOM / 2), bad.s,
                  way.n && way.n <= ROOM / 2 ? way.s : "");
  text_free(&bad);
  text_free(&way);
  return st;
}

/* More room for rows than there are changes nothing, unless others were dropped. */
static bool is_room(const Ckpt *c, const RunFact *fact, int n, const char *what) {
  static const char drop[] = "plan.moe.drop";
  const RunFact *was = find(c->m.fact, c->m.nfact, drop), *is = find(fact, n, drop);
  bool drops = (was && str_eq(was->value, "true")) || (is && str_eq(is->value, "true"));
  return str_eq(what, "plan.moe.max_tokens_factor") && !drops;
}

/* Whether the evaluations of the run measure what those of the checkpoint's run did, so
 * that their losses may be compared: with the same data, as many of them, the same
 * loss. */
static bool evaluates_alike(const Ckpt *c, const RunFact *fact, int n) {
  for (int i = 0; i < c->m.nfact; i++) {
    const RunFact *was = &c->m.fact[i], *is = find(fact, n, was->what);
    if (!is || row_of(was->what)->evaluations == ALIKE) continue;
    if (is_room(c, fact, n, was->what)) continue;
    if (!says_same(was->what, resolved(c->m.fact, c->m.nfact, was),
                   resolved(fact, n, is)))
      return false;
  }
  return true;
}

BestEval resume_best(const Ckpt *c, const RunFact *fact, int n, char note[200]) {
  BestEval best = c->m.best;
  *note = 0;
  if (!best.step || evaluates_alike(c, fact, n)) return best;
  snprintf(note, 200,
           "evaluations are not those of before: the best loss so far, %.4f after %lld "
           "step%s, is forgotten",
           best.loss, (long long)best.step, plural(best.step, "s"));
  return (BestEval){0};
}

/* ---- the adapter ---- */

static double number_of(const Ckpt *c, const char *what) {
  const char *value = manifest_fact(&c->m, what);
  return value ? strtod(value, NULL) : 0;
}

typedef struct PatternCheck {
  Job *j;
  const Ckpt *c;
} PatternCheck;

/* Factors of modules by themselves. */
static void check_pattern(void *ud, const Field *f, const char *text) {
  static const char path[] = "adapter.alpha_pattern";
  PatternCheck *x = ud;
  const char *was = manifest_fact(&x->c->m, "plan.adapter.alpha_pattern");
  if (!was || !str_eq(schema_path(x->j->arena, f), path)) return;
  if (!str_eq(was, text ? text : "not given"))
    diag_warn(
        &x->j->d, "adapter", path,
        "it was %s in the run that wrote %s: what the adapters of these modules add "
        "is multiplied by other factors",
        was, x->c->dir);
}

weft_status resume_adapter(Job *j, const Ckpt *c) {
  const Adapter *now = &j->plan.adapter;
  double alpha = number_of(c, "plan.adapter.alpha");
  Adapter was = {.rank = (int64_t)number_of(c, "plan.adapter.rank")};
  if (!now->rank || was.rank < 1) return WEFT_OK;
  TRY(plan_written(j->lp, check_pattern, &(PatternCheck){j, c}, &j->e));
  was.rslora = str_eq(manifest_fact(&c->m, "plan.adapter.rslora"), "true");
  if (!(alpha > 0)) alpha = (double)was.rank;
  double then = plan_adapter_scale(&was, was.rank, alpha);
  double is =
      plan_adapter_scale(now, now->rank, now->alpha > 0 ? now->alpha : (double)now->rank);
  if (then != is && was.rank == now->rank)
    diag_warn(&j->d, "adapter", "adapter.alpha",
              "what the adapter adds is multiplied by %g, and was by %g in the run that "
              "wrote %s",
              is, then, c->dir);
  lang_locate(j->lp, &j->d);
  return WEFT_OK;
}
