/* chat_cache.c - token files of conversations beside the plan. */
#include "chat_cache.h"

#include <ctype.h>
#include <stdio.h>

#include "bindings/sandbox/stdlib.h"
#include "vm/base/json.h"
#include "vm/base/sha256.h"
#include "vm/io/file.h"
#include "vm/io/json_text.h"

#define COUNTS "counts.json"

/* ---- the name ---- */

static void add_text(Sha256 *h, const char *s) {
  sha256_add(h, s ? s : "", s ? strlen(s) + 1 : 0);
  sha256_add(h, s ? "+" : "-", 1);
}

static void add_number(Sha256 *h, int64_t v) { sha256_add(h, &v, sizeof v); }

static weft_status add_file(Sha256 *h, const char *path, weft_error *e) {
  char block[1 << 15];
  File f;
  TRY(file_open(path, &f, e));
  weft_status st = WEFT_OK;
  for (uint64_t at = 0; at < f.size && st == WEFT_OK; at += sizeof block) {
    size_t n = (size_t)MIN(f.size - at, (uint64_t)sizeof block);
    st = file_at(&f, at, block, n, e);
    if (st == WEFT_OK) sha256_add(h, block, n);
  }
  add_number(h, (int64_t)f.size);
  file_close(&f);
  return st;
}

/* The templates of this version of weft. */
static void add_library(Sha256 *h) {
  for (const StdlibFile *f = stdlib_files; f->name; f++)
    if (strncmp(f->name, "chat/", 5) == 0) sha256_add(h, f->text, f->n);
}

static const char *name_of(Arena *a, const uint8_t *sum) {
  const char *name = "chat-";
  for (int i = 0; i < 10; i++) name = arena_printf(a, "%s%02x", name, sum[i]);
  return name;
}

weft_status chat_cache_name(Arena *a, const ChatSet *s, const char **name,
                            weft_error *e) {
  uint8_t sum[SHA256_BYTES];
  Sha256 h;
  sha256_begin(&h);
  add_library(&h);
  TRY(add_file(&h, s->tokenizer, e));
  add_text(&h, s->config->bos);
  add_text(&h, s->config->eos);
  add_text(&h, s->config->template);
  add_text(&h, s->written);
  add_number(&h, s->max_length);
  add_number(&h, 2 * s->drop_bad + s->refuse_special);
  for (int i = 0; i < s->n; i++) {
    add_number(&h, s->nfiles[i]);
    for (int k = 0; k < s->nfiles[i]; k++) TRY(add_file(&h, s->files[i][k], e));
  }
  sha256_end(&h, sum);
  *name = name_of(a, sum);
  return WEFT_OK;
}

const char *chat_cache_next(Arena *a, const char *name, const char *modules) {
  uint8_t sum[SHA256_BYTES];
  Sha256 h;
  sha256_begin(&h);
  add_text(&h, name);
  add_text(&h, modules);
  sha256_end(&h, sum);
  return name_of(a, sum);
}

const char *chat_cache_file(Arena *a, int i) { return arena_printf(a, "%d.bin", i + 1); }

/* The files of the folder: 1.bin, 1.idx, 1.mask, counts.json. */
static bool owns(const char *name) {
  const char *dot = strchr(name, '.');
  if (strcmp(name, COUNTS) == 0) return true;
  for (const char *p = name; p < dot; p++)
    if (!isdigit((unsigned char)*p)) return false;
  return dot && dot > name &&
         (str_eq(dot, ".bin") || str_eq(dot, ".idx") || str_eq(dot, ".mask"));
}

/* ---- what was counted ---- */

static weft_status put_counts(const Dir *in, const ChatCounts *n, weft_error *e) {
  Text t = {0};
  Json out = {.out = &t};
  json_open(&out, NULL, '{');
  json_int(&out, "conversations", n->conversations);
  json_int(&out, "tokens", n->tokens);
  json_int(&out, "learnt", n->learnt);
  json_int(&out, "truncated", n->truncated);
  json_int(&out, "unreasoned", n->unreasoned);
  json_int(&out, "bad", n->bad);
  json_int(&out, "unlearnt", n->unlearnt);
  json_str(&out, "first_bad", n->first_bad);
  json_int(&out, "longest", n->longest);
  json_str(&out, "longest_at", n->longest_at);
  json_int(&out, "top", n->top);
  json_str(&out, "top_at", n->top_at);
  json_str(&out, "top_text", n->top_text);
  if (n->modules) json_str(&out, "modules", n->modules);
  json_close(&out, '}');
  return file_write_text(in, COUNTS, &t, e);
}

static int64_t count_of(const json_t *v, const char *key) {
  return json_integer_value(json_object_get(v, key));
}

static void read_text(const json_t *v, const char *key, char *to, size_t size) {
  const char *s = json_string_value(json_object_get(v, key));
  snprintf(to, size, "%s", s ? s : "");
}

bool chat_cache_has(Arena *a, const char *dir, const char *name, ChatCounts *n) {
  char *s;
  size_t bytes;
  const char *path =
      arena_printf(a, "%s%s" CHAT_CACHE "/%s/" COUNTS, dir, *dir ? "/" : "", name);
  *n = (ChatCounts){0};
  if (file_read(NULL, path, FILE_CODE_MAX, &s, &bytes, NULL) != WEFT_OK) return false;
  json_t *v = json_text(path, "", s, bytes, NULL);
  mem_free(NULL, s, bytes + 1);
  if (!v) return false;
  n->conversations = count_of(v, "conversations");
  n->tokens = count_of(v, "tokens");
  n->learnt = count_of(v, "learnt");
  n->truncated = count_of(v, "truncated");
  n->unreasoned = count_of(v, "unreasoned");
  n->bad = count_of(v, "bad");
  n->unlearnt = count_of(v, "unlearnt");
  n->longest = count_of(v, "longest");
  read_text(v, "first_bad", n->first_bad, sizeof n->first_bad);
  read_text(v, "longest_at", n->longest_at, sizeof n->longest_at);
  n->top = count_of(v, "top");
  read_text(v, "top_at", n->top_at, sizeof n->top_at);
  read_text(v, "top_text", n->top_text, sizeof n->top_text);
  const char *modules = json_string_value(json_object_get(v, "modules"));
  if (modules) n->modules = arena_str(a, modules);
  json_decref(v);
  return true;
}

static void add_counts(ChatCounts *sum, const ChatCounts *n) {
  sum->conversations += n->conversations;
  sum->tokens += n->tokens;
  sum->learnt += n->learnt;
  sum->truncated += n->truncated;
  sum->unreasoned += n->unreasoned;
  sum->bad += n->bad;
  sum->unlearnt += n->unlearnt;
  if (n->modules) sum->modules = n->modules; /* those of the files before, too */
  if (!*sum->first_bad)
    snprintf(sum->first_bad, sizeof sum->first_bad, "%s", n->first_bad);
  if (n->longest > sum->longest) {
    sum->longest = n->longest;
    snprintf(sum->longest_at, sizeof sum->longest_at, "%s", n->longest_at);
  }
  if (n->top > sum->top || !*sum->top_at) {
    sum->top = n->top;
    snprintf(sum->top_at, sizeof sum->top_at, "%s", n->top_at);
    snprintf(sum->top_text, sizeof sum->top_text, "%s", n->top_text);
  }
}

/* ---- writing ---- */

static weft_status open_cache(const char *dir, Dir *out, weft_error *e) {
  Dir plan;
  TRY(dir_open(*dir ? dir : ".", 0, &plan, e));
  weft_status st = dir_below(&plan, CHAT_CACHE, 0755, out, e);
  dir_close(&plan);
  return st;
}

/* Another process that has finished the folder meanwhile leaves no place for this one's:
 * neither when it is begun nor when it is to get its name. */
weft_status chat_cache_write(Arena *a, const char *dir, const char *name, int files,
                             weft_status (*file)(void *ud, int i, const Dir *in,
                                                 ChatCounts *n, weft_error *e),
                             void *ud, ChatCounts *n, weft_error *e) {
  Dir cache;
  FolderOut out;
  *n = (ChatCounts){0};
  TRY(open_cache(dir, &cache, e));
  weft_status st = folder_create(&cache, name, owns, &out, e);
  bool begun = st == WEFT_OK;
  for (int i = 0; i < files && st == WEFT_OK; i++) {
    ChatCounts one;
    st = file(ud, i, &out.dir, &one, e);
    if (st == WEFT_OK) add_counts(n, &one);
  }
  if (st == WEFT_OK) st = put_counts(&out.dir, n, e);
  bool written = st == WEFT_OK;
  if (written) st = folder_finish(&out, e);
  if (begun && !written) folder_drop(&out);
  dir_close(&cache);
  if (st != WEFT_OK && begun == written && chat_cache_has(a, dir, name, n)) {
    err_clear(e);
    st = WEFT_OK;
  }
  return st;
}
