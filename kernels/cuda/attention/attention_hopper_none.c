/* attention_hopper_none.c - replaces attention_hopper.cu and attention_hopper_choice.c in
 * builds without code for compute capability 9.0. */
#include "attention_hopper.h"

bool cuda_attention_hopper(Device *d, const KernelArgs *a) { return false; }

bool cuda_attention_hopper_has(const KernelArgs *a) { return false; }

weft_status hopper_prepare(Device *d, int op, KernelArgs *a, weft_error *e) {
  return WEFT_OK;
}

bool hopper_takes(const KernelArgs *a) { return false; }

void hopper_close(Device *d) {}
