/* weights_folder.c - a Hugging Face folder written by ranks together; see
 * weights_folder.h. Which tensor is in which file follows from parameters and options
 * alone, so that processes need not agree on it. */
#include "weights_folder.h"

#include <stdio.h>

#include "adapter_files.h"

#include "vm/base/f16.h"
#include "vm/base/json.h"
#include "vm/graph/second_model.h"

typedef struct OutTensor {
  StWrite write;
  int file, number; /* in its content */
  int64_t turned;   /* is put as its transpose: of so many columns; 0: it is not */
} OutTensor;

/* Where a parameter goes: its elements from `first` on of a tensor; or each `each` of
 * them to a tensor, one after the other. */
typedef struct OutParam {
  int tensor;
  int64_t first, each;
} OutParam;

/* A parameter that another tensor has, too. */
typedef struct OutCopy {
  int param, tensor;
} OutCopy;

/* A buffer of the model, and where it goes. */
typedef struct OutBuffer {
  float value;
  int tensor;
} OutBuffer;

struct WeightsOut {
  Arena *arena;
  const weft_alloc *alloc;
  const WeightsOutOptions *o;
  VEC(OutTensor) t;
  OutParam *param;
  VEC(OutCopy) copy;
  VEC(OutBuffer) buffer;
  int nfile;
  StOut **file;
  FolderOut folder;
  uint64_t bytes; /* of all tensors */
};

static uint64_t all_bytes(const StWrite *t) {
  uint64_t n = (uint64_t)dtype_size(t->dtype);
  for (int i = 0; i < t->ndim; i++) n *= (uint64_t)t->dim[i];
  return n;
}

/* ---- layout ---- */

/* weft keeps nothing wider than f32. Biases of routers are not made narrower than they
 * came: Transformers keeps these in f32 whatever the type of the others. */
static DType out_type(const WeightsOutOptions *o, const CompiledParam *p,
                      const SafeTensor *t) {
  if (o->dtype != DT_ACT && !(p->share > 0)) return o->dtype;
  return t && (t->dtype == DT_BF16 || t->dtype == DT_F16) ? t->dtype : DT_F32;
}

static OutTensor *add_tensor(WeightsOut *w, const char *name, int ndim,
                             const int64_t *dim, DType dtype) {
  OutTensor *t = VEC_PUSH(w->arena, w->t);
  *t = (OutTensor){.write = {.name = name, .dtype = dtype, .ndim = ndim}};
  memcpy(t->write.dim, dim, (size_t)ndim * sizeof *dim);
  return t;
}

/* Those of an expert each, as in `like`. */
static OutParam list_pieces(WeightsOut *w, const Compiled *c, int param,
                            WeightSource from) {
  const CompiledParam *p = &c->param[param];
  OutParam to = {.tensor = w->t.n, .each = param_count(p) / from.pieces};
  for (int i = 0; i < from.pieces; i++) {
    const SafeTensor *t = weights_piece(c, w->o->like, param, i, NULL);
    add_tensor(w, t->name, t->ndim, t->dim, out_type(w->o, p, t));
  }
  return to;
}

/* One that holds several parameters is made for the first of them. */
static OutParam list_packed(WeightsOut *w, const CompiledParam *p, const char *name,
                            int64_t rows, int64_t first) {
  OutParam to = {.tensor = w->t.n, .first = first, .each = INT64_MAX};
  int64_t dim[MAX_DIM] = {rows};
  for (int i = w->t.n - 1; i >= 0; i--)
    if (str_eq(w->t.at[i].write.name, name)) {
      to.tensor = i;
      return to;
    }
  for (int i = 1; i < p->ndim; i++) dim[i] = p->dim[i];
  add_tensor(w, arena_str(w->arena, name), p->ndim, dim, out_type(w->o, p, NULL));
  return to;
}

/* What PEFT's folder has, as it calls it. */
static OutParam list_adapter(WeightsOut *w, const Compiled *c, int param) {
  const CompiledParam *p = &c->param[param], shape = adapter_shape(p);
  OutParam to = {.tensor = w->t.n, .each = INT64_MAX};
  char name[512];
  int64_t rows, first;
  if (adapter_packed(c, param, name, &rows, &first))
    return list_packed(w, p, name, rows, first);
  adapter_tensor(c, param, name);
  OutTensor *t = add_tensor(w, arena_str(w->arena, name), shape.ndim, shape.dim,
                            out_type(w->o, p, NULL));
  if (adapter_turned(p)) t->turned = p->dim[0];
  return to;
}

bool weights_out_has(const WeightsOut *w, const CompiledParam *p) {
  return (w->o->adapter ? adapter_has(p) : p->adapter == ADAPTER_NONE) &&
         !second_prefix(p->name, strlen(p->name)) && !weights_follow(p);
}

/* Layers that predict further tokens have the embedding and the head once more, in files
 * of models that began as such, and where there is nothing to be like. */
static void list_copies(WeightsOut *w, const Compiled *c) {
  static const char projection[] = ".eh_proj.weight";
  static const char *const end[] = {WEIGHTS_EMBEDDING_COPY, WEIGHTS_HEAD_COPY};
  for (int i = 0; i < c->nparam && !w->o->adapter; i++) {
    const char *name = c->param[i].name;
    size_t n = strlen(name), less = sizeof projection - 1;
    if (n < less || !str_eq(name + n - less, projection)) continue;
    for (int k = 0; k < LEN(end); k++) {
      const char *copy = arena_printf(w->arena, "%.*s%s", (int)(n - less), name, end[k]);
      int of = weights_copied(c, copy);
      if (of < 0 || (w->o->like && !st_find(w->o->like, copy))) continue;
      const OutTensor like = w->t.at[w->param[of].tensor];
      *VEC_PUSH(w->arena, w->copy) = (OutCopy){of, w->t.n};
      add_tensor(w, copy, like.write.ndim, like.write.dim, like.write.dtype);
    }
  }
}

/* In files of the model those that it has, or that `like` has. */
static void list_buffers(WeightsOut *w, const Compiled *c) {
  for (int i = 0; i < c->nbuffer && !w->o->adapter; i++) {
    const Buffer *b = &c->buffer[i];
    const SafeTensor *t = w->o->like ? st_find(w->o->like, b->name) : NULL;
    if (second_prefix(b->name, strlen(b->name)) || (w->o->like && !t)) continue;
    *VEC_PUSH(w->arena, w->buffer) = (OutBuffer){b->value, w->t.n};
    add_tensor(w, b->name, 0, (const int64_t[]){0},
               out_type(w->o, &(CompiledParam){0}, t));
  }
}

/* A tensor for each parameter, or for each of `like` that has some. */
static void list_tensors(WeightsOut *w, const Compiled *c) {
  const SafeTensors *like = w->o->like;
  int n = like ? st_count(like) : 0;
  int *seen = NEW_N(w->arena, int, n + 1); /* number + 1 of a tensor of `like` */
  w->param = NEW_N(w->arena, OutParam, c->nparam + 1);
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam weight = weights_as_model(&c->param[i]), *p = &weight;
    WeightSource from = {0};
    char name[512];
    int64_t rows, first;
    if (!weights_out_has(w, &c->param[i])) continue; /* as it is stored */
    if (w->o->adapter) {
      w->param[i] = list_adapter(w, c, i);
      continue;
    }
    if (like) from = weights_source(c, like, i);
    if (!like && weights_packed(c, w->o->packed, i, name, &rows, &first)) {
      w->param[i] = list_packed(w, p, name, rows, first);
      continue;
    }
    if (from.pieces > 1) {
      w->param[i] = list_pieces(w, c, i, from);
      continue;
    }
    int at = from.t ? (int)(from.t - st_at(like, 0)) : n;
    if (!seen[at] || at == n) {
      if (from.t)
        add_tensor(w, from.t->name, from.t->ndim, from.t->dim, out_type(w->o, p, from.t));
      else
        add_tensor(w, p->name, p->ndim, p->dim, out_type(w->o, p, NULL));
      seen[at] = w->t.n;
    }
    w->param[i] = (OutParam){seen[at] - 1, from.first, INT64_MAX};
  }
  list_copies(w, c);
  list_buffers(w, c);
}

/* Files are filled one after the other. */
static void place_tensors(WeightsOut *w) {
  uint64_t room = w->o->shard_bytes, used = 0;
  if (!room) room = (uint64_t)WEIGHTS_SHARD_GB * 1000000000;
  if (w->o->adapter) room = UINT64_MAX; /* PEFT reads one file */
  int number = 0;
  for (int i = 0; i < w->t.n; i++) {
    uint64_t bytes = all_bytes(&w->t.at[i].write);
    if (number && (used >= room || bytes > room - used)) w->nfile++, used = 0, number = 0;
    w->t.at[i].file = w->nfile;
    w->t.at[i].number = number++;
    used += bytes;
    w->bytes += bytes;
  }
  w->nfile++;
}

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

static bool is_listed(const char *name) {
  for (int i = 0; i < WEIGHTS_BESIDE; i++)
    if (str_eq(name, weights_beside[i])) return true;
  return false;
}

#define WHOLE_NAME "model.safetensors"
#define PART_NAME  "model-%05d-of-%05d.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

bool weights_out_owns(const char *name) {
  char same[64];
  int file, of;
  if (is_listed(name) || str_eq(name, WHOLE_NAME) || str_eq(name, INDEX_NAME) ||
      str_eq(name, ADAPTER_WEIGHTS) || str_eq(name, ADAPTER_CONFIG))
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
  list_tensors(w, c);
  place_tensors(w);
  w->file = NEW_N(w->arena, StOut *, w->nfile);
  *out = w;
  return WEFT_OK;
}

static weft_status create_files(WeightsOut *w, weft_error *e) {
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(folder_create(w->o->in, w->o->dir, weights_out_owns, &w->folder, e));
  for (int i = 0; i < w->nfile; i++) {
    StContent c = content_of(w, i);
    TRY(st_create(w->alloc, &w->folder.dir, file_name(w, i), &c, &w->file[i], e));
  }
  return WEFT_OK;
}

weft_status weights_out_open(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, WeightsOut **out,
                             weft_error *e) {
  TRY(out_new(a, c, o, out, e));
  weft_status st = create_files(*out, e);
  if (st == WEFT_OK) return st;
  weights_out_drop(*out);
  *out = NULL;
  return st;
}

/* ---- several processes ---- */

/* Room for a name: what is added to one are process numbers. */
static size_t name_room(const WeightsOutOptions *o) { return strlen(o->dir) + 160; }

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

static weft_status join_files(WeightsOut *w, const char *names, weft_error *e) {
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  TRY(folder_join(w->o->in, w->o->dir, names, &w->folder, e));
  for (int i = 0; i < w->nfile; i++) {
    StContent c = content_of(w, i);
    const char *name = names + name_room(w->o) * (size_t)(i + 1);
    TRY(st_join(w->alloc, &w->folder.dir, file_name(w, i), name, &c, &w->file[i], e));
  }
  return WEFT_OK;
}

weft_status weights_out_join(const weft_alloc *a, const Compiled *c,
                             const WeightsOutOptions *o, const char *names,
                             WeightsOut **out, weft_error *e) {
  TRY(out_new(a, c, o, out, e));
  weft_status st = join_files(*out, names, e);
  if (st == WEFT_OK) return st;
  weights_out_drop(*out);
  *out = NULL;
  return st;
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
