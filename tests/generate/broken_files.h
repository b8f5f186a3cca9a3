/* broken_files.h - files that weft reads and that somebody else may have written, as
 * things to break: each with what is right, what makes changes reach further, and its
 * reader. */
#ifndef WEFT_TEST_FUZZ_FILES_H
#define WEFT_TEST_FUZZ_FILES_H

#include "vm/base/base.h"

enum { FUZZ_BYTES = 1 << 16, FUZZ_FORMS = 4 };

/* A file in a folder that has those beside it. */
typedef struct FuzzFile {
  const char *folder;
  unsigned char s[FUZZ_BYTES];
  size_t n;
} FuzzFile;

typedef struct FuzzTarget {
  const char *name, *file;
  int forms;                           /* of the file that is right */
  void (*make)(FuzzFile *f, int form); /* and what lies beside it */
  void (*repair)(FuzzFile *f);         /* lengths and checksums; NULL: there are none */
  weft_status (*read)(const FuzzFile *f, weft_error *e);
} FuzzTarget;
const FuzzTarget *fuzz_target(int i); /* NULL behind the last */

/* Writes the file and reads it. Whatever is in it, that ends soon, with data or with an
 * error that says what is wrong; else `report` gets what happened. */
void fuzz_read(const FuzzTarget *t, const FuzzFile *f, Text *report);

#endif
