/* export_folder.c - writes the weights with config.json and the tokenizer and generation
 * files of the model's folder, so that the new folder can be used in its place; see
 * export_folder.h. */
#include "export_folder.h"
#include "bindings/chat/plan_tokenizer.h"
#include "bindings/model/model.h"
#include "bindings/model/special_ids.h"
#include "vm/ckpt/ckpt_weights.h"
#include "vm/io/json_text.h"
#include "vm/weights/adapter_files.h"

#include <stdlib.h>
#include <unistd.h>

#define CONFIG_NAME     "config.json"
#define GENERATION_NAME "generation_config.json"
#define TOKENIZER_NAME  "tokenizer.json"

/* Lists the file under this name if it is there. */
static weft_status add_path(ExportFolder *x, Job *j, const char *path, const char *name,
                            bool *found, weft_error *e) {
  Folders in = lang_folders(j->lp);
  char *text;
  size_t n;
  *found = false;
  if (access(path, F_OK) != 0) return WEFT_OK;
  TRY(folders_hold(&in, path, e));
  TRY(file_read(NULL, path, 256 << 20, &text, &n, e));
  x->file[x->out.nfile++] = (WeightsFile){name, text, n};
  *found = true;
  return WEFT_OK;
}

/* Lists the file of this name if the folder, which may be NULL, has it. */
static weft_status add_file(ExportFolder *x, Job *j, const char *folder, const char *name,
                            bool *found, weft_error *e) {
  *found = false;
  if (!folder) return WEFT_OK;
  return add_path(x, j, arena_printf(j->arena, "%s/%s", folder, name), name, found, e);
}

/* Lists a text as a file of this name. */
static weft_status take_text(ExportFolder *x, const char *name, const Text *text,
                             weft_error *e) {
  char *copy = text->oom ? NULL : strdup(text->s ? text->s : "");
  if (!copy) return err_set(e, WEFT_ENOMEM, "out of memory");
  x->file[x->out.nfile++] = (WeightsFile){name, copy, text->n};
  return WEFT_OK;
}

/* ---- generation_config.json ---- */

/* Puts ids of special tokens into the file that is listed last, which was read from
 * `path`; or, if that is NULL, lists one of them. A file that has them stays as it is. */
static weft_status put_ids(ExportFolder *x, const SpecialIds *ids, const char *path,
                           weft_error *e) {
  WeightsFile *file = path ? &x->file[x->out.nfile - 1] : NULL;
  json_t *doc =
      file ? json_text_python(path, "", file->data, file->bytes, e) : json_object();
  bool changed = false;
  Text text = {0};
  if (!doc) return file ? e->code : err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = WEFT_OK;
  if (!special_ids_put(ids, doc, true, &changed))
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK && changed) {
    json_text_to_python(doc, &text);
    text_add(&text, "\n");
    if (file) free((char *)file->data), x->out.nfile--;
    st = take_text(x, GENERATION_NAME, &text, e);
  }
  text_free(&text);
  json_decref(doc);
  return st;
}

/* That of the tokenizer's folder, or else of the model's, whose weights end texts as it
 * says; whoever generates with the new folder knows what ends a text, also if neither has
 * one. `ids`: those of the tokenizer. */
static weft_status list_generation(ExportFolder *x, Job *j, const char *tokenizer,
                                   const json_t *ids, weft_error *e) {
  const char *model = lang_folder(j->lp);
  SpecialIds special;
  const char *of = tokenizer ? tokenizer : model, *path = NULL;
  bool found;
  TRY(add_file(x, j, of, GENERATION_NAME, &found, e));
  if (!found && tokenizer && lang_weights(j->lp))
    TRY(add_file(x, j, of = model, GENERATION_NAME, &found, e));
  if (found) path = arena_printf(j->arena, "%s/" GENERATION_NAME, of);
  TRY(special_ids_open(j->lp, ids, &special, e));
  weft_status st = WEFT_OK;
  if ((found || tokenizer) && (special.plan || json_object_size(ids) > 0))
    st = put_ids(x, &special, path, e);
  special_ids_close(&special);
  return st;
}

/* ---- all files ---- */

/* Lists the files of the plan's tokenizer, or of its model if it names none: those of two
 * tokenizers do not go together, nor does one with weights that have learnt bytes. The
 * tokenizer itself may have another name there. */
static weft_status list_beside(ExportFolder *x, Job *j, const PlanTokenizer *tokenizer,
                               weft_error *e) {
  const char *folder = tokenizer->file ? tokenizer->folder : lang_folder(j->lp);
  bool found;
  if (j->plan.data.kind == DATA_TEXT) return WEFT_OK;
  for (int i = 0; i < WEIGHTS_BESIDE; i++) {
    const char *name = weights_beside[i];
    if (str_eq(name, TOKENIZER_NAME) && tokenizer->file)
      TRY(add_path(x, j, tokenizer->file, name, &found, e));
    else if (!str_eq(name, CONFIG_NAME) && !str_eq(name, GENERATION_NAME))
      TRY(add_file(x, j, folder, name, &found, e));
  }
  return WEFT_OK;
}

static weft_status list_of_model(ExportFolder *x, Job *j, DType dtype,
                                 const PlanTokenizer *tokenizer, const json_t *ids,
                                 weft_error *e) {
  bool known;
  TRY(list_beside(x, j, tokenizer, e));
  TRY(list_generation(x, j, tokenizer->folder, ids, e));
  TRY(lang_hf_config(j->lp, ids, dtype, &x->config, &known, e));
  return known ? take_text(x, CONFIG_NAME, &x->config, e) : WEFT_OK;
}

/* Lists config.json and the other files of the plan's model, or what PEFT has beside an
 * adapter. */
static weft_status list_files(ExportFolder *x, Job *j, DType dtype, weft_error *e) {
  _Static_assert(WEIGHTS_BESIDE <= LEN(x->file), "room for all of them");
  PlanTokenizer tokenizer;
  json_t *ids = NULL;
  if (x->out.adapter) {
    adapter_config(j->compiled, &j->plan, j->graph, lang_folder(j->lp), &x->config);
    return take_text(x, ADAPTER_CONFIG, &x->config, e);
  }
  TRY(plan_tokenizer_named(j->lp, &tokenizer, e));
  weft_status st =
      tokenizer.file ? plan_tokenizer_ids(j->lp, &tokenizer, &ids, e) : WEFT_OK;
  if (st == WEFT_OK) st = list_of_model(x, j, dtype, &tokenizer, ids, e);
  json_decref(ids);
  return st;
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
  weft_status st = ckpt_weights(from, c, &o, NULL, NULL, &read, e);
  ckpt_close(from);
  return st;
}

void export_end(ExportFolder *x) {
  for (int i = 0; i < x->out.nfile; i++) free((char *)x->file[i].data);
  text_free(&x->config);
  *x = (ExportFolder){0};
}
