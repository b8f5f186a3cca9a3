/* plan_data.h - a plan's data, and how documents become rows. */
#ifndef WEFT_PLAN_DATA_H
#define WEFT_PLAN_DATA_H

#include <stdbool.h>
#include <stdint.h>

/* The sources of data; see vm/plan/sources.def. */
typedef enum {
#define SOURCE(ID, name) DATA_##ID,
#include "sources.def"
  DATA_N
} DataKind;
/* What becomes of documents that are longer than a row. */
typedef enum { TOO_LONG_ERROR, TOO_LONG_SPLIT, TOO_LONG_DROP, TOO_LONG_TRUNCATE } TooLong;
/* Documents that share a row. */
typedef struct Packed {
  bool on;
  bool separated; /* `separator` is known */
  bool first;     /* the separator begins a document, else it ends one */
  bool within;    /* labels of another document than their token's do not
                     count */
  int32_t separator;
  int64_t size; /* documents are whole in rows of so many; 0: cut by rows */
  TooLong too_long;
  bool alone; /* a row has one document, */
  bool pairs; /* and two rows, which stay neighbours, are a pair */
} Packed;
/* A label that does not count; with a size, also one that is its document's last. */
enum { LABEL_IGNORED = -100, LABEL_DOCUMENT_END = -101 };

/* What token files are: found out, or said. Of texts the first two: files that are none
 * are refused, or any bytes are read. */
typedef enum {
  TOKENS_AUTO,
  TOKENS_RAW,
  TEXT_BYTES = TOKENS_RAW,
  TOKENS_LLMC,
  TOKENS_AUTOMODEL,
  TOKENS_MEGATRON
} TokenFormat;
/* Whether masks beside token files are read: where all files have one, always, never. */
typedef enum { MASKS_AUTO, MASKS_REQUIRED, MASKS_NONE } MaskUse;
typedef struct DataSpec {
  DataKind kind;
  const char *const *files;
  int nfiles;               /* globs, relative to `dir` */
  const char *const *names; /* of the files for people; NULL: they are their own */
  const char *dir;          /* of the plan file */
  const char *const *folders;
  int nfolders; /* where else files may lie: --data */
  const double *weights;
  int nweights; /* of each of `files`; none: one stream */
  TokenFormat format;
  int width;     /* tokens: bytes of an id; 0 = not said */
  MaskUse masks; /* tokens */
  int64_t vocab; /* synthetic: 0 = the model's */
  double learnt; /* synthetic: this share of the tokens; 0 = all, as 1 */
  bool shuffle;
  double val_fraction;        /* of the end of the stream, for validation */
  const struct DataSpec *val; /* or this; NULL: none is given */
  Packed packed;              /* the plan's */
  const char *reference;      /* the file of losses of a reference; NULL: none is read, */
  uint64_t reference_model;   /* and which model it has to be of */
} DataSpec;

/* The most sources of a blend whose losses are told apart. */
enum { SOURCES_MOST = 64 };
/* How many streams of a blend, of the data or of those for validation, a step may have;
 * 0: there is no blend, or one of more than SOURCES_MOST. */
int plan_sources(const DataSpec *d);

#endif
