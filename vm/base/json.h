/* json.h - writes JSON into a string buffer. Keys appear in the order they are written;
 * callers sort them. NaN and infinities become null, unless a reader takes them. */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H

#include "base.h"

typedef struct Json {
  Text *out;
  int depth;
  bool comma[64];
  bool pretty; /* two-space indent; otherwise one line */
  bool point;  /* json_num writes 1 as 1.0, for readers that infer types */
  bool python; /* json_num writes an infinity as Infinity, as Python reads it */
} Json;

/* `bracket` is '{' or '['; within a list every key is NULL. */
void json_open(Json *j, const char *key, char bracket);
void json_close(Json *j, char bracket);                 /* '}' or ']' */
void json_str(Json *j, const char *key, const char *s); /* s NULL writes null */
void json_strn(Json *j, const char *key, const char *s, size_t n); /* 0 is a byte */
void json_int(Json *j, const char *key, int64_t v);
void json_ints(Json *j, const char *key, const int64_t *v, int n); /* a list */
void json_num(Json *j, const char *key, double v); /* shortest that reads back */
void json_bool(Json *j, const char *key, bool v);
void json_none(Json *j, const char *key); /* null; jansson owns the name json_null */
void json_raw(Json *j, const char *key, const char *s, size_t n); /* JSON text as it is */

#endif
