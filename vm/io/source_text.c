/* source_text.c - the bytes of text files as ids. */
#include "source.h"

static weft_status bytes(const Data *d, const DataSpec *spec, Part *p, weft_error *e) {
  p->width = 1;
  p->n = (int64_t)p->file.size;
  return WEFT_OK;
}

static weft_status open_text(Data *d, const DataSpec *spec, weft_error *e) {
  return stream_open(d, spec, bytes, e);
}

const Source source_text = {open_text, stream_ids, NULL, "bytes", "byte"};
