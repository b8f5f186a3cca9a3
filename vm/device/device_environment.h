/* device_environment.h - variables of the environment that a device's libraries read at
 * their first call. Another library may make that call, as an MPI that knows GPUs does
 * when it starts, so they are set before any other is opened. */
#ifndef WEFT_DEVICE_ENVIRONMENT_H
#define WEFT_DEVICE_ENVIRONMENT_H

#include "device.h"

/* open_cuda.c. What is set already stays. */
void device_before_others(const DeviceKind *k);

#endif
