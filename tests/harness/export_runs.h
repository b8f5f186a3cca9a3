/* export_runs.h - a run whose weights are exported. Uses the folder, the arena and the
 * error of scratch.h. */
#ifndef WEFT_TESTS_EXPORTER_H
#define WEFT_TESTS_EXPORTER_H

#include "bindings/api/job.h"
#include "scratch.h"
#include "vm/weights/weights_folder.h"

#define ORACLES WEFT_SOURCE_DIR "/tests/oracle/"
/* A folder of the oracles, and a folder as a plan has it as its model. */
const char *oracle(const char *name);
const char *hf(const char *folder);

/* The meshes that things are tried on, as plans have them. */
enum { EXPORT_MESHES = 4 };
extern const char *const export_meshes[EXPORT_MESHES];

typedef struct Exporter {
  Job job;
  Run *run;
  SafeTensors *weights;
} Exporter;

/* Fails the test with `what` and the error unless `st` is WEFT_OK. */
void must(weft_status st, const weft_error *e, const char *what);
/* Compiles and opens a run with weights loaded or initialized. `model`: the field model;
 * `mesh`: more fields. */
void exporter_start(Exporter *f, const char *model, const char *mesh);
void exporter_end(Exporter *f);
/* Exports the weights to the folder `name` of the scratch folder; returns its path. */
const char *exporter_write(Exporter *f, const char *name, WeightsOutOptions o);
/* Fails the test unless both folders have the same tensors, to the byte. */
void same_tensors(const char *a, const char *b);

#endif
