/* tokenize.h - the two forms of weft tokenize: of texts and of conversations. */
#ifndef WEFT_CLI_TOKENIZE_H
#define WEFT_CLI_TOKENIZE_H

#include "bindings/cli/cli.h"

/* weft tokenize --chat; returns the exit code. */
int tokenize_chat(Cli *cli, Arena *arena);
/* Reports an error; returns the exit code. */
int tokenize_end(const Cli *cli, weft_status st, const weft_error *e);

#endif
