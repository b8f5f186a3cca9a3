/* sample_end.c - end-of-text tokens and stop strings; see sample_end.h. */
#include "sample_end.h"

#include <unistd.h>

#include "bindings/model/special_ids.h"
#include "vm/io/json_text.h"

#define KEY "eos_token_id"

static weft_status add_eos(SampleEnd *x, const json_t *id, const char *path,
                           weft_error *e) {
  int64_t v = json_is_integer(id) ? json_integer_value(id) : -1;
  if (v < 0 || v > INT32_MAX)
    return err_file(e, WEFT_EFILE, path, 0,
                    "\"" KEY "\" is not the id of a token, or a list of some");
  sample_end_at(x, (int32_t)v);
  return WEFT_OK;
}

/* The ids of a file's key; NULL and null: there are none. */
static weft_status add_all(SampleEnd *x, const json_t *ids, const char *path,
                           weft_error *e) {
  if (!ids || json_is_null(ids)) return WEFT_OK;
  if (!json_is_array(ids)) return add_eos(x, ids, path, e);
  if (json_array_size(ids) > EOS_OF_FILE)
    return err_file(e, WEFT_EFILE, path, 0,
                    "\"" KEY "\" has more than the %d ids that are read", EOS_OF_FILE);
  for (size_t i = 0; i < json_array_size(ids); i++)
    TRY(add_eos(x, json_array_get(ids, i), path, e));
  return WEFT_OK;
}

/* `*said`: the file has ids. */
static weft_status read_eos(SampleEnd *x, const char *path, bool *said, weft_error *e) {
  char *text;
  size_t n;
  *said = false;
  if (access(path, F_OK) != 0) return WEFT_OK;
  TRY(file_read(NULL, path, FILE_CODE_MAX, &text, &n, e));
  json_t *doc = json_text_python(path, "", text, n, e);
  mem_free(NULL, text, n + 1);
  if (!doc) return e->code;
  const json_t *ids = json_object_get(doc, KEY);
  *said = ids && !json_is_null(ids);
  weft_status st = add_all(x, ids, path, e);
  json_decref(doc);
  return st;
}

weft_status sample_eos(SampleEnd *x, Arena *a, const char *folder, bool *said,
                       weft_error *e) {
  static const char *const names[] = {"generation_config.json", "config.json"};
  *said = false;
  for (int i = 0; i < LEN(names) && folder && !*said; i++)
    TRY(read_eos(x, arena_printf(a, "%s/%s", folder, names[i]), said, e));
  return WEFT_OK;
}

weft_status sample_eos_of_plan(SampleEnd *x, LangPlan *lp, bool *said, weft_error *e) {
  SpecialIds ids;
  TRY(special_ids_open(lp, NULL, &ids, e));
  const json_t *end = json_object_get(ids.plan, KEY);
  *said = end != NULL;
  weft_status st = add_all(x, end, "plan.model", e);
  special_ids_close(&ids);
  return st;
}

void sample_end_at(SampleEnd *x, int32_t token) {
  if (token < 0 || sample_is_eos(x, token)) return;
  assert(x->neos < LEN(x->eos));
  x->eos[x->neos++] = token;
}

bool sample_is_eos(const SampleEnd *x, int32_t token) {
  for (int i = 0; i < x->neos; i++)
    if (x->eos[i] == token) return true;
  return false;
}

int64_t sample_until(const SampleEnd *x, const Text *t, size_t before) {
  int64_t first = -1;
  for (int i = 0; i < x->nuntil; i++) {
    size_t n = strlen(x->until[i]), from = before > n ? before - n : 0;
    const char *at = t->n ? memmem(t->s + from, t->n - from, x->until[i], n) : NULL;
    if (at && (first < 0 || at - t->s < first)) first = at - t->s;
  }
  return first;
}

size_t sample_maybe(const SampleEnd *x, const Text *t) {
  size_t most = 0;
  for (int i = 0; i < x->nuntil; i++)
    for (size_t n = MIN(strlen(x->until[i]), t->n); n > most; n--)
      if (memcmp(t->s + t->n - n, x->until[i], n) == 0) most = n;
  return most;
}
