/* source_tokens.c - files of token ids: raw ones of 16 or 32 bits, those with a known
 * header, and Megatron's with an index beside them. A file that is recognized as another
 * format is an error. */
#include "source.h"

/* Headers of 256 int32 that some token writers use: [0] a magic number, [1] a version,
 * [2] the number of ids, [3] their width if `width` is 0. */
enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS };
static const struct {
  int32_t magic, version;
  int width;
  TokenFormat of;
  const char *form;
} formats[] = {
    {20240520, 1, 2, TOKENS_LLMC, "llm.c GPT-2"},
    {20240801, 7, 4, TOKENS_LLMC, "llm.c Llama 3"},
    {278895051, 1, 0, TOKENS_AUTOMODEL, "NeMo AutoModel"},
};
enum { LLMC_EVAL = 20240522 };

/* Ids do not have so many bytes of a mark of another format by chance: what begins with
 * them is refused even where the plan says "raw". */
enum { NO_IDS = 7 };

static weft_status read_header(Part *p, const int32_t *h, int format, weft_error *e) {
  const char *path = p->file.path;
  p->form = formats[format].form;
  if (h[1] != formats[format].version)
    FAIL(path, "token file of version %d; version %d of this format is supported", h[1],
         formats[format].version);
  p->width = formats[format].width ? formats[format].width : h[3];
  if (p->width != 2 && p->width != 4)
    FAIL(path, "the header says %d bytes per token; 2 or 4 are possible", p->width);
  p->n = h[2];
  p->begin = HEADER_BYTES;
  uint64_t bytes = p->file.size - HEADER_BYTES;
  if (p->n < 0 || (uint64_t)p->n * (uint64_t)p->width != bytes)
    FAIL(path, "the header says %d tokens of %d bytes, but %llu bytes follow", h[2],
         p->width, (unsigned long long)bytes);
  return WEFT_OK;
}

/* A raw file does not say how wide its ids are. Read as 16 bits, 32-bit ids below 65536
 * have a zero in every other place; real 16-bit ids do not have that many zeros. */
static weft_status check_width(const Part *p, weft_error *e) {
  uint16_t id[4096];
  uint64_t n = MIN(p->file.size / sizeof *id, (uint64_t)LEN(id)) / 2 * 2;
  uint64_t zero = 0, other = 0;
  TRY(file_at(&p->file, 0, id, n * sizeof *id, e));
  for (uint64_t i = 0; i < n; i += 2) zero += id[i + 1] == 0, other += id[i] != 0;
  if (n >= 32 && zero == n / 2 && other > n / 4)
    FAIL(p->file.path,
         "every second 16-bit id is 0: these are ids of 32 bits; say so with "
         "data = weft.tokens { ..., dtype = \"u32\" }");
  return WEFT_OK;
}

static weft_status raw_form(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  const char *path = p->file.path;
  p->width = spec->width ? spec->width : 2;
  p->form = p->width == 2 ? "raw u16" : "raw u32";
  if (p->file.size % (uint64_t)p->width)
    FAIL(path, "has %llu bytes, which is %s; raw token files hold %d-bit ids",
         (unsigned long long)p->file.size, p->width == 2 ? "odd" : "no multiple of 4",
         8 * p->width);
  p->n = (int64_t)(p->file.size / (uint64_t)p->width);
  if (spec->width) return WEFT_OK;
  if (d->vocab > 65536)
    FAIL(path,
         "does not say how wide its ids are, and 16 bits are too few for the model's "
         "vocabulary of %lld: give weft.tokens { ..., dtype = \"u32\" }, or \"u16\" if "
         "they are all below 65536",
         (long long)d->vocab);
  return check_width(p, e);
}

/* The known header that the file begins with, among the allowed ones; -1: none. */
static int header_of(const File *f, TokenFormat said, const int32_t *h) {
  for (int i = 0; i < LEN(formats) && f->size >= HEADER_BYTES; i++)
    if (h[0] == formats[i].magic && (said == TOKENS_AUTO || said == formats[i].of))
      return i;
  return -1;
}

/* The error for a file without the header of the format that the plan names. */
static weft_status no_header(const Part *p, TokenFormat said, weft_error *e) {
  if (said == TOKENS_LLMC)
    FAIL(p->file.path, "does not begin with a header of llm.c (20240520 or 20240801), as "
                       "format = \"llmc\" says");
  FAIL(p->file.path, "does not begin with a header of NeMo AutoModel (278895051), as "
                     "format = \"automodel\" says");
}

static weft_status check_other_formats(const Part *p, TokenFormat said, const char *head,
                                       size_t n, weft_error *e) {
  const char *path = p->file.path;
  const char *what = other_format(&p->file, head, n, said == TOKENS_RAW ? NO_IDS : 1);
  int32_t first = 0;
  if (what) FAIL(path, "is no token file but %s", what);
  if (said == TOKENS_RAW) return WEFT_OK;
  memcpy(&first, head, MIN(n, sizeof first));
  if (p->file.size >= HEADER_BYTES && first == LLMC_EVAL)
    FAIL(path, "is no token file but one of llm.c's questions for evaluation");
  if (!(what = text_format(&p->file, head, n))) return WEFT_OK;
  FAIL(path,
       "is no token file but %s: weft tokenize makes one of it%s; format = \"raw\" takes "
       "any bytes for ids",
       what,
       str_eq(what, "JSON") ? ", and weft.chat reads conversations"
                            : ", and weft.text reads bytes");
}

static weft_status tokens(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  TokenFormat said = spec->format;
  Folders in = {spec->dir, spec->folders, spec->nfolders};
  char head[HEAD_BYTES];
  int32_t h[4] = {0};
  size_t n = (size_t)MIN(p->file.size, (uint64_t)sizeof head);
  bool indexed = false;
  if (said == TOKENS_AUTO || said == TOKENS_MEGATRON)
    TRY(megatron_open(d->arena, &in, p, &indexed, e));
  if (indexed) return WEFT_OK;
  if (said == TOKENS_MEGATRON)
    FAIL(p->file.path, "has no index of Megatron beside it: the same name with .idx");
  TRY(file_at(&p->file, 0, head, n, e));
  memcpy(h, head, MIN(n, sizeof h));
  int header = said == TOKENS_RAW ? -1 : header_of(&p->file, said, h);
  if (header >= 0) return read_header(p, h, header, e);
  if (said == TOKENS_LLMC || said == TOKENS_AUTOMODEL) return no_header(p, said, e);
  TRY(check_other_formats(p, said, head, n, e));
  return raw_form(d, spec, p, e);
}

const char *token_header(const File *f, const char *head, size_t n) {
  int32_t h[4] = {0};
  memcpy(h, head, MIN(n, sizeof h));
  int i = header_of(f, TOKENS_AUTO, h);
  return i < 0 ? NULL : formats[i].form;
}

static weft_status open_tokens(Data *d, const DataSpec *spec, weft_error *e) {
  return stream_open(d, spec, tokens, e);
}

const Source source_tokens = {open_tokens, stream_ids, stream_mask, "tokens", "token"};

/* ---- conversations ---- */

/* The bindings make token files of conversations (bindings/chat) and let the data of a
 * run name these; a plan that comes here by another way has none. */
static weft_status open_chat(Data *d, const DataSpec *spec, weft_error *e) {
  return err_set(
      e, WEFT_EUSAGE,
      "conversations are read as token files: weft tokenize --chat makes them");
}

const Source source_chat = {open_chat, stream_ids, stream_mask, "tokens", "token"};
