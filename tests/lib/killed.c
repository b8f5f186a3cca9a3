/* killed.c - see killed.h. */
#include "killed.h"

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

#include "vm/base/rng.h"

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', hidden_size = 16, num_hidden_layers = 2,\n"
    "    num_attention_heads = 2, num_key_value_heads = 2, intermediate_size = 32,\n"
    "    vocab_size = 32 },\n"
    "  mesh = { tp = 2 }, strategy = 'fsdp2', precision = 'bf16',\n"
    "  batch = { global = 2, micro = 1, seq = 8 },\n"
    "  optimizer = weft.adamw { lr = 1e-3 },\n"
    "  data = weft.synthetic {},\n"
    "  train = { steps = 1000000000, seed = 5 },\n"
    "}\n";

typedef struct Killed {
  const char *weft, *folder;
  Text *report;
  char log[512], straight[512];
} Killed;

/* ---- processes ---- */

/* `more` ends with NULL. */
static pid_t start(const Killed *k, const char *const *more) {
  const char *args[24] = {"weft",      "run", "plan.lua", "--quiet",
                          "--threads", "1",   "--log",    NULL};
  int n = 7;
  for (; *more && n < 23; more++)
    args[n++] = *more;
  pid_t pid = fork();
  if (pid) return pid;
  setpgid(0, 0);
  if (chdir(k->folder) != 0) _exit(127);
  int null = open("/dev/null", O_RDWR);
  int err = open("stderr", O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(null, 0), dup2(null, 1), dup2(err, 2);
  execv(k->weft, (char *const *)args);
  _exit(127);
}

static int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    continue;
  return status;
}

/* ---- losses ---- */

typedef struct Losses {
  double *of; /* by step */
  bool *has;  /* which of them there are */
  int64_t n;  /* steps, at most LOSSES_MAX */
} Losses;
enum { LOSSES_MAX = 1 << 20 };

/* Each line of a log that is whole; false if a step has two losses. */
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

/* ---- what may be left ---- */

static bool clean(const Killed *k) {
  char path[600];
  bool ok = true;
  snprintf(path, sizeof path, "%s/runs", k->folder);
  DIR *d = opendir(path);
  for (struct dirent *x; d && (x = readdir(d));) {
    if (!strstr(x->d_name, ".tmp")) continue;
    text_printf(k->report, "%s is left behind\n", x->d_name);
    ok = false;
  }
  if (d) closedir(d);
  return ok;
}

/* ---- the runs ---- */

static void write_plan(const Killed *k) {
  char path[600];
  snprintf(path, sizeof path, "%s/plan.lua", k->folder);
  FILE *f = fopen(path, "w");
  if (f) fputs(plan, f), fclose(f);
}

static off_t size_of(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? st.st_size : 0;
}

/* Every second start is let come to a step of its own first: the others are mostly killed
 * while they begin, load or clean up. */
static void wait_a_moment(const Killed *k, const Rng *rng, int i) {
  off_t before = size_of(k->log);
  for (int n = 0; i % 2 && n < 4000 && size_of(k->log) < before + 600; n++)
    usleep(2000);
  usleep((i % 2 ? 0 : 20000) + rng_u32(rng, (uint64_t)i) % 380000);
}

static bool kill_all(const Killed *k, int times, uint64_t seed) {
  static const char *const more[] = {
      "log", "--append", "--resume", "auto", "--set", "checkpoint={dir=\"runs\",every=1}",
      NULL};
  Rng rng = rng_make(seed, "moments");
  for (int i = 0; i < times; i++) {
    pid_t pid = start(k, more);
    wait_a_moment(k, &rng, i);
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    int status = wait_for(pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    text_printf(k->report, "start %d ended by itself: see %s/stderr\n", i, k->folder);
    return false;
  }
  return true;
}

/* Goes on once more, so far that all that was taken is taken again or checked. */
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
  text_printf(k->report, "%d kills, %lld steps, all losses equal\n", times,
              (long long)b->n);
  return true;
}

static bool all(Killed *k, int times, uint64_t seed, Losses *a, Losses *b) {
  write_plan(k);
  if (!kill_all(k, times, seed) || !read_losses(k, k->log, a)) return false;
  int64_t steps = a->n + 3;
  if (!finish(k, steps, "log", true) || !clean(k)) return false;
  if (!finish(k, steps, "straight", false)) return false;
  return read_losses(k, k->log, a) && read_losses(k, k->straight, b) &&
         compare(k, a, b, times);
}

bool killed_runs(const char *weft, const char *folder, int times, uint64_t seed,
                 Text *report) {
  Killed k = {.weft = weft, .folder = folder, .report = report};
  Losses l[2];
  snprintf(k.log, sizeof k.log, "%s/log", folder);
  snprintf(k.straight, sizeof k.straight, "%s/straight", folder);
  for (int i = 0; i < 2; i++)
    l[i] =
        (Losses){calloc(LOSSES_MAX, sizeof(double)), calloc(LOSSES_MAX, sizeof(bool)), 0};
  bool ok = all(&k, times, seed, &l[0], &l[1]);
  for (int i = 0; i < 2; i++)
    free(l[i].of), free(l[i].has);
  return ok;
}

int killed_main(int argc, char **argv) {
  int times = argc > 0 ? atoi(argv[0]) : 200;
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
  char folder[] = "/tmp/weft-kill-XXXXXX";
  Text report = {0};
  if (times < 1 || !mkdtemp(folder)) return 2;
  bool ok = killed_runs(WEFT_BINARY_DIR "/weft", folder, times, seed, &report);
  printf("%s(seed %llu, in %s)\n", report.s ? report.s : "", (unsigned long long)seed,
         folder);
  text_free(&report);
  if (ok) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ok = system(command) == 0;
  }
  return !ok;
}
