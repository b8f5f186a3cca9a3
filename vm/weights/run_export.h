/* run_export.h - the parameters of a run as a folder of Hugging Face files. */
#ifndef WEFT_RUN_EXPORT_H
#define WEFT_RUN_EXPORT_H

#include "vm/run/run.h"
#include "weights_folder.h"

/* The parameters of a run. Every process takes part and writes what its ranks hold; all
 * of them must see the folder. */
weft_status run_export(Run *r, const WeightsOutOptions *o, weft_error *e);

/* Whether all of them see the folder in which `dir` will appear, so that a run of days
 * does not fail at its end: WEFT_EUSAGE on all processes if one does not. */
weft_status run_export_shares(Run *r, const char *dir, weft_error *e);

#endif
