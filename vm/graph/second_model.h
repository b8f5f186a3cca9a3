/* second_model.h - a model beside the one that is trained, in the same graph: the
 * reference of a preference loss, the teacher of distillation.
 *
 * It is built first, between second_begin and second_end, then the other; second_join
 * puts its ops into units of the other, so that whatever cuts these units cuts both: a
 * layer goes to that of the same number or, of models of different depth, of the same
 * share. Its parameters have a prefix and are frozen, or, without a prefix, are those of
 * the other model, which is then frozen itself but for adapters. */
#ifndef WEFT_SECOND_MODEL_H
#define WEFT_SECOND_MODEL_H

#include "graph.h"

#define REFERENCE_PREFIX "reference."
#define TEACHER_PREFIX   "teacher."

void second_begin(Graph *g, const char *prefix);
void second_end(Graph *g);
void second_join(Graph *g);

/* How many characters of a parameter's or module's name are such a prefix. */
size_t second_prefix(const char *name, size_t n);

#endif
