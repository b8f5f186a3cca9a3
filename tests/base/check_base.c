/* check_base.c - arenas, texts, names, JSON and diagnostics. */
#include <check.h>
#include <signal.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "tests/harness/scratch.h"
#include "vm/base/diag.h"
#include "vm/base/f16.h"
#include "vm/base/json.h"
#include "vm/base/nontemporal.h"
#include "vm/base/terminal.h"

/* ---- halves ---- */

/* The compiler's own conversion. */
static uint16_t compiled(float f) {
  _Float16 h = (_Float16)f;
  uint16_t b;
  memcpy(&b, &h, sizeof b);
  return b;
}

/* Every half and back, and the floats around each: the nearest, ties to even. */
START_TEST(halves_round_as_the_compiler_does) {
  for (uint32_t i = 0; i < 65536; i++) {
    float f = f16_to_f32((f16)i);
    if (isnan(f)) {
      ck_assert((i & 0x7c00) == 0x7c00 && (i & 0x3ff) &&
                isnan(f16_to_f32(f16_from_f32(f))));
      continue;
    }
    uint32_t next = bits_of_float(f16_to_f32((f16)(i ^ 1)));
    float half_way = (f + float_of_bits(next)) / 2;
    float x[] = {f, half_way, nextafterf(half_way, 0), nextafterf(half_way, INFINITY),
                 f * 1.0001f};
    for (int k = 0; k < LEN(x); k++)
      if (!isnan(x[k]) && f16_from_f32(x[k]) != compiled(x[k]))
        ck_abort_msg("%a: %04x, not %04x", x[k], f16_from_f32(x[k]), compiled(x[k]));
    if (f16_from_f32(f) != i) ck_abort_msg("%04x does not come back", i);
  }
  ck_assert_uint_eq(f16_from_f32(65519.996f), 0x7bff);
  ck_assert_uint_eq(f16_from_f32(65520.0f), 0x7c00);
  ck_assert_uint_eq(f16_from_f32(-0x1p-25f), 0x8000);
}
END_TEST

/* ---- arena ---- */

START_TEST(arena_gives_zeroed_aligned_memory) {
  Arena *a = arena_new(NULL);
  for (int i = 1; i < 2000; i += 7) {
    char *p = arena_alloc(a, (size_t)i);
    ck_assert_uint_eq((uintptr_t)p % 16, 0);
    for (int k = 0; k < i; k++) ck_assert_int_eq(p[k], 0);
    memset(p, 0xff, (size_t)i);
  }
  char *big = arena_alloc(a, 1 << 20);
  big[(1 << 20) - 1] = 1;
  ck_assert_uint_ge(arena_bytes(a), 1 << 20);
  arena_free(a);
  arena_free(NULL);
}
END_TEST

/* Any place and length; what lies around it stays. */
START_TEST(writes_past_the_caches) {
  enum { MOST = 100 };
  static uint16_t from[MOST + 40], copy[MOST + 80];
  static float wide[MOST + 80];
  for (int i = 0; i < LEN(from); i++) from[i] = (uint16_t)(i * 40503u + 7);
  for (int n = 0; n <= MOST; n++)
    for (int at = 0; at < 35; at++) {
      int begin = 33 - n % 33;
      memset(copy, 0xee, sizeof copy);
      memset(wide, 0xee, sizeof wide);
      nt_copy(copy + at, from + begin, (size_t)n * sizeof *copy);
      nt_widen(wide + at, from + begin, (size_t)n);
      int wrong = -1; /* one assertion for all: each writes a line for its parent */
      for (int i = 0; i < MOST + 80; i++) {
        bool in = i >= at && i < at + n;
        uint16_t want = in ? from[begin + i - at] : 0xeeee;
        uint32_t wider = in ? (uint32_t)want << 16 : 0xeeeeeeee;
        if (copy[i] != want || bits_of_float(wide[i]) != wider) wrong = i;
      }
      ck_assert_msg(wrong < 0, "%d of %d at %d", wrong, n, at);
    }
}
END_TEST

START_TEST(arena_copies_strings) {
  Arena *a = arena_new(NULL);
  ck_assert_str_eq(arena_str(a, "mesh"), "mesh");
  ck_assert_ptr_null(arena_str(a, NULL));
  ck_assert_str_eq(arena_strn(a, "mesh.tp", 4), "mesh");
  ck_assert_str_eq(arena_printf(a, "%s = %d", "tp", 8), "tp = 8");
  arena_free(a);
}
END_TEST

START_TEST(vectors_grow) {
  Arena *a = arena_new(NULL);
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) *VEC_PUSH(a, v) = i * i;
  ck_assert_int_eq(v.n, 1000);
  for (int i = 0; i < 1000; i++) ck_assert_int_eq(v.at[i], i * i);
  arena_free(a);
}
END_TEST

/* Allocates in three blocks; false if the allocator gave out. */
static bool work(const weft_alloc *alloc) {
  Arena *a = arena_new(alloc);
  if (!a) return false;
  if (setjmp(*arena_guard(a))) {
    arena_free(a);
    return false;
  }
  VEC(int64_t) v = {0};
  for (int i = 0; i < 20000; i++) *VEC_PUSH(a, v) = i;
  arena_free(a);
  return true;
}

START_TEST(arena_unwinds_when_out_of_memory) {
  int failures = 0;
  for (int n = 0;; n++) {
    ScratchMeter m = {n, 0};
    bool done = work(&(weft_alloc){scratch_alloc, &m});
    ck_assert_int_eq(m.held, 0);
    if (done) break;
    failures++;
  }
  ck_assert_int_ge(failures, 3);
}
END_TEST

START_TEST(arena_refuses_sizes_that_wrap) {
  Arena *a = arena_new(NULL);
  bool caught = false;
  if (setjmp(*arena_guard(a)))
    caught = true;
  else
    arena_alloc(a, SIZE_MAX - 3);
  ck_assert(caught);
  arena_free(a);
}
END_TEST

/* ---- errors, text and names ---- */

#ifdef __SANITIZE_ADDRESS__
START_TEST(sizes_given_back_are_looked_at) { mem_free(NULL, mem_new(NULL, 24), 32); }
END_TEST
#endif

START_TEST(first_error_wins) {
  weft_error e;
  err_clear(&e);
  ck_assert_int_eq(e.code, WEFT_OK);
  ck_assert_int_eq(err_file(&e, WEFT_EFILE, "a.txt", 3, "bad %s", "byte"), WEFT_EFILE);
  ck_assert_int_eq(err_set(&e, WEFT_ERUN, "later"), WEFT_ERUN);
  ck_assert_int_eq(e.code, WEFT_EFILE);
  ck_assert_str_eq(e.text, "bad byte");
  ck_assert_str_eq(e.file, "a.txt");
  ck_assert_int_eq(e.line, 3);
  ck_assert_int_eq(err_set(NULL, WEFT_ELIMIT, "nobody listens"), WEFT_ELIMIT);
}
END_TEST

START_TEST(text_grows) {
  Text t = {0};
  for (int i = 0; i < 500; i++) text_printf(&t, "%d,", i);
  text_addn(&t, "xyz", 2);
  text_add(&t, "!");
  ck_assert_uint_eq(t.n, 10 * 2 + 90 * 3 + 400 * 4 + 3);
  ck_assert_uint_eq(strlen(t.s), t.n);
  ck_assert_str_eq(t.s + t.n - 8, "8,499,xy!" + 1);
  ck_assert(!t.oom);
  text_free(&t);
  ck_assert_ptr_null(t.s);
}
END_TEST

/* What does not fit is left out, wherever the buffer ends, and nothing is written behind
 * it. */
START_TEST(bounded_texts_end_with_their_buffer) {
  for (size_t size = 1; size <= 20; size++) {
    char buf[24];
    memset(buf, '#', sizeof buf);
    TextBuf t = textbuf(buf, size);
    ck_assert_str_eq(t.s, "");
    for (int i = 0; i < 6; i++) textbuf_printf(&t, "%d, ", i);
    ck_assert_uint_eq(t.n, MIN(size - 1, (size_t)18));
    ck_assert_int_eq(memcmp(buf, "0, 1, 2, 3, 4, 5, ", t.n), 0);
    ck_assert_int_eq(buf[t.n], 0);
    ck_assert_int_eq(t.cut, size < 19);
    for (size_t i = size; i < sizeof buf; i++) ck_assert_int_eq(buf[i], '#');
  }
}
END_TEST

START_TEST(distances) {
  ck_assert_int_eq(str_distance("global", "gobal"), 1);
  ck_assert_int_eq(str_distance("kitten", "sitting"), 3);
  ck_assert_int_eq(str_distance("TP", "tp"), 0);
  ck_assert_int_eq(str_distance("", "abc"), 3);
}
END_TEST

START_TEST(nearest_name_is_offered_when_near) {
  static const char *const names[] = {"global", "micro", "seq", "tp", "pp"};
  ck_assert_str_eq(str_nearest("gobal", names, LEN(names)), "global");
  ck_assert_str_eq(str_nearest("MICOR", names, LEN(names)), "micro");
  ck_assert_str_eq(str_nearest("ttp", names, LEN(names)), "tp");
  ck_assert_ptr_null(str_nearest("scheduler", names, LEN(names)));
  ck_assert_ptr_null(str_nearest("xy", names, LEN(names)));
  ck_assert_ptr_null(str_nearest("tp", names, 0));
}
END_TEST

START_TEST(equality_and_hash) {
  ck_assert(str_eq("a", "a") && !str_eq("a", "A") && str_eq(NULL, NULL));
  ck_assert(!str_eq("a", NULL) && !str_ieq(NULL, "a") && str_ieq("Ab", "aB"));
  ck_assert(!str_ieq("ab", "abc"));
  /* Published value of 64-bit FNV-1a. */
  ck_assert_uint_eq(hash_bytes(0, "a", 1), 0xaf63dc4c8601ec8cu);
  ck_assert_uint_ne(hash_bytes(1, "a", 1), hash_bytes(0, "a", 1));
}
END_TEST

/* ---- json ---- */

START_TEST(names_are_found) {
  enum { N = 1000 };
  Arena *arena = arena_new(NULL);
  Names t = {0};
  ck_assert_int_eq(names_find(&t, "none"), -1);
  for (int i = 0; i < N; i++) names_add(arena, &t, arena_printf(arena, "n%d", i), i);
  for (int i = 0; i < N; i++)
    ck_assert_int_eq(names_find(&t, arena_printf(arena, "n%d", i)), i);
  ck_assert_int_eq(names_find(&t, "n1000"), -1);
  ck_assert_int_eq(names_find(&t, ""), -1);
  arena_free(arena);
}
END_TEST

START_TEST(json_on_one_line) {
  Text t = {0};
  Json j = {.out = &t};
  json_open(&j, NULL, '{');
  json_bool(&j, "a", true);
  json_open(&j, "b", '[');
  json_int(&j, NULL, INT64_MIN);
  json_open(&j, NULL, '[');
  json_close(&j, ']');
  json_none(&j, NULL);
  json_close(&j, ']');
  json_str(&j, "c", NULL);
  json_open(&j, "d", '{');
  json_close(&j, '}');
  json_close(&j, '}');
  ck_assert_str_eq(t.s, "{\"a\":true,\"b\":[-9223372036854775808,[],null],\"c\":null,"
                        "\"d\":{}}");
  text_free(&t);
}
END_TEST

START_TEST(json_pretty) {
  Text t = {0};
  Json j = {.out = &t, .pretty = true};
  json_open(&j, NULL, '{');
  json_open(&j, "a", '[');
  json_int(&j, NULL, 1);
  json_int(&j, NULL, 2);
  json_close(&j, ']');
  json_open(&j, "b", '{');
  json_close(&j, '}');
  json_close(&j, '}');
  ck_assert_str_eq(t.s, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
  text_free(&t);
}
END_TEST

static void check_string(const char *in, const char *want) {
  Text t = {0};
  Json j = {.out = &t};
  json_str(&j, NULL, in);
  ck_assert_str_eq(t.s, want);
  text_free(&t);
}

START_TEST(json_with_bytes_of_0) {
  Text t = {0};
  Json j = {.out = &t};
  json_strn(&j, NULL, "a\0\xe2\0b", 5);
  ck_assert_str_eq(t.s, "\"a\\u0000\xef\xbf\xbd\\u0000b\"");
  text_free(&t);
}
END_TEST

/* As Python decodes them with errors="replace". */
START_TEST(parts_that_are_not_utf8) {
#define WRONG "\xef\xbf\xbd"
  static const struct {
    const char *bytes, *text;
  } all[] = {
      {"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"},
      {"", ""},
      {"a\xe2\x82", "a" WRONG},
      {"\xf0\x9f\x98", WRONG},
      {"\xf0\x9f\x98z", WRONG "z"},
      {"\xe2\xe2\x82\xac", WRONG "\xe2\x82\xac"},
      {"\x80", WRONG},
      {"\xc0\xaf", WRONG WRONG},
      {"\xe0\x80\x80", WRONG WRONG WRONG},
      {"\xed\xa0\x80", WRONG WRONG WRONG},
      {"\xf4\x90\x80\x80", WRONG WRONG WRONG WRONG},
      {"caf\xe9", "caf" WRONG},
  };
  for (int i = 0; i < LEN(all); i++) {
    Text t = {0};
    text_add_utf8(&t, all[i].bytes, strlen(all[i].bytes));
    ck_assert_str_eq(t.s ? t.s : "", all[i].text);
    ck_assert_uint_eq(text_utf8(all[i].text, strlen(all[i].text)), strlen(all[i].text));
    text_free(&t);
  }
}
END_TEST

START_TEST(json_escapes) {
  check_string("a\"b\\c/", "\"a\\\"b\\\\c/\"");
  check_string("\b\f\n\r\t\x01\x1f\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"");
  check_string("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
               "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
  check_string("", "\"\"");
  /* A lone continuation, a cut character, an overlong form, a surrogate, too large. */
  check_string("\x80", "\"\xef\xbf\xbd\"");
  check_string("a\xe2\x82", "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  check_string("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  check_string("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  check_string("\xf4\x90\x80\x80",
               "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}
END_TEST

static void check_number(double v, const char *want) {
  Text t = {0};
  Json j = {.out = &t};
  json_num(&j, NULL, v);
  ck_assert_str_eq(t.s, want);
  text_free(&t);
}

START_TEST(json_numbers_are_shortest) {
  check_number(0, "0");
  check_number(-0.0, "-0");
  check_number(1, "1");
  check_number(-2.5, "-2.5");
  check_number(0.1, "0.1");
  check_number(1.5e-4, "0.00015");
  check_number(1e-5, "0.00001");
  check_number(1e-8, "1e-8");
  check_number(1.25e-9, "1.25e-9");
  check_number(100, "100");
  check_number(123456.75, "123456.75");
  check_number(1e15, "1000000000000000");
  check_number(1e22, "1e22");
  check_number(0.1 + 0.2, "0.30000000000000004");
  check_number(1.0 / 3, "0.3333333333333333");
  check_number(5e-324, "5e-324");
  check_number(DBL_MAX, "1.7976931348623157e308");
  check_number(9007199254740993.0, "9007199254740992");
  check_number(NAN, "null");
  check_number(INFINITY, "null");
  check_number(-INFINITY, "null");
}
END_TEST

START_TEST(json_numbers_keep_a_point) {
  static const struct {
    double v;
    const char *want;
  } cases[] = {{0, "[0.0]"},   {-3, "[-3.0]"},   {1e15, "[1000000000000000.0]"},
               {2.5, "[2.5]"}, {1e22, "[1e22]"}, {1e-8, "[1e-8]"},
               {NAN, "[null]"}};
  for (int i = 0; i < LEN(cases); i++) {
    Text t = {0};
    Json j = {.out = &t, .point = true};
    json_open(&j, NULL, '[');
    json_num(&j, NULL, cases[i].v);
    json_close(&j, ']');
    ck_assert_str_eq(t.s, cases[i].want);
    text_free(&t);
  }
}
END_TEST

/* Bit patterns from all over the doubles come back as they were. */
START_TEST(json_numbers_read_back) {
  uint64_t x = 1;
  for (int i = 0; i < 20000; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    double v;
    memcpy(&v, &x, sizeof v);
    if (!isfinite(v)) continue;
    Text t = {0};
    Json j = {.out = &t};
    json_num(&j, NULL, v);
    ck_assert(strtod(t.s, NULL) == v);
    text_free(&t);
  }
}
END_TEST

START_TEST(json_is_what_jansson_reads) {
  Text t = {0};
  Json j = {.out = &t, .pretty = true};
  json_open(&j, NULL, '{');
  json_str(&j, "k\n\"", "\x01\xff");
  json_num(&j, "x", 1.25e-300);
  json_close(&j, '}');
  json_t *root = json_loadb(t.s, t.n, 0, NULL);
  ck_assert_ptr_nonnull(root);
  ck_assert_str_eq(json_string_value(json_object_get(root, "k\n\"")), "\x01\xef\xbf\xbd");
  ck_assert(json_real_value(json_object_get(root, "x")) == 1.25e-300);
  json_decref(root);
  text_free(&t);
}
END_TEST

/* ---- diagnostics ---- */

START_TEST(diagnostics_are_counted_and_sorted) {
  Arena *a = arena_new(NULL);
  Diags d = {.arena = a};
  char path[] = "mesh.tp";
  static const int line[] = {14, 0, 12, 14, 3, 12, 0};
  for (int i = 0; i < LEN(line); i++) {
    Diag *e = i % 2 ? diag_warn(&d, "type", path, "%d", i)
                    : diag_error(&d, "type", path, "%d", i);
    e->line = line[i];
    e->file = i == 6 ? NULL : "plan.lua";
  }
  diag_error(&d, "type", path, "7")->file = "a.lua";
  path[0] = '?';
  diag_sort(&d);
  ck_assert_int_eq(d.errors, 5);
  ck_assert_int_eq(d.warnings, 3);
  static const char *const want[] = {"7", "4", "2", "5", "0", "3", "1", "6"};
  ck_assert_int_eq(d.list.n, LEN(want));
  for (int i = 0; i < LEN(want); i++) {
    ck_assert_str_eq(d.list.at[i].summary, want[i]);
    ck_assert_str_eq(d.list.at[i].path, "mesh.tp");
  }
  diag_error(&d, "type", "", "8");
  ck_assert_str_eq(d.list.at[8].summary, "8");
  ck_assert_str_eq(d.list.at[7].summary, "6");
  arena_free(a);
}
END_TEST

START_TEST(sorting_keeps_the_order_of_arrival) {
  Arena *a = arena_new(NULL);
  Diags d = {.arena = a};
  for (int i = 0; i < 1000; i++) {
    Diag *e = diag_error(&d, "type", "", "%d", i);
    e->file = "p.lua";
    e->line = 1 + i * 7919 % 10;
  }
  diag_sort(&d);
  for (int i = 1; i < 1000; i++) {
    const Diag *p = &d.list.at[i - 1], *q = &d.list.at[i];
    ck_assert(p->line < q->line ||
              (p->line == q->line && atoi(p->summary) < atoi(q->summary)));
  }
  Diags none = {.arena = a};
  diag_sort(&none);
  ck_assert_int_eq(none.list.n, 0);
  arena_free(a);
}
END_TEST

Suite *base_suite(void);
Suite *base_suite(void) {
  Suite *s = suite_create("base");
  TCase *t = tcase_create("base");
  tcase_add_test(t, arena_gives_zeroed_aligned_memory);
  tcase_add_test(t, halves_round_as_the_compiler_does);
  tcase_add_test(t, writes_past_the_caches);
  tcase_add_test(t, arena_copies_strings);
  tcase_add_test(t, vectors_grow);
  tcase_add_test(t, arena_unwinds_when_out_of_memory);
  tcase_add_test(t, arena_refuses_sizes_that_wrap);
#ifdef __SANITIZE_ADDRESS__
  tcase_add_test_raise_signal(t, sizes_given_back_are_looked_at, SIGABRT);
#endif
  tcase_add_test(t, first_error_wins);
  tcase_add_test(t, text_grows);
  tcase_add_test(t, bounded_texts_end_with_their_buffer);
  tcase_add_test(t, distances);
  tcase_add_test(t, nearest_name_is_offered_when_near);
  tcase_add_test(t, equality_and_hash);
  tcase_add_test(t, names_are_found);
  tcase_add_test(t, json_on_one_line);
  tcase_add_test(t, json_pretty);
  tcase_add_test(t, json_with_bytes_of_0);
  tcase_add_test(t, parts_that_are_not_utf8);
  tcase_add_test(t, json_escapes);
  tcase_add_test(t, json_numbers_are_shortest);
  tcase_add_test(t, json_numbers_keep_a_point);
  tcase_add_test(t, json_numbers_read_back);
  tcase_add_test(t, json_is_what_jansson_reads);
  tcase_add_test(t, diagnostics_are_counted_and_sorted);
  tcase_add_test(t, sorting_keeps_the_order_of_arrival);
  suite_add_tcase(s, t);
  return s;
}
