/* fuzz_io.h - broken files by number: those of broken_files.h, changed at random places.
 */
#ifndef WEFT_TEST_FUZZ_IO_H
#define WEFT_TEST_FUZZ_IO_H

#include "vm/base/base.h"

/* Writes file `number` into the folder, which exists, and reads it. False, with what
 * happened, if that did not go as fuzz_read says; a sanitizer ends the process. */
bool fuzz_io_case(const char *folder, uint64_t seed, uint64_t number, Text *report);

/* `weft-tests --fuzz-io SECONDS [seed]`; returns the exit code. */
int fuzz_io(int argc, char **argv);

#endif
