/* export.h - the weights of a run or checkpoint as a Hugging Face folder. */
#ifndef WEFT_CLI_EXPORT_H
#define WEFT_CLI_EXPORT_H

#include "bindings/cli/cli.h"
#include "bindings/model/model.h"
#include "vm/weights/weights_folder.h"

typedef struct ExportFolder {
  WeightsOutOptions out;
  WeightsFile file[16];
  HfPacked packed;
  Text config;
} ExportFolder;
/* Reads --dtype and --shard-size and lists the files beside the weights: after
 * job_compile, before anything that takes long. `weights`: those that the plan's model
 * was read from, or NULL. Of a plan with an adapter the folder is PEFT's, unless it is
 * `merged`. */
weft_status export_files(ExportFolder *x, Job *j, const Cli *cli,
                         const SafeTensors *weights, bool merged, weft_error *e);
/* The same, and checks that the folder does not exist yet. */
weft_status export_begin(ExportFolder *x, Job *j, const Cli *cli, const char *dir,
                         const SafeTensors *weights, bool merged, weft_error *e);
void export_end(ExportFolder *x);

#endif
