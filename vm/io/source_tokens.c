/* source_tokens.c - files of token ids: raw ones of 16 or 32 bits, and those that begin
 * with a header which is known here. What is known to be something else is an error. */
#include "source.h"

#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

/* Headers of 256 int32 that some writers of tokens use: [0] a magic number, [1] a
 * version, [2] the number of ids, [3] their width where `width` is 0. */
enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS };
static const struct {
  int32_t magic, version;
  int width;
} formats[] = {
    {20240520, 1, 2},  /* llm.c, GPT-2 ids */
    {20240801, 7, 4},  /* llm.c, Llama 3 ids */
    {278895051, 1, 0}, /* NeMo AutoModel */
};

/* First bytes of files that are no token files of these forms. */
static const struct {
  const char *bytes;
  int n;
  const char *what;
} strangers[] = {
    {"\x93NUMPY", 6, "a NumPy array (.npy): write its ids alone, array.tofile(...)"},
    {"PK\x03\x04", 4, "a zip archive (.npz, .pt)"},
    {"MMIDIDX", 7, "the index of Megatron's token files (.idx)"},
    {"\x1f\x8b", 2, "compressed with gzip"},
    {"\x28\xb5\x2f\xfd", 4, "compressed with zstd"},
    {"PAR1", 4, "a Parquet table"},
    {"ARROW1", 6, "an Arrow table"},
    {"\x89HDF", 4, "an HDF5 file"},
};

static weft_status read_header(Part *p, const int32_t *h, int format, weft_error *e) {
  const char *path = p->file.path;
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

/* A raw file does not say how wide its ids are. As 16-bit ids, 32-bit ones below 65536
 * are zero in every other place; so many zeros are no text. */
static weft_status check_width(const Part *p, weft_error *e) {
  uint16_t id[4096];
  uint64_t n = MIN(p->file.size / sizeof *id, (uint64_t)LEN(id)) / 2 * 2;
  uint64_t zero = 0, other = 0;
  TRY(file_at(&p->file, 0, id, n * sizeof *id, e));
  for (uint64_t i = 0; i < n; i += 2)
    zero += id[i + 1] == 0, other += id[i] != 0;
  if (n >= 32 && zero == n / 2 && other > n / 4)
    FAIL(p->file.path,
         "every second 16-bit id is 0: these are ids of 32 bits; say so with "
         "data = weft.tokens { ..., dtype = \"u32\" }");
  return WEFT_OK;
}

static weft_status raw_form(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  const char *path = p->file.path;
  p->width = spec->width ? spec->width : 2;
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

/* Headered where a known magic number is found, else raw ids. */
static weft_status tokens(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  int32_t h[4] = {0};
  size_t n = (size_t)MIN(p->file.size, (uint64_t)sizeof h);
  TRY(file_at(&p->file, 0, h, n, e));
  for (int f = 0; f < LEN(formats) && p->file.size >= HEADER_BYTES; f++)
    if (h[0] == formats[f].magic) return read_header(p, h, f, e);
  for (int i = 0; i < LEN(strangers); i++)
    if (n >= (size_t)strangers[i].n &&
        memcmp(h, strangers[i].bytes, (size_t)strangers[i].n) == 0)
      FAIL(p->file.path, "is no token file but %s", strangers[i].what);
  return raw_form(d, spec, p, e);
}

static weft_status open_tokens(Data *d, const DataSpec *spec, weft_error *e) {
  return stream_open(d, spec, tokens, e);
}

const Source source_tokens = {open_tokens, stream_ids, "tokens", "token"};
