/* killed_runs.c - see killed_runs.h. */
#include "killed_runs.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "alive.h"
#include "mpirun.h"
#include "vm/base/rng.h"
#include "vm/ckpt/ckpt_store.h"

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"
    "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"
    "    vocab_size = 32 },\n"
    "  mesh = { tp = 2, dp = weft.vars.dp },\n"
    "  strategy = 'fsdp2', precision = 'bf16',\n"
    "  batch = { global = 2, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = 1e-3 },\n"
    "  data = weft.synthetic {},\n"
    "  train = { steps = 1000000000, seed = 5 },\n"
    "}\n";

static const struct Way {
  const char *name;
  int ranks;          /* of the plan */
  bool procs, mpirun; /* launcher; neither: threads of one process */
} ways[KILLED_WAYS] = {
    {"virtual ranks", 2, false, false}, {"--procs 2", 2, true, false},
    {"--procs 4", 4, true, false},      {"mpirun -n 2", 2, false, true},
    {"mpirun -n 4", 4, false, true},
};

typedef enum { RANK_0, ANOTHER, LAUNCHER, VICTIMS } Victim;
static const char *const victims[VICTIMS] = {"rank 0", "another rank", "the launcher"};

typedef struct Killed {
  const char *weft, *folder;
  const struct Way *way;
  Text *report;
  char log[512], runs[512], straight[512];
  int of[VICTIMS]; /* kills */
  double longest;  /* seconds from a kill to the end of the last process */
  int stuck;       /* times that mpirun did not end after all ranks had */
} Killed;

/* Time for all other processes to end after a kill, on a busy machine. */
static const double DEADLINE_S = 60;

/* Open MPI 4.1's mpirun may wait for a lock of its own for ever, in PMIx_server_finalize,
 * when a rank is killed while it connects. All ranks have ended then, so it is killed and
 * counted. */
static const double MPIRUN_S = 20;

/* ---- processes ---- */

enum { WORDS = 40 };

static int put(const char **args, int n, const char *const *more) {
  for (; *more && n < WORDS - 1; more++) args[n++] = *more;
  return n;
}

/* `more` ends with NULL. */
static pid_t start(const Killed *k, const char *const *more) {
  char ranks[16], dp[16];
  const char *args[WORDS] = {NULL};
  /* Memory that MPI keeps until exit is not a leak of weft. */
  const char *const mpirun[] = {
      "env", "ASAN_OPTIONS=detect_leaks=0", "mpirun", "--oversubscribe", "-n", ranks,
      NULL};
  const char *const run[] = {k->weft,   "run",       "plan.lua", "-D",    dp,
                             "--quiet", "--threads", "1",        "--log", NULL};
  const char *const procs[] = {"--procs", ranks, NULL};
  snprintf(ranks, sizeof ranks, "%d", k->way->ranks);
  snprintf(dp, sizeof dp, "dp=%d", k->way->ranks / 2);
  int n = k->way->mpirun ? put(args, 0, mpirun) : 0;
  n = put(args, n, run);
  n = put(args, n, more);
  if (k->way->procs) put(args, n, procs);
  pid_t pid = fork();
  if (pid) return pid;
  setpgid(0, 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  if (chdir(k->folder) != 0) _exit(127);
  int null = open("/dev/null", O_RDWR);
  int err = open("stderr", O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(null, 0), dup2(null, 1), dup2(err, 2);
  execvp(args[0], (char *const *)args);
  _exit(127);
}

static int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) continue;
  return status;
}

/* ---- losses ---- */

typedef struct Losses {
  double *of; /* by step */
  bool *has;  /* which of them exist */
  int64_t n;  /* steps, at most LOSSES_MAX */
} Losses;
enum { LOSSES_MAX = 1 << 20 };

/* Reads the complete lines of a log; false if a step has two losses. */
static bool read_losses(const Killed *k, const char *path, Losses *to) {
  char line[4096];
  FILE *f = fopen(path, "r");
  bool ok = true;
  while (f && fgets(line, sizeof line, f) && ok) {
    json_t *v = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(v, "step"), *loss = json_object_get(v, "loss");
    int64_t i = json_is_integer(step) && loss ? json_integer_value(step) : -1;
    if (i >= 0 && i < LOSSES_MAX) {
      double x = json_number_value(loss);
      ok = !to->has[i] || to->of[i] == x;
      if (!ok)
        text_printf(k->report, "step %lld has the losses %.17g and %.17g\n", (long long)i,
                    to->of[i], x);
      to->of[i] = x, to->has[i] = true;
      to->n = MAX(to->n, i + 1);
    }
    json_decref(v);
  }
  if (f) fclose(f);
  return ok;
}

/* ---- files that may be left ---- */

static bool clean(const Killed *k) {
  bool ok = true;
  DIR *d = opendir(k->runs);
  for (struct dirent *x; d && (x = readdir(d));) {
    if (!strstr(x->d_name, ".tmp")) continue;
    text_printf(k->report, "%s is left behind\n", x->d_name);
    ok = false;
  }
  if (d) closedir(d);
  return ok;
}

static void skipped(void *ud, const char *name, const weft_error *why) {
  const Killed *k = ud;
  text_printf(k->report, "%s is not whole: %s: %s\n", name, why->file, why->text);
}

/* The latest checkpoint must be whole; falling back to an older one does not count. */
static bool latest_is_whole(Killed *k) {
  Arena *a = arena_new(NULL);
  Ckpt *c = NULL;
  weft_error e = {.rank = -1};
  size_t said = k->report->n;
  weft_status st = store_newest(a, k->runs, skipped, k, &c, &e);
  if (st != WEFT_OK) text_printf(k->report, "%s: %s\n", e.file, e.text);
  ckpt_close(c);
  arena_free(a);
  return st == WEFT_OK && k->report->n == said;
}

/* ---- moments of kills ---- */

static off_t size_of(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? st.st_size : 0;
}

static bool writes(const Killed *k) {
  bool found = false;
  DIR *d = opendir(k->runs);
  for (struct dirent *x; d && !found && (x = readdir(d));)
    found = store_is_step(x->d_name, true);
  if (d) closedir(d);
  return found;
}

/* A third is killed at random times, mostly during start or load; a third after a random
 * step; the rest while files are written, or soon after. */
static void wait_a_moment(const Killed *k, const Rng *rng, int i) {
  off_t before = size_of(k->log);
  uint32_t more = rng_u32(rng, (uint64_t)i);
  int kind = i % 3;
  for (int n = 0; kind && n < 15000 && size_of(k->log) < before + 600; n++) usleep(2000);
  if (kind == 2)
    for (int n = 0; n < 15000 && !writes(k); n++) usleep(100);
  usleep(kind == 0 ? 20000 + more % 380000 : kind == 1 ? more % 380000 : more % 3000);
}

/* ---- the runs ---- */

static void write_plan(const Killed *k) {
  char path[600];
  snprintf(path, sizeof path, "%s/plan.lua", k->folder);
  FILE *f = fopen(path, "w");
  if (f) fputs(plan, f), fclose(f);
}

/* A rank that has not started yet cannot be killed: kills the launcher instead. */
static Victim strike(Killed *k, pid_t launcher, const Rng *rng, int i) {
  bool ranks = k->way->procs || k->way->mpirun;
  Victim who = ranks ? (Victim)(i / 3 % VICTIMS) : LAUNCHER;
  int another =
      1 + (int)(rng_u32(rng, (uint64_t)i + (1u << 20)) % (uint32_t)(k->way->ranks - 1));
  pid_t pid = who == LAUNCHER ? 0 : alive_rank(k->folder, who == RANK_0 ? 0 : another);
  if (!pid) who = LAUNCHER, pid = launcher;
  kill(pid, SIGKILL);
  k->of[who]++;
  return who;
}

/* Waits until all processes have ended, in time: all ranks, that is, see MPIRUN_S. */
static bool all_end(Killed *k, pid_t launcher, int *status) {
  double begun = now_s();
  bool gone = false;
  while (now_s() < begun + DEADLINE_S) {
    gone = gone || waitpid(launcher, status, WNOHANG) == launcher;
    if (gone && !alive_all(k->folder, 0)) break;
    if (k->way->mpirun && now_s() > begun + MPIRUN_S && !gone &&
        !alive_ranks(k->folder)) {
      kill(launcher, SIGKILL);
      *status = wait_for(launcher);
      k->stuck++;
      return true;
    }
    usleep(5000);
  }
  k->longest = MAX(k->longest, now_s() - begun);
  if (now_s() < begun + DEADLINE_S) return true;
  text_printf(k->report, "%d processes are there %.0f s after the kill\n",
              alive_all(k->folder, SIGKILL), DEADLINE_S);
  if (!gone) wait_for(launcher);
  return false;
}

static bool kill_one(Killed *k, const Rng *rng, int i) {
  static const char *const more[] = {
      "log", "--append", "--resume", "auto", "--set", "checkpoint={dir=\"runs\",every=1}",
      NULL};
  int status = 0;
  pid_t pid = start(k, more);
  wait_a_moment(k, rng, i);
  bool early = waitpid(pid, &status, WNOHANG) == pid;
  Victim who = early ? LAUNCHER : strike(k, pid, rng, i);
  bool ok = !early && all_end(k, pid, &status);
  if (early || (ok && WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
    text_printf(k->report, "it ended by itself with %d: see %s/stderr\n", status,
                k->folder);
    ok = false;
  }
  ok = ok && latest_is_whole(k);
  if (!ok)
    text_printf(k->report, "... start %d, %s, %s killed\n", i, k->way->name,
                victims[who]);
  return ok;
}

/* Resumes once more, so far that every step is repeated or checked. */
static bool finish(const Killed *k, int64_t steps, const char *log, bool resume) {
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)steps);
  const char *const resumed[] = {
      log,       "--append", "--resume",
      "auto",    "--set",    "checkpoint={dir=\"runs\",every=0}",
      "--steps", number,     NULL};
  const char *const fresh[] = {log, "--steps", number, NULL};
  int status = wait_for(start(k, resume ? resumed : fresh));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  text_printf(k->report, "the last start ended with %d: see %s/stderr\n", status,
              k->folder);
  return false;
}

static bool compare(const Killed *k, const Losses *a, const Losses *b, int times) {
  for (int64_t i = 0; i < b->n; i++) {
    if (a->has[i] && a->of[i] == b->of[i]) continue;
    text_printf(k->report, "step %lld: loss %.17g, without interruptions %.17g\n",
                (long long)i, a->has[i] ? a->of[i] : -1, b->of[i]);
    return false;
  }
  text_printf(
      k->report,
      "%s: %d kills (%d of rank 0, %d of another, %d of the launcher), %lld steps, "
      "all losses equal; after a kill all ended within %.1f s\n",
      k->way->name, times, k->of[RANK_0], k->of[ANOTHER], k->of[LAUNCHER],
      (long long)b->n, k->longest);
  if (k->stuck)
    text_printf(k->report, "mpirun itself did not end %d times, after all ranks had\n",
                k->stuck);
  return true;
}

static bool all(Killed *k, int times, uint64_t seed, Losses *a, Losses *b) {
  Rng rng = rng_make(seed, "moments");
  write_plan(k);
  for (int i = 0; i < times; i++)
    if (!kill_one(k, &rng, i)) return false;
  if (!read_losses(k, k->log, a)) return false;
  int64_t steps = a->n + 3;
  if (!finish(k, steps, "log", true) || !clean(k)) return false;
  if (!finish(k, steps, "straight", false)) return false;
  return read_losses(k, k->log, a) && read_losses(k, k->straight, b) &&
         compare(k, a, b, times);
}

bool killed_runs(const char *weft, const char *folder, int way, int times, uint64_t seed,
                 Text *report) {
  Killed k = {.weft = weft, .folder = folder, .way = &ways[way], .report = report};
  Losses l[2];
  snprintf(k.log, sizeof k.log, "%s/log", folder);
  snprintf(k.runs, sizeof k.runs, "%s/runs", folder);
  snprintf(k.straight, sizeof k.straight, "%s/straight", folder);
  for (int i = 0; i < 2; i++)
    l[i] =
        (Losses){calloc(LOSSES_MAX, sizeof(double)), calloc(LOSSES_MAX, sizeof(bool)), 0};
  bool ok = all(&k, times, seed, &l[0], &l[1]);
  for (int i = 0; i < 2; i++) free(l[i].of), free(l[i].has);
  return ok;
}

static bool one_way(const char *folder, int way, int times, uint64_t seed) {
  char path[64];
  Text report = {0};
  snprintf(path, sizeof path, "%s/%d", folder, way);
  if (mkdir(path, 0777) != 0) return false;
  bool ok = killed_runs(WEFT_BINARY_DIR "/weft", path, way, times, seed, &report);
  printf("%s", report.s ? report.s : "");
  fflush(stdout);
  text_free(&report);
  return ok;
}

int killed_main(int argc, char **argv) {
  int times = argc > 0 ? atoi(argv[0]) : 200;
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
  char folder[] = "/tmp/weft-kill-XXXXXX";
  bool ok = true;
  if (times < 1 || !mkdtemp(folder)) return 2;
  int most = mpirun_present() ? KILLED_WAYS : KILLED_MPIRUN;
  for (int i = 0; i < most && ok; i++) {
    int n = times * (i + 1) / most - times * i / most;
    ok = n == 0 || one_way(folder, i, n, seed + (uint64_t)i);
  }
  printf("(seed %llu, in %s)\n", (unsigned long long)seed, folder);
  if (ok) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ok = system(command) == 0;
  }
  return !ok;
}
