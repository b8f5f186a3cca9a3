/* special_ids.h - ids of the tokens that begin, end and pad texts. Training reads none of
 * them; folders that are exported have them for whoever generates, as a class of
 * Transformers has ids of a tokenizer of its own where a config is silent. */
#ifndef WEFT_SPECIAL_IDS_H
#define WEFT_SPECIAL_IDS_H

#include <jansson.h>

#include "bindings/plan_table/loaded_plan.h"

enum { SPECIAL_IDS = 3 };
/* "bos_token_id" ...: keys of config.json and generation_config.json. */
extern const char *const special_ids[SPECIAL_IDS];
bool special_ids_has(const char *key);

/* Objects with some of the keys, or NULL. */
typedef struct SpecialIds {
  json_t *plan;            /* that the plan writes; null: there is none */
  const json_t *tokenizer; /* of the plan's tokenizer */
  bool alone; /* and of no other: the plan reads no weights, whose ids would count */
} SpecialIds;
/* Of a plan and its tokenizer, whose ids may be NULL. */
weft_status special_ids_open(LangPlan *lp, const json_t *tokenizer, SpecialIds *x,
                             weft_error *e);
void special_ids_close(SpecialIds *x);
/* Puts them into the document of a file. What the plan writes counts; ids of the
 * tokenizer take the place of others, but a list that has them stays. `several`: the
 * tokens that end a text in the file end it still, beside the tokenizer's. False: out of
 * memory. */
bool special_ids_put(const SpecialIds *x, json_t *doc, bool several, bool *changed);

#endif
