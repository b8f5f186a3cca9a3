/* export_folder.c - writes the weights with config.json and the tokenizer and generation
 * files of the model's folder, so that the new folder can be used in its place; see
 * export_folder.h. */
#include "export_folder.h"
#include "bindings/chat/plan_tokenizer.h"
#include "bindings/model/model.h"
#include "vm/ckpt/ckpt_weights.h"
#include "vm/weights/adapter_files.h"

#include <stdlib.h>
#include <unistd.h>

#define CONFIG_NAME     "config.json"
#define GENERATION_NAME "generation_config.json"

/* Lists the file of this name in the first of two folders, either of which may be NULL,
 * that has it. */
static weft_status add_file(ExportFolder *x, Job *j, const char *const folder[2],
                            const char *name, bool *found, weft_error *e) {
  const char *path = NULL;
  Folders in = lang_folders(j->lp);
  char *text;
  size_t n;
  *found = false;
  for (int i = 0; i < 2 && !*found; i++) {
    if (!folder[i]) continue;
    path = arena_printf(j->arena, "%s/%s", folder[i], name);
    *found = access(path, F_OK) == 0;
  }
  if (!*found) return WEFT_OK;
  TRY(folders_hold(&in, path, e));
  TRY(file_read(NULL, path, 256 << 20, &text, &n, e));
  x->file[x->out.nfile++] = (WeightsFile){name, text, n};
  return WEFT_OK;
}

/* Lists a text as a file of this name. */
static weft_status take_text(ExportFolder *x, const char *name, const Text *text,
                             weft_error *e) {
  char *copy = text->oom ? NULL : strdup(text->s ? text->s : "");
  if (!copy) return err_set(e, WEFT_ENOMEM, "out of memory");
  x->file[x->out.nfile++] = (WeightsFile){name, copy, text->n};
  return WEFT_OK;
}

/* Lists the files of the plan's tokenizer and of its model, the former first; whoever
 * generates with the folder knows what ends a text, also if neither has a file of it. */
static weft_status list_beside(ExportFolder *x, Job *j, weft_error *e) {
  const char *folder[2] = {NULL, lang_folder(j->lp)};
  bool found, ends = false;
  TRY(lang_tokenizer_folder(j->lp, &folder[0], e));
  for (int i = 0; i < WEIGHTS_BESIDE; i++) {
    if (str_eq(weights_beside[i], CONFIG_NAME)) continue;
    TRY(add_file(x, j, folder, weights_beside[i], &found, e));
    if (str_eq(weights_beside[i], GENERATION_NAME)) ends = found;
  }
  if (ends || !folder[0]) return WEFT_OK;
  Text text = {0};
  weft_status st = plan_tokenizer_generation(j->lp, folder[0], &text, e);
  if (st == WEFT_OK && text.n) st = take_text(x, GENERATION_NAME, &text, e);
  text_free(&text);
  return st;
}

/* Lists config.json and the other files of the plan's model, or what PEFT has beside an
 * adapter. */
static weft_status list_files(ExportFolder *x, Job *j, DType dtype, weft_error *e) {
  _Static_assert(WEIGHTS_BESIDE <= LEN(x->file), "room for all of them");
  bool known;
  if (x->out.adapter) {
    adapter_config(j->compiled, &j->plan, j->graph, lang_folder(j->lp), &x->config);
    return take_text(x, ADAPTER_CONFIG, &x->config, e);
  }
  TRY(list_beside(x, j, e));
  TRY(lang_hf_config(j->lp, NULL, dtype, &x->config, &known, e));
  return known ? take_text(x, CONFIG_NAME, &x->config, e) : WEFT_OK;
}

weft_status export_files(ExportFolder *x, Job *j, const ExportHow *how,
                         const SafeTensors *weights, weft_error *e) {
  *x = (ExportFolder){
      .out = {.like = weights, .dtype = how->dtype, .shard_bytes = how->shard_bytes}};
  x->out.file = x->file;
  TRY(lang_hf_packed(j->lp, &x->packed, e));
  x->out.packed = x->packed.name;
  x->out.adapter = j->plan.adapter.rank && !how->merged;
  if (j->plan.adapter.rank && how->merged) TRY(adapter_merges(j->compiled, e));
  if (x->out.adapter) TRY(adapter_fits(j->compiled, x->packed.name, e));
  return list_files(x, j, how->dtype == DT_ACT && !weights ? DT_F32 : how->dtype, e);
}

weft_status export_begin(ExportFolder *x, Job *j, const ExportHow *how, const char *dir,
                         const SafeTensors *weights, weft_error *e) {
  TRY(export_files(x, j, how, weights, e));
  x->out.dir = dir;
  /* Checked now, so that a run of days does not fail at its end because the folder
   * exists. */
  return folder_free(dir, e);
}

weft_status export_ckpt(const ExportFolder *x, const Compiled *c, const char *ckpt,
                        const Dir *in, const char *name, weft_error *e) {
  Ckpt *from;
  uint64_t read;
  WeightsOutOptions o = x->out;
  o.in = in;
  o.dir = name;
  TRY(ckpt_open(ckpt, &from, e));
  weft_status st = ckpt_weights(from, c, &o, NULL, &read, e);
  ckpt_close(from);
  return st;
}

void export_end(ExportFolder *x) {
  for (int i = 0; i < x->out.nfile; i++) free((char *)x->file[i].data);
  text_free(&x->config);
  *x = (ExportFolder){0};
}
