/* chat_plan.h - weft.chat in a plan: its conversations become token files beside the
 * plan, once for each content of files, tokenizer, template and options. */
#ifndef WEFT_CHAT_PLAN_H
#define WEFT_CHAT_PLAN_H

#include "bindings/plan_table/loaded_plan.h"

/* Changes data of weft.chat, also those for validation, to the token files that hold
 * them, which it writes if they are not there. Other data stay. What was cut or left out
 * is a warning. Tokens that a model of this vocabulary does not have are an error. */
weft_status chat_plan_data(LangPlan *lp, DataSpec *data, int64_t vocab, Diags *d,
                           weft_error *e);
/* For a plan with weft.chat, in a call of its state: pushes the fields that
 * stdlib/chat/chat.lua takes, as the plan gives them. */
void chat_plan_push_spec(lua_State *L);
/* For a plan with weft.chat: the file of its tokenizer. */
weft_status chat_plan_tokenizer(LangPlan *lp, const char **path, weft_error *e);
/* The same, if data.tokenizer names it; else NULL: it is the plan's or its model's. */
weft_status chat_plan_own_tokenizer(LangPlan *lp, const char **path, weft_error *e);

#endif
