/* source.h - what a source of data gives: a stream of ids. data.c cuts it into samples.
 *
 * A source is a file source_NAME.c with a row in sources.def and one in schema.def. Those
 * that read files use stream.c, which sees many files as one stream. */
#ifndef WEFT_IO_SOURCE_H
#define WEFT_IO_SOURCE_H

#include "io.h"

/* A part of the stream: `n` ids of `width` bytes, the first of them at `first`. */
typedef struct Part {
  File file;
  uint64_t begin;        /* of the ids in the file */
  int width;             /* 1, 2 or 4 */
  int64_t first, n;
} Part;

struct Data {
  weft_alloc alloc;
  Arena *arena;
  const struct Source *source;
  int64_t seq, vocab;    /* synthetic: of the data; else of the model */
  int64_t total;         /* ids in all; 0 = endless */
  int64_t begin, end;    /* those that samples are cut from */
  bool val;              /* for validation */
  uint64_t seed;
  bool shuffle;
  Part *part;
  int nparts;
  const char *described;
};

typedef struct Source {
  /* Fills total, described and what the source needs. */
  weft_status (*open)(Data *d, const DataSpec *spec, weft_error *e);
  /* The ids [at, at + n) of the stream, each below d->vocab. Thread-safe. */
  weft_status (*ids)(const Data *d, int64_t at, int64_t n, int32_t *out, weft_error *e);
  const char *unit, *id; /* "bytes", "byte": for messages */
} Source;

#define SOURCE(ID, name) extern const Source source_##name;
#include "vm/plan/sources.def"

/* ---- stream.c ---- */
/* Finds the files of the spec and opens each: `form` says where its ids lie. */
weft_status stream_open(Data *d, const DataSpec *spec,
                        weft_status (*form)(const Data *d, const DataSpec *spec, Part *p,
                                            weft_error *e),
                        weft_error *e);
weft_status stream_ids(const Data *d, int64_t at, int64_t n, int32_t *out,
                       weft_error *e);

#endif
