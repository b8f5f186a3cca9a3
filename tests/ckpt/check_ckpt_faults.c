/* check_ckpt_faults.c - two processes train and write a checkpoint after each step, and
 * one of them fails: each of its messages to the other once, with an error, or it is
 * killed while it writes. Both end in time, a rank is named, every checkpoint in the
 * folder is whole, and the run goes on from there with the losses of one that was not
 * disturbed. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ranks/forked_ranks.h"
#include "tests/harness/scratch.h"
#include "tests/harness/run_bits.h"
#include "vm/ckpt/ckpt_save.h"
#include "vm/weights/run_export.h"
#include "vm/weights/param_gather.h"

enum { PROCESSES = 2, TAKEN = 3, DEADLINE_S = 60, PASS = -1 };

/* What happens to one of them: its n-th message, or step to the disk. */
typedef enum { MESSAGE_FAILS, DISK_KILLS, WAYS } Way;
typedef struct Fate {
  Way way;
  int victim, n; /* n: PASS for nothing */
  bool ends;     /* the last step ends the run with an error of all of them */
  bool signals;  /* in the last but one, a signal does */
  const char *dir;
} Fate;

/* ---- a process ---- */

typedef struct Countdown {
  int left;
  bool kills;
} Countdown;

static bool strike(void *ud) {
  Countdown *c = ud;
  if (--c->left != 0) return false;
  fputs("struck\n", stderr);
  fflush(stderr);
  if (c->kills) raise(SIGKILL);
  return true;
}

static Countdown countdown(const Fate *f, Way way, int rank) {
  bool mine = f->n != PASS && f->way == way && f->victim == rank;
  return (Countdown){.left = mine ? f->n : 0, .kills = way == DISK_KILLS};
}

static void quiet(void *ud, bool warning, const char *text) {
  if (warning) fprintf(stderr, "warning: %s\n", text);
}

static void skipped(void *ud, const char *name, const weft_error *why) {
  fprintf(stderr, "skipped: %s: %s\n", name, why->text);
}

typedef struct Trainee {
  Toy toy;
  Arena *arena;
  Ckpt *from;
  Run *run;
  Saver *saver;
  Countdown messages, disk;
  bool reported_elsewhere;
} Trainee;

static weft_status begin(Trainee *t, const Rendezvous *m, const Fate *f, weft_error *e) {
  Plan *p = &t->toy.plan;
  RunOptions o = {.world = world_kind("tcp", NULL),
                  .settings = {.meet = m, .fault = strike, .fault_ud = &t->messages},
                  .threads = 1,
                  .patience_s = 20,
                  .saves = true,
                  .reported_elsewhere = &t->reported_elsewhere};
  SaverOptions so = {
      .plan = p, .plan_text = "a plan", .mesh = "a mesh", .end = TAKEN, .say = quiet};
  p->name = "toy";
  p->checkpoint = (Checkpointing){.dir = f->dir, .every = 1, .keep = 2, .async = true};
  TRY(store_newest(t->arena, f->dir, skipped, NULL, &t->from, e));
  TRY(run_open(p, t->toy.compiled, &o, &t->run, e));
  TRY(t->from ? ckpt_load(t->from, t->run, CKPT_STATES, e) : run_init(t->run, e));
  so.from = t->from;
  TRY(saver_open(t->run, &so, &t->saver, e));
  *saver_disk(t->saver) = (RankFile){.fault = strike, .fault_ud = &t->disk};
  return WEFT_OK;
}

static weft_status train(Trainee *t, const Fate *f, weft_error *e) {
  StepResult r;
  int64_t n = t->toy.plan.batch.global * t->toy.plan.batch.seq;
  int32_t *ids = NEW_N(t->arena, int32_t, 2 * n);
  WeightsOutOptions out = {.dir = arena_printf(t->arena, "%s-weights", f->dir)};
  for (int64_t k = t->from ? t->from->m.step : 0; k < TAKEN; k++) {
    random_ids(&t->toy, k, ids, ids + n);
    for (int64_t i = 0; f->ends && k == TAKEN - 1 && i < n; i++)
      ids[n + i] = LABEL_IGNORED;
    TRY(run_step_tokens(t->run, ids, ids + n, k, &r, e));
    if (run_rank(t->run) == 0) fprintf(stderr, "loss %d %a\n", (int)k, r.loss);
    int signal = f->signals && k == TAKEN - 2 ? SIGTERM : 0;
    TRY(saver_step(t->saver, &r, k + 1, signal, e));
    if (*saver_stop(t->saver)) return saver_lost(t->saver, e);
  }
  TRY(saver_lost(t->saver, e));
  return run_export(t->run, &out, e);
}

static bool be_rank(const Rendezvous *meet, const void *arg) {
  const Fate *f = arg;
  Rendezvous m = *meet;
  weft_error e = {.rank = -1};
  ToyOptions o = meshed(1, 1, PROCESSES);
  Trainee t = {.arena = arena_new(NULL),
               .messages = countdown(f, MESSAGE_FAILS, m.rank),
               .disk = countdown(f, DISK_KILLS, m.rank)};
  o.layers = 1, o.strategy.stage = 1, o.microbatches = 2;
  m.seconds = 10;
  signal(SIGALRM, SIG_DFL); /* Check has one of its own */
  alarm(DEADLINE_S);
  if (toy_compile(&t.toy, &o, NULL) != WEFT_OK) return false;
  weft_status st = begin(&t, &m, f, &e);
  if (st == WEFT_OK) st = train(&t, f, &e);
  saver_close(t.saver);
  if (st != WEFT_OK) run_fails(t.run, &e);
  if (st != WEFT_OK && !t.reported_elsewhere) fprintf(stderr, "weft: %s\n", e.text);
  if (st != WEFT_OK) run_abandon(t.run);
  run_close(t.run);
  ckpt_close(t.from);
  toy_free(&t.toy);
  arena_free(t.arena);
  return st == WEFT_OK;
}

/* ---- what is left ---- */

/* In a lane, which is no test of Check's. */
#define WANT(f, r, cond)                                                                 \
  do {                                                                                   \
    if (cond) break;                                                                     \
    printf("way %d, rank %d, n = %d: %s:\n%s", (f)->way, (f)->victim, (f)->n, #cond,     \
           (r)->text);                                                                   \
    fflush(stdout);                                                                      \
    _exit(EXIT_FAILURE);                                                                 \
  } while (0)

static bool is_whole(const char *path) {
  Ckpt *c;
  uint64_t bytes;
  weft_error e = {.rank = -1};
  if (ckpt_open(path, &c, &e) != WEFT_OK) return false;
  bool ok = ckpt_verify(c, NULL, &bytes, &e) == WEFT_OK;
  ckpt_close(c);
  return ok;
}

/* Every checkpoint is whole, and so is the one that `latest` names. */
static void all_whole(const Fate *f, const Forked *r) {
  Arena *a = arena_new(NULL);
  DIR *d = opendir(f->dir);
  for (struct dirent *x; d && (x = readdir(d));)
    if (store_is_step(x->d_name, false))
      WANT(f, r, is_whole(arena_printf(a, "%s/%s", f->dir, x->d_name)));
  if (d) closedir(d);
  const char *latest = arena_printf(a, "%s/" LATEST_NAME, f->dir);
  WANT(f, r, access(latest, F_OK) != 0 || store_latest(a, f->dir));
  const char *weights = arena_printf(a, "%s-weights", f->dir);
  SafeTensors *s = NULL;
  weft_error e = {.rank = -1};
  WANT(f, r,
       access(weights, F_OK) != 0 || st_open(NULL, weights, NULL, &s, &e) == WEFT_OK);
  st_close(s);
  arena_free(a);
}

/* Those of the steps that were taken are the undisturbed run's. A line is one when it
 * begins so: an error may say that a rank waits for the sum of a loss. */
static void same_losses(const Fate *f, const Forked *r, const char *straight) {
  for (const char *s = r->text; *s; s += strcspn(s, "\n"), s += *s == '\n') {
    char line[64];
    if (strncmp(s, "loss ", 5) != 0) continue;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(s, "\n") + 1, s);
    WANT(f, r, strstr(straight, line) != NULL);
  }
}

static bool ended_itself(int code) { return code != 128 + SIGALRM; }

/* The save before the step that has failed was finished. */
static void has_saved(const Fate *f, const Forked *r) {
  Arena *a = arena_new(NULL);
  const char *latest = store_latest(a, f->dir);
  WANT(f, r, latest && strtoll(latest + 5, NULL, 10) == TAKEN - 1);
  arena_free(a);
}

/* What rank 0 says of a run that a signal ends: whether its checkpoint is there, also
 * where the other rank did not live to hear of it. */
static void code_is_true(const Fate *f, const Forked *r) {
  Arena *a = arena_new(NULL);
  const char *latest = store_latest(a, f->dir);
  bool saved = latest && strtoll(latest + 5, NULL, 10) == TAKEN - 1;
  WANT(f, r, (r->code[0] == 0) == saved);
  arena_free(a);
}

/* False: the run has fewer messages, or steps to the disk. */
static bool one_fate(Fate *f, const char *straight) {
  char rank[16];
  Forked r = forked(PROCESSES, be_rank, f);
  snprintf(rank, sizeof rank, "rank %d", f->victim);
  for (int i = 0; i < PROCESSES; i++) WANT(f, &r, ended_itself(r.code[i]));
  all_whole(f, &r);
  same_losses(f, &r, straight);
  if (!strstr(r.text, "struck\n")) {
    WANT(f, &r, r.code[0] == f->ends && r.code[1] == f->ends);
    if (f->ends) has_saved(f, &r);
    return false;
  }
  if (f->signals && f->victim) code_is_true(f, &r);
  WANT(f, &r, f->signals || r.code[f->victim] != 0);
  bool other = f->ends && f->way == MESSAGE_FAILS; /* there is another reason */
  WANT(f, &r, other || f->signals || strstr(r.text, rank) != NULL);
  Fate none = {.n = PASS, .dir = f->dir};
  system(arena_printf(scratch_arena, "rm -rf %s-weights", f->dir));
  r = forked(PROCESSES, be_rank, &none);
  WANT(f, &r, r.code[0] == 0 && r.code[1] == 0 && !strstr(r.text, "skipped"));
  same_losses(f, &r, straight);
  all_whole(f, &r);
  return true;
}

/* ---- lanes ---- most of the time is waiting, so several fates come at once */

enum { EACH = 4, LANES = EACH * PROCESSES };

typedef struct Lanes {
  Way way;
  int every; /* n = 1, 1 + every, ... */
  int least; /* so many fates there are for each rank */
  bool ends, signals;
} Lanes;

static int lane(const Lanes *l, int number, const char *straight) {
  Fate f = {.way = l->way,
            .victim = number % PROCESSES,
            .ends = l->ends,
            .signals = l->signals};
  int n = 0;
  for (int i = number / PROCESSES;; i += EACH, n++) {
    f.n = 1 + i * l->every;
    f.dir = scratch_path(arena_printf(scratch_arena, "%d-%d", f.victim, f.n));
    if (!one_fate(&f, straight)) break;
  }
  return n;
}

static void all_lanes(const Lanes *l) {
  Fate none = {.n = PASS, .dir = scratch_path("straight")};
  Forked straight = forked(PROCESSES, be_rank, &none);
  pid_t pid[LANES];
  int n[PROCESSES] = {0};
  ck_assert_msg(!straight.code[0] && !straight.code[1], "%s", straight.text);
  for (int i = 0; i < LANES; i++)
    if ((pid[i] = fork()) == 0) _exit(100 + lane(l, i, straight.text));
  for (int i = 0; i < LANES; i++) {
    int status;
    waitpid(pid[i], &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ck_assert_int_ge(code, 100); /* else it has said why */
    n[i % PROCESSES] += code - 100;
  }
  for (int i = 0; i < PROCESSES; i++) ck_assert_int_ge(n[i], l->least);
}

START_TEST(each_message_may_fail) {
  all_lanes(&(Lanes){.way = MESSAGE_FAILS, .every = 1, .least = 25});
}
END_TEST

/* While it makes the folder, creates, fills and ends its file, and, on rank 0, commits.
 */
START_TEST(each_may_be_killed_while_it_writes) {
  all_lanes(&(Lanes){.way = DISK_KILLS, .every = 6, .least = 8});
}
END_TEST

/* While they wait for a save before they end with an error of all of them. */
START_TEST(each_may_fail_while_the_run_ends) {
  static const Lanes ways[] = {{MESSAGE_FAILS, 3, 8, true, false},
                               {DISK_KILLS, 6, 5, true, false}};
  all_lanes(&ways[_i]);
}
END_TEST

/* While they save what a signal ends. */
START_TEST(each_message_may_fail_after_a_signal) {
  all_lanes(&(Lanes){.way = MESSAGE_FAILS, .every = 1, .least = 20, .signals = true});
}
END_TEST

Suite *ckpt_faults_suite(void);
Suite *ckpt_faults_suite(void) {
  Suite *s = suite_create("ckpt_faults");
  TCase *c = tcase_create("processes");
  tcase_set_timeout(c, 280);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_test(c, each_message_may_fail);
  tcase_add_test(c, each_may_be_killed_while_it_writes);
  tcase_add_loop_test(c, each_may_fail_while_the_run_ends, 0, 2);
  tcase_add_test(c, each_message_may_fail_after_a_signal);
  suite_add_tcase(s, c);
  return s;
}
