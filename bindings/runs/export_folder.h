/* export_folder.h - the weights of a run or checkpoint as a Hugging Face folder. */
#ifndef WEFT_EXPORT_FOLDER_H
#define WEFT_EXPORT_FOLDER_H

#include "bindings/model/model.h"
#include "bindings/api/job.h"
#include "vm/weights/weights_folder.h"

typedef struct ExportHow {
  DType dtype;          /* of all tensors; DT_ACT: as they came, else f32 */
  uint64_t shard_bytes; /* of a file; 0: WEIGHTS_SHARD_GB */
  bool merged; /* of a plan with an adapter the model with it; else PEFT's folder */
} ExportHow;

typedef struct ExportFolder {
  WeightsOutOptions out;
  WeightsFile file[16];
  HfPacked packed;
  Text config;
} ExportFolder;
/* Lists the files beside the weights: after job_compile, before anything that takes long.
 * `weights`: those that the plan's model was read from, or NULL. Takes memory of the
 * job's arena. */
weft_status export_files(ExportFolder *x, Job *j, const ExportHow *how,
                         const SafeTensors *weights, weft_error *e);
/* The same, and checks that the folder does not exist yet. */
weft_status export_begin(ExportFolder *x, Job *j, const ExportHow *how, const char *dir,
                         const SafeTensors *weights, weft_error *e);
/* The weights of a checkpoint as folder `name` in another one, as SaverOptions.weights
 * has to write them. */
weft_status export_ckpt(const ExportFolder *x, const Compiled *c, const char *ckpt,
                        const Dir *in, const char *name, weft_error *e);
void export_end(ExportFolder *x);

#endif
