/* bytecode.h - the code of Lua 5.4 functions as lua_dump writes it: its parts are found
 * where they lie, and written to a new copy. The format is the same in every Lua 5.4,
 * which its header states. */
#ifndef WEFT_BYTECODE_H
#define WEFT_BYTECODE_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

/* The opcodes of Lua that matter here. */
enum {
  OP_LOADK = 3,
  OP_LOADKX = 4,
  OP_GETUPVAL = 9,
  OP_GETTABUP = 11,
  OP_GETFIELD = 14,
  OP_POW = 38,
  OP_MMBIN = 46,
  OP_LEN = 52,
  OP_JMP = 56,
  OP_FORLOOP = 73,
  OP_FORPREP = 74,
  OP_TFORPREP = 75,
  OP_TFORLOOP = 77,
  OP_EXTRAARG = 82
};

/* What begins a constant. */
enum {
  FALSE_TAG = 1,
  TRUE_TAG = 17,
  INT_TAG = 3,
  FLOAT_TAG = 19,
  SHORT_TAG = 4,
  LONG_TAG = 20
};

static inline uint32_t abc(int op, int a, int b, int c) {
  return (uint32_t)op | (uint32_t)a << 7 | (uint32_t)b << 16 | (uint32_t)c << 24;
}
static inline uint32_t abx(int op, int a, int bx) {
  return (uint32_t)op | (uint32_t)a << 7 | (uint32_t)bx << 15;
}
static inline int op_of(uint32_t i) { return (int)(i & 0x7f); }
static inline int a_of(uint32_t i) { return (int)(i >> 7 & 0xff); }
static inline int b_of(uint32_t i) { return (int)(i >> 16 & 0xff); }
static inline int c_of(uint32_t i) { return (int)(i >> 24); }
static inline int bx_of(uint32_t i) { return (int)(i >> 15); }

/* ---- reading ---- all raise for what Lua 5.4 does not write */

typedef struct CodeReader {
  lua_State *L;
  const unsigned char *at, *end;
} CodeReader;

const unsigned char *code_take(CodeReader *r, size_t n);
int code_take_byte(CodeReader *r);
int code_take_int(CodeReader *r);
/* NULL: no string. */
const char *code_take_text(CodeReader *r, size_t *n);
void code_skip_text(CodeReader *r);
void code_skip_constant(CodeReader *r);
/* Checks the header of Lua 5.4: signature, version, format, bytes that detect text
 * conversion, sizes of an instruction, an integer and a number with an example of each,
 * number of upvalues. */
void code_check_header(CodeReader *r);

/* Positions of the parts of a dumped function. */
typedef struct CodeFunction {
  const unsigned char *begin, *registers; /* begin of the names and lines; the byte with
                                             the number of registers */
  const unsigned char *code;
  int ncode, nconstant, nproto, nline, nlocal;
  int linedefined, lens;
  const unsigned char *constants, *upvalues, *protos;
  const unsigned char *debug, *lines, *absolute, *locals, *upnames, *end;
} CodeFunction;

/* Reads a function and those nested in it; *all counts the LEN of all of them. */
CodeFunction code_take_function(CodeReader *r, int *all);
uint32_t code_at(const CodeFunction *f, int i);

/* ---- writing ---- */

/* The output so far is in a userdata at `slot`. */
typedef struct CodeWriter {
  lua_State *L;
  int slot;
  unsigned char *to;
  size_t n, room;
} CodeWriter;

void code_put(CodeWriter *w, const void *p, size_t n);
void code_put_range(CodeWriter *w, const unsigned char *from, const unsigned char *to);
void code_put_byte(CodeWriter *w, int byte);
void code_put_size(CodeWriter *w, size_t n);

#endif
