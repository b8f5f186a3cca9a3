/* export_runs.h - a run whose weights are written out. Uses the folder, the arena and the
 * error of scratch.h. */
#ifndef WEFT_TESTS_EXPORTER_H
#define WEFT_TESTS_EXPORTER_H

#include "bindings/api/job.h"
#include "scratch.h"
#include "vm/weights/weights_folder.h"

typedef struct Exporter {
  Job job;
  Run *run;
  SafeTensors *weights;
} Exporter;

/* The test fails with `what` and the error unless `st` is WEFT_OK. */
void must(weft_status st, const weft_error *e, const char *what);
/* Compiles and opens a run with its weights read or drawn. `model`: the field; `mesh`:
 * more fields. */
void exporter_start(Exporter *f, const char *model, const char *mesh);
void exporter_end(Exporter *f);
/* Writes the weights to the folder `name` of the scratch folder and returns its path. */
const char *exporter_write(Exporter *f, const char *name, WeightsOutOptions o);

#endif
