/* ckpt_export.c - weft ckpt export and merge: the parameters of a checkpoint as a folder
 * of Hugging Face files. Of a plan with an adapter, export writes the adapter as PEFT has
 * it and merge the model with it. */
#include "ckpt_verbs.h"
#include "export_options.h"

#include "bindings/runs/resume.h"
#include "vm/base/terminal.h"
#include "vm/ckpt/ckpt_weights.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/weights/weights_open.h"

typedef struct CkptExport {
  Job job;
  Ckpt *from;
  uint64_t read;        /* bytes */
  SafeTensors *weights; /* the weights that the plan's model starts from, or NULL: for
                           names and types */
  ExportFolder folder;
} CkptExport;

static weft_status export(CkptExport *x, Cli *cli, Arena *arena, const char *const *at,
                          bool merged) {
  Job *j = &x->job;
  const char *path;
  bool none;
  TRY(job_start(j, cli, arena, at[0]));
  TRY(job_mesh(j, 0));
  TRY(job_compile(j));
  if (merged && !j->plan.adapter.rank)
    return err_set(
        &j->e, WEFT_EUSAGE,
        "the plan has no adapter that could be merged: weft ckpt export writes "
        "its weights");
  TRY(store_find(arena, at[1], &path, &none, &j->e));
  TRY(ckpt_open(path, &x->from, &j->e));
  TRY(ckpt_fits(x->from, j->compiled, CKPT_PARAMS, &j->e));
  TRY(resume_adapter(j, x->from));
  Folders in = lang_folders(j->lp);
  const char *weights = lang_weights(j->lp);
  TRY(weights_open_model(NULL, weights, &in, &j->plan, &x->weights, &j->e));
  if (weights) TRY(weights_fit(j->compiled, x->weights, NULL, &j->e));
  ExportHow as;
  TRY(export_options(cli, merged, &as, &j->e));
  TRY(export_begin(&x->folder, j, &as, at[2], x->weights, &j->e));
  MergeHow how = {&j->plan.adapter, j->graph};
  heed_ends(cli);
  return ckpt_weights(x->from, j->compiled, &x->folder.out, merged ? &how : NULL,
                      cli->stop, &x->read, &j->e);
}

static void result(Json *out, void *ud) {
  const CkptExport *x = ud;
  json_int(out, "bytes_read", (int64_t)x->read);
  json_int(out, "step", x->from->m.step);
  json_int(out, "tensors", x->job.compiled->nparam);
}

static int write_folder(Cli *cli, Arena *arena, const char *const *at, bool merged) {
  CkptExport all = {0}, *x = &all;
  weft_status st = export(x, cli, arena, at, merged);
  if (st == WEFT_OK && !cli->json)
    fprintf(stderr, "%s: weights of step %lld\n", SHOWN(at[2]),
            (long long)x->from->m.step);
  int code = code_of_signal(cli, st, job_end(&x->job, cli, st, result, x));
  export_end(&x->folder);
  st_close(x->weights);
  ckpt_close(x->from);
  return code;
}

int ckpt_export(Cli *cli, Arena *arena, const char *const *at) {
  return write_folder(cli, arena, at, false);
}

int ckpt_merge(Cli *cli, Arena *arena, const char *const *at) {
  return write_folder(cli, arena, at, true);
}
