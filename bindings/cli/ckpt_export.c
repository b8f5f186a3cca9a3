/* ckpt_export.c - weft ckpt export: the parameters of a checkpoint as a folder of Hugging
 * Face files. They pass through one block, so that this takes no more memory for a large
 * model than for a small one. */
#include "ckpt.h"
#include "export.h"
#include "vm/ckpt/store.h"

enum { BLOCK = 1 << 18 }; /* elements on their way */

typedef struct CkptExport {
  Job job;
  Ckpt *from;
  CkptRead read;
  SafeTensors *weights; /* of the plan's model, or NULL: its names and types */
  ExportFolder folder;
  WeightsOut *out;
  float block[BLOCK];
} CkptExport;

static weft_status copy(CkptExport *x, weft_error *e) {
  const Compiled *c = x->job.compiled;
  for (int i = 0; i < c->nparam; i++) {
    int param = ckpt_param(x->from, c->param[i].name);
    int64_t all = param_count(&c->param[i]);
    for (int64_t at = 0, n; at < all; at += n) {
      n = MIN(all - at, (int64_t)BLOCK);
      TRY(ckpt_read_part(&x->read, ckpt_kind(STATE_PARAM), param, at, n, x->block, e));
      TRY(weights_out_put(x->out, i, at, n, x->block, e));
    }
  }
  return WEFT_OK;
}

static weft_status export(CkptExport *x, Cli *cli, Arena *arena, const char *const *at) {
  Job *j = &x->job;
  const char *path;
  bool none;
  TRY(job_start(j, cli, arena, at[0]));
  TRY(job_mesh(j, 0));
  TRY(job_compile(j));
  TRY(store_find(arena, at[1], &path, &none, &j->e));
  TRY(ckpt_open(path, &x->from, &j->e));
  TRY(ckpt_fits(x->from, j->compiled, &j->e));
  Folders in = lang_folders(j->lp);
  const char *weights = lang_weights(j->lp);
  if (weights) TRY(st_open(NULL, weights, &in, &x->weights, &j->e));
  if (weights) TRY(weights_fit(j->compiled, x->weights, NULL, &j->e));
  TRY(export_begin(&x->folder, j, cli, at[2], x->weights, &j->e));
  TRY(ckpt_read_begin(x->from, &x->read, &j->e));
  TRY(weights_out_open(NULL, j->compiled, &x->folder.out, &x->out, &j->e));
  TRY(copy(x, &j->e));
  WeightsOut *out = x->out;
  x->out = NULL;
  return weights_out_finish(out, &j->e);
}

static void result(Json *out, void *ud) {
  const CkptExport *x = ud;
  json_int(out, "bytes_read", (int64_t)x->read.read);
  json_int(out, "step", x->from->m.step);
  json_int(out, "tensors", x->job.compiled->nparam);
}

int ckpt_export(Cli *cli, Arena *arena, const char *const *at) {
  CkptExport *x = mem_new(NULL, sizeof *x);
  weft_error e;
  err_clear(&e);
  if (!x)
    return ckpt_end(cli, arena, err_set(&e, WEFT_ENOMEM, "out of memory"), &e, NULL,
                    NULL);
  weft_status st = export(x, cli, arena, at);
  if (st == WEFT_OK && !cli->json)
    fprintf(stderr, "%s: weights of step %lld\n", at[2], (long long)x->from->m.step);
  int code = job_end(&x->job, cli, st, result, x);
  weights_out_drop(x->out);
  export_end(&x->folder);
  ckpt_read_end(&x->read);
  st_close(x->weights);
  ckpt_close(x->from);
  mem_free(NULL, x, sizeof *x);
  return code;
}
