/* broken_files.h - untrusted file formats that weft reads, to be mutated: each with a
 * valid file, a repair that lets mutations reach further, and its reader. */
#ifndef WEFT_TEST_FUZZ_FILES_H
#define WEFT_TEST_FUZZ_FILES_H

#include "vm/base/base.h"

enum { FUZZ_BYTES = 1 << 16, FUZZ_FORMS = 4 };

/* A file in a folder with the files it needs. */
typedef struct FuzzFile {
  const char *folder;
  unsigned char s[FUZZ_BYTES];
  size_t n;
} FuzzFile;

typedef struct FuzzTarget {
  const char *name, *file;
  int forms;                           /* number of valid variants */
  void (*make)(FuzzFile *f, int form); /* makes a valid file, and those beside it */
  void (*repair)(FuzzFile *f); /* fixes lengths and checksums; NULL: there are none */
  weft_status (*read)(const FuzzFile *f, weft_error *e);
} FuzzTarget;
const FuzzTarget *fuzz_target(int i); /* NULL past the last. */

/* Writes the file and reads it. Any content must end soon, with data or with an error
 * that names what is wrong; otherwise `report` gets the failure. */
void fuzz_read(const FuzzTarget *t, const FuzzFile *f, Text *report);

#endif
