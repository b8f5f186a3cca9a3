/* forked_ranks.c - see forked_ranks.h. */
#include "forked_ranks.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Tools without a test around them call this, too. */
static void must(bool holds) {
  if (holds) return;
  perror("ranks cannot be started");
  abort();
}

/* The listening socket stays open as long as any process holds it. */
static void child(const Rendezvous *m, int door, int out,
                  bool (*fn)(const Rendezvous *, const void *), const void *arg) {
  if (m->door < 0) close(door);
  dup2(out, STDERR_FILENO);
  dup2(out, STDOUT_FILENO);
  bool ok = fn(m, arg);
  fflush(NULL);
  _exit(ok ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* Kills a stopped process when all others have ended. */
static void kill_stopped(const pid_t *pid, int n) {
  siginfo_t info[FORKED_MOST] = {{0}};
  int left = 0;
  for (int i = 0; i < n; i++) {
    int options = WEXITED | WSTOPPED | WNOHANG | WNOWAIT;
    if (waitid(P_PID, (id_t)pid[i], &info[i], options)) info[i].si_pid = 0;
    left += info[i].si_pid == 0; /* still running */
  }
  for (int i = 0; i < n && !left; i++)
    if (info[i].si_code == CLD_STOPPED) kill(pid[i], SIGKILL);
}

Forked forked(int n, bool (*fn)(const Rendezvous *m, const void *arg), const void *arg) {
  Forked f = {.text = ""};
  pid_t pid[FORKED_MOST];
  int pipe_fd[2], door = net_listen("127.0.0.1", 0);
  size_t at = 0;
  must(door >= 0);
  must(pipe(pipe_fd) == 0);
  Rendezvous m = {.size = n,
                  .addr = "127.0.0.1",
                  .port = net_port(door),
                  .door = -1,
                  .secret = "a word",
                  .seconds = 20};
  fflush(NULL);
  for (int i = 0; i < n; i++) {
    m.rank = i;
    m.door = i ? -1 : door;
    if ((pid[i] = fork()) == 0) child(&m, door, pipe_fd[1], fn, arg);
    must(pid[i] > 0);
  }
  close(door);
  close(pipe_fd[1]);
  for (bool open = true; open;) {
    if (!net_ready(pipe_fd[0], POLLIN, until_in(0.1))) {
      kill_stopped(pid, n);
      continue;
    }
    ssize_t some = read(pipe_fd[0], f.text + at, sizeof f.text - 1 - at);
    open = some > 0;
    if (open) at += (size_t)some;
  }
  close(pipe_fd[0]);
  for (int i = 0; i < n; i++) {
    int status;
    waitpid(pid[i], &status, 0);
    f.code[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return f;
}
