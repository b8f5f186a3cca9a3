/* check_chat_cache.c - the folders of token files beside a plan: named by all that they
 * depend on, with what was counted, whole or not there. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "bindings/chat/chat_cache.h"
#include "tests/harness/process.h"
#include "vm/io/file.h"

static const char *put(const char *name, const char *text) {
  return scratch_put(name, text, strlen(text));
}

/* ---- the name ---- */

static ChatSet set;
static TokenizerConfig config;

/* Two names of files: a and b, and b again. */
static void setup(void) {
  scratch_setup();
  Arena *a = scratch_arena;
  config = (TokenizerConfig){.path = "config", .bos = "<s>", .eos = "</s>"};
  set = (ChatSet){.n = 2, .tokenizer = put("tokenizer.json", "{}"), .config = &config};
  set.written = "format", set.max_length = 64;
  set.files = NEW_N(a, const char *const *, 3);
  set.nfiles = NEW_N(a, int, 3);
  const char **list[2] = {NEW_N(a, const char *, 3), NEW_N(a, const char *, 3)};
  list[0][0] = put("a", "one\n"), list[0][1] = list[1][0] = put("b", "two\n");
  for (int i = 0; i < 2; i++) set.files[i] = list[i];
  set.nfiles[0] = 2, set.nfiles[1] = 1;
}

static const char *name_of(const ChatSet *s) {
  const char *name = NULL;
  weft_status st = chat_cache_name(scratch_arena, s, &name, &scratch_error);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  return name;
}

static void change(int way) {
  const char **first = (const char **)set.files[0];
  switch (way) {
  case 0: break;
  case 1: put("tokenizer.json", "[]"); break;
  case 2: config.bos = NULL; break;
  case 3: config.bos = ""; break;
  case 4: config.bos = "</s>", config.eos = "<s>"; break;
  case 5: config.bos = "<s></s>", config.eos = ""; break;
  case 6: config.eos = NULL; break;
  case 7: config.template = ""; break;
  case 8: config.template = "format", set.written = ""; break;
  case 9: set.written = "formats"; break;
  case 10: set.max_length = 65; break;
  case 11: set.drop_bad = true; break;
  case 12: set.refuse_special = true; break;
  case 13: set.drop_bad = set.refuse_special = true; break;
  case 14: put("b", "twx\n"); break;
  case 15: put("a", "one\ntwo\n"), put("b", ""); break;
  case 16: first[0] = set.files[1][0], first[1] = scratch_path("a"); break;
  case 17: set.nfiles[0] = 1; break;
  case 18: set.n = 1; break;
  case 19: set.files[1] = set.files[0], set.nfiles[1] = 2, set.nfiles[0] = 1; break;
  default: set.files[0] = set.files[1], set.nfiles[0] = 1;
  }
}

/* Each way has a name of its own, and the same one in another folder. */
START_TEST(all_that_it_depends_on) {
  enum { WAYS = 21 };
  const char *name[WAYS];
  for (int i = 0; i < WAYS; i++) {
    scratch_teardown();
    setup();
    change(i);
    name[i] = strdup(name_of(&set));
    ck_assert_msg(strncmp(name[i], "chat-", 5) == 0, "%s", name[i]);
    ck_assert_uint_eq(strspn(name[i] + 5, "0123456789abcdef"), 20);
    ck_assert_uint_eq(strlen(name[i]), 25);
    for (int k = 0; k < i; k++)
      ck_assert_msg(strcmp(name[i], name[k]) != 0, "ways %d and %d", k, i);
  }
  scratch_teardown();
  setup();
  ck_assert_str_eq(name_of(&set), name[0]);
  for (int i = 0; i < WAYS; i++) free((void *)name[i]);
}
END_TEST

/* Files are read in blocks of 32 KiB; the last byte of each counts. */
START_TEST(every_byte_of_a_file) {
  enum { BLOCK = 1 << 15 };
  static const size_t at[] = {0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK};
  char *s = arena_alloc(scratch_arena, 2 * BLOCK + 1);
  memset(s, 'x', 2 * BLOCK + 1);
  scratch_put("a", s, 2 * BLOCK + 1);
  const char *was = name_of(&set);
  for (int i = 0; i < LEN(at); i++) {
    s[at[i]] = 'y';
    scratch_put("a", s, 2 * BLOCK + 1);
    ck_assert_msg(strcmp(name_of(&set), was) != 0, "byte %zu", at[i]);
    s[at[i]] = 'x';
  }
  ((const char **)set.files[0])[0] = scratch_path("none");
  const char *name;
  ck_assert_int_eq(chat_cache_name(scratch_arena, &set, &name, &scratch_error),
                   WEFT_EFILE);
  ck_assert_str_eq(scratch_error.file, scratch_path("none"));
}
END_TEST

/* ---- what was counted ---- */

static const ChatCounts counted[] = {
    {.conversations = 3, .tokens = 50, .learnt = 20, .truncated = 1, .unlearnt = 2},
    {.conversations = 5,
     .tokens = 70,
     .learnt = 30,
     .truncated = 2,
     .unreasoned = 6,
     .bad = 4,
     .unlearnt = 1,
     .first_bad = "b:1: \"no\" list\n",
     .longest = 40,
     .longest_at = "b:7",
     .top = 9,
     .top_at = "b:8",
     .top_text = "\xc3\xa9"},
    {.unreasoned = 1,
     .bad = 1,
     .first_bad = "c:1",
     .longest = 40,
     .longest_at = "c:7",
     .top = 9,
     .top_at = "c:8",
     .top_text = "x"}};

typedef struct Writing {
  const char *const *names; /* that each file() writes, up to NULL */
  int fails;                /* file() of this number, or -1 */
  const char *beside;       /* what another process makes meanwhile, or NULL */
} Writing;

static weft_status write_files(void *ud, int i, const Dir *in, ChatCounts *n,
                               weft_error *e) {
  const Writing *w = ud;
  *n = counted[i];
  for (const char *const *name = w->names; *name; name++) {
    FilePart part = {"x", 1};
    ck_assert_int_eq(file_write(in, *name, &part, 1, e), WEFT_OK);
  }
  if (w->beside) {
    Writing other = {.names = w->names, .fails = -1};
    ChatCounts his;
    ck_assert_int_eq(chat_cache_write(scratch_arena, scratch_dir, w->beside, 1,
                                      write_files, &other, &his, e),
                     WEFT_OK);
  }
  return i == w->fails ? err_set(e, WEFT_EPLAN, "stop at %d", i) : WEFT_OK;
}

static const char *const no_names[] = {NULL};

static weft_status cache(const Writing *w, int files, ChatCounts *n) {
  return chat_cache_write(scratch_arena, scratch_dir, "chat-1", files, write_files,
                          (void *)w, n, &scratch_error);
}

static void same_counts(const ChatCounts *a, const ChatCounts *b) {
  ck_assert_int_eq(a->conversations, b->conversations);
  ck_assert_int_eq(a->tokens, b->tokens);
  ck_assert_int_eq(a->learnt, b->learnt);
  ck_assert_int_eq(a->truncated, b->truncated);
  ck_assert_int_eq(a->unreasoned, b->unreasoned);
  ck_assert_int_eq(a->bad, b->bad);
  ck_assert_int_eq(a->unlearnt, b->unlearnt);
  ck_assert_str_eq(a->first_bad, b->first_bad);
  ck_assert_int_eq(a->longest, b->longest);
  ck_assert_str_eq(a->longest_at, b->longest_at);
  ck_assert_int_eq(a->top, b->top);
  ck_assert_str_eq(a->top_at, b->top_at);
  ck_assert_str_eq(a->top_text, b->top_text);
}

static bool has(const char *name, ChatCounts *n) {
  return chat_cache_has(scratch_arena, scratch_dir, name, n);
}

/* Sums, and of what is the first or the most that of the first file which has it. */
START_TEST(counts_come_back) {
  Writing w = {.names = no_names, .fails = -1};
  ChatCounts n, again, want = counted[1];
  want.conversations = 8, want.tokens = 120, want.learnt = 50;
  want.truncated = 3, want.unreasoned = 7, want.bad = 5, want.unlearnt = 3;
  ck_assert_int_eq(cache(&w, LEN(counted), &n), WEFT_OK);
  same_counts(&n, &want);
  ck_assert(has("chat-1", &again));
  same_counts(&again, &want);
  ck_assert(!has("chat-2", &again));
  same_counts(&again, &(ChatCounts){0});
  ck_assert_int_eq(chdir(scratch_dir), 0); /* the folder of a plan that is named alone */
  ck_assert(chat_cache_has(scratch_arena, "", "chat-1", &again));
  same_counts(&again, &want);
}
END_TEST

/* A folder whose counts cannot be read is none. */
START_TEST(counts_that_are_none) {
  Writing w = {.names = no_names, .fails = -1};
  ChatCounts n;
  ck_assert_int_eq(cache(&w, 1, &n), WEFT_OK);
  put(".weft/chat-1/counts.json", "{\"tokens\": 5");
  ck_assert(!has("chat-1", &n));
  ck_assert_int_eq(n.tokens, 0);
}
END_TEST

/* ---- whole or not there ---- */

static const char *names_in(const char *folder) {
  Outcome o = process_run(10, "ls -A %s", folder);
  return o.out;
}

static const char *const own[] = {"1.bin", "1.idx",       "1.mask",         "20.bin",
                                  "2.bin", "counts.json", "1.bin.12-0.tmp", NULL};

START_TEST(what_fails_leaves_nothing) {
  Writing w = {.names = own, .fails = 1};
  ChatCounts n;
  ck_assert_int_eq(cache(&w, 2, &n), WEFT_EPLAN);
  ck_assert_str_eq(scratch_error.text, "stop at 1");
  ck_assert_str_eq(names_in(".weft"), "");
  ck_assert(!has("chat-1", &n));
}
END_TEST

/* What somebody else put there stays, and with it all that is in the folder. */
START_TEST(foreign_files_stay) {
  static const char *const foreign[] = {"notes", "counts.jso", "x.bin", ".bin",
                                        "1",     "1.binary",   "1x.bin"};
  for (int i = 0; i < LEN(foreign); i++) {
    const char *const names[] = {"1.bin", foreign[i], NULL};
    Writing w = {.names = names, .fails = 0};
    ChatCounts n;
    ck_assert_int_eq(cache(&w, 1, &n), WEFT_EPLAN);
    err_clear(&scratch_error);
    const char *left = process_run(10, "find .weft -type f").out;
    ck_assert_msg(strstr(left, arena_printf(scratch_arena, "/%s\n", foreign[i])) &&
                      strstr(left, "/1.bin\n"),
                  "%s: %s", foreign[i], left);
    ck_assert_int_eq(process_run(10, "rm -r .weft").code, 0);
  }
}
END_TEST

/* Another process has made the same folder meanwhile. */
START_TEST(the_first_one_stays) {
  Writing w = {.names = no_names, .fails = -1, .beside = "chat-1"};
  ChatCounts n;
  weft_status st = cache(&w, 1, &n);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(scratch_error.code, WEFT_OK);
  same_counts(&n, &counted[0]);
  ck_assert_str_eq(names_in(".weft"), "chat-1\n");
}
END_TEST

/* One that was finished before this one is begun; without counts it is no such folder. */
START_TEST(one_that_is_there_stays) {
  Writing first = {.names = no_names, .fails = -1}, later = {.names = own, .fails = 0};
  ChatCounts n;
  ck_assert_int_eq(cache(&first, 1, &n), WEFT_OK);
  weft_status st = cache(&later, 2, &n);
  ck_assert_msg(st == WEFT_OK, "%s", scratch_error.text);
  ck_assert_int_eq(scratch_error.code, WEFT_OK);
  same_counts(&n, &counted[0]);
  ck_assert_str_eq(names_in(".weft"), "chat-1\n");
  put(".weft/chat-1/counts.json", "none");
  ck_assert_int_eq(cache(&first, 1, &n), WEFT_EFILE);
  ck_assert_str_eq(scratch_error.text, "exists and is not empty; give another name, or "
                                       "remove it first");
  err_clear(&scratch_error);
}
END_TEST

Suite *chat_cache_suite(void);
Suite *chat_cache_suite(void) {
  Suite *s = suite_create("chat_cache");
  TCase *t = tcase_create("folders");
  tcase_add_checked_fixture(t, setup, scratch_teardown);
  tcase_add_test(t, all_that_it_depends_on);
  tcase_add_test(t, every_byte_of_a_file);
  tcase_add_test(t, counts_come_back);
  tcase_add_test(t, counts_that_are_none);
  tcase_add_test(t, what_fails_leaves_nothing);
  tcase_add_test(t, foreign_files_stay);
  tcase_add_test(t, the_first_one_stays);
  tcase_add_test(t, one_that_is_there_stays);
  suite_add_tcase(s, t);
  return s;
}
