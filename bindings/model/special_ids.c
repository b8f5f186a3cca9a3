/* special_ids.c - which ids of special tokens a file of a model has; see special_ids.h.
 */
#include "special_ids.h"

#include "vm/io/json_text.h"

#define END "eos_token_id"

const char *const special_ids[SPECIAL_IDS] = {"bos_token_id", END, "pad_token_id"};

bool special_ids_has(const char *key) {
  for (int i = 0; i < SPECIAL_IDS; i++)
    if (str_eq(key, special_ids[i])) return true;
  return false;
}

weft_status special_ids_open(LangPlan *lp, const json_t *tokenizer, SpecialIds *x,
                             weft_error *e) {
  const char *text = lp->special_ids;
  bool foreign = lp->folder && !lp->weights;
  *x = (SpecialIds){.tokenizer = tokenizer,
                    .alone = foreign && json_object_size(tokenizer) > 0};
  if (!text) return WEFT_OK;
  x->plan = json_text("plan.model", "", text, strlen(text), e);
  return x->plan ? WEFT_OK : WEFT_EFILE;
}

void special_ids_close(SpecialIds *x) { json_decref(x->plan); }

/* ---- ids, one or a list ---- */

static size_t count(const json_t *ids) {
  return json_is_array(ids) ? json_array_size(ids) : json_is_integer(ids) ? 1 : 0;
}

static json_t *at(const json_t *ids, size_t i) {
  return json_is_array(ids) ? json_array_get(ids, i) : (json_t *)ids;
}

static bool has_one(const json_t *ids, const json_t *id) {
  for (size_t i = 0; i < count(ids); i++)
    if (json_equal(at(ids, i), id)) return true;
  return false;
}

static bool has_all(const json_t *ids, const json_t *some) {
  for (size_t i = 0; i < count(some); i++)
    if (!has_one(ids, at(some, i))) return false;
  return true;
}

/* The first ones and then the others; NULL: out of memory. */
static json_t *joined(const json_t *first, const json_t *others) {
  json_t *list = json_array();
  for (int k = 0; k < 2; k++) {
    const json_t *ids = k ? others : first;
    for (size_t i = 0; list && i < count(ids); i++)
      if (!has_one(list, at(ids, i)) && json_array_append(list, at(ids, i)) != 0) {
        json_decref(list);
        list = NULL;
      }
  }
  return list;
}

/* ---- a file ---- */

/* Whether the file is to have `*to`, of which the caller gets a reference. */
static bool choose(const SpecialIds *x, const char *key, const json_t *has, bool several,
                   json_t **to) {
  json_t *said = json_object_get(x->plan, key);
  json_t *of = json_object_get(x->tokenizer, key);
  if (said)
    *to = json_incref(said);
  else if (x->alone)
    *to = of ? json_incref(of) : json_null();
  else if (!of || has_all(has, of))
    return false;
  else
    *to = several && str_eq(key, END) && count(has) ? joined(of, has) : json_incref(of);
  return said || !x->alone || of || has;
}

bool special_ids_put(const SpecialIds *x, json_t *doc, bool several, bool *changed) {
  for (int i = 0; i < SPECIAL_IDS; i++) {
    const char *key = special_ids[i];
    json_t *has = json_object_get(doc, key), *to;
    if (!choose(x, key, has, several, &to)) continue;
    if (has && json_equal(has, to)) {
      json_decref(to);
      continue;
    }
    if (json_object_set_new(doc, key, to) != 0) return false;
    *changed = true;
  }
  return true;
}
