/* export_options.h - how the command line wants weights to be written. */
#ifndef WEFT_CLI_EXPORT_OPTIONS_H
#define WEFT_CLI_EXPORT_OPTIONS_H

#include "bindings/runs/export_folder.h"
#include "bindings/cli/cli.h"

/* Reads --dtype and --shard-size. */
weft_status export_options(const Cli *cli, bool merged, ExportHow *out, weft_error *e);

#endif
