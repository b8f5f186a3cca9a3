/* plan_tokenizer.h - the tokenizer of a plan, and what lies beside it: the same for
 * conversations, prompts and exported folders. */
#ifndef WEFT_PLAN_TOKENIZER_H
#define WEFT_PLAN_TOKENIZER_H

#include <jansson.h>

#include "bindings/plan_table/loaded_plan.h"

/* The tokenizer.json of prompts: that of weft.chat, of plan.tokenizer, or the one beside
 * the weights in `weights`, or of weft.hf if that is NULL; NULL: none. A plan.tokenizer
 * that is not there is reported. */
weft_status plan_tokenizer(LangPlan *lp, const char *weights, const char **path, Diags *d,
                           weft_error *e);
/* What the model learns to read and is given to others with. */
typedef struct PlanTokenizer {
  const char *file, *folder; /* its tokenizer.json, and what that lies in */
} PlanTokenizer;
/* That which the plan names beside its model: plan.tokenizer, else that of weft.chat, if
 * it is not of the model's folder. Without one both are NULL: the model's folder has it.
 */
weft_status plan_tokenizer_named(LangPlan *lp, PlanTokenizer *out, weft_error *e);
/* Reports texts, whose tokens are bytes, as data of a model that has a tokenizer. A plan
 * that asks for bytes by name has them, unless it names a tokenizer as well. */
weft_status plan_takes_tokens(LangPlan *lp, Diags *d);
/* Reports a plan.tokenizer that is not there and what plan_takes_tokens does; warns of
 * one that cannot be opened, has ids that the model does not, or is another than that of
 * weft.chat, and of bytes for a vocabulary of many more. */
weft_status plan_tokenizer_check(LangPlan *lp, int64_t vocab, Diags *d, weft_error *e);
/* Ids of special tokens of a tokenizer that is there, as generation_config.json has them,
 * or of those that tokenizer_config.json names; not those that the model's vocabulary has
 * no row for. A new object, which may be empty, also after an error; NULL: out of memory.
 */
weft_status plan_tokenizer_ids(LangPlan *lp, const PlanTokenizer *of, json_t **out,
                               weft_error *e);

#endif
