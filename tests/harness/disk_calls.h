/* disk_calls.h - in front of the C library's calls that change a disk, in the whole
 * program of tests: what a file system cannot do, and signals that come meanwhile. */
#ifndef WEFT_TESTS_DISK_CALLS_H
#define WEFT_TESTS_DISK_CALLS_H

typedef struct DiskCalls {
  int rename;  /* renames with flags fail with this errno, as on NFS; 0: they do not */
  int link;    /* ... and links */
  int signals; /* so many times space is not taken, nor a file synced: EINTR */
} DiskCalls;
extern DiskCalls disk_calls;

#endif
