/* weft.h - the public interface of libweft.
 *
 * Every function that can fail returns a weft_status and fills the weft_error
 * that it is given as its last parameter. Nothing here prints, exits or keeps
 * state outside of the handles it returns. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_status {
  WEFT_OK = 0,
  WEFT_EPLAN,    /* the plan is wrong, or a verification failed    (exit 1) */
  WEFT_ERUN,     /* a run failed: NaN loss, a rank that died       (exit 1) */
  WEFT_EFILE,    /* a file is missing, unreadable or malformed     (exit 2) */
  WEFT_EUSAGE,   /* wrong arguments                                (exit 2) */
  WEFT_ELIMIT,   /* an instruction, memory or size limit was hit   (exit 3) */
  WEFT_ENOMEM,   /* the allocator returned NULL                    (exit 3) */
  WEFT_EINTERNAL,/* a broken invariant: a bug in weft              (exit 4) */
  WEFT_EINTR     /* interrupted by the user                      (exit 130) */
} weft_status;

typedef struct weft_error {
  weft_status code;
  int line;          /* of the plan, 0 if unknown */
  int rank;          /* -1 if the error is not of one rank */
  char file[256];    /* of the plan or of the data, "" if unknown */
  char text[1024];   /* one sentence or more, without a trailing newline */
} weft_error;

/* The process exit code that belongs to a status (see the list above). */
WEFT_API int weft_exit_code(weft_status s);

/* "0.1.0" */
WEFT_API const char *weft_version(void);

/* The only way libweft gets memory. `fn(ud, NULL, 0, n)` allocates,
 * `fn(ud, p, old, 0)` frees and returns NULL. Must be thread-safe. A NULL fn
 * stands for the C library's allocator. */
typedef struct weft_alloc {
  void *(*fn)(void *ud, void *p, size_t old_size, size_t new_size);
  void *ud;
} weft_alloc;

#ifdef __cplusplus
}
#endif
#endif
