/* weights_match.h - maps the tensors of files to the parameters of a program. */
#ifndef WEFT_EXEC_WEIGHTS_H
#define WEFT_EXEC_WEIGHTS_H

#include "vm/io/io.h"
#include "vm/program/program.h"

/* Where a parameter lies in a file: its elements, in their order, from `first` on of a
 * tensor that has so many rows; or, of all experts in one, in `pieces` tensors of the
 * same size one after the other, of which `t` is the first. */
typedef struct WeightSource {
  const SafeTensor *t; /* NULL: nowhere */
  int64_t first, rows;
  int pieces; /* 1: it is not in pieces */
} WeightSource;
WeightSource weights_source(const Compiled *c, const SafeTensors *s, int param);
/* Whether there is an adapter among them: then it has all parts of those of the program.
 */
bool weights_adapter(const SafeTensors *s);
/* Whether a parameter begins with its initial values beside these files: it is of an
 * adapter, or of the model or of a teacher, of which they have nothing. */
bool weights_initial(const Compiled *c, const SafeTensors *s, int param);
/* Piece i of a parameter that is in pieces; NULL if it is missing. `name` (may be NULL)
 * is then what it is called. */
const SafeTensor *weights_piece(const Compiled *c, const SafeTensors *s, int param, int i,
                                char name[512]);
/* Where a parameter goes in a file that has modules as one: NULL-terminated names, as
 * "qkv_proj"; NULL: none. Sets the name of the tensor, its rows and the element of it
 * that the parameter begins at; false if it is none of those. */
bool weights_packed(const Compiled *c, const char *const *modules, int param,
                    char name[512], int64_t *rows, int64_t *first);
/* Whether every parameter has a tensor of its shape and every tensor is a parameter, a
 * buffer or a repeated embedding; all that is wrong is one error. Reads headers only. */
weft_status weights_fit(const Compiled *c, const SafeTensors *s, const weft_alloc *a,
                        weft_error *e);
uint64_t weights_fit_bytes(const Compiled *c);
/* A head beside a tied embedding must be that embedding. Reads both. */
weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e);

#endif
