/* fuzz_io.h - broken files by number: headers of safetensors, index files, config.json and
 * token files, changed at random places. Whatever is in them, reading ends with data or
 * with an error that names the file. */
#ifndef WEFT_TEST_FUZZ_IO_H
#define WEFT_TEST_FUZZ_IO_H

#include "vm/base/base.h"

/* Writes file `number` into the folder, which exists, and reads it. False, with what
 * happened, if that went otherwise; a sanitizer ends the process. */
bool fuzz_io_case(const char *folder, uint64_t seed, uint64_t number, Text *report);

/* `weft-tests --fuzz-io SECONDS [seed]`; returns the exit code. */
int fuzz_io(int argc, char **argv);

#endif
