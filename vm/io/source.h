/* source.h - interface of a data source: a stream of ids, which data.c cuts into samples.
 *
 * A source is a file source_NAME.c with a row in sources.def and one in schema.def.
 * Sources that read files use stream.c, which presents many files as one stream. */
#ifndef WEFT_IO_SOURCE_H
#define WEFT_IO_SOURCE_H

#include "io.h"
#include "reference/reference_file.h"
#include "token_mask.h"

/* For functions with a weft_error *e. */
#define FAIL(path, ...) return err_file(e, WEFT_EFILE, (path), 0, __VA_ARGS__)

/* One file of the stream: `n` ids of `width` bytes; `first` is where they begin. */
typedef struct Part {
  File file;
  const char *form; /* detected format; NULL: nothing to report */
  uint64_t begin;   /* byte offset of the ids in the file */
  int width;        /* 1, 2, 4 or 8 */
  bool is_signed;
  int64_t first, n;
  File index; /* Megatron: the .idx */
  int64_t sequences, documents;
  TokenMask mask; /* which ids are learnt; without a file: all */
} Part;

struct Data {
  weft_alloc alloc;
  Arena *arena;
  const struct Source *source;
  int64_t seq, vocab; /* synthetic: of the data; else of the model */
  int64_t total;      /* ids in the stream; 0 = endless */
  int64_t begin, end; /* range of ids that samples are cut from */
  bool val;           /* this is validation data */
  uint64_t seed;
  bool shuffle;
  Part *part;
  int nparts;
  bool masked;   /* every part has a mask, or tokens are synthetic */
  double learnt; /* synthetic: the share of those that are learnt */
  Packed packed;
  struct Rows *rows;       /* NULL: samples are windows */
  struct Blend *blend;     /* NULL: a single stream */
  int number;              /* number of this stream in a blend, from 1; 0: no blend */
  bool made_up;            /* losses of the reference are, as the tokens */
  ReferenceFile reference; /* without a file there are none */
  const char *described;
};

typedef struct Source {
  /* Sets total and described, and prepares the source. */
  weft_status (*open)(Data *d, const DataSpec *spec, weft_error *e);
  /* Reads ids [at, at + n) of the stream, each below d->vocab. Thread-safe. */
  weft_status (*ids)(const Data *d, int64_t at, int64_t n, int32_t *out, weft_error *e);
  /* Labels that are ids [at, at + n) of a masked stream: those that are not learnt become
   * LABEL_IGNORED. Thread-safe; NULL: there are no masks. */
  weft_status (*mask)(const Data *d, int64_t at, int64_t n, int32_t *labels,
                      weft_error *e);
  const char *unit, *id; /* "bytes", "byte": for messages */
} Source;

#define SOURCE(ID, name) extern const Source source_##name;
#include "vm/plan/sources.def"

static inline weft_status source_mask(const Data *d, int64_t at, int64_t n,
                                      int32_t *labels, weft_error *e) {
  return d->masked && n > 0 ? d->source->mask(d, at, n, labels, e) : WEFT_OK;
}

/* ---- data.c ---- */
/* Sample k of one stream in the order of the data, without epochs and shuffling. */
weft_status data_window(const Data *d, int64_t k, int32_t *tokens, int32_t *labels,
                        weft_error *e);

/* ---- data_files.c ---- */
/* The files of all names of a spec; they are not opened yet. */
weft_status stream_files(Arena *a, const DataSpec *spec, const char *const **paths,
                         int *n, weft_error *e);

/* ---- data/other_formats.c ---- what a file is by its first n bytes and its name */
enum { HEAD_BYTES = 4096 }; /* so many are looked at */
/* A format that is neither ids nor text, for "is no text but ..."; NULL: none is known. A
 * mark of it with less than `least` bytes does not count. */
const char *other_format(const File *f, const char *head, size_t n, int least);
/* "text" or "JSON"; NULL: it may be ids of tokens. */
const char *text_format(const File *f, const char *head, size_t n);
/* Whether a file is named as rows of JSON are. */
bool is_named_rows(const char *path);
/* More bytes of 0 than a text has: ids of tokens, or characters of 16 bits. */
bool has_many_zeros(const char *head, size_t n);

/* ---- source_tokens.c ---- */
/* The form of a token file with a header; NULL: it has none that is known. */
const char *token_header(const File *f, const char *head, size_t n);

/* ---- stream.c ---- */
/* Finds the files of the spec and opens each: `form` finds the ids in one. */
weft_status stream_open(Data *d, const DataSpec *spec,
                        weft_status (*form)(const Data *d, const DataSpec *spec, Part *p,
                                            weft_error *e),
                        weft_error *e);
weft_status stream_ids(const Data *d, int64_t at, int64_t n, int32_t *out, weft_error *e);

/* The part of the id at `at`. */
const Part *stream_part(const Data *d, int64_t at);
weft_status stream_mask(const Data *d, int64_t at, int64_t n, int32_t *labels,
                        weft_error *e);

/* ---- megatron.c ---- */
/* The path of the index of x.bin; NULL if the path does not end in .bin. */
const char *megatron_index_of(Arena *a, const char *path);
/* Opens the index beside p->file if there is one; *is says so. */
weft_status megatron_open(Arena *a, const Folders *in, Part *p, bool *is, weft_error *e);
/* The first ids of documents [k, k + n) of a part, counted in the part. Document
 * p->documents means its end. */
weft_status megatron_documents(const Part *p, int64_t k, int64_t n, int64_t *first,
                               weft_error *e);

/* ---- documents.c ---- a walk over documents */
typedef struct Documents {
  const Data *data;
  int64_t at;          /* where the next document begins */
  int64_t limit;       /* end of the range in which ends are found the same way */
  const Part *indexed; /* the part whose index gives the ends; NULL: separators do */
  int64_t next;        /* first document of the index that is not in `first` */
  int known, nknown;   /* entries of `first`, which is read ahead, used and in all */
  int64_t first[256];
  int64_t read, nread; /* ids [read, read + nread) are in `id` */
  int32_t id[1024];
} Documents;
weft_status documents_begin(Documents *w, const Data *d, int64_t at, weft_error *e);
/* The length of the next document; 0 at the end of the data. */
weft_status documents_next(Documents *w, int64_t *n, weft_error *e);
/* An error if an index has an empty document, which the walk skips. */
weft_status documents_none_empty(const Data *d, weft_error *e);
/* Adds what the ids [at, last] are of: "documents 17 to 20 of chat.bin" by an index,
 * whose documents count from 0; else "what begins with token 5210 of web.bin". */
weft_status documents_name(const Data *d, int64_t at, int64_t last, TextBuf *t,
                           weft_error *e);

/* ---- packed_rows.c ---- whole documents in rows of d->seq ids */
typedef struct Rows {
  int64_t n, filled;                    /* rows; ids in them */
  int64_t ncut, cut, ndropped, dropped; /* documents longer than a row, and how many ids
                                           are left out of them */
  int64_t nbare, bare;                  /* documents that are left out as rows without a
                                           label, and of their pairs; ids in them */
  int64_t stride;                       /* rows from one mark to the next */
  int64_t *mark;                        /* where rows 0, stride, 2 * stride ... begin */
} Rows;
size_t rows_bytes(void);
/* Reads all document ends once. */
weft_status rows_open(Data *d, weft_error *e);
void rows_close(const weft_alloc *a, Rows *r);
/* Without `tokens` only counts; `counts` may be NULL. */
weft_status rows_sample(const Data *d, int64_t k, int32_t *tokens, int32_t *labels,
                        DataCounts *counts, weft_error *e);

/* ---- blend.c ---- several streams, each with its share of the samples */
typedef struct Blend {
  Data **of;
  const char **name; /* of each */
  int n;
  int64_t cycle;  /* samples after which the order of streams repeats */
  int64_t *share; /* samples of each stream per cycle */
  uint16_t *turn; /* the stream of each sample of a cycle */
  uint16_t *nth;  /* ... and its number among that stream's samples */
} Blend;
/* The shortest cycle that gives each weight its exact share; or the longest allowed,
 * where each stream has at least one sample. `share` of n may be NULL. */
int64_t blend_cycle(const double *weight, int n, int64_t *share);
/* Fills share, turn and nth. */
weft_status blend_fill(const weft_alloc *a, const double *weight, Blend *b,
                       weft_error *e);
/* Which sample of the blend is sample `nth` of stream k. */
int64_t blend_sample(const Blend *b, int k, int64_t nth);
void blend_free(const weft_alloc *a, Blend *b);

#endif
