/* one_rank_pair.c - compiles a toy for its mesh and for one rank and compares their runs.
 */
#include "one_rank_pair.h"
#include "vm/session/verify.h"

#include <check.h>

const char *toy_diags(Toy *t) {
  char *all = arena_str(t->arena, "");
  for (int i = 0; i < t->diags.list.n; i++) {
    const Diag *d = &t->diags.list.at[i];
    all = arena_printf(t->arena, "%s%s %s %s: %s%s%s\n", all,
                       d->severity == DIAG_ERROR ? "error" : "warning", d->code, d->path,
                       d->summary, d->suggestion ? "; " : "",
                       d->suggestion ? d->suggestion : "");
  }
  return all;
}

void toy_compiles(Toy *t, const ToyOptions *o) {
  weft_status st = toy_compile(t, o, NULL);
  ck_assert_msg(st == WEFT_OK, "compile: %d: %s%s", st, t->err.text, toy_diags(t));
}

static void compile_toy(Toy *t, const ToyOptions *o) {
  toy_compiles(t, o);
  Proof proof;
  weft_status st = prove(t->compiled, &proof, &t->err);
  ck_assert_msg(st == WEFT_OK, "prove: %d: %s", st, t->err.text);
}

ToyOptions pair_alone(const ToyOptions *o) {
  ToyOptions one = *o;
  one.tp = one.pp = one.dp = one.cp = one.ep = one.etp = 1;
  if (o->bound > 0) one.senders = o->dp, one.owners = o->ep;
  if (o->capacity > 0) one.senders = o->dp;
  one.sp = one.post_validation = false;
  one.replicate = 0, one.strategy = (Strategy){0};
  one.recompute = (Recompute){0};
  one.schedule = NULL;
  one.micro = o->micro * o->dp;
  one.fp8.groups = o->dp;
  return one;
}

void pair_compile(Pair *p, const ToyOptions *o) {
  ToyOptions one = pair_alone(o);
  compile_toy(&p->many, o);
  compile_toy(&p->one, &one);
}

void pair_verify(Pair *p, int steps, double tolerance) {
  weft_error err = {.rank = -1};
  weft_status st = verify(&p->many.plan, p->many.compiled, &p->one.plan, p->one.compiled,
                          steps, tolerance, NULL, &p->report, &err);
  ck_assert_msg(st == WEFT_OK, "verify: %d: %s", st, err.text);
}

void pair_free(Pair *p) {
  toy_free(&p->many);
  toy_free(&p->one);
}

void pair_agrees(const ToyOptions *o) {
  Pair p;
  pair_compile(&p, o);
  pair_verify(&p, 2, 1e-5);
  ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
  ck_assert_int_eq(p.report.steps, 2);
  pair_free(&p);
}
