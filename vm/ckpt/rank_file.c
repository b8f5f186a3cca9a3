/* rank_file.c - writes and reads the safetensors file of one rank; see rank_file.h. */
#include "rank_file.h"

#include <errno.h>
#include <stdio.h>

#include "vm/base/json.h"
#include "vm/io/json_text.h"

int ckpt_kinds(int optimizer) { return 1 + optimizer_info[optimizer].states; }

const char *ckpt_kind_name(int optimizer, int kind) {
  return kind ? optimizer_info[optimizer].state[kind - 1].saved : "param";
}

int ckpt_kind(StateKind k) { return k == STATE_PARAM ? 0 : 1 + k - STATE_OPT1; }

weft_status disk_step(RankFile *d, const char *path, weft_error *e) {
  if (!d->fault || !d->fault(d->fault_ud)) return WEFT_OK;
  return err_file(e, WEFT_EFILE, path, 0, "cannot be written: %s", strerror(ENOSPC));
}

/* ---- checksum of a header ---- */

weft_status shard_header(const File *f, uint64_t *hash, weft_error *e) {
  uint64_t n = 0;
  if (f->size < sizeof n)
    return err_file(e, WEFT_EFILE, f->path, 0, "has no header: it is %llu bytes long",
                    (unsigned long long)f->size);
  TRY(file_at(f, 0, &n, sizeof n, e));
  if (n > f->size - sizeof n)
    return err_file(e, WEFT_EFILE, f->path, 0, "ends within its header");
  char *s = mem_new(NULL, (size_t)n + sizeof n);
  if (!s) return err_file(e, WEFT_ENOMEM, f->path, 0, "out of memory");
  weft_status st = file_at(f, 0, s, (size_t)n + sizeof n, e);
  *hash = checksum(s, (size_t)n + sizeof n);
  mem_free(NULL, s, (size_t)n + sizeof n);
  return st;
}

/* ---- writing ---- */

/* {"box": [[parts, size, first, slice, valid], ...], "from": n, "blocks": [...]} */
static void write_place(Text *out, const Saved *s, const char *data) {
  Json j = {.out = out};
  char hash[CHECKSUM_TEXT];
  uint64_t bytes = saved_size(s);
  json_open(&j, NULL, '{');
  json_open(&j, "blocks", '[');
  for (uint64_t at = 0; at < bytes; at += CKPT_BLOCK)
    json_str(&j, NULL,
             checksum_text(checksum(data + at, MIN(bytes - at, CKPT_BLOCK)), hash));
  json_close(&j, ']');
  json_open(&j, "box", '[');
  for (int d = 0; d < s->piece.ndim; d++) {
    const PieceDim *p = &s->piece.dim[d];
    const int64_t v[] = {p->parts, p->size, p->first, p->slice, p->valid};
    json_ints(&j, NULL, v, LEN(v));
  }
  json_close(&j, ']');
  json_int(&j, "from", s->piece.from);
  json_close(&j, '}');
}

/* With the shape of the box if it is the whole box, else flat. */
static StWrite tensor_of(const char *name, const Saved *s) {
  const Piece *p = &s->piece;
  StWrite t = {.name = name, .dtype = region_saved(p->region)};
  if (p->count == piece_padded(p)) {
    t.ndim = p->ndim;
    for (int d = 0; d < p->ndim; d++) t.dim[d] = p->dim[d].parts * p->dim[d].slice;
  } else {
    t.ndim = 1;
    t.dim[0] = p->count;
  }
  return t;
}

typedef struct Share {
  Arena *arena;
  const Compiled *c;
  int rank;
  const char *data, *id;
  VEC(StWrite) tensor;
  VEC(StMeta) meta;
  VEC(uint64_t) at;
} Share;

static void add_meta(Share *s, const char *key, const char *value) {
  *VEC_PUSH(s->arena, s->meta) = (StMeta){key, value};
}

static void describe(void *ud) {
  Share *s = ud;
  SavedList l = saved_list(s->c, s->rank);
  add_meta(s, "format", "weft checkpoint 1");
  add_meta(s, "id", s->id);
  add_meta(s, "rank", arena_printf(s->arena, "%d", s->rank));
  for (Saved p; saved_next(&l, &p);) {
    Text place = {0};
    write_place(&place, &p, s->data + p.at);
    const char *where = arena_take(s->arena, &place);
    const char *kind = ckpt_kind_name(s->c->optimizer, ckpt_kind(p.kind));
    const char *name = arena_printf(s->arena, "%s/%s", kind, s->c->param[p.param].name);
    add_meta(s, name, where);
    *VEC_PUSH(s->arena, s->tensor) = tensor_of(name, &p);
    *VEC_PUSH(s->arena, s->at) = p.at;
  }
}

static weft_status put_all(RankFile *d, const char *path, const Share *s, const StOut *o,
                           weft_error *e) {
  for (int i = 0; i < s->tensor.n; i++) {
    const StWrite *t = &s->tensor.at[i];
    size_t n = (size_t)dtype_size(t->dtype);
    for (int k = 0; k < t->ndim; k++) n *= (size_t)t->dim[k];
    TRY(disk_step(d, path, e));
    TRY(st_put(o, i, 0, s->data + s->at.at[i], n, e));
  }
  return WEFT_OK;
}

static weft_status write_file(RankFile *d, const Dir *in, const Share *s, CkptFile *out,
                              weft_error *e) {
  StOut *o;
  File f;
  Text path = {0};
  const StContent content = {s->tensor.at, s->tensor.n, s->meta.at, s->meta.n};
  text_printf(&path, "%s/%s", in->path, out->name);
  if (path.oom) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = disk_step(d, path.s, e);
  if (st == WEFT_OK) st = st_create(NULL, in, out->name, &content, &o, e);
  if (st == WEFT_OK) {
    out->bytes = st_size(o);
    st = put_all(d, path.s, s, o, e);
    if (st == WEFT_OK) st = disk_step(d, path.s, e);
    if (st == WEFT_OK)
      st = st_finish(o, e);
    else
      st_drop(o);
  }
  if (st == WEFT_OK) st = file_open_in(in, path.s, &f, e);
  if (st == WEFT_OK) {
    st = shard_header(&f, &out->header, e);
    file_close(&f);
  }
  text_free(&path);
  return st;
}

#define SHARD_NAME "rank-%05d.safetensors"

bool shard_owns(const char *name) {
  char same[64];
  int rank;
  if (sscanf(name, "rank-%9d", &rank) != 1) return false;
  snprintf(same, sizeof same, SHARD_NAME, rank);
  return str_eq(name, same);
}

weft_status shard_write(RankFile *d, const Dir *in, const char *id, const Compiled *c,
                        int rank, const char *data, CkptFile *out, weft_error *e) {
  Share s = {.arena = arena_new(NULL), .c = c, .rank = rank, .data = data, .id = id};
  *out = (CkptFile){0};
  snprintf(out->name, sizeof out->name, SHARD_NAME, rank);
  bool memory = s.arena && arena_try(s.arena, describe, &s);
  weft_status st = memory ? WEFT_OK : err_set(e, WEFT_ENOMEM, "out of memory");
  if (memory && s.tensor.n) st = write_file(d, in, &s, out, e);
  arena_free(s.arena);
  return st;
}

/* ---- reading ---- */

#define FAIL(t, ...) return err_file(e, WEFT_EFILE, (t)->file, 0, __VA_ARGS__)

static bool int_at(const json_t *list, int i, int64_t lo, int64_t hi, int64_t *out) {
  const json_t *v = json_array_get(list, (size_t)i);
  *out = json_is_integer(v) ? json_integer_value(v) : -1;
  return json_is_integer(v) && *out >= lo && *out <= hi;
}

/* *all *= n; false if that exceeds the number of elements that fit. */
static bool multiply(int64_t *all, int64_t n) {
  return !__builtin_mul_overflow(*all, n, all) && *all <= INT64_MAX / 16;
}

/* A box within the parameter's shape. */
static bool read_box(const json_t *box, const CkptParam *of, Piece *p) {
  int64_t all = 1;
  p->ndim = of->ndim;
  if ((int)json_array_size(box) != of->ndim) return false;
  for (int d = 0; d < of->ndim; d++) {
    const json_t *row = json_array_get(box, (size_t)d);
    PieceDim *x = &p->dim[d];
    int64_t most = of->dim[d], whole = 1;
    /* With padding, the last slice may begin past the end. */
    if (!int_at(row, 0, 1, most, &x->parts) || !int_at(row, 1, 1, most, &x->size) ||
        !int_at(row, 2, 0, 2 * most, &x->first) || !int_at(row, 3, 1, most, &x->slice) ||
        !int_at(row, 4, 0, x->slice, &x->valid) || !multiply(&whole, x->parts) ||
        !multiply(&whole, x->size) || whole != most ||
        (x->valid && x->first + x->valid > x->size) || !multiply(&all, x->parts) ||
        !multiply(&all, x->slice))
      return false;
  }
  return true;
}

static weft_status read_blocks(Arena *a, const json_t *list, const SafeTensor *t,
                               CkptPiece *p, weft_error *e) {
  size_t n = (t->bytes + CKPT_BLOCK - 1) / CKPT_BLOCK;
  uint64_t *block = NEW_N(a, uint64_t, n + 1);
  if (json_array_size(list) != n)
    FAIL(t, "tensor \"%s\" has %zu checksums, it needs %zu", t->name,
         json_array_size(list), n);
  for (size_t i = 0; i < n; i++) {
    const char *s = json_string_value(json_array_get(list, i));
    if (!s || !checksum_parse(s, &block[i]))
      FAIL(t, "tensor \"%s\": checksum %zu is not hexadecimal", t->name, i);
  }
  p->block = block;
  return WEFT_OK;
}

static weft_status read_place(Arena *a, const json_t *place, const CkptParam *of,
                              const SafeTensor *t, CkptPiece *p, weft_error *e) {
  const json_t *from = json_object_get(place, "from");
  Piece *x = &p->piece;
  x->from = json_is_integer(from) ? json_integer_value(from) : -1;
  x->count = (int64_t)t->bytes / dtype_size(t->dtype);
  if (!read_box(json_object_get(place, "box"), of, x) || x->from < 0 || !x->count ||
      x->from > piece_padded(x) - x->count)
    FAIL(t, "tensor \"%s\" is not within the shape of its parameter", t->name);
  return read_blocks(a, json_object_get(place, "blocks"), t, p, e);
}

/* Parses "exp_avg/NAME": the tensor that the piece belongs to. */
static bool read_name(const Ckpt *c, const char *name, CkptPiece *p) {
  const char *slash = strchr(name, '/');
  p->kind = -1;
  for (int k = 0; slash && k < ckpt_kinds(c->m.optimizer); k++) {
    const char *kind = ckpt_kind_name(c->m.optimizer, k);
    if (strlen(kind) == (size_t)(slash - name) &&
        strncmp(name, kind, (size_t)(slash - name)) == 0)
      p->kind = k;
  }
  p->param = slash ? ckpt_param(c, slash + 1) : -1;
  return p->kind >= 0 && p->param >= 0;
}

static weft_status read_tensor(Ckpt *c, int number, const SafeTensors *s,
                               const SafeTensor *t, CkptPieces *list, weft_error *e) {
  CkptPiece p = {.file = number, .dtype = t->dtype, .at = t->at, .bytes = t->bytes};
  const char *text = st_metadata(s, 0, t->name);
  if (!read_name(c, t->name, &p))
    FAIL(t, "holds the tensor \"%s\", of which the manifest knows nothing", t->name);
  if (!str_eq(t->type, "F32") && !str_eq(t->type, "BF16") && !str_eq(t->type, "F16") &&
      !str_eq(t->type, "U8"))
    FAIL(t, "tensor \"%s\" is of type %s; F32, BF16, F16 and U8 are read", t->name,
         t->type);
  if (!text)
    FAIL(t, "its header does not say which part of a parameter tensor \"%s\" is",
         t->name);
  json_t *place = json_text(t->file, "a tensor's place ", text, strlen(text), e);
  if (!place) return WEFT_EFILE;
  CkptParam of = manifest_shape(&c->m, p.kind, p.param);
  weft_status st = read_place(c->arena, place, &of, t, &p, e);
  json_decref(place);
  if (st == WEFT_OK) *VEC_PUSH(c->arena, *list) = p;
  return st;
}

static weft_status read_tensors(Ckpt *c, int number, const SafeTensors *s,
                                CkptPieces *list, weft_error *e) {
  const File *f = &c->file[number];
  if (!str_eq(st_metadata(s, 0, "id"), c->m.id))
    return err_file(e, WEFT_EFILE, f->path, 0,
                    "belongs to another checkpoint: it has the id %.20s, the manifest %s",
                    st_metadata(s, 0, "id") ? st_metadata(s, 0, "id") : "of none",
                    c->m.id);
  for (int i = 0; i < st_count(s); i++)
    TRY(read_tensor(c, number, s, st_at(s, i), list, e));
  return WEFT_OK;
}

weft_status shard_read(Ckpt *c, int number, CkptPieces *list, weft_error *e) {
  const CkptFile *said = &c->m.file[number];
  File *f = &c->file[number];
  SafeTensors *s;
  uint64_t hash;
  TRY(file_open(arena_printf(c->arena, "%s/%s", c->dir, said->name), f, e));
  if (f->size != said->bytes)
    return err_file(e, WEFT_EFILE, f->path, 0,
                    "is %llu bytes long, it was written with %llu",
                    (unsigned long long)f->size, (unsigned long long)said->bytes);
  TRY(shard_header(f, &hash, e));
  if (hash != said->header) {
    char has[CHECKSUM_TEXT];
    return err_file(
        e, WEFT_EFILE, f->path, 0,
        "its header is damaged, or of another checkpoint: its checksum is %s, "
        "not that of the manifest",
        checksum_text(hash, has));
  }
  TRY(st_open(NULL, f->path, NULL, &s, e));
  weft_status st = read_tensors(c, number, s, list, e);
  st_close(s);
  file_keep_few(f, number);
  return st;
}
