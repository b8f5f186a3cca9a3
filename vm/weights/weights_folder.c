/* weights_folder.c - a Hugging Face folder written by ranks together; see
 * weights_folder.h. weights_layout.c says which tensor is in which file. */
#include "weights_folder_int.h"

#include <stdio.h>

#include "adapter_files.h"

#include "vm/base/f16.h"
#include "vm/base/json.h"

const char *const weights_beside[WEIGHTS_BESIDE] = {"config.json",
                                                    "generation_config.json",
                                                    "tokenizer.json",
                                                    "vocab.json",
                                                    "special_tokens_map.json",
                                                    "tokenizer_config.json",
                                                    "added_tokens.json",
                                                    "merges.txt",
                                                    "tokenizer.model",
                                                    "chat_template.jinja"};

#define WHOLE_NAME "model.safetensors"
#define PART_NAME  "model-%05d-of-%05d.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

bool weights_out_owns(const char *name) {
  char same[64];
  int file, of;
  if (str_index(name, weights_beside, WEIGHTS_BESIDE) >= 0 || str_eq(name, WHOLE_NAME) ||
      str_eq(name, INDEX_NAME) || str_eq(name, ADAPTER_WEIGHTS) ||
      str_eq(name, ADAPTER_CONFIG))
    return true;
  if (sscanf(name, "model-%9d-of-%9d", &file, &of) != 2) return false;
  snprintf(same, sizeof same, PART_NAME, file, of);
  return str_eq(name, same);
}

static const char *file_name(const WeightsOut *w, int file) {
  if (w->o->adapter) return ADAPTER_WEIGHTS;
  if (w->nfile == 1) return WHOLE_NAME;
  return arena_printf(w->arena, PART_NAME, file + 1, w->nfile);
}

/* The tensors of a file. Transformers asks for the format. */
static StContent content_of(const WeightsOut *w, int file) {
  static const StMeta meta[] = {{"format", "pt"}};
  StWrite *t = NEW_N(w->arena, StWrite, w->t.n);
  int n = 0;
  for (int i = 0; i < w->t.n; i++)
    if (w->t.at[i].file == file) t[n++] = w->t.at[i].write;
  return (StContent){.tensor = t, .n = n, .meta = meta, .nmeta = LEN(meta)};
}

/* ---- opening ---- */

static weft_status out_new(const weft_alloc *a, const Compiled *c,
                           const WeightsOutOptions *o, WeightsOut **out, weft_error *e) {
  *out = NULL;
  WeightsOut *w = mem_new(a, sizeof *w);
  if (!w || !(w->arena = arena_new(a))) {
    mem_free(a, w, sizeof *w);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  w->alloc = a;
  w->o = o;
  w->folder = (FolderOut){.in = DIR_CLOSED, .dir = DIR_CLOSED};
  if (setjmp(*arena_guard(w->arena))) {
    weights_out_drop(w);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  weights_layout(w, c);
  *out = w;
  return WEFT_OK;
}

/* Room for a name: what is added to one are process numbers. */
static size_t name_room(const WeightsOutOptions *o) { return strlen(o->dir) + 160; }

/* Creates the files, or joins those of these names. */
static weft_status open_files(WeightsOut *w, const char *names, weft_error *e) {
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (names)
    TRY(folder_join(w->o->in, w->o->dir, names, &w->folder, e));
  else
    TRY(folder_create(w->o->in, w->o->dir, weights_out_owns, &w->folder, e));
  for (int i = 0; i < w->nfile; i++) {
    StContent c = content_of(w, i);
    const char *file = file_name(w, i);
    if (names)
      TRY(st_join(w->alloc, &w->folder.dir, file,
                  names + name_room(w->o) * (size_t)(i + 1), &c, &w->file[i], e));
    else
      TRY(st_create(w->alloc, &w->folder.dir, file, &c, &w->file[i], e));
  }
  return WEFT_OK;
}

static weft_status open_or_join(const weft_alloc *a, const Compiled *c,
                                const WeightsOutOptions *o, const char *names,
                                WeightsOut **out, weft_error *e) {
  TRY(out_new(a, c, o, out, e));
  weft_status st = open_files(*out, names, e);
  if (st == WEFT_OK) return st;
  weights_out_drop(*out);
  *out = NULL;
  return st;
}

weft_status weights_out_open(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, WeightsOut **out,
                             weft_error *e) {
  return open_or_join(a, c, o, NULL, out, e);
}

weft_status weights_out_join(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, const char *names,
                             WeightsOut **out, weft_error *e) {
  return open_or_join(a, c, o, names, out, e);
}

/* ---- names, for other processes ---- */

/* The folder's, and those of files. */
size_t weights_out_names_bytes(const Compiled *c, const WeightsOutOptions *o) {
  return name_room(o) * (1 + weights_fit_bytes(c) / sizeof(SafeTensor *));
}

void weights_out_names(const WeightsOut *w, char *names, size_t bytes) {
  size_t room = name_room(w->o);
  memset(names, 0, bytes);
  snprintf(names, room, "%s", w->folder.temporary.s);
  for (int i = 0; i < w->nfile; i++)
    snprintf(names + room * (size_t)(i + 1), room, "%s", st_name(w->file[i]));
}

/* ---- values ---- */

/* The values become those of the type, at the begin of their room. */
static void narrow(DType t, float *values, int64_t n) {
  uint16_t some[2048];
  char *to = (char *)values;
  for (int64_t at = 0, k; at < n; at += k, to += (size_t)k * sizeof *some) {
    k = MIN(n - at, LEN(some));
    for (int64_t i = 0; i < k; i++)
      some[i] =
          t == DT_BF16 ? bf16_from_f32(values[at + i]) : f16_from_f32(values[at + i]);
    memcpy(to, some, (size_t)k * sizeof *some);
  }
}

weft_status weights_out_put(const WeightsOut *w, int param, int64_t from, int64_t n,
                            float *values, weft_error *e) {
  OutParam p = w->param[param];
  for (int64_t done = 0, some; done < n; done += some) {
    int64_t at = from + done;
    const OutTensor *t = &w->t.at[p.tensor + at / p.each];
    uint64_t size = (uint64_t)dtype_size(t->write.dtype);
    some = MIN(n - done, p.each - at % p.each);
    if (t->write.dtype != DT_F32) narrow(t->write.dtype, values + done, some);
    TRY(st_put(w->file[t->file], t->number, (uint64_t)(p.first + at % p.each) * size,
               values + done, (size_t)some * size, e));
    for (int i = 0; i < w->copy.n; i++) {
      if (w->copy.at[i].param != param) continue;
      t = &w->t.at[w->copy.at[i].tensor];
      TRY(st_put(w->file[t->file], t->number, (uint64_t)at * size, values + done,
                 (size_t)some * size, e));
    }
  }
  return WEFT_OK;
}

/* ---- finishing ---- */

static void write_index(const WeightsOut *w, Text *out) {
  Json j = {.out = out, .pretty = true};
  json_open(&j, NULL, '{');
  json_open(&j, "metadata", '{');
  json_int(&j, "total_size", (int64_t)w->bytes);
  json_close(&j, '}');
  json_open(&j, "weight_map", '{');
  for (int i = 0; i < w->t.n; i++)
    json_str(&j, w->t.at[i].write.name, file_name(w, w->t.at[i].file));
  json_close(&j, '}');
  json_close(&j, '}');
  text_add(out, "\n");
}

static weft_status write_beside(const WeightsOut *w, const char *name, const char *data,
                                size_t bytes, weft_error *e) {
  FilePart part = {data, bytes};
  return file_write(&w->folder.dir, name, &part, 1, e);
}

static weft_status write_others(WeightsOut *w, weft_error *e) {
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  for (int i = 0; i < w->o->nfile; i++) {
    const WeightsFile *f = &w->o->file[i];
    TRY(write_beside(w, f->name, f->data, f->bytes, e));
  }
  if (w->nfile > 1) {
    Text index = {.alloc = arena_allocator(w->arena)};
    write_index(w, &index);
    weft_status st = index.oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                               : write_beside(w, INDEX_NAME, index.s, index.n, e);
    text_free(&index);
    TRY(st);
  }
  return WEFT_OK;
}

/* What was put in parameters' order is put in the files'. */
static weft_status turn(const WeightsOut *w, weft_error *e) {
  for (int i = 0; i < w->t.n; i++) {
    const OutTensor *t = &w->t.at[i];
    size_t size = (size_t)dtype_size(t->write.dtype);
    if (t->turned) TRY(st_turn(w->file[t->file], t->number, t->turned, size, e));
  }
  return WEFT_OK;
}

static weft_status put_buffers(const WeightsOut *w, weft_error *e) {
  for (int i = 0; i < w->buffer.n; i++) {
    const OutTensor *t = &w->t.at[w->buffer.at[i].tensor];
    float value = w->buffer.at[i].value;
    if (t->write.dtype != DT_F32) narrow(t->write.dtype, &value, 1);
    TRY(st_put(w->file[t->file], t->number, 0, &value, (size_t)dtype_size(t->write.dtype),
               e));
  }
  return WEFT_OK;
}

weft_status weights_out_finish(WeightsOut *w, weft_error *e) {
  weft_status st = w->folder.first ? turn(w, e) : WEFT_OK;
  if (st == WEFT_OK && w->folder.first) st = put_buffers(w, e);
  for (int i = 0; i < w->nfile && st == WEFT_OK; i++) {
    StOut *f = w->file[i];
    w->file[i] = NULL;
    st = st_finish(f, e);
  }
  if (st == WEFT_OK && w->folder.first) st = write_others(w, e);
  if (st == WEFT_OK) st = folder_finish(&w->folder, e);
  weights_out_drop(w);
  return st;
}

void weights_out_drop(WeightsOut *w) {
  if (!w) return;
  for (int i = 0; w->file && i < w->nfile; i++) st_drop(w->file[i]);
  folder_drop(&w->folder);
  arena_free(w->arena);
  const weft_alloc *a = w->alloc;
  mem_free(a, w, sizeof *w);
}
