/* doctor.h - GPUs, libraries and networks of this machine, for weft doctor. */
#ifndef WEFT_CLI_DOCTOR_H
#define WEFT_CLI_DOCTOR_H

#include "vm/base/json.h"

enum { DOCTOR_LIBRARIES = 5, DOCTOR_NODES = 16 };

typedef struct DoctorMachine {
  char driver[160]; /* "": none */
  int gpus, numa;
  char cpus[DOCTOR_NODES][64];       /* cores of each NUMA node */
  int64_t version[DOCTOR_LIBRARIES]; /* 0: not installed */
  Text networks, infiniband, list, topology;
} DoctorMachine;

void doctor_machine(DoctorMachine *m);
void doctor_machine_free(DoctorMachine *m);
void doctor_machine_print(const DoctorMachine *m);
void doctor_machine_json(const DoctorMachine *m, Json *out);

#endif
