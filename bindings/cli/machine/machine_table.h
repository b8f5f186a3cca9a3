/* machine_table.h - this machine as the head of a calibration, and how a calibration has
 * aged: what is another than then, and the three rates measured again. */
#ifndef WEFT_CLI_MACHINE_TABLE_H
#define WEFT_CLI_MACHINE_TABLE_H

#include "bindings/cli/cli.h"
#include "vm/calibrate/calibrate.h"

/* The name of the first CPU. */
void machine_cpu(char *text, size_t size);
/* A table of this machine without rows and rates, of today. */
void machine_table(const DeviceKind *kind, int threads, Arena *a, CostTable *out);
/* f32, bf16 and bandwidth of `t`. */
weft_status machine_rates(const Bench *b, CostTable *t, weft_error *e);

typedef struct CalibrationAge {
  const char *path;
  CostTable then, now;
  const char *differs; /* "machine, A and B"; then nothing was measured. NULL: nothing */
  int days;            /* -1: the date is none */
} CalibrationAge;

weft_status calibration_age(const Cli *cli, const char *path, Arena *a, Diags *d,
                            CalibrationAge *out, weft_error *e);
void calibration_age_print(const CalibrationAge *x);
void calibration_age_json(const CalibrationAge *x, Json *out);

#endif
