/* spawn_ranks.c - weft run --procs N: starts itself as N processes on this machine, which
 * meet at a listening socket that is open before the first one starts. Rank 0 has the
 * terminal; lines of the others are printed with their rank. Signals are passed on, and
 * the first failure ends all. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/cli/cli.h"

enum { WORDS = 1024, LINE = 4096 };
/* Seconds for the others to end by themselves after the first failure; then, after a
 * SIGTERM. */
static const double GRACE_S = 6, LAST_S = 2;

typedef struct Proc {
  pid_t pid; /* 0: it has ended */
  int out;   /* pipe of its output; -1: closed */
  size_t n;
  char line[LINE];
} Proc;

typedef struct Procs {
  pid_t self;        /* the parent of all */
  int n, left, code; /* code: exit code of the first failure */
  double failed;     /* time of the first failure; 0: none */
  bool told;         /* rank 0, which reports errors, has ended by itself with one */
  int signals;       /* number of signals sent to all */
  Proc *proc;
  char *word[WORDS]; /* the command line, ending with NULL */
} Procs;

/* ---- signals ---- */

/* How often each signal came since it was last read; changed by the handler and the loop.
 */
static atomic_int caught[NSIG];

static void on_signal(int sig) { atomic_fetch_add(&caught[sig], 1); }

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/* What was ignored when this process was started is so in those that it starts. */
static void catch_signal(int sig) {
  struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, was;
  if (sigaction(sig, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
    sigaction(sig, &act, NULL);
}

static void to_all(const Procs *p, int sig) {
  for (int i = 0; i < p->n; i++)
    if (p->proc[i].pid) kill(p->proc[i].pid, sig);
}

static void pass_on(const Procs *p) {
  for (int i = 0; i < LEN(passed); i++)
    for (int n = atomic_exchange(&caught[passed[i]], 0); n > 0; n--) to_all(p, passed[i]);
}

/* Before the first process is started: one that is not there yet gets the signal later.
 */
static void catch_signals(void) {
  for (int i = 0; i < LEN(passed); i++) catch_signal(passed[i]);
  catch_signal(SIGTSTP);
}

/* Ctrl-Z stops all processes: those of the ranks are in groups of their own, which the
 * terminal does not know. SIGTSTP has no effect where nobody could continue this process,
 * so the ranks are continued whenever it returns. */
static void suspend(const Procs *p) {
  if (!atomic_exchange(&caught[SIGTSTP], 0)) return;
  to_all(p, SIGSTOP);
  signal(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  catch_signal(SIGTSTP);
  to_all(p, SIGCONT);
}

/* ---- starting ---- */

/* The command line of this process. */
static weft_status own_words(Procs *p, Arena *arena, weft_error *e) {
  Text t = {0};
  char chunk[4096];
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC), k = 0;
  for (ssize_t n; fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0;)
    text_addn(&t, chunk, (size_t)n);
  if (fd >= 0) close(fd);
  for (size_t at = 0; at < t.n && k < WORDS - 1; at += strlen(t.s + at) + 1)
    p->word[k++] = arena_str(arena, t.s + at);
  bool all = k > 0 && k < WORDS - 1 && !t.oom;
  text_free(&t);
  return all ? WEFT_OK : err_set(e, WEFT_ELIMIT, "the command line cannot be read again");
}

static void set_number(const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

static void set_secret(void) {
  uint8_t random[16];
  char text[2 * sizeof random + 1];
  net_random(random, sizeof random);
  for (size_t i = 0; i < sizeof random; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
  setenv("WEFT_SECRET", text, 1);
}

/* Environment variables that all processes get. Those that say how the machines of a
 * cluster reach each other may be left in the shell. */
static void set_common(int n, int door) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  set_number("MASTER_PORT", net_port(door));
  set_number("WORLD_SIZE", n);
  set_number("LOCAL_WORLD_SIZE", n);
  unsetenv("WEFT_DOOR");
  unsetenv("WEFT_HOST");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  setenv("WEFT_PROCS", "1", 1); /* marks a started process */
  set_secret();
}

/* Begins the child's own life with signals. `mask`: what the parent has blocked. They are
 * blocked around the fork: one that the parent passes on at once would be counted here by
 * its own handler, of which the new program knows nothing. Now it ends the child. */
static void own_signals(const sigset_t *mask) {
  struct sigaction is;
  for (int i = 0; i < LEN(passed); i++)
    if (sigaction(passed[i], NULL, &is) == 0 && is.sa_handler == on_signal)
      signal(passed[i], SIG_DFL);
  sigprocmask(SIG_SETMASK, mask, NULL);
}

static void become(const Procs *p, int rank, int door, int out, const sigset_t *mask) {
  own_signals(mask);
  set_number("RANK", rank);
  set_number("LOCAL_RANK", rank);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != p->self) _exit(128 + SIGTERM); /* it ended before that */
  if (rank == 0) {
    /* Its group is not the terminal's own, of which `stty tostop` stops every write. */
    signal(SIGTTOU, SIG_IGN);
    fcntl(door, F_SETFD, 0);
    set_number("WEFT_DOOR", door);
  } else {
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
  }
  execv("/proc/self/exe", p->word);
  _exit(weft_exit_code(WEFT_EINTERNAL));
}

static weft_status start_one(Procs *p, int rank, int door, weft_error *e) {
  int ends[2] = {-1, -1};
  Proc *x = &p->proc[rank];
  x->out = -1;
  if (rank > 0 && pipe2(ends, O_CLOEXEC))
    return err_set(e, WEFT_ELIMIT, "no pipe for process %d: %s", rank, strerror(errno));
  sigset_t block, mask;
  sigemptyset(&block);
  for (int i = 0; i < LEN(passed); i++) sigaddset(&block, passed[i]);
  sigprocmask(SIG_BLOCK, &block, &mask);
  x->pid = fork();
  if (x->pid == 0) become(p, rank, door, ends[1], &mask);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  if (rank > 0) {
    close(ends[1]);
    x->out = ends[0];
    fcntl(x->out, F_SETFL, O_NONBLOCK);
  }
  if (x->pid < 0) {
    x->pid = 0;
    return err_set(e, WEFT_ELIMIT, "process %d of %d cannot be started: %s", rank, p->n,
                   strerror(errno));
  }
  p->left++;
  return WEFT_OK;
}

/* ---- looking on ---- */

static void flush_line(Proc *x, int rank) {
  if (x->n) fprintf(stderr, "[rank %d] %.*s\n", rank, (int)x->n, x->line);
  x->n = 0;
}

static void hear(Proc *x, int rank) {
  char chunk[LINE];
  ssize_t n = read(x->out, chunk, sizeof chunk);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  for (ssize_t i = 0; i < n; i++) {
    if (chunk[i] == '\n' || x->n == LINE) flush_line(x, rank);
    if (chunk[i] != '\n') x->line[x->n++] = chunk[i];
  }
  if (n > 0) return;
  flush_line(x, rank);
  close(x->out);
  x->out = -1;
}

static void hear_all(Procs *p, struct pollfd *fds) {
  int n = 0;
  for (int i = 0; i < p->n; i++)
    if (p->proc[i].out >= 0) fds[n++] = (struct pollfd){p->proc[i].out, POLLIN, 0};
  poll(fds, (nfds_t)n, 50);
  for (int i = 0; i < p->n; i++)
    if (p->proc[i].out >= 0) hear(&p->proc[i], i);
}

static void reap(Procs *p) {
  for (int i = 0; i < p->n; i++) {
    int status;
    if (!p->proc[i].pid || waitpid(p->proc[i].pid, &status, WNOHANG) <= 0) continue;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    p->proc[i].pid = 0;
    p->left--;
    p->told |= i == 0 && code && WIFEXITED(status);
    if (code && !p->failed) {
      p->failed = now_s();
      p->code = code;
    }
  }
}

/* Once rank 0 has said why, the others need no time to; they may still wait for it to
 * listen. A process that is suspended takes no signal but SIGKILL. */
static void hurry(Procs *p) {
  double since = p->failed ? now_s() - p->failed : 0;
  if ((since > GRACE_S || p->told) && p->signals == 0) p->signals++, to_all(p, SIGTERM);
  if (since > GRACE_S + LAST_S && p->signals == 1) p->signals++, to_all(p, SIGKILL);
}

static void look_on(Procs *p, struct pollfd *fds) {
  while (p->left > 0) {
    hear_all(p, fds);
    pass_on(p);
    suspend(p);
    reap(p);
    hurry(p);
  }
  for (int i = 0; i < p->n; i++)
    while (p->proc[i].out >= 0) hear(&p->proc[i], i);
}

static weft_status start_all(Procs *p, weft_error *e) {
  int door = net_listen("127.0.0.1", 0);
  if (door < 0)
    return err_set(e, WEFT_ELIMIT, "cannot listen on this machine: %s", strerror(errno));
  set_common(p->n, door);
  fflush(NULL);
  weft_status st = WEFT_OK;
  for (int i = 0; i < p->n && st == WEFT_OK; i++) st = start_one(p, i, door, e);
  close(door);
  if (st != WEFT_OK) to_all(p, SIGKILL);
  return st;
}

int run_procs(Cli *cli, Arena *arena) {
  Procs p = {.self = getpid(), .n = (int)cli->procs};
  weft_error e = NO_ERROR;
  p.proc = NEW_N(arena, Proc, p.n);
  struct pollfd *fds = NEW_N(arena, struct pollfd, p.n);
  weft_status st = launched_alone(&e);
  if (st == WEFT_OK) st = own_words(&p, arena, &e);
  if (st == WEFT_OK) catch_signals();
  if (st == WEFT_OK && *cli->stop) st = err_set(&e, WEFT_EINTR, "interrupted");
  if (st == WEFT_OK) st = start_all(&p, &e);
  look_on(&p, fds);
  if (st == WEFT_OK) return p.code;
  return verb_fails(cli, arena, &e);
}
