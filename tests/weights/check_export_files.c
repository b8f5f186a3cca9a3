/* check_export_files.c - how exported weights lie in files: projections that a folder has
 * as one tensor, files that are filled to their room, and folders that appear whole or
 * not at all. */
#include <check.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "bindings/model/model.h"
#include "tests/harness/export_runs.h"
#include "vm/weights/weights_load.h"
#include "vm/weights/run_export.h"

/* ---- layouts ---- */

/* Rows of several tensors below each other. */
static StWrite stacked(const SafeTensors *s, const char *layer, const char *name,
                       const char *const part[3]) {
  StWrite w = {.name = arena_printf(scratch_arena, "%s.%s.weight", layer, name),
               .dtype = DT_F32,
               .ndim = 2};
  float *all = arena_alloc(scratch_arena, 1 << 16), *to = all;
  for (int i = 0; i < 3 && part[i]; i++) {
    const SafeTensor *t =
        st_find(s, arena_printf(scratch_arena, "%s.%s.weight", layer, part[i]));
    ck_assert_ptr_nonnull(t);
    must(st_read_f32(t, to, &scratch_error), &scratch_error, t->name);
    to += t->dim[0] * t->dim[1];
    w.dim[0] += t->dim[0], w.dim[1] = t->dim[1];
  }
  w.data = all;
  return w;
}

static bool is_part(const char *name) {
  static const char *const parts[] = {"q_proj", "k_proj", "v_proj", "gate_proj",
                                      "up_proj"};
  for (int i = 0; i < LEN(parts); i++)
    if (strstr(name, parts[i])) return true;
  return false;
}

/* The oracle with q, k and v, and gate and up, as one tensor each; `cut`: a row less. */
static const char *fused_folder(int cut) {
  static const char *const qkv[3] = {"q_proj", "k_proj", "v_proj"};
  static const char *const gate_up[3] = {"gate_proj", "up_proj"};
  SafeTensors *s;
  StWrite t[64];
  int n = 0;
  const char *dir = scratch_path(cut ? "cut" : "fused");
  must(st_open(NULL, oracle("llama"), NULL, &s, &scratch_error), &scratch_error, "llama");
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *x = st_at(s, i);
    if (is_part(x->name)) continue;
    t[n] = (StWrite){.name = x->name, .dtype = DT_F32, .ndim = x->ndim};
    memcpy(t[n].dim, x->dim, sizeof x->dim);
    float *data = arena_alloc(scratch_arena, x->bytes);
    must(st_read_f32(x, data, &scratch_error), &scratch_error, x->name);
    t[n++].data = data;
  }
  for (int l = 0; l < 4; l++) {
    const char *layer = arena_printf(scratch_arena, "model.layers.%d", l);
    t[n++] =
        stacked(s, arena_printf(scratch_arena, "%s.self_attn", layer), "qkv_proj", qkv);
    t[n] =
        stacked(s, arena_printf(scratch_arena, "%s.mlp", layer), "gate_up_proj", gate_up);
    t[n++].dim[0] -= l == 2 ? cut : 0;
  }
  ck_assert_int_eq(mkdir(dir, 0700), 0);
  must(st_write(NULL, arena_printf(scratch_arena, "%s/model.safetensors", dir), t, n,
                &scratch_error),
       &scratch_error, dir);
  st_close(s);
  const char *from = arena_printf(scratch_arena, "%s/config.json", oracle("llama"));
  ck_assert_int_eq(symlink(from, arena_printf(scratch_arena, "%s/config.json", dir)), 0);
  return dir;
}

START_TEST(fused_projections_are_read_and_written) {
  Exporter f;
  const char *dir = fused_folder(0);
  exporter_start(&f, hf(dir), export_meshes[_i]);
  same_tensors(
      exporter_write(&f, "out", (WeightsOutOptions){.like = f.weights, .dtype = DT_ACT}),
      dir);
  same_tensors(exporter_write(&f, "apart", (WeightsOutOptions){.dtype = DT_ACT}),
               oracle("llama"));
  static const char *const packed[] = {"gate_up_proj", "qkv_proj", NULL};
  same_tensors(exporter_write(&f, "packed",
                              (WeightsOutOptions){.dtype = DT_ACT, .packed = packed}),
               dir);
  exporter_end(&f);
}
END_TEST

/* Files of Phi-3 have them, those of Llama do not. */
START_TEST(architectures_say_what_files_have_packed) {
  Exporter f;
  HfPacked packed;
  exporter_start(&f, hf(oracle("steps_phi3")), export_meshes[0]);
  must(lang_hf_packed(f.job.lp, &packed, &f.job.e), &f.job.e, "packed");
  ck_assert_str_eq(packed.name[0], "qkv_proj");
  ck_assert_str_eq(packed.name[1], "gate_up_proj");
  ck_assert_ptr_null(packed.name[2]);
  exporter_end(&f);
  exporter_start(&f, hf(oracle("llama")), export_meshes[0]);
  must(lang_hf_packed(f.job.lp, &packed, &f.job.e), &f.job.e, "packed");
  ck_assert_ptr_null(packed.name[0]);
  exporter_end(&f);
}
END_TEST

START_TEST(fused_projections_of_another_size_do_not_fit) {
  Exporter f;
  SafeTensors *s;
  const char *dir = fused_folder(1);
  exporter_start(&f, hf(oracle("llama")), export_meshes[0]);
  must(st_open(NULL, dir, NULL, &s, &scratch_error), &scratch_error, dir);
  ck_assert_int_eq(run_load(f.run, s, &f.job.e), WEFT_EFILE);
  ck_assert_ptr_nonnull(strstr(f.job.e.text,
                               "model.layers.2.mlp.up_proj.weight: shape [95, "
                               "32], the model has [96, 32] in "
                               "model.layers.2.mlp.gate_up_proj.weight"));
  st_close(s);
  exporter_end(&f);
}
END_TEST

/* ---- files ---- */

static const SafeTensor *named(const SafeTensors *s, const char *name) {
  for (int i = 0; i < st_count(s); i++)
    if (str_eq(st_at(s, i)->name, name)) return st_at(s, i);
  ck_abort_msg("there is no %s", name);
}

/* Each file takes what has room, to the byte and in the order of the parameters; what is
 * larger than a file has one alone. */
START_TEST(files_are_filled_to_the_room) {
  Exporter f;
  SafeTensors *all, *cut;
  exporter_start(&f, hf(oracle("llama")), export_meshes[0]);
  const char *one = exporter_write(&f, "one", (WeightsOutOptions){.dtype = DT_ACT});
  must(st_open(NULL, one, NULL, &all, &scratch_error), &scratch_error, one);
  int n = f.job.compiled->nparam;
  ck_assert_int_eq(st_files(all), 1);
  ck_assert_int_eq(st_count(all), n);
  const SafeTensor **t = NEW_N(scratch_arena, const SafeTensor *, n);
  for (int i = 0; i < n; i++) t[i] = named(all, f.job.compiled->param[i].name);
  uint64_t two = t[0]->bytes + t[1]->bytes, most = 0, sum = 0;
  for (int i = 0; i < n; i++) most = MAX(most, t[i]->bytes), sum += t[i]->bytes;
  const uint64_t rooms[] = {1, most - 1, most, two - 1, two, sum - 1, sum};
  for (int k = 0; k < LEN(rooms); k++) {
    const char *out =
        exporter_write(&f, arena_printf(scratch_arena, "cut%d", k),
                       (WeightsOutOptions){.dtype = DT_ACT, .shard_bytes = rooms[k]});
    must(st_open(NULL, out, NULL, &cut, &scratch_error), &scratch_error, out);
    int file = 0;
    uint64_t used = 0;
    for (int i = 0; i < n; i++) {
      if (used && used + t[i]->bytes > rooms[k]) file++, used = 0;
      used += t[i]->bytes;
      const SafeTensor *x = named(cut, t[i]->name);
      ck_assert_msg(str_eq(x->file, st_file_path(cut, file)),
                    "room %llu: %s is in %s, not %s", (unsigned long long)rooms[k],
                    x->name, x->file, st_file_path(cut, file));
    }
    ck_assert_int_eq(st_files(cut), file + 1);
    for (int i = 0; i <= file && file; i++) { /* none is empty */
      const char *name = arena_printf(scratch_arena, "%s/model-%05d-of-%05d.safetensors",
                                      out, i + 1, file + 1);
      ck_assert_str_eq(st_file_path(cut, i), name);
    }
    st_close(cut);
  }
  st_close(all);
  exporter_end(&f);
}
END_TEST

/* ---- folders ---- */

START_TEST(a_folder_appears_whole_or_not_at_all) {
  static const WeightsFile config[] = {{"config.json", "{}", 2}};
  Exporter f;
  WeightsOutOptions o = {
      .dtype = DT_ACT, .shard_bytes = 40000, .file = config, .nfile = 1};
  exporter_start(&f, hf(oracle("llama")), export_meshes[1]);
  exporter_write(&f, "out/", o);
  struct stat st;
  ck_assert_int_eq(stat(scratch_path("out/config.json"), &st), 0);
  ck_assert_int_eq(stat(scratch_path("out/model-00004-of-00004.safetensors"), &st), 0);
  ck_assert_int_eq(stat(scratch_path("out/model.safetensors.index.json"), &st), 0);
  same_tensors(scratch_path("out"), oracle("llama"));
  ck_assert_str_eq(scratch_list(), "out plan.lua ");
  o.dir = scratch_path("out");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "exists and is not empty; give another name, or remove it first");
  o.dir = scratch_path("plan.lua");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "exists and is not a folder");
  o.dir = scratch_path("no/out");
  scratch_check_error(run_export(f.run, &o, &scratch_error), WEFT_EFILE, o.dir,
                      "cannot be made: No such file or directory");
  /* A limit on the size of files stands for a full disk. */
  struct rlimit before, small = {.rlim_cur = 20000};
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  small.rlim_max = before.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  o.dir = scratch_path("full");
  weft_status full = run_export(f.run, &o, &scratch_error);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
  ck_assert_int_eq(full, WEFT_EFILE);
  ck_assert_ptr_nonnull(strstr(scratch_error.text, "cannot be written: File too large"));
  ck_assert_str_eq(scratch_list(), "out plan.lua ");
  exporter_end(&f);
}
END_TEST

Suite *export_files_suite(void) {
  Suite *s = suite_create("export_files");
  TCase *t = tcase_create("export_files");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 600);
  tcase_add_loop_test(t, fused_projections_are_read_and_written, 0, LEN(export_meshes));
  tcase_add_test(t, architectures_say_what_files_have_packed);
  tcase_add_test(t, fused_projections_of_another_size_do_not_fit);
  tcase_add_test(t, files_are_filled_to_the_room);
  tcase_add_test(t, a_folder_appears_whole_or_not_at_all);
  suite_add_tcase(s, t);
  return s;
}
