/* tokenizer_json.c - reads tokenizer.json. An unknown part is refused by name: skipping
 * it would silently give other ids. */
#include "tokenizer_int.h"
#include "vm/io/io.h"
#include "vm/io/json_text.h"

#define FAIL(...) return err_file(e, WEFT_EFILE, t->path, 0, __VA_ARGS__)

enum { IDS_MAX = 1 << 21 };

/* GPT-2's split pattern, the default of ByteLevel. */
static const char gpt2_words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                 "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- values ---- */

static const char *text_of(const json_t *v, const char *key) {
  const char *s = json_string_value(json_object_get(v, key));
  return s ? s : "";
}

static bool is_set(const json_t *v, const char *key) {
  const json_t *x = json_object_get(v, key);
  return x && !json_is_null(x) && !json_is_false(x);
}

static bool flag(const json_t *v, const char *key, bool missing) {
  const json_t *x = json_object_get(v, key);
  return json_is_boolean(x) ? json_is_true(x) : missing;
}

/* An integer that can be an id; else -1. */
static int32_t id_of(const json_t *v) {
  json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
  return id >= 0 && id < IDS_MAX ? (int32_t)id : -1;
}

/* ---- bytes as letters ---- */

/* GPT-2's byte alphabet: printable Latin-1 stays, other bytes are U+0100 and on. */
void byte_letters(uint16_t letter[256]) {
  uint16_t next = 256;
  for (int b = 0; b < 256; b++) {
    bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    letter[b] = itself ? (uint16_t)b : next++;
  }
}

/* The bytes that a token's letters represent. A token with other letters is taken as
 * plain UTF-8, like in the library's decoder. */
static Token bytes_of(Arena *a, const char *s) {
  uint16_t letter[256];
  int16_t byte[1024];
  size_t n = strlen(s);
  char *out = arena_alloc(a, n + 1);
  int m = 0;
  byte_letters(letter);
  memset(byte, 0xff, sizeof byte);
  for (int b = 0; b < 256; b++) byte[letter[b]] = (int16_t)b;
  for (size_t i = 0; i < n; m++) {
    unsigned char c = (unsigned char)s[i];
    int x = c < 0x80 ? c : c < 0xe0 ? (c & 0x1f) << 6 | (s[i + 1] & 0x3f) : 1023;
    if (x >= 1023 || byte[x] < 0) return (Token){arena_str(a, s), (int)n, false};
    out[m] = (char)byte[x];
    i += c < 0x80 ? 1 : 2;
  }
  return (Token){out, m, false};
}

/* ---- the vocabulary ---- */

static int32_t highest(const json_t *vocab, const json_t *added) {
  const char *key;
  json_t *v;
  size_t i;
  int32_t most = -1;
  json_object_foreach((json_t *)vocab, key, v) most = MAX(most, id_of(v));
  json_array_foreach(added, i, v) most = MAX(most, id_of(json_object_get(v, "id")));
  return most;
}

static weft_status read_vocabulary(Tokenizer *t, const json_t *vocab, weft_error *e) {
  uint16_t letter[256];
  const char *key;
  json_t *v;
  json_object_foreach((json_t *)vocab, key, v) {
    int32_t id = id_of(v);
    if (id < 0) FAIL("model.vocab: the id of \"%s\" is no number below %d", key, IDS_MAX);
    if (t->token[id].n >= 0) FAIL("model.vocab: two tokens have the id %d", id);
    const char *name = arena_str(t->arena, key);
    names_add(t->arena, &t->names, name, id);
    t->token[id] = bytes_of(t->arena, name);
  }
  byte_letters(letter);
  for (int b = 0; b < 256; b++) {
    uint16_t c = letter[b];
    char two[3] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), 0};
    char one[2] = {(char)c, 0};
    t->of_byte[b] = names_find(&t->names, c < 0x80 ? one : two);
  }
  return WEFT_OK;
}

/* "a b" or ["a", "b"] */
static bool merge_sides(Arena *a, const json_t *m, const char **left,
                        const char **right) {
  if (json_is_array(m) && json_array_size(m) == 2) {
    *left = json_string_value(json_array_get(m, 0));
    *right = json_string_value(json_array_get(m, 1));
    return *left && *right;
  }
  const char *s = json_string_value(m), *space = s ? strchr(s, ' ') : NULL;
  if (!space || strchr(space + 1, ' ')) return false;
  *left = arena_strn(a, s, (size_t)(space - s));
  *right = space + 1;
  return true;
}

static weft_status read_merges(Tokenizer *t, const json_t *merges, weft_error *e) {
  Arena *scratch = t->arena;
  const char *left, *right;
  size_t i;
  json_t *m;
  merges_begin(t, json_array_size(merges));
  json_array_foreach(merges, i, m) {
    if (!merge_sides(scratch, m, &left, &right))
      FAIL("model.merges[%zu]: expected two tokens", i);
    const char *both = arena_printf(scratch, "%s%s", left, right);
    int32_t x = names_find(&t->names, left), y = names_find(&t->names, right),
            z = names_find(&t->names, both);
    if (x < 0 || y < 0 || z < 0)
      FAIL("model.merges[%zu]: the vocabulary has no token \"%.100s\"", i,
           x < 0   ? left
           : y < 0 ? right
                   : both);
    if (!merge_add(t, x, y, (int32_t)i, z))
      FAIL("model.merges[%zu]: \"%.50s\" and \"%.50s\" are merged before", i, left,
           right);
  }
  return WEFT_OK;
}

static weft_status read_model(Tokenizer *t, const json_t *doc, weft_error *e) {
  static const char *const refused[] = {
      "dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"};
  const json_t *m = json_object_get(doc, "model"), *vocab = json_object_get(m, "vocab");
  const json_t *merges = json_object_get(m, "merges");
  const json_t *added = json_object_get(doc, "added_tokens");
  const char *type = text_of(m, "type");
  if (!json_is_object(m)) FAIL("has no model: is it a tokenizer.json of Hugging Face?");
  if (strcmp(*type ? type : "BPE", "BPE") != 0)
    FAIL("its model is %s; byte-level BPE is supported", type);
  if (!json_is_object(vocab) || !json_is_array(merges))
    FAIL("its model has no vocab and merges");
  for (int i = 0; i < LEN(refused); i++) {
    const json_t *x = json_object_get(m, refused[i]);
    bool empty = json_is_string(x) && !json_string_length(x);
    bool zero = json_is_number(x) && json_number_value(x) == 0;
    if (is_set(m, refused[i]) && !empty && !zero)
      FAIL("model.%s is not supported", refused[i]);
  }
  t->ignore_merges = flag(m, "ignore_merges", false);
  t->ntoken = highest(vocab, added) + 1;
  t->token = NEW_N(t->arena, Token, t->ntoken);
  for (int32_t i = 0; i < t->ntoken; i++) t->token[i].n = -1;
  TRY(read_vocabulary(t, vocab, e));
  return read_merges(t, merges, e);
}

/* ---- added tokens ---- */

static bool is_ascii(const char *s) {
  while (*s && (unsigned char)*s < 0x80) s++;
  return !*s;
}

static weft_status read_added(Tokenizer *t, const json_t *list, weft_error *e) {
  static const char *const refused[] = {"single_word", "lstrip", "rstrip"};
  size_t i;
  json_t *v;
  json_array_foreach(list, i, v) {
    const char *s = arena_str(t->arena, text_of(v, "content"));
    int32_t id = id_of(json_object_get(v, "id"));
    bool late = flag(v, "normalized", true);
    if (id < 0 || !*s) FAIL("added_tokens[%zu] has no id or no content", i);
    for (int k = 0; k < LEN(refused); k++)
      if (flag(v, refused[k], false))
        FAIL("added_tokens[%zu] (\"%.50s\"): %s is not supported", i, s, refused[k]);
    if (late && t->compose && !is_ascii(s))
      FAIL("added_tokens[%zu] (\"%.50s\"): normalized is supported for ASCII", i, s);
    t->token[id] = (Token){s, (int)strlen(s), flag(v, "special", false)};
    *VEC_PUSH(t->arena, *(late ? &t->normalized : &t->raw)) =
        (AddedToken){s, strlen(s), id};
  }
  return WEFT_OK;
}

/* ---- normalizers ---- */

static weft_status read_normalizer(Tokenizer *t, const json_t *v, weft_error *e) {
  const char *type = text_of(v, "type");
  size_t i;
  json_t *x;
  if (!v || json_is_null(v)) return WEFT_OK;
  if (strcmp(type, "Sequence") == 0) {
    json_array_foreach(json_object_get(v, "normalizers"), i, x)
        TRY(read_normalizer(t, x, e));
    return WEFT_OK;
  }
  if (strcmp(type, "NFC") != 0) FAIL("normalizer %s is not supported; NFC is", type);
  t->compose = true;
  return WEFT_OK;
}

/* ---- splitting ---- */

static weft_status add_step(Tokenizer *t, SplitStep step, const char *pattern,
                            weft_error *e) {
  char why[128];
  SplitStep *p = VEC_PUSH(t->arena, t->step);
  *p = step;
  if (!pattern || (p->regex = t->api->compile(pattern, why))) return WEFT_OK;
  FAIL("the pattern %.200s cannot be used: %s", pattern, why);
}

/* A pattern that matches the string literally. */
static const char *literal(Arena *a, const char *s) {
  char *out = arena_alloc(a, 2 * strlen(s) + 1), *p = out;
  for (; *s; s++) {
    if (strchr("\\.+*?()|[]{}^$#&-~/ ", *s)) *p++ = '\\';
    *p++ = *s;
  }
  return out;
}

static weft_status read_split(Tokenizer *t, const json_t *v, weft_error *e) {
  const json_t *pattern = json_object_get(v, "pattern");
  const char *regex = json_string_value(json_object_get(pattern, "Regex"));
  const char *plain = json_string_value(json_object_get(pattern, "String"));
  const char *behavior = text_of(v, "behavior");
  bool removed = strcmp(behavior, "Removed") == 0, invert = flag(v, "invert", false);
  if (!regex && !(plain && *plain)) FAIL("pre_tokenizer Split has no pattern");
  if (!removed && strcmp(behavior, "Isolated") != 0)
    FAIL(
        "pre_tokenizer Split with behavior %s is not supported; Isolated and Removed are",
        behavior);
  SplitStep step = {.matches = !removed || invert, .gaps = !removed || !invert};
  return add_step(t, step, regex ? regex : literal(t->arena, plain), e);
}

/* *bytes: from here on strings are bytes, and no further step may follow. */
static weft_status read_cut(Tokenizer *t, const json_t *v, bool *bytes, weft_error *e) {
  const char *type = text_of(v, "type");
  SplitStep step = {.matches = true, .gaps = true};
  size_t i;
  json_t *x;
  if (*bytes) FAIL("pre_tokenizer %s after ByteLevel is not supported", type);
  if (strcmp(type, "Sequence") == 0) {
    json_array_foreach(json_object_get(v, "pretokenizers"), i, x)
        TRY(read_cut(t, x, bytes, e));
    return WEFT_OK;
  }
  if (strcmp(type, "Split") == 0) return read_split(t, v, e);
  if (strcmp(type, "Digits") == 0)
    return add_step(t, step, flag(v, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                    e);
  if (strcmp(type, "ByteLevel") != 0)
    FAIL("pre_tokenizer %s is not supported; ByteLevel, Split and Digits are",
         *type ? type : "(none)");
  *bytes = true;
  step.prefix_space = flag(v, "add_prefix_space", true);
  return add_step(t, step, flag(v, "use_regex", true) ? gpt2_words : NULL, e);
}

/* ---- special tokens around a text ---- */

static weft_status add_special(Tokenizer *t, const json_t *v, const char *name,
                               bool before, weft_error *e) {
  const json_t *known = json_object_get(json_object_get(v, "special_tokens"), name);
  size_t i;
  json_t *x;
  if (!json_is_array(json_object_get(known, "ids")))
    FAIL("post_processor: special_tokens has no ids of \"%.50s\"", name);
  json_array_foreach(json_object_get(known, "ids"), i, x) {
    if (id_of(x) < 0) FAIL("post_processor: an id of \"%.50s\" is none", name);
    if (before)
      *VEC_PUSH(t->arena, t->before) = id_of(x);
    else
      *VEC_PUSH(t->arena, t->after) = id_of(x);
  }
  return WEFT_OK;
}

static weft_status read_template(Tokenizer *t, const json_t *v, weft_error *e) {
  size_t i;
  json_t *x;
  bool before = true;
  if (t->before.n || t->after.n) FAIL("post_processor: two templates are not supported");
  json_array_foreach(json_object_get(v, "single"), i, x) {
    const json_t *special = json_object_get(x, "SpecialToken");
    if (special) {
      TRY(add_special(t, v, text_of(special, "id"), before, e));
    } else {
      if (!before || !json_object_get(x, "Sequence"))
        FAIL("post_processor: expected the text once among special tokens");
      before = false;
    }
  }
  if (before) FAIL("post_processor: the template has no text");
  return WEFT_OK;
}

static weft_status read_around(Tokenizer *t, const json_t *v, weft_error *e) {
  const char *type = text_of(v, "type");
  size_t i;
  json_t *x;
  if (!v || json_is_null(v) || strcmp(type, "ByteLevel") == 0) return WEFT_OK;
  if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, v, e);
  if (strcmp(type, "Sequence") != 0)
    FAIL("post_processor %s is not supported; ByteLevel and TemplateProcessing are",
         type);
  json_array_foreach(json_object_get(v, "processors"), i, x) TRY(read_around(t, x, e));
  return WEFT_OK;
}

/* ---- the whole file ---- */

static weft_status read_document(Tokenizer *t, const json_t *doc, weft_error *e) {
  bool bytes = false;
  if (is_set(doc, "truncation")) FAIL("truncation is not supported");
  if (is_set(doc, "padding")) FAIL("padding is not supported");
  TRY(read_model(t, doc, e));
  TRY(read_normalizer(t, json_object_get(doc, "normalizer"), e));
  TRY(read_added(t, json_object_get(doc, "added_tokens"), e));
  TRY(read_cut(t, json_object_get(doc, "pre_tokenizer"), &bytes, e));
  if (!bytes) FAIL("its pre_tokenizer has no ByteLevel; byte-level BPE is supported");
  return read_around(t, json_object_get(doc, "post_processor"), e);
}

/* Reading may run out of arena memory, for which there is no other guard here. */
typedef struct Reading {
  Tokenizer *t;
  const json_t *doc;
} Reading;

static weft_status read_guarded(Arena *a, void *ud, weft_error *e) {
  const Reading *r = ud;
  (void)a;
  return read_document(r->t, r->doc, e);
}

weft_status tokenizer_read(Tokenizer *t, weft_error *e) {
  char *s;
  size_t n;
  TRY(file_read(&t->alloc, t->path, FILE_OWN_MAX, &s, &n, e));
  json_t *doc = json_text(t->path, "", s, n, e);
  mem_free(&t->alloc, s, n + 1);
  if (!doc) return e && e->code ? e->code : WEFT_EFILE;
  weft_status st = arena_call(t->arena, read_guarded, &(Reading){t, doc}, e);
  json_decref(doc);
  return st;
}
