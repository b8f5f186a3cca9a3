/* param_fill.h - all threads of a process fill what its ranks hold, part by part. */
#ifndef WEFT_PARAM_FILL_H
#define WEFT_PARAM_FILL_H

#include "ranges.h"
#include "vm/run/run_int.h"

/* One of the threads that fill what the ranks of this process hold. */
typedef struct Lane {
  Run *run;
  int number;   /* of run_lanes */
  float *block; /* its share of its worker's, `most` elements */
  int64_t most;
  int64_t from; /* where the stretch of a parameter begins that was brought */
} Lane;
/* How many there are, as many of each worker. */
int run_lanes(const Run *r);
/* Where the values of a part go: as f32, and to the copy that ops read, if that lies
 * where the host can write. Who has values in the copy's type may fill it, and then says
 * so. */
typedef struct PartOut {
  float *local;
  bool home;      /* `local` is where they stay, and is not read soon */
  uint16_t *copy; /* NULL: there is none */
  DType copy_type;
  bool copied;
} PartOut;
/* Values of a part of a parameter's piece, `most` elements of it or fewer. */
typedef weft_status (*PartValues)(const Lane *l, void *ud, StateKind k, int param,
                                  const Piece *part, PartOut *out, weft_error *e);
/* Brings the elements `c` of a parameter, all within `most` from l->from on: values of
 * nothing else are asked for until others are brought. */
typedef weft_status (*BringValues)(const Lane *l, void *ud, int param, const RangeSet *c,
                                   weft_error *e);
/* What is filled: these kinds of state of the parameters [first, first + n). */
typedef struct Filling {
  StateKind kind[1 + OPTIMIZER_STATES];
  int nkind, first, n;
  const int *order;  /* NULL, or their numbers in the order of filling */
  BringValues bring; /* NULL: there is nothing that ranks can share */
  PartValues values;
  void *ud;
} Filling;
/* Fills all ranks of this process part by part, also the copies that ops read. `clear`:
 * everything else that they keep becomes zero. Where the host can write their memory,
 * threads that are through help the others, f32 is made where it lies, and elements are
 * brought once for all ranks. */
weft_status run_pieces(Run *r, const Filling *f, bool clear, weft_error *e);

#endif
