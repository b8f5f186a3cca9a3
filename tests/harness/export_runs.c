/* export_runs.c - runs for the tests of what is exported. */
#include "export_runs.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"
#include "vm/weights/run_export.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const export_meshes[EXPORT_MESHES] = {
    "mesh = {}",
    "mesh = { tp = 2, pp = 2, dp = 2 }, strategy = 'fsdp2'",
    "mesh = { dp = 4 }, strategy = { 'zero', stage = 3 }, precision = 'bf16'",
    "mesh = { tp = 4, dp = 2 }, strategy = { 'zero', stage = 1 }",
};

const char *hf(const char *folder) {
  return arena_printf(scratch_arena, "weft.hf '%s'", folder);
}

const char *oracle(const char *name) {
  return arena_printf(scratch_arena, ORACLES "%s", name);
}

void must(weft_status st, const weft_error *e, const char *what) {
  ck_assert_msg(st == WEFT_OK, "%s: %s: %s", what, e->file, e->text);
}

void exporter_start(Exporter *f, const char *model, const char *mesh) {
  char plan[1200];
  static const char *const folders[] = {WEFT_SOURCE_DIR, scratch_dir};
  int n = snprintf(
      plan, sizeof plan,
      "local weft = require 'weft'\n"
      "return weft.plan { model = %s, %s,\n"
      "%s  optimizer = weft.adamw { lr = 1e-2, clip = 1 } }\n",
      model, mesh,
      strstr(mesh, "batch") ? "" : "  batch = { global = 8, micro = 1, seq = 16 },\n");
  LangOptions o = {.data = folders, .ndata = LEN(folders)};
  const char *path = scratch_put("plan.lua", plan, (size_t)n);
  *f = (Exporter){0};
  weft_status st = job_load(&f->job, scratch_arena, &o, path);
  if (st == WEFT_OK) st = job_mesh(&f->job, 0);
  if (st == WEFT_OK) st = job_compile(&f->job);
  if (f->job.d.errors) report_first(&f->job.d, &f->job.e);
  must(st, &f->job.e, plan);
  RunOptions ro = {.world = world_kind("local", NULL), .threads = 1};
  must(run_open(&f->job.plan, f->job.compiled, &ro, &f->run, &f->job.e), &f->job.e,
       "open");
  const char *folder = lang_weights(f->job.lp);
  if (folder) {
    must(st_open(NULL, folder, NULL, &f->weights, &f->job.e), &f->job.e, folder);
    must(run_load(f->run, f->weights, &f->job.e), &f->job.e, "load");
  } else {
    must(run_init(f->run, &f->job.e), &f->job.e, "init");
  }
}

void exporter_end(Exporter *f) {
  run_close(f->run);
  st_close(f->weights);
  job_free(&f->job);
}

const char *exporter_write(Exporter *f, const char *name, WeightsOutOptions o) {
  o.dir = scratch_path(name);
  must(run_export(f->run, &o, &f->job.e), &f->job.e, "export");
  return o.dir;
}

void same_tensors(const char *a, const char *b) {
  SafeTensors *x, *y;
  must(st_open(NULL, a, NULL, &x, &scratch_error), &scratch_error, a);
  must(st_open(NULL, b, NULL, &y, &scratch_error), &scratch_error, b);
  ck_assert_int_eq(st_count(x), st_count(y));
  for (int i = 0; i < st_count(x); i++) {
    const SafeTensor *s = st_at(x, i), *t = st_at(y, i);
    ck_assert_str_eq(s->name, t->name);
    ck_assert_str_eq(s->type, t->type);
    ck_assert_int_eq(s->ndim, t->ndim);
    ck_assert_mem_eq(s->dim, t->dim, sizeof *s->dim * (size_t)s->ndim);
    ck_assert_uint_eq(s->bytes, t->bytes);
    char *p = malloc(s->bytes + 1), *q = malloc(t->bytes + 1);
    must(file_at(s->in, s->at, p, s->bytes, &scratch_error), &scratch_error, s->name);
    must(file_at(t->in, t->at, q, t->bytes, &scratch_error), &scratch_error, t->name);
    ck_assert_msg(memcmp(p, q, s->bytes) == 0, "%s differs", s->name);
    free(p);
    free(q);
  }
  st_close(x);
  st_close(y);
}
