/* weights_layout.c - which tensors a folder of weights has, in which file each is, and
 * which elements of them a parameter is. It follows from parameters and options alone, so
 * that processes need not agree on it. */
#include "weights_folder_int.h"

#include "adapter_files.h"
#include "vm/graph/second_model.h"

static uint64_t all_bytes(const StWrite *t) {
  uint64_t n = (uint64_t)dtype_size(t->dtype);
  for (int i = 0; i < t->ndim; i++) n *= (uint64_t)t->dim[i];
  return n;
}

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

void weights_layout(WeightsOut *w, const Compiled *c) {
  list_tensors(w, c);
  place_tensors(w);
  w->file = NEW_N(w->arena, StOut *, w->nfile);
}
