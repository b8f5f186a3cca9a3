/* weights_folder_int.h - what the files of weights_folder.c share. */
#ifndef WEFT_WEIGHTS_FOLDER_INT_H
#define WEFT_WEIGHTS_FOLDER_INT_H

#include "weights_folder.h"

typedef struct OutTensor {
  StWrite write;
  int file, number; /* in its content */
  int64_t turned;   /* is put as its transpose: of so many columns; 0: it is not */
} OutTensor;

/* Where a parameter goes: its elements from `first` on of a tensor; or each `each` of
 * them to a tensor, one after the other. */
typedef struct OutParam {
  int tensor;
  int64_t first, each;
} OutParam;

/* A parameter that another tensor has, too. */
typedef struct OutCopy {
  int param, tensor;
} OutCopy;

/* A buffer of the model, and where it goes. */
typedef struct OutBuffer {
  float value;
  int tensor;
} OutBuffer;

struct WeightsOut {
  Arena *arena;
  const weft_alloc *alloc;
  const WeightsOutOptions *o;
  VEC(OutTensor) t;
  OutParam *param;
  VEC(OutCopy) copy;
  VEC(OutBuffer) buffer;
  int nfile;
  StOut **file;
  FolderOut folder;
  uint64_t bytes; /* of all tensors */
};

/* ---- weights_layout.c ---- */
/* Lists the tensors of all files and says where each parameter goes; out of memory jumps
 * to the arena's owner. */
void weights_layout(WeightsOut *w, const Compiled *c);

#endif
