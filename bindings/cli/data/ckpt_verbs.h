/* ckpt_verbs.h - the subcommands of weft ckpt, each with its own arguments. */
#ifndef WEFT_CLI_CKPT_H
#define WEFT_CLI_CKPT_H

#include "bindings/cli/cli.h"

/* `at`: the arguments after the subcommand. All return the exit code. */
int ckpt_ls(Cli *cli, Arena *arena, const char *const *at);
int ckpt_verify_files(Cli *cli, Arena *arena, const char *const *at);
int ckpt_diff(Cli *cli, Arena *arena, const char *const *at);
int ckpt_convert_plan(Cli *cli, Arena *arena, const char *const *at);
int ckpt_export(Cli *cli, Arena *arena, const char *const *at);
int ckpt_merge(Cli *cli, Arena *arena, const char *const *at);
int ckpt_plan(Cli *cli, Arena *arena, const char *const *at);
/* Ends a subcommand that has no job. */
int ckpt_end(Cli *cli, Arena *arena, weft_status st, const weft_error *e,
             void (*result)(Json *out, void *ud), void *ud);

#endif
