/* check_writers.c - everything that writes, attacked: links, pipes, folders and files in
 * the place of what it writes. Nothing outside may change, what was planted stays,
 * nothing is left behind, and the program says what is in the way, in time. Each source
 * file that writes has a row here; calls.lua finds those that have none. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/process.h"

#define TOKENIZER WEFT_SOURCE_DIR "/tests/tokenizer/smollm.json"
#define RUN       "$weft run plan.lua --threads 1 -q "

static const char plan[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 32 }, batch = { global = 2, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {}, train = { steps = 1 } }\n";
static const char chat[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 512 }, batch = { global = 2, micro = 1, seq = 8 },\n"
    "  data = weft.chat { 'rows', tokenizer = 'nfc.json', template = 'chatml' } }\n";
static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
    "{\"role\": \"assistant\", \"content\": \"b c d e f g h\"}]}\n";
static const char pairs[] =
    "local weft = require 'weft'\n"
    "return weft.plan { model = weft.model { 'llama', hidden_size = 16,\n"
    "  num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16,\n"
    "  vocab_size = 32 }, batch = { global = 2, micro = 2, seq = 8 },\n"
    "  packed = { eot = 0, size = 8, alone = true }, data = weft.tokens { 'pairs.bin' "
    "},\n"
    "  loss = { 'dpo', reference_file = 'out' }, train = { steps = 1 } }\n";
static const char settings[] =
    "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
    "model:\n  pretrained_model_name_or_path: openai-community/gpt2\n";
static const char sweep[] =
    "local weft = require 'weft'\n"
    "weft.sweep { plan = 'plan.lua', over = { { 'batch.micro', 1, 2 } } }\n";

/* `path` is what is written. A folder may be one that the user names, to which links
 * lead. */
enum { NEW_FOLDER = 1, NAMED_FOLDER = 2, WARNS = 4, NEEDS_CKPT = 8, ANY_CODE = 16 };
typedef struct Writer {
  const char *source, *path;
  const char *command;
  unsigned kind;
} Writer;

static const Writer writers[] = {
    {"bindings/record/log.c", "out", RUN "--log out", 0},
    {"bindings/record/events.c", "out", RUN "--tensorboard out", NAMED_FOLDER},
    {"vm/run/run_trace.c", "out", RUN "--trace out", 0},
    {"bindings/cli/judge/show_schedule.c", "out",
     "$weft show plan.lua schedule --svg out", 0},
    {"bindings/cli/judge/sim.c", "out",
     "$weft sim plan.lua --set cluster=a100-80gb --trace out", 0},
    {"bindings/calibration/calibration_write.c", "out",
     "$weft calibrate plan.lua --threads 1 -o out", 0},
    {"bindings/cli/main.c", "0", "env WEFT_CODES=. " RUN, WARNS},
    {"bindings/cli/run/launch.c", "out", "$weft launch plan.lua --mpirun -o out", 0},
    {"bindings/cli/convert/convert.c", "out", "$weft import settings.yaml -o out", 0},
    {"bindings/cli/convert/convert.c", "out",
     "$weft export --to deepspeed plan.lua -o out", NEW_FOLDER},
    {"vm/io/reference/reference_file.c", "out", "$weft eval pairs.lua --reference", 0},
    {"vm/io/token_file_write.c", "out.bin",
     "$weft tokenize " TOKENIZER " plan.lua --out out.bin", 0},
    {"vm/io/token_file_write.c", "out.idx",
     "$weft tokenize " TOKENIZER " plan.lua --out out.bin", 0},
    {"vm/io/token_file_write.c", "l.bin",
     "$weft tokenize " TOKENIZER " plan.lua --out l.bin --format llmc", 0},
    {"bindings/chat/chat_cache.c", ".weft",
     "$weft check chat.lua --data " WEFT_SOURCE_DIR "/tests/chat", NAMED_FOLDER},
    {"bindings/sweep/sweep_api.c", "out", "$weft sweep sweep.lua --csv out", 0},
    {"bindings/sweep/sweep_object.c", "out", "$weft sweep sweep.lua --jsonl out", 0},
    {"bindings/sweep/sweep_object.c", "out", "$weft sweep sweep.lua --resume out", 0},
    {"bindings/cli/repl/repl_history.c", "out",
     "sh -c '(echo 1; sleep 0.2) | TERM=dumb WEFT_HISTORY=out script -qec \"$weft repl\" "
     "terminal'",
     WARNS},
    {"bindings/runs/export_folder.c", "out", RUN "--export out", NEW_FOLDER},
    {"vm/weights/weights_folder.c", "out", "$weft ckpt export plan.lua ckpt out",
     NEW_FOLDER | NEEDS_CKPT},
    {"vm/weights/weights_folder.c", "d/weights-00000001",
     RUN "--set checkpoint.dir=d --set checkpoint.save_consolidated=final",
     NEW_FOLDER | WARNS | ANY_CODE},
    {"vm/ckpt/ckpt_store.c", "d", RUN "--set checkpoint.dir=d",
     NAMED_FOLDER | WARNS | ANY_CODE},
    {"vm/ckpt/ckpt_store.c", "d/step-00000001.tmp", RUN "--set checkpoint.dir=d",
     NEW_FOLDER | WARNS | ANY_CODE},
    {"vm/ckpt/ckpt_store.c", "d/step-00000001", RUN "--set checkpoint.dir=d",
     NEW_FOLDER | WARNS | ANY_CODE},
    {"vm/ckpt/ckpt_store.c", "d/latest", RUN "--set checkpoint.dir=d", WARNS | ANY_CODE},
    {"vm/ckpt/rank_file.c", "d/step-00000001.tmp/rank-00000.safetensors",
     RUN "--set checkpoint.dir=d", WARNS | ANY_CODE},
    {"vm/ckpt/rank_file.c", "d/step-00000001.tmp/manifest.json",
     RUN "--set checkpoint.dir=d", WARNS | ANY_CODE},
    {"vm/ckpt/ckpt_store.c", "out", "$weft ckpt convert plan.lua plan.lua ckpt out",
     NAMED_FOLDER | NEEDS_CKPT},
    {"vm/ckpt/ckpt_store.c", "out/step-00000001.tmp",
     "$weft ckpt convert plan.lua plan.lua ckpt out", NEW_FOLDER | NEEDS_CKPT},
    {"vm/ckpt/rank_file.c", "out/step-00000001.tmp/rank-00000.safetensors",
     "$weft ckpt convert plan.lua plan.lua ckpt out", NEEDS_CKPT},
};

/* What is planted at the path P; victim/ is what may not be touched. */
enum { TO_FOLDER = 1, A_FOLDER = 2, A_FILE = 4 };
static const struct Attack {
  const char *plant;
  unsigned kind;
} attacks[] = {
    {"ln -s $PWD/victim/file P", 0},
    {"ln -s $PWD/victim P", TO_FOLDER},
    {"ln -s $PWD/victim/new P", 0},
    {"ln -s P P", 0},
    {"ln -s /etc/passwd P", 0},
    {"ln -s $PWD/chain P; ln -s victim/file chain", 0},
    {"ln -s $PWD/victim/pipe P", 0},
    {"mkfifo P", 0},
    {"mkdir P; ln -s $PWD/victim/file P/rank-00000.safetensors", A_FOLDER},
    {"mkdir P; ln -s $PWD/victim P/sub; mkdir P/.a P/\"a\nb\" ./P/-rf", A_FOLDER},
    {"mkdir P; touch P/notes", A_FOLDER},
    {"echo mine >P", A_FILE},
};

/* Everything that is known of a tree, but for what was read last. */
static const char *state_of(const char *tree) {
  return process_run(20,
                     "sh -c 'find %s -printf \"%%P %%y %%m %%s %%T@ %%l\\n\" | "
                     "sort; find %s -type f -exec cat {} +'",
                     tree, tree)
      .out;
}

static void setup(void) {
  scratch_setup();
  scratch_put("plan.lua", plan, sizeof plan - 1);
  scratch_put("sweep.lua", sweep, sizeof sweep - 1);
  scratch_put("chat.lua", chat, sizeof chat - 1);
  scratch_put("rows", rows, sizeof rows - 1);
  static const uint16_t ids[] = {5, 1, 2, 0, 5, 3, 0, 6, 1, 0, 6, 2, 4, 0};
  scratch_put("pairs.lua", pairs, sizeof pairs - 1);
  scratch_put("pairs.bin", ids, sizeof ids);
  scratch_put("settings.yaml", settings, sizeof settings - 1);
  process_run(10, "sh -c 'mkdir victim && cd victim && mkfifo pipe && echo keep >file && "
                  "echo w >rank-00000.safetensors && echo m >manifest.json && "
                  "echo c >config.json && mkdir sub && echo s >sub/file'");
}

static const char *replaced(const char *text, const char *path) {
  const char *out = "";
  for (const char *p; (p = strchr(text, 'P')); text = p + 1) {
    bool word = p[1] != 'W'; /* of $PWD */
    out = arena_printf(scratch_arena, "%s%.*s%s", out, (int)(p - text), text,
                       word ? path : "P");
  }
  return arena_printf(scratch_arena, "%s%s", out, text);
}

static void plant(const Writer *w, const struct Attack *a) {
  char above[200];
  snprintf(above, sizeof above, "%s", w->path);
  char *slash = strrchr(above, '/');
  if (slash) {
    *slash = 0;
    process_run(10, "mkdir -p %s", above);
  }
  const char *script = replaced(a->plant, w->path);
  scratch_put("plant.sh", script, strlen(script));
  Outcome o = process_run(10, "sh plant.sh");
  ck_assert_msg(o.code == 0, "%s: %s", script, o.err);
}

/* Links to folders lead to those that the user names; a file is replaced where one is
 * written, and the folder of a name that is written may be there. */
static bool is_use(const Writer *w, const struct Attack *a) {
  if (a->kind & A_FILE) return !(w->kind & (NEW_FOLDER | NAMED_FOLDER));
  if (w->kind & NAMED_FOLDER) return a->kind & (TO_FOLDER | A_FOLDER);
  return false;
}

static void attack(const Writer *w, const struct Attack *a) {
  if (is_use(w, a)) return;
  setup();
  if (w->kind & NEEDS_CKPT) {
    Outcome o = process_run(30, RUN "--set checkpoint.dir=ckpt");
    ck_assert_msg(o.code == 0, "%s", o.err);
  }
  plant(w, a);
  const char *victim = state_of("victim"), *planted = state_of(w->path);
  Outcome o = process_run(30, "%s", w->command);
  const char *now = state_of("victim"), *left = state_of(w->path);
  ck_assert_msg(strcmp(victim, now) == 0, "%s, %s: %s is now %s", w->command, a->plant,
                victim, now);
  ck_assert_msg(strcmp(planted, left) == 0, "%s, %s: %s is now %s", w->command, a->plant,
                planted, left);
  ck_assert_msg(w->kind & ANY_CODE || (o.code == 0) == ((w->kind & WARNS) != 0),
                "%s, %s: %d: %s", w->command, a->plant, o.code, o.err);
  const char *slash = strrchr(w->path, '/'), *name = slash ? slash + 1 : w->path;
  ck_assert_msg(strstr(o.err, name) || strstr(o.out, name), "%s, %s: says %s", w->command,
                a->plant, o.err);
  Outcome more =
      process_run(10, "find . -path ./%s -prune -o -name \"*.tmp\" -print", w->path);
  bool within = strstr(w->path, ".tmp/") != NULL; /* a folder that stays, too */
  ck_assert_msg(within || !*more.out, "%s, %s: left %s", w->command, a->plant, more.out);
  scratch_teardown();
}

START_TEST(nothing_outside_is_touched) {
  for (int i = 0; i < LEN(attacks); i++) attack(&writers[_i], &attacks[i]);
}
END_TEST

/* Where nothing is in the way each writer writes. */
START_TEST(every_writer_writes) {
  const Writer *w = &writers[_i];
  setup();
  if (w->kind & NEEDS_CKPT) process_run(30, RUN "--set checkpoint.dir=ckpt");
  Outcome o = process_run(30, "%s", w->command);
  ck_assert_msg(o.code == 0, "%s: %s", w->command, o.err);
  bool passes = strstr(w->path, ".tmp") != NULL;
  ck_assert_msg(passes || access(scratch_path(w->path), F_OK) == 0, "%s", w->path);
  ck_assert_str_eq(process_run(10, "find . -name \"*.tmp\"").out, "");
  scratch_teardown();
}
END_TEST

/* ---- the sources ---- */

START_TEST(every_writer_has_a_row) {
  /* Those that others write by, and a folder whose name nobody knows before. */
  const char *list = "vm/io/safetensors/safetensors_write.c vm/io/token_mask.c "
                     "vm/weights/shared_folder.c";
  scratch_setup();
  for (int i = 0; i < LEN(writers); i++)
    list = arena_printf(scratch_arena, "%s %s", list, writers[i].source);
  Outcome o = process_run(
      60, "sh -c 'cd " WEFT_SOURCE_DIR " && $weft lua tests/io/calls.lua %s'", list);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  scratch_teardown();
}
END_TEST

/* What calls.lua has to find, a line each. */
START_TEST(the_search_finds_them) {
  static const char source[] =
      "/* unlink(x) */ const char *s = \"unlink(x)\"; int c = '\"';\n"
      "void a(void) { unlink(s); }\n"
      "void b(void) { int fd = open(s, O_RDONLY | O_CREAT, 0); }\n"
      "void c(void) { fopen(s, \"r\"); fopen(s, \"rb\"); x->remove(s); y.rename(s); }\n"
      "void d(void) { fopen(s, \"a\"); }\n"
      "void e(void) { fopen(s, mode); }\n"
      "void f(void) { file_write(NULL, s, &p, 1, e); }\n"
      "void g(void) { rename (s, s); }\n";
  scratch_setup();
  process_run(10, "mkdir vm bindings kernels stdlib");
  scratch_put("vm/x.c", source, sizeof source - 1);
  scratch_put("stdlib/x.lua", "io.open(x)\n", 11);
  Outcome o = process_run(20, "sh -c '$weft lua " WEFT_SOURCE_DIR
                              "/tests/io/calls.lua vm/none.c'");
  ck_assert_int_eq(o.code, 1);
  ck_assert_str_eq(o.out, "stdlib/x.lua:1: files are written from C\n"
                          "vm/x.c:2: unlink outside of vm/io/dir.c and file_write.c\n"
                          "vm/x.c:3: O_CREAT outside of vm/io/dir.c and file_write.c\n"
                          "vm/x.c:5: fopen for something else than reading\n"
                          "vm/x.c:6: fopen for something else than reading\n"
                          "vm/x.c:8: rename outside of vm/io/dir.c and file_write.c\n"
                          "vm/x.c:1: writes files and is not in the table of writers\n"
                          "vm/none.c:1: is in the table of writers and writes no file\n"
                          ".:0: only 2 sources were read\n");
  scratch_teardown();
}
END_TEST

/* ---- what is no file ---- */

/* The system's own names of what is open lead on; the user's pipes are written to. */
START_TEST(devices_and_pipes_are_written) {
  setup();
  /* A pipe, and a file, which holds both what is drawn and what is said. Not /dev/stdout:
   * a fault would replace that of the machine. */
  Outcome o =
      process_run(20, "sh -c '$weft show plan.lua schedule --svg /proc/self/fd/1 | cat'");
  ck_assert_msg(o.code == 0 && strstr(o.out, "</svg>"), "%s%s", o.out, o.err);
  o = process_run(20, "$weft show plan.lua schedule --svg /dev/fd/1");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.out, "<svg ") && strstr(o.out, "</svg>") &&
                    strstr(o.out, "schedule: 1f1b"),
                "%s", o.out);
  o = process_run(20,
                  "bash -c '$weft show plan.lua schedule --svg >(cat >to2); sleep 0.2'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(30, "sh -c 'mkfifo p; cat p >log & " RUN "--log p; wait'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_ptr_nonnull(strstr(scratch_get(scratch_path("log")), "\"event\":\"start\""));
  o = process_run(30, RUN "--trace /dev/full");
  ck_assert_int_ne(o.code, 0);
  ck_assert_ptr_nonnull(strstr(o.err,
                               "/dev/full: error: cannot be written: No space left "
                               "on device"));
  scratch_teardown();
}
END_TEST

/* ---- disks ---- */

/* A small file system that is made full or read-only when all that a writer reads is
 * there; false if this user cannot. */
static const struct Disk {
  const char *end, *says;
} disks[] = {
    {"mount -o remount,ro disk", "Read-only file system"},
    {"dd if=/dev/zero of=disk/fill bs=4096 2>/dev/null; true", "No space left on device"},
};

static bool make_disk(const Writer *w, const struct Disk *d) {
  Outcome o = process_run(
      10, "sh -c 'mkdir disk && mount -t tmpfs -o size=1m tmpfs disk 2>/dev/null'");
  if (o.code != 0) return false;
  process_run(
      10, "cp plan.lua sweep.lua settings.yaml chat.lua rows pairs.lua pairs.bin disk");
  if (w->kind & NEEDS_CKPT)
    process_run(30, "sh -c 'cd disk && " RUN "--set checkpoint.dir=ckpt'");
  process_run(10, "sh -c '%s'", d->end);
  return true;
}

/* Each names the reason. */
START_TEST(disks_are_called_what_they_are) {
  const Writer *w = &writers[_i / LEN(disks)];
  const struct Disk *d = &disks[_i % LEN(disks)];
  setup();
  if (make_disk(w, d)) {
    const char *command = arena_printf(scratch_arena, "cd disk && %s", w->command);
    scratch_put("command.sh", command, strlen(command));
    Outcome o = process_run(30, "sh command.sh");
    Outcome left = process_run(10, "find disk -name \"*.tmp\"");
    process_run(10, "umount disk");
    ck_assert_msg(strstr(o.err, d->says) || strstr(o.out, d->says), "%s: %d: %s",
                  w->command, o.code, o.err);
    ck_assert_msg(w->kind & (WARNS | ANY_CODE) || o.code != 0, "%s", w->command);
    ck_assert_str_eq(left.out, "");
  } else if (_i == 0) {
    printf("skipped: this user cannot mount file systems\n");
  }
  scratch_teardown();
}
END_TEST

Suite *writers_suite(void) {
  Suite *s = suite_create("writers");
  TCase *c = tcase_create("attacks");
  tcase_set_timeout(c, 240);
  tcase_add_loop_test(c, nothing_outside_is_touched, 0, LEN(writers));
  tcase_add_loop_test(c, every_writer_writes, 0, LEN(writers));
  tcase_add_test(c, devices_and_pipes_are_written);
  tcase_add_loop_test(c, disks_are_called_what_they_are, 0, LEN(writers) * LEN(disks));
  suite_add_tcase(s, c);
  c = tcase_create("sources");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, every_writer_has_a_row);
  tcase_add_test(c, the_search_finds_them);
  suite_add_tcase(s, c);
  return s;
}
