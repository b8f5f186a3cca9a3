/* token_file_write.c - writes token files. The .bin is finished last, so that it never
 * appears without its index and its mask; these are removed if it cannot be. */
#include "token_file_write.h"

#include <unistd.h>

#include "token_mask.h"

enum {
  MEGATRON_U16_IDS = 65500, /* Megatron uses 16-bit ids up to this vocabulary size */
  LLMC_U16_IDS = 65537,
  LLMC_HEADER = 256 /* int32 numbers */
};

struct TokenFileOut {
  TokenFileSpec spec;
  Arena *arena;
  int width;
  FileOut bin;
  TokenMaskOut *mask;
  const char *index_name, *mask_name;
  bool has_index, has_mask; /* they are finished */
  uint64_t at;              /* bytes that are written */
  char buffer[1 << 16];     /* bytes that are not written yet */
  size_t fill;
  VEC(int32_t) lengths; /* of documents */
  int64_t ntokens;
};

/* ---- ids ---- */

static weft_status flush(TokenFileOut *w, weft_error *e) {
  TRY(file_put(&w->bin, w->at, w->buffer, w->fill, e));
  w->at += w->fill;
  w->fill = 0;
  return WEFT_OK;
}

static weft_status put_ids(TokenFileOut *w, const int32_t *ids, size_t n, weft_error *e) {
  for (size_t i = 0; i < n; i++) {
    uint16_t narrow = (uint16_t)ids[i];
    const void *p = w->width == 2 ? (const void *)&narrow : &ids[i];
    if (w->fill + (size_t)w->width > sizeof w->buffer) TRY(flush(w, e));
    memcpy(w->buffer + w->fill, p, (size_t)w->width);
    w->fill += (size_t)w->width;
  }
  return WEFT_OK;
}

typedef struct Length {
  TokenFileOut *w;
  size_t n;
} Length;

static void note_length(void *ud) {
  Length *x = ud;
  *VEC_PUSH(x->w->arena, x->w->lengths) = (int32_t)x->n;
}

weft_status token_file_add(TokenFileOut *w, const int32_t *ids, const uint8_t *learnt,
                           size_t n, weft_error *e) {
  if (n > INT32_MAX)
    return err_file(e, WEFT_ELIMIT, w->spec.name, 0, "a document of %zu tokens", n);
  TRY(put_ids(w, ids, n, e));
  if (w->mask) TRY(token_mask_add(w->mask, learnt, n, e));
  w->ntokens += (int64_t)n;
  if (!arena_try(w->arena, note_length, &(Length){w, n}))
    return err_set(e, WEFT_ENOMEM, "out of memory");
  return WEFT_OK;
}

/* ---- headers and indices ---- */

static weft_status put_header(TokenFileOut *w, weft_error *e) {
  int32_t header[LLMC_HEADER] = {w->width == 2 ? 20240520 : 20240801,
                                 w->width == 2 ? 1 : 7, (int32_t)w->ntokens};
  if (w->ntokens > INT32_MAX)
    return err_file(e, WEFT_ELIMIT, w->spec.name, 0,
                    "llm.c's files hold at most %d tokens; give --format megatron",
                    INT32_MAX);
  return file_put(&w->bin, 0, header, sizeof header, e);
}

static const char *index_of(TokenFileOut *w) {
  return arena_printf(w->arena, "%.*s.idx", (int)strlen(w->spec.name) - 4, w->spec.name);
}

/* Of a path that the user names nothing is replaced. */
static bool only_new(const TokenFileOut *w) { return !w->spec.in; }

static weft_status put_index(TokenFileOut *w, const int64_t *begin,
                             const int64_t *document, weft_error *e) {
  int64_t n = w->lengths.n, count[2] = {n, n + 1};
  unsigned char head[34] = "MMIDIDX\0\0\1";
  head[17] = w->width == 2 ? 8 : 4;
  memcpy(head + 18, count, sizeof count);
  FilePart part[] = {{head, sizeof head},
                     {w->lengths.at, (size_t)n * sizeof(int32_t)},
                     {begin, (size_t)n * sizeof *begin},
                     {document, (size_t)(n + 1) * sizeof *document}};
  TRY(file_write_as(w->spec.in, w->index_name, part, LEN(part), 0666, only_new(w), e));
  w->has_index = true;
  return WEFT_OK;
}

static weft_status make_index(TokenFileOut *w, weft_error *e) {
  int64_t n = w->lengths.n, at = 0;
  int64_t *begin = NEW_N(w->arena, int64_t, n + 1),
          *document = NEW_N(w->arena, int64_t, n + 1);
  for (int64_t i = 0; i <= n; i++) {
    document[i] = i;
    begin[i] = at;
    if (i < n) at += (int64_t)w->lengths.at[i] * w->width;
  }
  return put_index(w, begin, document, e);
}

static weft_status write_index(TokenFileOut *w, weft_error *e) {
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  return make_index(w, e);
}

/* ---- begin and end ---- */

/* What is not written anew would be read as that of the new tokens. */
static weft_status check_beside(TokenFileOut *w, const char *path, bool written,
                                const char *what, weft_error *e) {
  if (written) return file_check(path, true, e);
  if (access(path, F_OK) != 0) return WEFT_OK;
  return err_file(e, WEFT_EUSAGE, path, 0,
                  "would be read as the %s of %s, and is of other tokens: remove it, or "
                  "name another file",
                  what, w->spec.name);
}

/* Files that the user has are not replaced, which is said before anything is done. */
static weft_status check_free(TokenFileOut *w, weft_error *e) {
  const char *name = w->spec.name;
  if (w->spec.in) return WEFT_OK;
  TRY(file_check(name, true, e));
  TRY(check_beside(w, w->index_name, w->spec.kind == TOKEN_FILE_MEGATRON, "index", e));
  return check_beside(w, w->mask_name, w->spec.mask, "mask", e);
}

static weft_status begin(TokenFileOut *w, weft_error *e) {
  const Dir *in = w->spec.in;
  if (setjmp(*arena_guard(w->arena))) return err_set(e, WEFT_ENOMEM, "out of memory");
  w->index_name = index_of(w);
  w->mask_name = token_mask_of(w->arena, w->spec.name);
  TRY(check_free(w, e));
  if (w->spec.mask)
    TRY(token_mask_create(NULL, in, w->mask_name, only_new(w), &w->mask, e));
  weft_status st = only_new(w) ? file_create_new(in, w->spec.name, &w->bin, e)
                               : file_create(in, w->spec.name, 0, &w->bin, e);
  if (st != WEFT_OK) token_mask_drop(w->mask);
  return st;
}

weft_status token_file_create(const TokenFileSpec *spec, TokenFileOut **out,
                              weft_error *e) {
  TokenFileOut *w = *out = mem_new(NULL, sizeof *w);
  if (!w || !(w->arena = arena_new(NULL))) {
    mem_free(NULL, w, sizeof *w);
    *out = NULL;
    return err_set(e, WEFT_ENOMEM, "out of memory");
  }
  bool llmc = spec->kind == TOKEN_FILE_LLMC;
  w->spec = *spec;
  w->width = spec->ids < (llmc ? LLMC_U16_IDS : MEGATRON_U16_IDS) ? 2 : 4;
  if (llmc) w->at = LLMC_HEADER * sizeof(int32_t);
  weft_status st = begin(w, e);
  if (st == WEFT_OK) return WEFT_OK;
  arena_free(w->arena);
  mem_free(NULL, w, sizeof *w);
  *out = NULL;
  return st;
}

int64_t token_file_documents(const TokenFileOut *w) { return w->lengths.n; }
int64_t token_file_tokens(const TokenFileOut *w) { return w->ntokens; }
int token_file_bits(const TokenFileOut *w) { return 8 * w->width; }

void token_file_drop(TokenFileOut *w) {
  if (!w) return;
  token_mask_drop(w->mask);
  file_drop(&w->bin);
  arena_free(w->arena);
  mem_free(NULL, w, sizeof *w);
}

static weft_status finish_mask(TokenFileOut *w, weft_error *e) {
  TokenMaskOut *mask = w->mask;
  w->mask = NULL;
  TRY(token_mask_finish(mask, &w->bin, e));
  w->has_mask = true;
  return WEFT_OK;
}

static weft_status finish_all(TokenFileOut *w, weft_error *e) {
  TRY(flush(w, e));
  TRY(w->spec.kind == TOKEN_FILE_LLMC ? put_header(w, e) : write_index(w, e));
  if (w->mask) TRY(finish_mask(w, e));
  return file_finish(&w->bin, e);
}

weft_status token_file_finish(TokenFileOut *w, weft_error *e) {
  weft_status st = finish_all(w, e);
  if (st != WEFT_OK && w->has_index) file_undo(w->spec.in, w->index_name);
  if (st != WEFT_OK && w->has_mask) file_undo(w->spec.in, w->mask_name);
  token_file_drop(w);
  return st;
}
