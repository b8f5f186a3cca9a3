/* check_ckpt_files.c - checkpoints that are damaged, mixed up or made up are refused, and
 * a disk that fails at any moment leaves what was there before. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/generate/broken_files.h"
#include "tests/harness/process.h"
#include "tests/harness/ckpt_runs.h"

static const char *dir, *ckpt;

/* Two steps of a small run, each with a checkpoint. */
static void setup(void) {
  ToyOptions o = meshed(2, 1, 2);
  scratch_setup();
  o.strategy.stage = 1, o.layers = 1;
  dir = scratch_path("a");
  saved_run(&o, dir, 2);
  ckpt = store_path(scratch_arena, dir, 2, false);
}

static weft_status look(weft_error *e) {
  Ckpt *c;
  uint64_t bytes;
  err_clear(e);
  TRY(ckpt_open(ckpt, &c, e));
  weft_status st = ckpt_verify(c, NULL, &bytes, e);
  ckpt_close(c);
  return st;
}

static void whole(void) {
  weft_error e = {.rank = -1};
  ck_assert_msg(look(&e) == WEFT_OK, "%s: %s", e.file, e.text);
}

static void refused(const char *part) {
  weft_error e = {.rank = -1};
  ck_assert_int_ne(look(&e), WEFT_OK);
  ck_assert_msg(strstr(e.text, part), "\"%s\" is not in: %s: %s", part, e.file, e.text);
}

/* ---- damage ---- */

static const char *file_at_number(int i) {
  static const char *const names[] = {MANIFEST_NAME, "rank-00000.safetensors",
                                      "rank-00001.safetensors", "rank-00003.safetensors"};
  return arena_printf(scratch_arena, "%s/%s", ckpt, names[i]);
}

static char *slurp(const char *path, size_t *n) {
  char *s;
  OK(file_read(NULL, path, FILE_OWN_MAX, &s, n, &trace_err));
  return s;
}

static void put(const char *path, const void *s, size_t n) {
  FILE *f = fopen(path, "wb");
  ck_assert(f && fwrite(s, 1, n, f) == n && fclose(f) == 0);
}

START_TEST(every_byte_counts) {
  const char *path = file_at_number(_i);
  size_t n;
  char *s = slurp(path, &n);
  uint64_t header = 8;
  memcpy(&header, s, sizeof header);
  whole();
  for (size_t at = 0; at < n; at += n / 97 + 1) {
    weft_error e = {.rank = -1};
    s[at] ^= 0x10;
    put(path, s, n);
    ck_assert_msg(look(&e) == WEFT_EFILE, "byte %zu of %s", at, path);
    ck_assert_str_eq(e.file, path);
    if (_i && at >= header + 8) ck_assert_msg(strstr(e.text, "tensor \""), "%s", e.text);
    s[at] ^= 0x10;
  }
  put(path, s, n);
  whole();
  mem_free(NULL, s, n + 1);
}
END_TEST

/* Nothing of a damaged checkpoint gets into a run without an error. */
START_TEST(damage_is_found_by_loading) {
  ToyOptions o = meshed(1, 1, 1);
  const char *path = file_at_number(2);
  size_t n;
  char *s = slurp(path, &n);
  SavedToy t;
  o.layers = 1;
  s[n - 3] ^= 1;
  put(path, s, n);
  mem_free(NULL, s, n + 1);
  Ckpt *c = saved_ckpt(dir, 2);
  saved_open(&t, &o, scratch_path("b"), NULL);
  weft_error e = {.rank = -1};
  ck_assert_int_eq(ckpt_load(c, t.run, CKPT_STATES, &e), WEFT_EFILE);
  ck_assert_str_eq(e.file, path);
  ck_assert_msg(strstr(e.text, "is damaged: its bytes"), "%s", e.text);
  ckpt_close(c);
  saved_close(&t);
}
END_TEST

START_TEST(files_that_are_cut_or_gone) {
  size_t n;
  const char *path = file_at_number(2);
  char *s = slurp(path, &n);
  put(path, s, n - 1);
  refused("bytes long, it was written with");
  put(path, s, 4);
  refused("bytes long, it was written with");
  unlink(path);
  refused("cannot be opened");
  put(path, s, n);
  whole();
  mem_free(NULL, s, n + 1);
  unlink(file_at_number(0));
  refused("cannot be opened");
}
END_TEST

/* A file of another step: same names, same shapes. */
START_TEST(files_of_another_checkpoint) {
  size_t n;
  char *s = slurp(arena_printf(scratch_arena, "%s/rank-00001.safetensors",
                               store_path(scratch_arena, dir, 1, false)),
                  &n);
  put(file_at_number(2), s, n);
  mem_free(NULL, s, n + 1);
  refused("its header is damaged, or of another checkpoint");
}
END_TEST

/* ---- which ones stay ---- */

static bool stays(int step) {
  return access(store_path(scratch_arena, dir, step, false), F_OK) == 0;
}

static void prune(int keep) {
  Dir in;
  OK(dir_open(dir, 0, &in, &trace_err));
  OK(store_prune(&in, keep, 0, &trace_err));
  dir_close(&in);
}

/* `latest` may name one that is not of the last ones: of a run that went back, say. */
START_TEST(the_latest_one_is_never_removed) {
  const char *latest = arena_printf(scratch_arena, "%s/" LATEST_NAME, dir);
  static const char first[] = "step-00000001\n", second[] = "step-00000002\n";
  put(latest, first, sizeof first - 1);
  prune(1);
  ck_assert(stays(1) && stays(2));
  put(latest, second, sizeof second - 1);
  prune(0);
  ck_assert(stays(1) && stays(2));
  prune(1);
  ck_assert(!stays(1) && stays(2));
}
END_TEST

/* ---- what a commit wants ---- */

/* Step 2 once more, as step 3: its files are in the temporary folder. */
static weft_status commit_again(void (*change)(CkptFile *f), weft_error *e) {
  ToyOptions o = meshed(2, 1, 2);
  Toy t;
  Manifest m;
  Dir in, from;
  RankFile disk = {0};
  CkptFile file[4] = {0};
  o.strategy.stage = 1, o.layers = 1;
  ck_assert_int_eq(toy_compile(&t, &o, NULL), WEFT_OK);
  Outcome copied = process_run(10, "cp -r %s a/step-00000003.tmp", ckpt);
  ck_assert_msg(copied.code == 0, "%s", copied.err);
  OK(manifest_read(scratch_arena, file_at_number(0), &m, &trace_err));
  ck_assert_int_eq(m.nfile, LEN(file));
  memcpy(file, m.file, sizeof file);
  change(&file[1]);
  m.file = file;
  m.step = 3;
  OK(dir_open(dir, 0, &in, &trace_err));
  OK(dir_below(&in, "step-00000003.tmp", 0, &from, &trace_err));
  weft_status st = store_commit(&disk, &in, &from, &m, t.compiled, e);
  dir_close(&from);
  dir_close(&in);
  toy_free(&t);
  return st;
}

static void nothing(CkptFile *f) {}
static void no_bytes(CkptFile *f) { f->bytes = 0; }
static void more(CkptFile *f) { f->bytes++; }
static void other_data(CkptFile *f) { f->header++; }
static void gone(CkptFile *f) {
  unlink(scratch_path("a/step-00000003.tmp/rank-00001.safetensors"));
}

static const struct {
  void (*change)(CkptFile *f);
  const char *says;
} uncommitted[] = {
    {no_bytes, "rank 1 has written no file, but holds "},
    {more, "is missing or not as its rank wrote it"},
    {other_data, "is missing or not as its rank wrote it"},
    {gone, "is missing or not as its rank wrote it"},
};

START_TEST(a_commit_wants_every_file) {
  weft_error e = {.rank = -1};
  ck_assert_int_ne(commit_again(uncommitted[_i].change, &e), WEFT_OK);
  ck_assert_msg(strstr(e.text, uncommitted[_i].says), "%s: %s", e.file, e.text);
  ck_assert(!stays(3));
  process_run(10, "rm -r a/step-00000003.tmp");
  OK(commit_again(nothing, &trace_err));
  ck_assert(stays(3));
}
END_TEST

/* One that is not whole takes no other one's place among those that stay. */
START_TEST(whole_ones_are_kept) {
  unlink(file_at_number(2));
  prune(1);
  ck_assert(stays(1) && stays(2));
}
END_TEST

/* ---- manifests that somebody made up ---- */

/* As manifest_write ends one. */
static void seal(json_t *doc) {
  char hash[CHECKSUM_TEXT];
  json_object_del(doc, "checksum");
  char *s = json_dumps(doc, JSON_INDENT(2));
  size_t n = strlen(s) - 2;
  const char *text = arena_printf(scratch_arena, "%.*s,\n  \"checksum\": \"%s\"\n}\n",
                                  (int)n, s, checksum_text(checksum(s, n), hash));
  free(s);
  put(file_at_number(0), text, strlen(text));
}

static json_t *read_manifest(void) {
  size_t n;
  char *s = slurp(file_at_number(0), &n);
  json_t *doc = json_loads(s, 0, NULL);
  mem_free(NULL, s, n + 1);
  ck_assert_ptr_nonnull(doc);
  return doc;
}

static json_t *file_row(json_t *doc, size_t i) {
  return json_array_get(json_object_get(doc, "files"), i);
}
static json_t *params(json_t *doc) { return json_object_get(doc, "parameters"); }

static void climbs(json_t *d) {
  json_object_set_new(file_row(d, 0), "name", json_string("../x.safetensors"));
}
static void absolute(json_t *d) {
  json_object_set_new(file_row(d, 0), "name", json_string("/x.safetensors"));
}
static void hidden(json_t *d) {
  json_object_set_new(file_row(d, 0), "name", json_string(".x.safetensors"));
}
static void other_file(json_t *d) {
  json_object_set_new(file_row(d, 0), "name", json_string("latest"));
}
static void twice(json_t *d) {
  json_object_set(file_row(d, 0), "name", json_object_get(file_row(d, 1), "name"));
}
static void fewer_files(json_t *d) { json_array_remove(json_object_get(d, "files"), 1); }
static void no_files(json_t *d) { json_array_clear(json_object_get(d, "files")); }
static void more_bytes(json_t *d) {
  json_object_set_new(file_row(d, 1), "bytes", json_integer(9));
}
static void other_header(json_t *d) {
  json_object_set_new(file_row(d, 1), "header", json_string("0123456789abcdef"));
}
static void other_version(json_t *d) {
  json_object_set_new(d, "version", json_integer(2));
}
static void other_id(json_t *d) {
  json_object_set_new(d, "id", json_string("0123456789abcdef"));
}
static void no_step(json_t *d) { json_object_set_new(d, "step", json_integer(-1)); }
static void text_step(json_t *d) { json_object_set_new(d, "step", json_string("2")); }
static void fewer_params(json_t *d) { json_object_del(params(d), "model.norm.weight"); }
static void more_params(json_t *d) {
  json_object_set_new(params(d), "model.more", json_pack("[i]", 4));
}
static void other_shape(json_t *d) {
  json_object_set_new(params(d), "model.norm.weight", json_pack("[i]", 31));
}
static void huge_shape(json_t *d) {
  json_object_set_new(params(d), "model.norm.weight",
                      json_pack("[I,I]", (json_int_t)1 << 40, (json_int_t)1 << 40));
}
static void no_scale(json_t *d) {
  json_object_set_new(json_object_get(d, "loss_scale"), "scale", json_real(0));
}

static const struct {
  void (*change)(json_t *doc);
  const char *says;
} made_up[] = {
    {climbs, "\"../x.safetensors\" is not the name of a file of a checkpoint"},
    {absolute, "\"/x.safetensors\" is not the name"},
    {hidden, "\".x.safetensors\" is not the name"},
    {other_file, "\"latest\" is not the name"},
    {twice, "lists the file rank-00001.safetensors twice"},
    {fewer_files, "is incomplete: its files do not hold every element of"},
    {no_files, "lists no files"},
    {more_bytes, "bytes long, it was written with 9"},
    {other_header, "its header is damaged, or of another checkpoint"},
    {other_version, "is of version 2; this weft reads version 1"},
    {other_id, "belongs to another checkpoint: it has the id"},
    {no_step, "\"step\" is not an integer from 0"},
    {text_step, "\"step\" is not an integer from 0"},
    {fewer_params, "of which the manifest knows nothing"},
    {more_params,
     "is incomplete: its files do not hold every element of param/model.more"},
    {other_shape, "is not within the shape of its parameter"},
    {huge_shape, "the parameter \"model.norm.weight\" has no shape"},
    {no_scale, "\"scale\" is not above 0"},
};

START_TEST(made_up_manifests_are_refused) {
  json_t *doc = read_manifest();
  seal(doc);
  whole();
  made_up[_i].change(doc);
  seal(doc);
  refused(made_up[_i].says);
  json_decref(doc);
}
END_TEST

/* ---- a disk that fails ---- */

static bool no_temporaries(void) {
  Outcome o = process_run(10, "ls -a %s", dir);
  return !strstr(o.out, ".tmp");
}

typedef struct Steps {
  int64_t n, fails;
} Steps;

static bool step_fails(void *ud) {
  Steps *s = ud;
  return ++s->n == s->fails;
}

/* Each step that reaches the disk fails once: the run hears of it and goes on, and the
 * checkpoint before is whole. The last one, of the file `latest`, costs no checkpoint,
 * and leaves none that names another. */
START_TEST(any_write_may_fail) {
  ToyOptions o = meshed(1, 1, 1);
  StepResult r = {.loss = 1};
  o.layers = 1;
  int64_t at = 1;
  int without = 0;
  for (bool failed = true; failed; at++) {
    SavedToy s;
    Ckpt *c = saved_ckpt(dir, 2);
    saved_open(&s, &o, dir, c);
    Steps steps = {.fails = at};
    *saver_disk(s.saver) = (RankFile){.fault = step_fails, .fault_ud = &steps};
    OK(saver_step(s.saver, &r, 3, 0, &trace_err));
    while (saver_writes(s.saver)) /* steps go on while it fails */
      OK(saver_step(s.saver, &r, 3, 0, &trace_err));
    OK(saver_finish(s.saver, &trace_err));
    failed = steps.n >= at;
    bool lost = strstr(s.said, "!the checkpoint of step 3 was not written: ") &&
                strstr(s.said, "No space left on device; the run goes on");
    bool latest = strstr(s.said, "is there, but \"latest\" does not name it: ");
    ck_assert_msg(failed == (lost != latest) && lost + latest < 2, "%s", s.said);
    ck_assert(no_temporaries());
    ck_assert_int_eq(access(arena_printf(scratch_arena, "%s/latest", dir), F_OK) != 0,
                     latest);
    if (latest) ck_assert(stays(3) && !stays(1));
    without += latest;
    ckpt_close(c);
    saved_close(&s);
    whole();
  }
  ck_assert_int_gt(at, 20);
  ck_assert_int_eq(without, 1);
  ckpt = store_path(scratch_arena, dir, 3, false);
  whole();
}
END_TEST

/* ---- the folder ---- */

START_TEST(the_last_ones_stay) {
  ToyOptions o = meshed(1, 1, 1);
  double loss[8];
  SavedToy s;
  o.layers = 1;
  dir = scratch_path("b");
  saved_open(&s, &o, dir, NULL);
  for (int k = 1; k <= 5; k++) saved_save(&s, k);
  saved_close(&s);
  Outcome list = process_run(10, "ls %s", dir);
  ck_assert_str_eq(list.out, "latest\nstep-00000004\nstep-00000005\n");
  /* From the older one: the newer one is of steps that are taken again. */
  Ckpt *c = saved_ckpt(dir, 4);
  saved_open(&s, &o, dir, c);
  saved_steps(&s, 4, 5, loss);
  saved_save(&s, 5);
  ckpt_close(c);
  saved_close(&s);
  list = process_run(10, "ls %s", dir);
  ck_assert_str_eq(list.out, "latest\nstep-00000004\nstep-00000005\n");
  ckpt = store_path(scratch_arena, dir, 5, false);
  whole();
}
END_TEST

START_TEST(what_others_left_is_removed) {
  ToyOptions o = meshed(2, 1, 2);
  SavedToy s;
  o.layers = 1;
  process_run(10, "sh -c 'cd a && mkdir step-00000008.tmp step-00000009.tmp mine.tmp "
                  "step-9.tmp weights-00000007.3-0.tmp && touch step-00000008.tmp/x "
                  "step-00000009.tmp/rank-00000.safetensors "
                  "step-00000009.tmp/manifest.json.71-0.tmp latest.12-0.tmp "
                  "weights-00000007.3-0.tmp/tokenizer.json other.tmp'");
  Ckpt *c = saved_ckpt(dir, 2);
  saved_open(&s, &o, dir, c);
  ckpt_close(c);
  saved_close(&s);
  Outcome list = process_run(10, "ls %s", dir);
  ck_assert_str_eq(list.out, "latest\nmine.tmp\nother.tmp\nstep-00000001\nstep-00000002\n"
                             "step-00000008.tmp\nstep-9.tmp\n");
}
END_TEST

/* ---- what somebody else put there ---- */

static const char *save_third(void) {
  ToyOptions o = meshed(1, 1, 1);
  StepResult r = {.loss = 1};
  static SavedToy s;
  Ckpt *c = saved_ckpt(dir, 2);
  o.layers = 1;
  saved_open(&s, &o, dir, c);
  OK(saver_step(s.saver, &r, 3, 0, &trace_err));
  OK(saver_finish(s.saver, &trace_err));
  ckpt_close(c);
  saved_close(&s);
  return s.said;
}

static const char *listed(const char *what) {
  return arena_str(scratch_arena, process_run(10, "ls %s", what).out);
}

/* A link in the place of a folder is neither written through nor emptied, and a folder
 * with files of others is left alone, whatever is done with it. */
START_TEST(what_a_link_leads_to_stays) {
  static const char *const planted[] = {
      "ln -s ../mine a/step-00000003.tmp",
      "ln -s ../mine a/step-00000009.tmp",
      "ln -s ../mine a/weights-00000001.1-0.tmp",
      "ln -s ../mine/manifest.json a/latest",
      "ln -s gone a/step-00000003.tmp",
      "ln -s step-00000003.tmp a/step-00000003.tmp",
      "mkfifo a/step-00000003.tmp",
      "touch a/step-00000003.tmp",
      "mkdir -p a/step-00000003.tmp/rank-00000.safetensors",
      "sh -c 'mkdir a/step-00000003.tmp && ln -s ../../mine/rank-00000.safetensors "
      "a/step-00000003.tmp'",
      "ln -s ../mine a/step-00000003"};
  process_run(10, "sh -c 'mkdir mine && cd mine && echo a >rank-00000.safetensors && "
                  "echo b >manifest.json && echo c >config.json'");
  process_run(10, "rm -f a/latest");
  Outcome put = process_run(10, "%s", planted[_i]);
  ck_assert_int_eq(put.code, 0);
  const char *said = save_third();
  ck_assert_str_eq(listed("mine"),
                   "config.json\nmanifest.json\nrank-00000.safetensors\n");
  ck_assert_str_eq(process_run(10, "sh -c 'cat mine/*'").out, "c\nb\na\n");
  bool latest = strstr(planted[_i], "latest"), third = strstr(planted[_i], "000003");
  ck_assert_msg(
      third == (strstr(said, "!the checkpoint of step 3 was not written: ") != NULL) &&
          latest == (strstr(said, "\"latest\" does not name it: ") != NULL),
      "%s: %s", planted[_i], said);
  whole();
}
END_TEST

/* A name in a folder of ours that is not one of ours. */
START_TEST(a_file_of_others_keeps_its_folder) {
  process_run(10, "touch a/step-00000001/notes");
  const char *said = save_third();
  ck_assert_msg(strstr(said, "step-00000001: has \"notes\" in it, which weft did not put "
                             "there: move it away") != NULL,
                "%s", said);
  ck_assert_str_eq(listed("a"), "latest\nstep-00000001\nstep-00000002\nstep-00000003\n");
  ck_assert_str_eq(
      listed("a/step-00000001"),
      "manifest.json\nnotes\nrank-00000.safetensors\nrank-00001.safetensors\n"
      "rank-00002.safetensors\nrank-00003.safetensors\n");
}
END_TEST

START_TEST(the_latest_is_found) {
  const char *path, *latest = arena_printf(scratch_arena, "%s/latest", dir);
  bool none;
  OK(store_find(scratch_arena, dir, &path, &none, &trace_err));
  ck_assert_str_eq(path, ckpt);
  put(latest, "../../etc\n", 10);
  OK(store_find(scratch_arena, dir, &path, &none, &trace_err));
  ck_assert_str_eq(path, ckpt);
  unlink(latest);
  OK(store_find(scratch_arena, dir, &path, &none, &trace_err));
  ck_assert_str_eq(path, ckpt);
  OK(store_find(scratch_arena, ckpt, &path, &none, &trace_err));
  ck_assert_str_eq(path, ckpt);
  weft_error e = {.rank = -1};
  ck_assert_int_eq(store_find(scratch_arena, scratch_path("no"), &path, &none, &e),
                   WEFT_EFILE);
  ck_assert(none);
}
END_TEST

/* Two files of two halves each; one says another place of its half, as long a text. */
static void wrong_half(const char *was, const char *is, const char *says) {
  const FuzzTarget *t = NULL;
  FuzzFile *f = calloc(1, sizeof *f);
  for (int i = 0; fuzz_target(i); i++)
    if (strcmp(fuzz_target(i)->name, "shard") == 0) t = fuzz_target(i);
  f->folder = scratch_dir;
  t->make(f, 0);
  char *at = memmem(f->s, f->n, was, strlen(was));
  ck_assert_ptr_nonnull(at);
  ck_assert_uint_eq(strlen(was), strlen(is));
  memcpy(at, is, strlen(is));
  scratch_put(t->file, f->s, f->n);
  weft_error e = {.rank = -1};
  ck_assert_int_eq(t->read(f, &e), WEFT_EFILE);
  ck_assert_msg(strstr(e.text, says) != NULL, "%s", e.text);
  free(f);
}

START_TEST(halves_that_are_no_whole) {
  const char *says = "is incomplete: its files do not hold every element of param/";
  wrong_half("\\\"from\\\":0", "\\\"from\\\":2", says);
  wrong_half("\\\"from\\\":0", "\\\"from\\\":1", says);
  wrong_half("[1,2,0,1,1]", "[1,2,0,1,0]", says);
  wrong_half("[1,2,0,1,1]", "[1,2,1,1,1]", says);
}
END_TEST

Suite *ckpt_files_suite(void) {
  Suite *s = suite_create("ckpt_files");
  TCase *c = tcase_create("files");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, setup, scratch_teardown);
  tcase_add_loop_test(c, every_byte_counts, 0, 4);
  tcase_add_test(c, damage_is_found_by_loading);
  tcase_add_test(c, files_that_are_cut_or_gone);
  tcase_add_test(c, files_of_another_checkpoint);
  tcase_add_test(c, the_latest_one_is_never_removed);
  tcase_add_loop_test(c, a_commit_wants_every_file, 0, LEN(uncommitted));
  tcase_add_test(c, whole_ones_are_kept);
  tcase_add_loop_test(c, made_up_manifests_are_refused, 0, LEN(made_up));
  tcase_add_test(c, any_write_may_fail);
  tcase_add_test(c, the_last_ones_stay);
  tcase_add_test(c, what_others_left_is_removed);
  tcase_add_loop_test(c, what_a_link_leads_to_stays, 0, 11);
  tcase_add_test(c, a_file_of_others_keeps_its_folder);
  tcase_add_test(c, halves_that_are_no_whole);
  tcase_add_test(c, the_latest_is_found);
  suite_add_tcase(s, c);
  return s;
}
