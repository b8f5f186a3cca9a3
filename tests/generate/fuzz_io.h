/* fuzz_io.h - broken files by number: those of broken_files.h with random mutations. */
#ifndef WEFT_TEST_FUZZ_IO_H
#define WEFT_TEST_FUZZ_IO_H

#include "vm/base/base.h"

/* Writes file `number` into the existing folder and reads it. False, with the reason, if
 * fuzz_read reports one; a sanitizer ends the process. */
bool fuzz_io_case(const char *folder, uint64_t seed, uint64_t number, Text *report);

/* `weft-tests --fuzz-io SECONDS [seed]`; returns the exit code. */
int fuzz_io(int argc, char **argv);

#endif
