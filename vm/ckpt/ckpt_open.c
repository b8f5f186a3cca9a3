/* ckpt_open.c - opens a checkpoint and checks everything but its data: files, sizes,
 * headers. */
#include <stdio.h>
#include <stdlib.h>

#include "rank_file.h"

/* ---- whether the pieces of a tensor cover it ---- */

static int by_place(const void *x, const void *y) {
  const CkptPiece *a = x, *b = y;
  if (a->kind != b->kind) return a->kind - b->kind;
  if (a->param != b->param) return a->param < b->param ? -1 : 1;
  int box = memcmp(a->piece.dim, b->piece.dim, sizeof a->piece.dim);
  if (box) return box;
  return a->piece.from < b->piece.from ? -1 : a->piece.from > b->piece.from;
}

static bool same_box(const Piece *a, const Piece *b) {
  return memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static int64_t elements(const Piece *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++) n *= p->dim[d].parts * p->dim[d].valid;
  return n;
}

/* The number of pieces of one box, if they are consecutive and cover it; else 0. */
static int whole_box(const CkptPiece *p, int n) {
  int64_t at = 0;
  int i = 0;
  for (; i < n && same_box(&p[i].piece, &p[0].piece); i++) {
    if (p[i].piece.from != at) return 0;
    at += p[i].piece.count;
  }
  return at == piece_padded(&p[0].piece) ? i : 0;
}

static weft_status check_tensor(const Ckpt *c, int kind, int param, const CkptPiece *p,
                                int n, weft_error *e) {
  CkptParam of = manifest_shape(&c->m, kind, param);
  int64_t sum = 0, all = 1;
  bool ok = n > 0;
  if (!manifest_has(&c->m, kind, param) && n == 0) return WEFT_OK;
  for (int d = 0; d < of.ndim; d++) all *= of.dim[d];
  for (int i = 0, boxed; i < n && ok; i += boxed) {
    boxed = whole_box(p + i, n - i);
    ok = boxed > 0 && !__builtin_add_overflow(sum, elements(&p[i].piece), &sum);
    for (int k = 0; k < i && ok; k++)
      ok = same_box(&p[k].piece, &p[i].piece) || piece_disjoint(&p[k].piece, &p[i].piece);
  }
  if (ok && sum == all) return WEFT_OK;
  return err_file(
      e, WEFT_EFILE, c->dir, 0,
      "is incomplete: its files do not hold every element of %s/%s exactly once",
      ckpt_kind_name(c->m.optimizer, kind), of.name);
}

static weft_status check_tensors(Ckpt *c, weft_error *e) {
  int at = 0, tensors = ckpt_kinds(c->m.optimizer) * c->m.nparam;
  if (c->npiece) qsort(c->piece, (size_t)c->npiece, sizeof *c->piece, by_place);
  c->first = NEW_N(c->arena, int, tensors + 1);
  for (int t = 0; t < tensors; t++) {
    int kind = t / c->m.nparam, param = t % c->m.nparam;
    c->first[t] = at;
    while (at < c->npiece && c->piece[at].kind == kind && c->piece[at].param == param)
      at++;
    TRY(check_tensor(c, kind, param, c->piece + c->first[t], at - c->first[t], e));
  }
  c->first[tensors] = at;
  return WEFT_OK;
}

/* ---- the handle ---- */

static weft_status open_all(Ckpt *c, weft_error *e) {
  CkptPieces list = {0};
  TRY(manifest_read(c->arena, arena_printf(c->arena, "%s/" MANIFEST_NAME, c->dir), &c->m,
                    e));
  for (int i = 0; i < c->m.nparam; i++)
    names_add(c->arena, &c->names, c->m.param[i].name, i);
  c->file = NEW_N(c->arena, File, c->m.nfile);
  for (int i = 0; i < c->m.nfile; i++) c->file[i].fd = -1;
  for (int i = 0; i < c->m.nfile; i++) TRY(shard_read(c, i, &list, e));
  c->piece = list.at;
  c->npiece = list.n;
  return check_tensors(c, e);
}

weft_status ckpt_open(const char *dir, Ckpt **out, weft_error *e) {
  *out = NULL;
  Ckpt *c = mem_new(NULL, sizeof *c);
  if (!c || !(c->arena = arena_new(NULL))) {
    mem_free(NULL, c, sizeof *c);
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  if (setjmp(*arena_guard(c->arena))) {
    ckpt_close(c);
    return err_file(e, WEFT_ENOMEM, dir, 0, "out of memory");
  }
  c->dir = arena_str(c->arena, dir);
  weft_status st = open_all(c, e);
  if (st == WEFT_OK)
    *out = c;
  else
    ckpt_close(c);
  return st;
}

void ckpt_close(Ckpt *c) {
  if (!c) return;
  for (int i = 0; c->file && i < c->m.nfile; i++) file_close(&c->file[i]);
  arena_free(c->arena);
  mem_free(NULL, c, sizeof *c);
}

int ckpt_param(const Ckpt *c, const char *name) { return names_find(&c->names, name); }

const char *ckpt_tensor_name(const Ckpt *c, const CkptPiece *p, char *buf, size_t n) {
  snprintf(buf, n, "%s/%s", ckpt_kind_name(c->m.optimizer, p->kind),
           c->m.param[p->param].name);
  return buf;
}
