/* ckpt_convert.c - reshards a checkpoint without a run; see ckpt_convert.h. */
#include "ckpt_convert.h"

#include "vm/base/f16.h"

enum { PART = 1 << 16 };

typedef struct Convert {
  const Compiled *to;
  CkptRead read;
  RankFile disk;
  Dir in, into; /* the folder; the temporary folder in it */
  weft_error *latest;
  float part[PART];
} Convert;

static void narrow(DType t, const float *from, int64_t n, char *to) {
  uint16_t *half = (uint16_t *)to;
  if (t == DT_F32) memcpy(to, from, (size_t)n * sizeof *from);
  for (int64_t i = 0; i < n && t == DT_BF16; i++) half[i] = bf16_from_f32(from[i]);
  for (int64_t i = 0; i < n && t == DT_F16; i++) half[i] = f16_from_f32(from[i]);
  for (int64_t i = 0; i < n && t == DT_U8; i++) to[i] = (char)(uint8_t)from[i];
}

static weft_status fill_piece(Convert *c, const Saved *s, char *to, weft_error *e) {
  DType t = region_saved(s->piece.region);
  int param = ckpt_param(c->read.c, c->to->param[s->param].name);
  for (int64_t at = 0, n; at < s->piece.count; at += n, to += n * dtype_size(t)) {
    n = MIN(s->piece.count - at, (int64_t)PART);
    Piece part = piece_part(&s->piece, at, n);
    memset(c->part, 0, (size_t)n * sizeof *c->part);
    TRY(ckpt_read(&c->read, ckpt_kind(s->kind), param, &part, c->part, e));
    narrow(t, c->part, n, to);
  }
  return WEFT_OK;
}

static weft_status write_rank(Convert *c, int rank, const char *id, CkptFile *out,
                              weft_error *e) {
  uint64_t bytes = saved_share(c->to, rank);
  char *share = mem_new(NULL, bytes + 1);
  if (!share) return err_set(e, WEFT_ENOMEM, "out of memory");
  SavedList l = saved_list(c->to, rank);
  weft_status st = WEFT_OK;
  for (Saved s; st == WEFT_OK && saved_next(&l, &s);)
    st = fill_piece(c, &s, share + s.at, e);
  if (st == WEFT_OK) st = shard_write(&c->disk, &c->into, id, c->to, rank, share, out, e);
  mem_free(NULL, share, bytes + 1);
  return st;
}

static weft_status write_all(Convert *c, const Manifest *m, CkptFile *file,
                             weft_error *e) {
  TRY(store_make(&c->disk, &c->in, m->step, &c->into, e));
  for (int i = 0; i < c->to->mesh.world; i++) TRY(write_rank(c, i, m->id, &file[i], e));
  TRY(store_commit(&c->disk, &c->in, &c->into, m, c->to, e));
  store_point(&c->disk, &c->in, m->step, c->latest);
  return WEFT_OK;
}

/* Those of the checkpoint, of which the new plan may freeze others. */
static const CkptParam *params_of(const Convert *c, Arena *a) {
  const Manifest *from = &c->read.c->m;
  CkptParam *p = arena_copy(a, from->param, sizeof *p * (size_t)from->nparam);
  for (int i = 0; i < c->to->nparam; i++)
    p[ckpt_param(c->read.c, c->to->param[i].name)].frozen = c->to->param[i].frozen;
  return p;
}

/* A checkpoint that is there would be replaced, and a run may be writing to the folder.
 */
static weft_status check_free(const Convert *c, Arena *a, int64_t step, weft_error *e) {
  const char *path = store_path(a, c->in.path, step, false);
  if (!store_lock(&c->in))
    return err_file(e, WEFT_EUSAGE, c->in.path, 0, "a run writes its checkpoints there");
  if (dir_entry(&c->in, strrchr(path, '/') + 1) == ENTRY_NONE) return WEFT_OK;
  return err_file(e, WEFT_EUSAGE, path, 0,
                  "is there already: give another folder, or remove it first");
}

static weft_status convert(Convert *c, Arena *a, Manifest *m, weft_error *e) {
  TRY(check_free(c, a, m->step, e));
  TRY(store_last(&c->in, &m->saved_at, e));
  CkptFile *file = NEW_N(a, CkptFile, c->to->mesh.world);
  m->saved_at = store_time(m->saved_at);
  uint64_t id[2] = {checksum(m->id, sizeof m->id), (uint64_t)m->saved_at};
  checksum_text(checksum(id, sizeof id), m->id);
  m->file = file;
  m->nfile = c->to->mesh.world;
  m->param = params_of(c, a);
  m->nparam = c->read.c->m.nparam;
  weft_status st = write_all(c, m, file, e);
  if (st != WEFT_OK) store_drop(&c->in, m->step);
  return st;
}

typedef struct ConvertCall {
  Convert *c;
  Manifest m;
} ConvertCall;

static weft_status convert_job(Arena *a, void *ud, weft_error *e) {
  ConvertCall *c = ud;
  return convert(c->c, a, &c->m, e);
}

weft_status ckpt_convert(const Ckpt *from, const Compiled *to, const Manifest *m,
                         const char *dir, const StopFlag *stop, weft_error *latest,
                         weft_error *e) {
  TRY(ckpt_fits(from, to, CKPT_STATES, e));
  Convert *c = mem_new(NULL, sizeof *c);
  if (!c) return err_set(e, WEFT_ENOMEM, "out of memory");
  c->to = to;
  c->latest = latest;
  c->in = c->into = DIR_CLOSED;
  weft_status st = ckpt_read_begin(from, &c->read, e);
  c->read.stop = stop;
  if (st == WEFT_OK) st = dir_open(dir, 0777, &c->in, e);
  if (st == WEFT_OK) st = arena_scoped(NULL, convert_job, &(ConvertCall){c, *m}, e);
  dir_close(&c->into);
  dir_close(&c->in);
  ckpt_read_end(&c->read);
  mem_free(NULL, c, sizeof *c);
  return st;
}
