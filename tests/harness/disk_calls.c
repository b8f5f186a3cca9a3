/* disk_calls.c - see disk_calls.h. */
#include "disk_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

DiskCalls disk_calls;

static bool fails(int why) {
  errno = why;
  return why != 0;
}

static bool interrupted(void) {
  return disk_calls.signals > 0 && disk_calls.signals-- > 0 && fails(EINTR);
}

int renameat2(int from, const char *a, int to, const char *b, unsigned flags) {
  if (flags && fails(disk_calls.rename)) return -1;
  return (int)syscall(SYS_renameat2, from, a, to, b, flags);
}

int linkat(int from, const char *a, int to, const char *b, int flags) {
  if (fails(disk_calls.link)) return -1;
  return (int)syscall(SYS_linkat, from, a, to, b, flags);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
  return interrupted() ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int fsync(int fd) { return interrupted() ? -1 : (int)syscall(SYS_fsync, fd); }
