/* alive.c - see alive.h. */
#include "alive.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 600, ENVIRONMENT = 1 << 16 };

static int works_in(pid_t pid, const char *folder) {
  char path[64], where[PATH];
  snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
  ssize_t n = readlink(path, where, sizeof where - 1);
  where[n < 0 ? 0 : n] = 0;
  return n > 0 && strcmp(where, folder) == 0;
}

/* -1: not set by a launcher. */
static int rank_of(pid_t pid) {
  static const char *const names[] = {"RANK=", "OMPI_COMM_WORLD_RANK="};
  char path[64], *text = calloc(1, ENVIRONMENT);
  int rank = -1;
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  FILE *f = fopen(path, "r");
  size_t n = f && text ? fread(text, 1, ENVIRONMENT - 1, f) : 0;
  if (f) fclose(f);
  for (size_t at = 0; at < n; at += strlen(text + at) + 1)
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strncmp(text + at, names[i], strlen(names[i])) == 0)
        rank = atoi(text + at + strlen(names[i]));
  free(text);
  return rank;
}

/* The next process whose working folder is `folder`; 0: none. */
static pid_t next(DIR *proc, const char *folder) {
  for (struct dirent *x; proc && (x = readdir(proc));) {
    pid_t pid = atoi(x->d_name);
    if (pid > 0 && pid != getpid() && works_in(pid, folder)) return pid;
  }
  return 0;
}

int alive_ranks(const char *folder) {
  DIR *proc = opendir("/proc");
  int n = 0;
  for (pid_t pid; (pid = next(proc, folder)) != 0;) n += rank_of(pid) >= 0;
  if (proc) closedir(proc);
  return n;
}

pid_t alive_rank(const char *folder, int rank) {
  DIR *proc = opendir("/proc");
  pid_t pid;
  while ((pid = next(proc, folder)) != 0 && rank_of(pid) != rank) continue;
  if (proc) closedir(proc);
  return pid;
}

int alive_all(const char *folder, int signal) {
  DIR *proc = opendir("/proc");
  int n = 0;
  for (pid_t pid; (pid = next(proc, folder)) != 0; n++)
    if (signal) kill(pid, signal);
  if (proc) closedir(proc);
  return n;
}
