/* process.c - see process.h. */
#include "process.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Factor by which everything takes longer in this build. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 6 };
#else
enum { SLOWER = 1 };
#endif

/* Deadlines end what hangs; a busy machine is no reason to fail. */
enum { PATIENCE = 60 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void) { usleep(2000); }

/* Runs in the child between fork and exec. */
static void become(const Process *p) {
  setpgid(0, 0);
  signal(SIGINT, SIG_DFL);
  signal(SIGHUP, SIG_DFL); /* also where the tests run under nohup */
  if (chdir(scratch_dir) || setenv("weft", WEFT_BINARY_DIR "/weft", 1) ||
      !freopen("/dev/null", "r", stdin) || !freopen(p->out, "w", stdout) ||
      !freopen(p->err, "w", stderr))
    _exit(127);
  execl("/bin/sh", "sh", "-c", p->command, (char *)NULL);
  _exit(127);
}

static Process begin(double seconds, const char *fmt, va_list ap) {
  static int number; /* makes the names of the processes' files unique */
  Process p = {.deadline = now() + MAX(seconds, PATIENCE) * SLOWER};
  char command[4096] = "exec ";
  vsnprintf(command + 5, sizeof command - 5, fmt, ap);
  p.command = arena_str(scratch_arena, command);
  snprintf(p.out, sizeof p.out, "%s/.%d.out", scratch_dir, number);
  snprintf(p.err, sizeof p.err, "%s/.%d.err", scratch_dir, number++);
  fflush(NULL);
  p.pid = fork();
  ck_assert_int_ge(p.pid, 0);
  if (p.pid == 0) become(&p);
  setpgid(p.pid, p.pid);
  return p;
}

Process process_start(double seconds, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Process p = begin(seconds, fmt, ap);
  va_end(ap);
  return p;
}

const char *scratch_get(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return "";
  Text t = {0};
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) text_addn(&t, chunk, n);
  fclose(f);
  const char *s = arena_str(scratch_arena, t.s ? t.s : "");
  text_free(&t);
  return s;
}

const char *scratch_log(const char *path) {
  const char *text = scratch_get(path), *end = strchr(text, '\n');
  if (!*text) return text;
  ck_assert_msg(end && strstr(text, "\"event\":\"start\"") < end, "%s: %s", path, text);
  return end + 1;
}

Outcome process_end(Process *p) {
  Outcome o = {0};
  int status;
  pid_t ended;
  while ((ended = waitpid(p->pid, &status, WNOHANG)) == 0) {
    if (now() > p->deadline && !o.late) {
      o.late = true;
      kill(-p->pid, SIGKILL);
    }
    nap();
  }
  o.out = scratch_get(p->out);
  o.err = scratch_get(p->err);
  ck_assert_int_eq(ended, p->pid);
  ck_assert_msg(!o.late, "%s: does not end; it printed: %s%s", p->command, o.out, o.err);
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

bool process_wait_for(Process *p, const char *file, const char *text) {
  siginfo_t info = {0};
  while (!strstr(scratch_get(file), text)) {
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
      return strstr(scratch_get(file), text) != NULL;
    if (now() > p->deadline) return false;
    nap();
  }
  return true;
}

/* Whether the line `name` of /proc/PID/status has the bit of a signal. */
static bool has_signal(const char *status, const char *name, int sig) {
  const char *line = strstr(status, name);
  return line && strtoull(line + strlen(name), NULL, 16) >> (sig - 1) & 1;
}

void process_took(pid_t pid, int sig) {
  double end = now() + PATIENCE * SLOWER;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  for (;; nap()) {
    const char *status = scratch_get(path);
    if (!has_signal(status, "\nSigPnd:", sig) && !has_signal(status, "\nShdPnd:", sig))
      return;
    ck_assert_msg(now() < end, "process %d does not take signal %d", (int)pid, sig);
  }
}

long process_ticks(pid_t pid) {
  char path[64];
  long user = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  const char *name_end = strrchr(scratch_get(path), ')');
  /* The state and ten numbers are before it. */
  if (name_end)
    sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld", &user);
  return user;
}

Outcome process_run(double seconds, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  Process p = begin(seconds, fmt, ap);
  va_end(ap);
  return process_end(&p);
}
