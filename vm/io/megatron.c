/* megatron.c - the index (.idx) beside Megatron's token files (.bin): the width of ids
 * and the begin of documents. It is read in parts, since it can be as large as memory. */
#include <unistd.h>

#include "source.h"

/* "MMIDIDX\0\0", u64 version, u8 type, u64 sequences, u64 entries of the last table; then
 * i32 length of each sequence, i64 its byte offset in the .bin, and i64 the first
 * sequence of each document; the last entry is the number of sequences. */
enum { HEAD = 34, LOOK = 512 };
static const char magic[9] = "MMIDIDX\0";

static const struct {
  const char *name;
  int width; /* 0: not a type of ids */
  bool is_signed;
} types[] = {{"none", 0, false}, {"u8", 1, false},  {"i8", 1, true},
             {"i16", 2, true},   {"i32", 4, true},  {"i64", 8, true},
             {"f64", 0, false},  {"f32", 0, false}, {"u16", 2, false}};

static uint64_t lengths_at(const Part *p, int64_t i) { return HEAD + 4 * (uint64_t)i; }

static uint64_t begins_at(const Part *p, int64_t i) {
  return HEAD + 4 * (uint64_t)p->sequences + 8 * (uint64_t)i;
}

static uint64_t documents_at(const Part *p, int64_t i) {
  return HEAD + 12 * (uint64_t)p->sequences + 8 * (uint64_t)i;
}

/* ---- header ---- */

static weft_status read_head(Part *p, weft_error *e) {
  const File *f = &p->index;
  unsigned char head[HEAD];
  uint64_t version, sequences, entries;
  if (f->size < HEAD)
    FAIL(f->path, "has %llu bytes, less than its header", (unsigned long long)f->size);
  TRY(file_at(f, 0, head, HEAD, e));
  memcpy(&version, head + 9, 8);
  memcpy(&sequences, head + 18, 8);
  memcpy(&entries, head + 26, 8);
  if (version != 1)
    FAIL(f->path, "index of version %llu; version 1 is supported",
         (unsigned long long)version);
  if (head[17] == 0 || head[17] >= LEN(types))
    FAIL(f->path, "the type of ids has the code %d; 1 to 8 are known", head[17]);
  if (!types[head[17]].width)
    FAIL(f->path, "holds numbers of type %s; ids of tokens are integers",
         types[head[17]].name);
  uint64_t most = f->size / 4;
  uint64_t want =
      sequences < most && entries < most ? HEAD + 12 * sequences + 8 * entries : 0;
  if (want && sequences && f->size == want + sequences)
    FAIL(f->path, "gives each sequence a mode, for several kinds of data; only text is "
                  "supported");
  if (want != f->size || entries == 0)
    FAIL(f->path,
         "the header says %llu sequences and %llu entries of documents, which does not "
         "make %llu bytes",
         (unsigned long long)sequences, (unsigned long long)entries,
         (unsigned long long)f->size);
  p->width = types[head[17]].width;
  p->is_signed = types[head[17]].is_signed;
  p->sequences = (int64_t)sequences;
  p->documents = (int64_t)entries - 1;
  return WEFT_OK;
}

/* ---- tables ---- */

/* Checks that sequences [i, i + n) are contiguous; `at` is the byte where the first
 * begins, and then where the last ends. */
static weft_status check_sequences(const Part *p, int64_t i, int64_t n, int64_t *at,
                                   weft_error *e) {
  int32_t length[LOOK];
  int64_t begin[LOOK];
  const File *f = &p->index;
  TRY(file_at(f, lengths_at(p, i), length, (size_t)n * sizeof *length, e));
  TRY(file_at(f, begins_at(p, i), begin, (size_t)n * sizeof *begin, e));
  for (int64_t k = 0; k < n; k++) {
    if (length[k] < 0)
      FAIL(f->path, "sequence %lld has %d tokens", (long long)(i + k), length[k]);
    if (*at >= 0 && begin[k] != *at)
      FAIL(f->path,
           "sequence %lld begins at byte %lld of the .bin, but byte %lld comes next",
           (long long)(i + k), (long long)begin[k], (long long)*at);
    if (begin[k] < 0 || begin[k] > INT64_MAX / 2)
      FAIL(f->path, "sequence %lld begins at byte %lld", (long long)(i + k),
           (long long)begin[k]);
    *at = begin[k] + (int64_t)length[k] * p->width;
  }
  return WEFT_OK;
}

/* Checks that the first sequences of documents [i, i + n) do not decrease. */
static weft_status check_documents(const Part *p, int64_t i, int64_t n, weft_error *e) {
  int64_t first[LOOK], before = i == 0 ? 0 : -1;
  const File *f = &p->index;
  TRY(file_at(f, documents_at(p, i), first, (size_t)n * sizeof *first, e));
  if (i == 0 && first[0] != 0)
    FAIL(f->path, "the first document begins with sequence %lld", (long long)first[0]);
  for (int64_t k = 0; k < n; before = first[k++])
    if (first[k] < before || first[k] < 0 || first[k] > p->sequences)
      FAIL(f->path, "document %lld begins with sequence %lld of %lld", (long long)(i + k),
           (long long)first[k], (long long)p->sequences);
  if (i + n == p->documents + 1 && first[n - 1] != p->sequences)
    FAIL(f->path, "the documents end with sequence %lld of %lld", (long long)first[n - 1],
         (long long)p->sequences);
  return WEFT_OK;
}

/* Checks both ends of the tables; the middle is checked when it is used. */
static weft_status check_tables(const Part *p, weft_error *e) {
  int64_t S = p->sequences, D = p->documents + 1, n = MIN(S, (int64_t)LOOK), at = 0;
  int64_t nd = MIN(D, (int64_t)LOOK);
  TRY(check_sequences(p, 0, n, &at, e));
  if (S > n) at = -1;
  if (S > n) TRY(check_sequences(p, S - n, n, &at, e));
  if ((uint64_t)at != p->file.size)
    FAIL(p->index.path,
         "its sequences end at byte %lld of the .bin, which has %llu bytes",
         (long long)at, (unsigned long long)p->file.size);
  TRY(check_documents(p, 0, nd, e));
  return check_documents(p, D - nd, nd, e);
}

/* ---- open ---- */

const char *megatron_index_of(Arena *a, const char *path) {
  size_t n = strlen(path);
  if (n < 4 || strcmp(path + n - 4, ".bin") != 0) return NULL;
  return arena_printf(a, "%.*s.idx", (int)(n - 4), path);
}

/* A file of that name may be of another format. */
static weft_status begins_as_index(const File *f, bool *is, weft_error *e) {
  char head[sizeof magic];
  *is = f->size >= sizeof head;
  if (*is) TRY(file_at(f, 0, head, sizeof head, e));
  *is = *is && memcmp(head, magic, sizeof magic) == 0;
  return WEFT_OK;
}

weft_status megatron_open(Arena *a, const Folders *in, Part *p, bool *is, weft_error *e) {
  const char *path = megatron_index_of(a, p->file.path);
  *is = false;
  if (!path || access(path, F_OK) != 0) return WEFT_OK;
  TRY(folders_hold(in, path, e));
  TRY(file_open(path, &p->index, e));
  TRY(begins_as_index(&p->index, is, e));
  if (!*is) file_close(&p->index);
  if (!*is) return WEFT_OK;
  TRY(read_head(p, e));
  TRY(check_tables(p, e));
  file_park(&p->index);
  p->form = "Megatron";
  p->n = (int64_t)(p->file.size / (uint64_t)p->width);
  return WEFT_OK;
}

/* The byte offsets of sequences in the .bin; one read per consecutive run. */
static weft_status sequence_bytes(const Part *p, const int64_t *sequence, int64_t n,
                                  int64_t *byte, weft_error *e) {
  int64_t row = 1;
  if (sequence[0] == p->sequences) {
    *byte = (int64_t)p->file.size;
  } else {
    while (row < n && sequence[row] == sequence[0] + row && sequence[row] < p->sequences)
      row++;
    TRY(file_at(&p->index, begins_at(p, sequence[0]), byte, (size_t)row * sizeof *byte,
                e));
  }
  return row < n ? sequence_bytes(p, sequence + row, n - row, byte + row, e) : WEFT_OK;
}

weft_status megatron_documents(const Part *p, int64_t k, int64_t n, int64_t *first,
                               weft_error *e) {
  const char *path = p->index.path;
  int64_t sequence[256];
  assert(k >= 0 && n > 0 && n <= LEN(sequence) && k + n <= p->documents + 1);
  TRY(file_at(&p->index, documents_at(p, k), sequence, (size_t)n * sizeof *sequence, e));
  for (int64_t i = 0; i < n; i++)
    if (sequence[i] < 0 || sequence[i] > p->sequences)
      FAIL(path, "document %lld begins with sequence %lld of %lld", (long long)(k + i),
           (long long)sequence[i], (long long)p->sequences);
  TRY(sequence_bytes(p, sequence, n, first, e));
  for (int64_t i = 0; i < n; i++) {
    if (first[i] < 0 || (uint64_t)first[i] > p->file.size || first[i] % p->width)
      FAIL(path, "sequence %lld begins at byte %lld of the .bin, which has %llu bytes",
           (long long)sequence[i], (long long)first[i], (unsigned long long)p->file.size);
    first[i] /= p->width;
  }
  return WEFT_OK;
}
