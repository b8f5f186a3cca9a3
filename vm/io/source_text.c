/* source_text.c - the bytes of text files as ids. A file that is recognized as something
 * else is an error, unless the plan asks for bytes. */
#include "source.h"

#define ANY "; format = \"bytes\" reads any file"

/* The form of a token file, by an index of Megatron beside it or its header. */
static weft_status token_form(const Data *d, const DataSpec *spec, const Part *p,
                              const char *head, size_t n, const char **form,
                              weft_error *e) {
  Folders in = {spec->dir, spec->folders, spec->nfolders};
  Part as_tokens = {.file = p->file};
  bool indexed;
  *form = token_header(&p->file, head, n);
  if (*form) return WEFT_OK;
  weft_status st = megatron_open(d->arena, &in, &as_tokens, &indexed, e);
  if (indexed) *form = as_tokens.form;
  file_close(&as_tokens.index);
  return st;
}

static weft_status check_text(const Data *d, const DataSpec *spec, const Part *p,
                              weft_error *e) {
  char head[HEAD_BYTES];
  size_t n = (size_t)MIN(p->file.size, (uint64_t)sizeof head);
  const char *path = p->file.path, *form;
  TRY(file_at(&p->file, 0, head, n, e));
  const char *what = other_format(&p->file, head, n, 1);
  if (what) FAIL(path, "is no text but %s" ANY, what);
  TRY(token_form(d, spec, p, head, n, &form, e));
  if (form)
    FAIL(path, "is no text but ids of tokens (%s): weft.tokens reads it" ANY, form);
  if (has_many_zeros(head, n))
    FAIL(path,
         "has many bytes of 0, which a text in UTF-8 has not: if they are of ids of "
         "tokens, weft.tokens reads it" ANY);
  return WEFT_OK;
}

static weft_status bytes(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  if (spec->format != TEXT_BYTES) TRY(check_text(d, spec, p, e));
  p->width = 1;
  p->n = (int64_t)p->file.size;
  return WEFT_OK;
}

static weft_status open_text(Data *d, const DataSpec *spec, weft_error *e) {
  return stream_open(d, spec, bytes, e);
}

const Source source_text = {open_text, stream_ids, NULL, "bytes", "byte"};

const char *data_text_of_rows(const Data *d) {
  const char *path = NULL;
  for (int i = 0; d->source == &source_text && i < d->nparts && !path; i++)
    if (is_named_rows(d->part[i].file.path)) path = d->part[i].file.path;
  for (int i = 0; d->blend && i < d->blend->n && !path; i++)
    path = data_text_of_rows(d->blend->of[i]);
  return path;
}
