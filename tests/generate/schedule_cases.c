/* schedule_cases.c - runs the library's schedules and changes of them. */
#include "schedule_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "random_schedule.h"
#include "small_llama.h"
#include "vm/session/verify.h"

/* ---- the cases ---- */

Case schedule_case(int number) {
  int k = number;
  Case c = {.pick = &schedule_picks[k % SCHEDULES]};
  c.pp = 2 << (k /= SCHEDULES) % 2;
  const int m[] = {c.pp, c.pp + 1, 2 * c.pp, 3 * c.pp - 1};
  c.m = m[(k /= 2) % 4];
  c.tp = 1 + (k /= 4) % 2;
  c.dp = 1 + k / 2 % 2;
  c.chunks = MIN(c.pick->chunks, 2);
  c.legal = schedule_takes(c.pick, c.pp, c.chunks, c.m);
  return c;
}

static void plan_text(const Case *c, Text *out) {
  text_printf(out,
              "local weft = require \"weft\"\n"
              "return weft.plan {\n"
              "  model = weft.model { \"llama\", num_hidden_layers = %d, hidden_size = "
              "16, num_attention_heads = 2, num_key_value_heads = 2, intermediate_size "
              "= 24, vocab_size = 37, initializer_range = 0.1 },\n"
              "  mesh = { tp = %d, pp = %d, dp = %d },\n"
              "  pp_plan = { virtual = %d },\n"
              "  schedule = \"%s\",\n"
              "  batch = { global = %d, micro = 1, seq = 8 },\n"
              "  optimizer = weft.adamw { lr = 1e-2 },\n"
              "  data = weft.synthetic {},\n"
              "}\n",
              c->pp * c->chunks, c->tp, c->pp, c->dp, c->chunks, c->pick->name,
              c->m * c->dp);
}

static void describe(const Case *c, Text *out) {
  text_printf(out, "%s of %d, pp %d, m %d, tp %d, dp %d: ", c->pick->name, c->chunks,
              c->pp, c->m, c->tp, c->dp);
}

/* True if the report suggests legal numbers and none is nearer. */
static bool offers_nearest(const Case *c, const char *report) {
  const char *at = strstr(report, "(nearest: ");
  int low = 0, high = 0, distance = 1;
  if (!at) return false;
  int n = sscanf(at, "(nearest: %d or %d microbatches", &low, &high);
  while (!schedule_takes(c->pick, c->pp, c->chunks, c->m - distance) &&
         !schedule_takes(c->pick, c->pp, c->chunks, c->m + distance))
    distance++;
  if (n < 1 || !schedule_takes(c->pick, c->pp, c->chunks, low)) return false;
  if (n == 2 && (high != c->m + distance || low != c->m - distance)) return false;
  return abs(low - c->m) == distance;
}

static void grow(double *worst, const VerifyReport *r) {
  *worst = MAX(*worst, MAX(r->loss, MAX(r->grad, r->param)));
}

bool case_holds(int number, double tolerance, double *worst, Text *report) {
  Case c = schedule_case(number);
  Text text = {0}, said = {0};
  VerifyReport r;
  plan_text(&c, &text);
  weft_status st = plan_parity(text.s, 2, tolerance, &r, &said);
  bool holds = c.legal ? st == WEFT_OK && r.ok
                       : st == WEFT_EPLAN && offers_nearest(&c, said.s ? said.s : "");
  if (c.legal) grow(worst, &r);
  describe(&c, report);
  text_printf(report, c.legal ? "loss %.1e grad %.1e param %.1e\n" : "refused\n", r.loss,
              r.grad, r.param);
  if (!holds) text_printf(report, "%s%s", said.s ? said.s : "", text.s);
  text_free(&text);
  text_free(&said);
  return holds;
}

/* ---- changes ---- */

/* The table of a legal case; its lists lie in `a`. */
static weft_status load_schedule(const Case *c, Arena *a, Schedule *out) {
  char path[] = "/tmp/weft-plan-XXXXXX.lua";
  Text text = {0};
  plan_text(c, &text);
  int fd = mkstemps(path, 4);
  if (fd < 0 || write(fd, text.s, text.n) < 0) return WEFT_EFILE;
  close(fd);
  Job j;
  weft_status st = job_load(&j, a, &(LangOptions){0}, path);
  if (st == WEFT_OK) st = job_mesh(&j, 0);
  if (st == WEFT_OK) st = job_schedule(&j);
  if (st == WEFT_OK) *out = j.schedule;
  job_free(&j);
  unlink(path);
  text_free(&text);
  return st;
}

/* Every third is a mutation of a random schedule, which has more kinds of actions. */
static weft_status draw(Dice *d, Arena *a, Schedule *s) {
  if (throw_dice(d, 3) == 0) {
    *s = sched_random(a, d, 1 + throw_dice(d, 4), 2, 1 + throw_dice(d, 6),
                      throw_dice(d, 2));
    return WEFT_OK;
  }
  Case c = schedule_case(throw_dice(d, CASES));
  while (!c.legal) c = schedule_case(throw_dice(d, CASES));
  return load_schedule(&c, a, s);
}

static weft_status compare(Toy *many, const ToyOptions *o, VerifyReport *r,
                           weft_error *e) {
  Toy one;
  ToyOptions alone = *o;
  alone.pp = 1;
  alone.schedule = NULL;
  weft_status st = toy_compile(&one, &alone, NULL);
  if (st == WEFT_OK)
    st =
        verify(&many->plan, many->compiled, &one.plan, one.compiled, 2, 1e-5, NULL, r, e);
  toy_free(&one);
  return st;
}

static MutantFate run_mutant(const Schedule *s, bool parity, double *worst,
                             Text *report) {
  ToyOptions o = toy_default();
  o.layers = s->ranks * s->virtual_stages;
  o.hidden = 16, o.heads = 2, o.ffn = 24, o.vocab = 37;
  o.pp = s->ranks;
  o.microbatches = s->microbatches;
  o.schedule = s;
  Toy many;
  VerifyReport r = {0};
  MutantFate fate = MUTANT_BAD;
  weft_status st = toy_compile(&many, &o, NULL);
  if (st == WEFT_EPLAN && many.diags.errors > 0) {
    fate = MUTANT_REFUSED;
    text_printf(report, "%s\n", many.diags.list.at[0].summary);
  } else if (st == WEFT_OK) {
    fate = MUTANT_PROVEN;
    if (parity) {
      st = compare(&many, &o, &r, &many.err);
      grow(worst, &r);
      if (st != WEFT_OK || !r.ok) fate = MUTANT_BAD;
    }
    text_printf(report, "proven, %s%s\n", many.err.text, r.first_bad);
  } else {
    text_printf(report, "%s\n", many.err.text);
  }
  toy_free(&many);
  return fate;
}

MutantFate mutant_holds(uint64_t seed, int number, bool parity, double *worst,
                        Text *report) {
  char name[32];
  const char *what;
  snprintf(name, sizeof name, "mutant %d", number);
  Dice d = dice(seed, name);
  Schedule s, changed;
  Arena *a = arena_new(NULL);
  if (setjmp(*arena_guard(a))) abort();
  MutantFate fate = MUTANT_BAD;
  if (draw(&d, a, &s) == WEFT_OK) {
    changed = sched_mutant(a, &d, &s, &what);
    text_printf(report, "change %d: %s of %d, P %d, m %d, %s: ", number, s.name,
                s.virtual_stages, s.ranks, s.microbatches, what);
    fate = run_mutant(&changed, parity, worst, report);
  }
  arena_free(a);
  return fate;
}

/* ---- all of them ---- */

static int all_cases(double *worst) {
  int bad = 0, refused = 0;
  for (int i = 0; i < CASES; i++) {
    Text t = {0};
    bool ok = case_holds(i, 1e-5, worst, &t);
    refused += !schedule_case(i).legal;
    bad += !ok;
    fprintf(ok ? stdout : stderr, "%s%s", ok ? "" : "FAILED ", t.s);
    text_free(&t);
  }
  printf("%d cases: %d agree, %d are refused, %d failed; largest difference %.2e\n",
         CASES, CASES - refused - bad, refused, bad, *worst);
  return bad;
}

static int all_mutants(int n, double *worst) {
  int fates[3] = {0};
  for (int i = 0; i < n; i++) {
    Text t = {0};
    MutantFate f = mutant_holds(1, i, true, worst, &t);
    fates[f]++;
    fprintf(f == MUTANT_BAD ? stderr : stdout, "%s%s", f == MUTANT_BAD ? "FAILED " : "",
            t.s);
    text_free(&t);
  }
  printf("%d changes: %d proven and agree, %d refused, %d failed; largest difference "
         "%.2e\n",
         n, fates[MUTANT_PROVEN], fates[MUTANT_REFUSED], fates[MUTANT_BAD], *worst);
  return fates[MUTANT_BAD];
}

int schedules_fuzz(int argc, char **argv) {
  double worst_case = 0, worst_mutant = 0;
  int bad = all_cases(&worst_case);
  bad += all_mutants(argc > 0 ? atoi(argv[0]) : 1000, &worst_mutant);
  return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
