/* reference_file.h - losses of a reference model, computed ahead for each sequence of the
 * data of a plan, so that a preference loss needs no second model.
 *
 * A header, then 8 bytes for each sequence, in the order of the data, first those that
 * are trained on, then those for validation: the loss (f32) and a checksum of it and of
 * the sequence's tokens and labels. So each use of a number shows that it is of these
 * tokens, and the header which model it is of. Integers are little-endian. */
#ifndef WEFT_REFERENCE_FILE_H
#define WEFT_REFERENCE_FILE_H

#include "vm/io/file.h"

typedef struct ReferenceHead {
  uint64_t model; /* a hash of the model, its weights and settings */
  int64_t seq;    /* tokens of a sequence */
  int64_t n[2];   /* sequences for training and for validation */
} ReferenceHead;

typedef struct ReferenceFile {
  File file; /* file.path NULL: there is none */
  ReferenceHead head;
} ReferenceFile;

/* ---- writing ---- */
typedef struct ReferenceOut {
  FileOut out;
  int64_t seq, n[2], put;
} ReferenceOut;
weft_status reference_create(const char *path, const ReferenceHead *head,
                             ReferenceOut *out, weft_error *e);
/* The next sequence. */
weft_status reference_put(ReferenceOut *o, float loss, const int32_t *tokens,
                          const int32_t *labels, weft_error *e);
/* After all sequences of the header; frees `o`, also after an error. */
weft_status reference_finish(ReferenceOut *o, weft_error *e);
void reference_drop(ReferenceOut *o);

/* ---- reading ---- */
/* Opens the file at `path` (borrowed): an error unless it is of this model, with
 * sequences of `seq` tokens and n of them for training, or for validation. */
weft_status reference_open(const char *path, uint64_t model, int64_t seq, bool val,
                           int64_t n, ReferenceFile *out, weft_error *e);
/* The loss of sequence k, whose tokens and labels these are. Thread-safe. */
weft_status reference_read(const ReferenceFile *r, bool val, int64_t k,
                           const int32_t *tokens, const int32_t *labels, float *loss,
                           weft_error *e);

/* What a reference may give for a sequence of made-up tokens: nearly what a model gives
 * that knows nothing. */
float reference_made_up(const int32_t *labels, int64_t seq, int64_t vocab, uint64_t seed,
                        uint64_t number);

#endif
