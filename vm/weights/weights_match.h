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
/* A parameter as files of the model have it: codes in 4 bits as the whole weight. */
CompiledParam weights_as_model(const CompiledParam *p);
/* Scales of codes are computed from the weight; no file has them. */
static inline bool weights_follow(const CompiledParam *p) {
  return p->quant == QUANT_SCALES || p->quant == QUANT_GROUPS;
}
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
/* Whether a tensor that holds no parameter by itself may be there, and is passed over: a
 * buffer, one of a module for a further token that the model does not have, or the base's
 * of a parameter that an adapter's folder has, too. */
bool weights_passed_over(const Compiled *c, const SafeTensors *s, const SafeTensor *t);
/* The buffer of the model that a tensor of this name is; NULL: none. */
const Buffer *weights_buffer(const Compiled *c, const char *name);
/* Ends of names: each layer of multi-token prediction in a file of DeepSeek-V3 repeats
 * the embedding and the head. */
#define WEIGHTS_EMBEDDING_COPY ".embed_tokens.weight"
#define WEIGHTS_HEAD_COPY      ".shared_head.head.weight"
/* The parameter that a tensor of this name is such a copy of, or -1. */
int weights_copied(const Compiled *c, const char *name);
#define WEIGHTS_HEAD "lm_head.weight"
/* Whether it has a row for each token: the embedding, or a head's weight or bias. */
bool weights_of_tokens(const char *name);
/* The embedding that the head of this name reads, of a tied model; -1 if the name is of
 * no head, or its model has one. */
int weights_tied(const Compiled *c, const char *name);
/* The parameter of the base that a tensor of an adapter's folder repeats, or -1: PEFT
 * adds the embeddings and the head to what it writes where one of them is a target
 * ("base_model.model.lm_head.base_layer.weight") or was resized. */
int weights_of_base(const Compiled *c, const char *name);
/* Where a file has a head although it is tied, its numbers must be those of the
 * embedding; so must copies in layers of multi-token prediction, and what an adapter's
 * folder has of its base must be the base's, in the narrower type of the two; and buffers
 * are the model's. Reads both. */
weft_status weights_check_tied(const Compiled *c, const SafeTensors *s, weft_error *e);

#endif
