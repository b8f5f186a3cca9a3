/* json_text.h - JSON from untrusted files. */
#ifndef WEFT_IO_JSON_TEXT_H
#define WEFT_IO_JSON_TEXT_H

#include <jansson.h>

#include "vm/base/base.h"

/* The document, or NULL with an error about `path` that begins with `what`. Refuses
 * documents that would take much memory or stack before building them: values and nesting
 * are counted first. */
json_t *json_text(const char *path, const char *what, const char *s, size_t n,
                  weft_error *e);
/* The same with all numbers as reals: in files of others integers may have more than 64
 * bits. */
json_t *json_text_reals(const char *path, const char *what, const char *s, size_t n,
                        weft_error *e);
/* A row that Python's json may have written: NaN and Infinity, of which JSON knows
 * nothing, are null. `nul`: texts may have the character \u0000; `big`: whole numbers of
 * more than 64 bits are reals. */
json_t *json_text_row(const char *path, const char *s, size_t n, bool nul, bool big,
                      weft_error *e);
/* As Python's json writes them: Infinity outside of strings is JSON_INFINITE, which as
 * f32 is infinite; a document has no infinities. */
#define JSON_INFINITE 1e308
json_t *json_text_python(const char *path, const char *what, const char *s, size_t n,
                         weft_error *e);
/* Adds the document as Python's json reads it, where JSON_INFINITE is Infinity again. */
void json_text_to_python(const json_t *doc, Text *out);

#endif
