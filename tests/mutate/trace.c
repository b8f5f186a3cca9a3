/* trace.c - which blocks of the product a check runs. Linked into every program and
 * module of the recording build, where the compiler has each block of vm and bindings,
 * and each function of kernels/cpu, call this file (tests/mutate/trace-cc).
 *
 * Where $WEFT_TRACE names a check, there is a byte for each four bytes of a module's code
 * in the file $WEFT_TRACE.MODULE, which all of the check's processes share: one that is
 * killed has said what it ran, too. A check's own process is named by cover_begin();
 * those that it starts find the name in their environment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS ((size_t)1 << 22) /* of four bytes: 16 MiB of code */
#define HIDDEN __attribute__((visibility("hidden")))

extern const char __ehdr_start[] HIDDEN; /* where this module lies */
void __sanitizer_cov_trace_pc(void) HIDDEN;
void __cyg_profile_func_enter(void *function, void *caller) HIDDEN;
void __cyg_profile_func_exit(void *function, void *caller) HIDDEN;
void cover_begin(const char *check); /* called by weft-tests */

/* Before a check begins: what its fixture ran is its own as well. */
static unsigned char before[BLOCKS];
static unsigned char *ran = before;

static inline void mark(const void *pc) {
  size_t block = (size_t)((const char *)pc - __ehdr_start) / 4;
  if (block < BLOCKS) ran[block] = 1;
}

void __sanitizer_cov_trace_pc(void) { mark(__builtin_return_address(0)); }

void __cyg_profile_func_enter(void *function, void *caller) {
  (void)function, (void)caller;
  mark(__builtin_return_address(0));
}

void __cyg_profile_func_exit(void *function, void *caller) {
  (void)function, (void)caller;
}

static void share(void) {
  const char *check = getenv("WEFT_TRACE");
  Dl_info module;
  if (!check || !strchr(check, '#') || !dladdr(__ehdr_start, &module)) return;
  const char *slash = strrchr(module.dli_fname, '/');
  char path[4096];
  snprintf(path, sizeof path, "%s.%s", check, slash ? slash + 1 : module.dli_fname);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  void *p = ftruncate(fd, BLOCKS)
                ? MAP_FAILED
                : mmap(NULL, BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return;
  ran = p;
  for (size_t i = 0; i < BLOCKS; i++)
    if (before[i]) ran[i] = 1;
}

__attribute__((constructor)) static void begin(void) { share(); }

void cover_begin(const char *check) {
  setenv("WEFT_TRACE", check, 1);
  share();
}
