/* plan_tokenizer.h - the tokenizer of a plan, and what lies beside it: the same for
 * conversations, prompts and exported folders. */
#ifndef WEFT_PLAN_TOKENIZER_H
#define WEFT_PLAN_TOKENIZER_H

#include "bindings/plan_table/loaded_plan.h"

/* The tokenizer.json of prompts: that of weft.chat, of plan.tokenizer, or the one beside
 * the weights in `weights`, or of weft.hf if that is NULL; NULL: none. A plan.tokenizer
 * that is not there is reported. */
weft_status plan_tokenizer(LangPlan *lp, const char *weights, const char **path, Diags *d,
                           weft_error *e);
/* Reports a plan.tokenizer that is not there or is of a plan whose tokens are bytes;
 * warns of one that cannot be opened or has ids that the model does not. */
weft_status plan_tokenizer_check(LangPlan *lp, int64_t vocab, Diags *d, weft_error *e);
/* A generation_config.json for a folder that has none, of the begin and end tokens that
 * tokenizer_config.json names. Nothing is added if it names none. */
weft_status plan_tokenizer_generation(LangPlan *lp, const char *folder, Text *out,
                                      weft_error *e);

#endif
