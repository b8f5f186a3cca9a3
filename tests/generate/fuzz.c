/* fuzz.c - `./dev fuzz`: random plans against one rank, as many as wanted, over as many
 * calls as it takes. The progress of a seed is in fuzz-SEED.state beside the program: the
 * next number, how many agreed, each kind of refusal with its count, and every plan that
 * failed.
 *
 * Sums of f32 in another order differ, and where what is added up cancels they may differ
 * by more than the tolerance. A plan that is beyond it, but within ten times, is run with
 * other initial values and tokens: a fault differs again, rounding does not, unless the
 * model makes much of every last bit. Then one rank is as far from itself when its
 * weights differ in that bit, and a plan that is no more than AS_FAR times as far is
 * rounding, too. So is one in 16 bits that is no more than AS_FAR times as far from f32
 * as one rank is in the same number formats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "random_plan.h"
#include "rounding.h"
#include "vm/base/base.h"
#include "vm/session/verify.h"

enum {
  STEPS = 3,
  RETRIES = 3,
  AS_FAR = 4,
  KINDS = 256,
  KIND_LENGTH = 200,
  FAILED_LISTED = 64
};
static const double tolerance = 1e-5;

typedef enum { EQUALS, ROUNDS, IS_REFUSED, FAILS, ENDS } Ending;

typedef struct Kind {
  char text[KIND_LENGTH];
  uint64_t count, first; /* plans; the number of the first */
} Kind;

typedef struct Tally {
  const char *folder;       /* of the state */
  uint64_t seed, generator; /* of what draws the plans: another one draws others */
  uint64_t next, of[ENDS];
  Kind kind[KINDS];
  int nkind;
  uint64_t failed[FAILED_LISTED];
} Tally;

/* ---- plans ---- */

/* Plan i: six of 16 with experts and three of the library's models, none of which may be
 * refused; the others have random models and styles. Returns whether it may be. */
static bool draw(uint64_t seed, uint64_t i, Text *plan) {
  static const char kind[] = "esepsespesepsses";
  static RandomPlan p;
  char k = kind[i % 16];
  if (k == 'e') {
    experts_plan(seed * 1000003 + i, plan);
    return false;
  }
  (k == 's' ? styled_plan : random_plan)(seed, i, &p);
  text_add(plan, p.text);
  return k == 's';
}

int fuzz_plan(int argc, char **argv) {
  if (argc != 2) {
    fputs("weft-tests --plan SEED NUMBER: prints a plan of --fuzz\n", stderr);
    return EXIT_FAILURE;
  }
  Text plan = {0};
  (void)draw(strtoull(argv[0], NULL, 10), strtoull(argv[1], NULL, 10), &plan);
  fputs(plan.s, stdout);
  text_free(&plan);
  return EXIT_SUCCESS;
}

/* Whether it is within the tolerance with any other data. */
static bool others_agree(const char *plan) {
  bool ok = true;
  for (uint64_t k = 1; k <= RETRIES && ok; k++) {
    VerifyReport r;
    Text why = {0};
    ok = plan_parity_with(plan, k * 1000, STEPS, tolerance, &r, &why) == WEFT_OK && r.ok;
    text_free(&why);
  }
  return ok;
}

/* Whether one rank is as far from itself when its weights differ in the last bit: a
 * gradient that is next to nothing by its own figure. */
static bool one_rank_does(const char *plan, const VerifyReport *was) {
  static const char of[] = "gradient of ";
  const char *name = strncmp(was->worst, of, strlen(of)) ? NULL : was->worst + strlen(of);
  Rounding own;
  Text why = {0};
  bool ok = plan_rounding(plan, name, STEPS, &own, &why) == WEFT_OK;
  text_free(&why);
  return ok && was->param <= tolerance &&
         was->loss <= fmax(tolerance, AS_FAR * own.loss) &&
         was->grad <= fmax(tolerance, AS_FAR * fmax(own.grad, own.named)) &&
         was->grad_norm <= fmax(tolerance, AS_FAR * own.grad_norm);
}

/* Steps are clipped by the norm. */
static const double FOLLOWS = 1.01, HALF_UNIT = 0x1p-9;

/* How far one rank's loss in the plan's formats is from f32. A loss is one number, which
 * may be near by chance, that of DPO above all: in 16 bits it is the farthest of several
 * data, and half a unit of bf16 at least. */
static double loss_in_formats(const char *plan, const VerifyReport *own, double wanted) {
  if (own->grad <= 10 * tolerance) return fmax(tolerance, AS_FAR * own->loss);
  double far = fmax(HALF_UNIT, AS_FAR * own->loss);
  for (uint64_t k = 1; k <= RETRIES && far < wanted; k++) {
    VerifyReport other;
    Text why = {0};
    if (plan_alone(plan, k * 1000, STEPS, &other, &why) == WEFT_OK)
      far = fmax(far, AS_FAR * other.loss);
    text_free(&why);
  }
  return far;
}

bool fuzz_formats_do(const char *plan, const VerifyReport *was) {
  VerifyReport own;
  Text why = {0};
  bool ok = plan_alone(plan, 0, STEPS, &own, &why) == WEFT_OK;
  text_free(&why);
  return ok && was->loss <= loss_in_formats(plan, &own, was->loss) &&
         was->grad <= fmax(tolerance, AS_FAR * own.grad) &&
         was->param <=
             fmax(fmax(tolerance, AS_FAR * own.param), FOLLOWS * was->grad_norm) &&
         was->grad_norm <= fmax(fmax(tolerance, own.grad), AS_FAR * own.grad_norm);
}

/* Whether one rank is beyond what f32 rounds: the plan keeps gradients in 16 bits. */
static bool rounds_gradients(const char *plan) {
  VerifyReport own;
  Text why = {0};
  bool is =
      plan_alone(plan, 0, STEPS, &own, &why) == WEFT_OK && own.grad > 10 * tolerance;
  text_free(&why);
  return is;
}

bool fuzz_only_rounds(const char *plan, const VerifyReport *was) {
  double worst = fmax(fmax(was->loss, was->grad), fmax(was->param, was->grad_norm));
  /* Gradients in 16 bits, whose parts cancel: the loss, which is f32, is as exact. */
  bool sums = was->loss <= tolerance && was->param <= tolerance && worst < 0.1;
  if (worst >= 10 * tolerance)
    return fuzz_formats_do(plan, was) || one_rank_does(plan, was) ||
           (sums && rounds_gradients(plan) && others_agree(plan));
  return others_agree(plan) || one_rank_does(plan, was);
}

/* What became of plan i; `report` says why, unless it is EQUALS. */
static Ending one(uint64_t seed, uint64_t i, Text *report) {
  Text plan = {0};
  VerifyReport r;
  bool may_refuse = draw(seed, i, &plan);
  weft_status st = plan_parity(plan.s, STEPS, tolerance, &r, report);
  Ending e = FAILS;
  if (st == WEFT_OK)
    e = r.ok ? EQUALS : fuzz_only_rounds(plan.s, &r) ? ROUNDS : FAILS;
  else if (st == WEFT_EPLAN && may_refuse && report->s && strstr(report->s, "error: "))
    e = IS_REFUSED;
  else if (st == WEFT_ERUN && report->s && strstr(report->s, "has no label tokens"))
    e = IS_REFUSED; /* masks leave none in a small step */
  if (e == FAILS) text_add(report, plan.s);
  text_free(&plan);
  return e;
}

static uint64_t generator_of(uint64_t seed) {
  uint64_t h = 0;
  for (uint64_t i = 0; i < 32; i++) {
    Text plan = {0};
    (void)draw(seed, i, &plan);
    h = hash_bytes(h, plan.s, plan.n);
    text_free(&plan);
  }
  return h;
}

/* ---- kinds of refusals ---- */

static bool is_parameter(const char *word, size_t n) {
  static const char *const leaf[] = {".weight", ".bias"};
  bool is = false;
  for (int k = 0; k < LEN(leaf); k++) {
    size_t m = strlen(leaf[k]);
    is |= n > m && strncmp(word + n - m, leaf[k], m) == 0;
  }
  return is;
}

/* The first error without its line, quoted names, numbers and parameters:
 * "plan.tp_plan[]: style colwise makes no sense for PARAMETER". */
static void kind_of(const char *report, char out[KIND_LENGTH]) {
  const char *s = report ? strstr(report, "error: ") : NULL;
  size_t n = 0;
  for (s = s ? s + 7 : "no message"; *s && *s != '\n' && n < KIND_LENGTH - 16; s++) {
    size_t word = strcspn(s, " ,;:\n"), digits = strspn(s, "0123456789");
    bool begins = n == 0 || out[n - 1] == ' ';
    const char *close = *s == '"' ? strchr(s + 1, '"') : NULL;
    if (begins && is_parameter(s, word))
      n += (size_t)sprintf(out + n, "PARAMETER"), s += word - 1;
    else if (close)
      n += (size_t)sprintf(out + n, "NAME"), s = close;
    else if (digits)
      out[n++] = '#', s += digits - 1;
    else
      out[n++] = *s;
  }
  out[n] = 0;
}

static void count_refusal(Tally *t, const char *kind, uint64_t number, uint64_t count) {
  int k = 0;
  while (k < t->nkind && strcmp(t->kind[k].text, kind) != 0) k++;
  if (k == KINDS) k--;
  if (k == t->nkind) {
    t->nkind++;
    snprintf(t->kind[k].text, KIND_LENGTH, "%s", kind);
    t->kind[k].first = number;
  }
  t->kind[k].count += count;
}

static int by_count(const void *a, const void *b) {
  const Kind *x = a, *y = b;
  return x->count < y->count ? 1 : x->count > y->count ? -1 : strcmp(x->text, y->text);
}

/* ---- the state ---- */

static void state_path(const Tally *t, char *out, size_t n) {
  snprintf(out, n, "%s/fuzz-%llu.state", t->folder, (unsigned long long)t->seed);
}

static const char *const ending[ENDS] = {"equal", "rounding", "refused", "failed"};

static void write_tally(const Tally *t, FILE *out) {
  fprintf(out, "generator %llx\nnext %llu\n", (unsigned long long)t->generator,
          (unsigned long long)t->next);
  for (int k = 0; k < ENDS; k++)
    fprintf(out, "%s %llu\n", ending[k], (unsigned long long)t->of[k]);
  for (uint64_t i = 0; i < t->of[FAILS] && i < FAILED_LISTED; i++)
    fprintf(out, "differs %llu\n", (unsigned long long)t->failed[i]);
  for (int k = 0; k < t->nkind; k++)
    fprintf(out, "kind %llu %llu %s\n", (unsigned long long)t->kind[k].count,
            (unsigned long long)t->kind[k].first, t->kind[k].text);
}

static void save(const Tally *t) {
  char path[512], fresh[520];
  state_path(t, path, sizeof path);
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE *f = fopen(fresh, "w");
  if (!f) {
    perror(fresh);
    exit(EXIT_FAILURE);
  }
  write_tally(t, f);
  if (fclose(f) != 0 || rename(fresh, path) != 0) {
    perror(path);
    exit(EXIT_FAILURE);
  }
}

static bool read_line(Tally *t, const char *line, int *differs) {
  unsigned long long a, b;
  char kind[KIND_LENGTH];
  for (int k = 0; k < ENDS; k++) {
    size_t n = strlen(ending[k]);
    if (strncmp(line, ending[k], n) != 0 || line[n] != ' ') continue;
    t->of[k] = strtoull(line + n, NULL, 10);
    return true;
  }
  if (sscanf(line, "kind %llu %llu %199[^\n]", &a, &b, kind) == 3)
    count_refusal(t, kind, b, a);
  else if (sscanf(line, "next %llu", &a) == 1)
    t->next = a;
  else if (sscanf(line, "differs %llu", &a) == 1 && *differs < FAILED_LISTED)
    t->failed[(*differs)++] = a;
  else
    return false;
  return true;
}

/* Where the last call ended, if it drew the same plans. */
static void resume(Tally *t) {
  char path[512], line[KIND_LENGTH + 64];
  unsigned long long generator;
  int differs = 0;
  state_path(t, path, sizeof path);
  FILE *f = fopen(path, "r");
  if (!f) return;
  bool same = fgets(line, sizeof line, f) &&
              sscanf(line, "generator %llx", &generator) == 1 &&
              generator == t->generator;
  if (!same) printf("%s is of other plans: from plan 0 on\n", path);
  while (same && fgets(line, sizeof line, f))
    if (!read_line(t, line, &differs)) {
      fprintf(stderr, "%s: what is \"%s\"?\n", path, line);
      exit(EXIT_FAILURE);
    }
  fclose(f);
}

/* ---- the loop ---- */

static void run_one(Tally *t) {
  Text report = {0};
  char kind[KIND_LENGTH];
  uint64_t i = t->next++;
  Ending v = one(t->seed, i, &report);
  if (v == IS_REFUSED) {
    kind_of(report.s, kind);
    count_refusal(t, kind, i, 1);
  }
  if (v == ROUNDS) printf("rounding in plan %llu: %s", (unsigned long long)i, report.s);
  if (v == FAILS) {
    if (t->of[v] < FAILED_LISTED) t->failed[t->of[v]] = i;
    fprintf(stderr, "FAILED (fuzz 1 %llu %llu) %s", (unsigned long long)t->seed,
            (unsigned long long)i, report.s);
  }
  t->of[v]++;
  text_free(&report);
}

static void print_tally(Tally *t) {
  qsort(t->kind, (size_t)t->nkind, sizeof *t->kind, by_count);
  for (int k = 0; k < t->nkind; k++)
    printf("%6llu refused, first %llu: %s\n", (unsigned long long)t->kind[k].count,
           (unsigned long long)t->kind[k].first, t->kind[k].text);
  for (uint64_t i = 0; i < t->of[FAILS] && i < FAILED_LISTED; i++)
    printf("failed: plan %llu\n", (unsigned long long)t->failed[i]);
  printf("%llu plans:", (unsigned long long)t->next);
  for (int k = 0; k < ENDS; k++)
    printf(" %llu %s%s", (unsigned long long)t->of[k], ending[k],
           k < ENDS - 1 ? "," : "\n");
}

/* `alone`: from a number on, which is not part of the row of the seed. */
static int run(Tally *t, uint64_t n, bool alone) {
  enum { BETWEEN_SAVES = 20 };
  if (!alone) {
    t->generator = generator_of(t->seed);
    resume(t);
  }
  uint64_t before = t->of[FAILS];
  for (uint64_t i = 1; i <= n; i++) {
    run_one(t);
    if (!alone && (i % BETWEEN_SAVES == 0 || i == n)) save(t);
  }
  print_tally(t);
  fflush(stdout);
  return t->of[FAILS] > before ? EXIT_FAILURE : EXIT_SUCCESS;
}

int fuzz_in(const char *folder, uint64_t n, uint64_t seed) {
  Tally *t = calloc(1, sizeof *t);
  if (!t) abort();
  t->folder = folder, t->seed = seed;
  int code = run(t, n, false);
  free(t);
  return code;
}

int fuzz(int argc, char **argv) {
  char self[400];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  self[length > 0 ? length : 0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  uint64_t n = argc > 0 ? strtoull(argv[0], NULL, 10) : 100;
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  if (argc <= 2) return fuzz_in(self, n, seed);
  Tally *t = calloc(1, sizeof *t);
  if (!t) abort();
  t->seed = seed, t->next = strtoull(argv[2], NULL, 10);
  int code = run(t, n, true);
  free(t);
  return code;
}
