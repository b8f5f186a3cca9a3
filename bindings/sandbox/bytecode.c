/* bytecode.c - reads and writes the parts of functions as lua_dump gives them; see
 * bytecode.h. Nothing is copied while reading: a part is where it begins. */
#include "bytecode.h"

#include <lauxlib.h>

#include "vm/base/base.h"

#if LUA_VERSION_NUM != 504
#error "the code of functions is read here as Lua 5.4 writes it"
#endif

/* ---- reading ---- */

const unsigned char *code_take(CodeReader *r, size_t n) {
  if ((size_t)(r->end - r->at) < n)
    luaL_error(r->L, "the code of a function is not as Lua 5.4 writes it");
  r->at += n;
  return r->at - n;
}

int code_take_byte(CodeReader *r) { return *code_take(r, 1); }

/* Reads a size: seven bits per byte, most significant first; the last byte has the top
 * bit set. */
static size_t take_size(CodeReader *r) {
  size_t n = 0;
  int byte;
  do {
    byte = code_take_byte(r);
    if (n >> 32) code_take(r, SIZE_MAX);
    n = n << 7 | (size_t)(byte & 0x7f);
  } while (!(byte & 0x80));
  return n;
}

int code_take_int(CodeReader *r) {
  size_t n = take_size(r);
  if (n > INT32_MAX) code_take(r, SIZE_MAX);
  return (int)n;
}

const char *code_take_text(CodeReader *r, size_t *n) {
  size_t size = take_size(r);
  *n = size ? size - 1 : 0;
  return size ? (const char *)code_take(r, *n) : NULL;
}

void code_skip_text(CodeReader *r) {
  size_t n;
  code_take_text(r, &n);
}

void code_check_header(CodeReader *r) {
  static const char begin[] = "\x1bLua\x54\0\x19\x93\r\n\x1a\n\x04\x08\x08";
  if (memcmp(code_take(r, sizeof begin - 1), begin, sizeof begin - 1) != 0)
    code_take(r, SIZE_MAX);
  code_take(r, 8 + 8 + 1);
}

void code_skip_constant(CodeReader *r) {
  int tag = code_take_byte(r);
  if (tag == INT_TAG || tag == FLOAT_TAG)
    code_take(r, 8);
  else if (tag == SHORT_TAG || tag == LONG_TAG)
    code_skip_text(r);
  else if (tag != 0 && tag != FALSE_TAG && tag != TRUE_TAG)
    code_take(r, SIZE_MAX);
}

uint32_t code_at(const CodeFunction *f, int i) {
  uint32_t v;
  memcpy(&v, f->code + 4 * (size_t)i, sizeof v);
  return v;
}

CodeFunction code_take_function(CodeReader *r, int *all) {
  CodeFunction f = {.begin = r->at};
  luaL_checkstack(r->L, 4, NULL);
  code_skip_text(r);
  f.linedefined = code_take_int(r);
  code_take_int(r);
  code_take(r, 2);
  f.registers = code_take(r, 1);
  f.ncode = code_take_int(r);
  f.code = code_take(r, 4 * (size_t)f.ncode);
  for (int i = 0; i < f.ncode; i++) f.lens += op_of(code_at(&f, i)) == OP_LEN;
  f.nconstant = code_take_int(r);
  f.constants = r->at;
  for (int i = 0; i < f.nconstant; i++) code_skip_constant(r);
  f.upvalues = r->at;
  code_take(r, 3 * (size_t)code_take_int(r));
  f.nproto = code_take_int(r);
  f.protos = r->at;
  *all += f.lens;
  for (int i = 0; i < f.nproto; i++) code_take_function(r, all);
  f.debug = r->at;
  f.nline = code_take_int(r);
  f.lines = code_take(r, (size_t)f.nline);
  if (f.nline && f.nline != f.ncode) code_take(r, SIZE_MAX);
  f.absolute = r->at;
  for (int n = code_take_int(r); n > 0; n--) code_take_int(r), code_take_int(r);
  f.locals = r->at;
  f.nlocal = code_take_int(r);
  for (int n = f.nlocal; n > 0; n--)
    code_skip_text(r), code_take_int(r), code_take_int(r);
  f.upnames = r->at;
  for (int n = code_take_int(r); n > 0; n--) code_skip_text(r);
  f.end = r->at;
  return f;
}

/* ---- writing ---- */

void code_put(CodeWriter *w, const void *p, size_t n) {
  if (w->room - w->n < n) {
    size_t room = 2 * (w->room + n);
    unsigned char *more = lua_newuserdatauv(w->L, room, 0);
    if (w->n) memcpy(more, w->to, w->n);
    lua_replace(w->L, w->slot);
    w->to = more;
    w->room = room;
  }
  if (n) memcpy(w->to + w->n, p, n);
  w->n += n;
}

void code_put_range(CodeWriter *w, const unsigned char *from, const unsigned char *to) {
  code_put(w, from, (size_t)(to - from));
}

void code_put_byte(CodeWriter *w, int byte) {
  unsigned char b = (unsigned char)byte;
  code_put(w, &b, 1);
}

void code_put_size(CodeWriter *w, size_t n) {
  unsigned char b[10];
  int i = LEN(b);
  b[--i] = (unsigned char)(n & 0x7f) | 0x80;
  while (n >>= 7) b[--i] = (unsigned char)(n & 0x7f);
  code_put(w, b + i, (size_t)(LEN(b) - i));
}
