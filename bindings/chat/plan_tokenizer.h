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
/* Reports a plan.tokenizer that is not there or is of a plan whose tokens are bytes;
 * warns of one that cannot be opened or has ids that the model does not. */
weft_status plan_tokenizer_check(LangPlan *lp, int64_t vocab, Diags *d, weft_error *e);
/* Ids of special tokens of a tokenizer's folder, as generation_config.json has them, or
 * of those that tokenizer_config.json names; not those that the model's vocabulary has no
 * row for. A new object, which may be empty, also after an error; NULL: out of memory. */
weft_status plan_tokenizer_ids(LangPlan *lp, const char *folder, json_t **out,
                               weft_error *e);

#endif
