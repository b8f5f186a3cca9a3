/* safetensors_write.c - writes tensors as one safetensors file. */
#include <stdio.h>

#include "vm/base/json.h"
#include "io.h"
#include "st_type.h"

static size_t bytes_of(const StWrite *t) {
  size_t n = (size_t)st_type(st_type_name(t->dtype))->size;
  assert(t->ndim >= 0 && t->ndim <= LEN(t->dim));
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
  return n;
}

/* The header, padded with spaces so that data starts at a multiple of 8. */
static void write_header(Text *out, const StWrite *t, int n) {
  Json j = {.out = out};
  size_t at = 0;
  json_open(&j, NULL, '{');
  for (int i = 0; i < n; i++) {
    json_open(&j, t[i].name, '{');
    json_str(&j, "dtype", st_type_name(t[i].dtype));
    json_open(&j, "shape", '[');
    for (int k = 0; k < t[i].ndim; k++) json_int(&j, NULL, t[i].dim[k]);
    json_close(&j, ']');
    json_open(&j, "data_offsets", '[');
    json_int(&j, NULL, (int64_t)at);
    json_int(&j, NULL, (int64_t)(at += bytes_of(&t[i])));
    json_close(&j, ']');
    json_close(&j, '}');
  }
  json_close(&j, '}');
  while (out->n % 8 && !out->oom) text_add(out, " ");
}

weft_status st_write(const weft_alloc *a, const char *path, const StWrite *t, int n,
                     weft_error *e) {
  Text header = {.alloc = a};
  write_header(&header, t, n);
  uint64_t size = header.n;
  FilePart *part = mem_new(a, sizeof *part * (size_t)(n + 2));
  weft_status status = WEFT_ENOMEM;
  if (part && !header.oom) {
    part[0] = (FilePart){&size, sizeof size};
    part[1] = (FilePart){header.s, header.n};
    for (int i = 0; i < n; i++) part[2 + i] = (FilePart){t[i].data, bytes_of(&t[i])};
    status = file_write(path, part, n + 2, e);
  } else {
    err_file(e, status, path, 0, "out of memory");
  }
  mem_free(a, part, sizeof *part * (size_t)(n + 2));
  text_free(&header);
  return status;
}
