/* length_code.c - replaces the length operator in the code of Lua functions; see
 * length.h.
 *
 * Lua computes #x in the instruction LEN, which has no hook for tables. In the code of
 * each function that has it, from lua_dump,
 *
 *     LEN A B        becomes      LOADK T mark;  POW A T B;  MMBIN T B pow
 *
 * where T is one register more than the function had and the mark is one constant more.
 * Jumps, line numbers and the ranges of local variables are adjusted. Plans, their
 * modules and functions that come from a script all get the same operator. The format of
 * the code is the same in every Lua 5.4, which its header states. */
#include "length.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>

#include "vm/base/base.h"

#if LUA_VERSION_NUM != 504
#error "the code of functions is read here as Lua 5.4 writes it"
#endif

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
enum {
  EVENT_POW = 10,
  BX_MAX = (1 << 17) - 1,
  SJ_ZERO = (1 << 24) - 1,
  SJ_MAX = (1 << 25) - 1,
  REGISTERS = 255,
  LINE_ABSOLUTE = -128, /* the line is in a list of absolute lines */
  LINES_APART = 100     /* at most so many instructions between two of these */
};
enum {
  FALSE_TAG = 1,
  TRUE_TAG = 17,
  INT_TAG = 3,
  FLOAT_TAG = 19,
  SHORT_TAG = 4,
  LONG_TAG = 20
};

static uint32_t abc(int op, int a, int b, int c) {
  return (uint32_t)op | (uint32_t)a << 7 | (uint32_t)b << 16 | (uint32_t)c << 24;
}
static uint32_t abx(int op, int a, int bx) {
  return (uint32_t)op | (uint32_t)a << 7 | (uint32_t)bx << 15;
}
static int op_of(uint32_t i) { return (int)(i & 0x7f); }
static int a_of(uint32_t i) { return (int)(i >> 7 & 0xff); }
static int b_of(uint32_t i) { return (int)(i >> 16 & 0xff); }
static int c_of(uint32_t i) { return (int)(i >> 24); }
static int bx_of(uint32_t i) { return (int)(i >> 15); }

/* ---- reading ---- */

typedef struct Reader {
  lua_State *L;
  const unsigned char *at, *end;
} Reader;

static const unsigned char *take(Reader *r, size_t n) {
  if ((size_t)(r->end - r->at) < n)
    luaL_error(r->L, "the code of a function is not as Lua 5.4 writes it");
  r->at += n;
  return r->at - n;
}

static int take_byte(Reader *r) { return *take(r, 1); }

/* Reads a size: seven bits per byte, most significant first; the last byte has the top
 * bit set. */
static size_t take_size(Reader *r) {
  size_t n = 0;
  int byte;
  do {
    byte = take_byte(r);
    if (n >> 32) take(r, SIZE_MAX);
    n = n << 7 | (size_t)(byte & 0x7f);
  } while (!(byte & 0x80));
  return n;
}

static int take_int(Reader *r) {
  size_t n = take_size(r);
  if (n > INT32_MAX) take(r, SIZE_MAX);
  return (int)n;
}

/* NULL: no string. */
static const char *take_text(Reader *r, size_t *n) {
  size_t size = take_size(r);
  *n = size ? size - 1 : 0;
  return size ? (const char *)take(r, *n) : NULL;
}

static void skip_text(Reader *r) {
  size_t n;
  take_text(r, &n);
}

/* Positions of the parts of a dumped function. */
typedef struct Function {
  const unsigned char *begin, *registers; /* begin of the names and lines; the byte with
                                             the number of registers */
  const unsigned char *code;
  int ncode, nconstant, nproto, nline, nlocal;
  int linedefined, lens;
  const unsigned char *constants, *upvalues, *protos;
  const unsigned char *debug, *lines, *absolute, *locals, *upnames, *end;
} Function;

static void skip_constant(Reader *r) {
  int tag = take_byte(r);
  if (tag == INT_TAG || tag == FLOAT_TAG)
    take(r, 8);
  else if (tag == SHORT_TAG || tag == LONG_TAG)
    skip_text(r);
  else if (tag != 0 && tag != FALSE_TAG && tag != TRUE_TAG)
    take(r, SIZE_MAX);
}

static uint32_t instruction(const Function *f, int i) {
  uint32_t v;
  memcpy(&v, f->code + 4 * (size_t)i, sizeof v);
  return v;
}

/* Reads a function and those nested in it; *all counts the LEN of all of them. */
static Function take_function(Reader *r, int *all) {
  Function f = {.begin = r->at};
  luaL_checkstack(r->L, 4, NULL);
  skip_text(r);
  f.linedefined = take_int(r);
  take_int(r);
  take(r, 2);
  f.registers = take(r, 1);
  f.ncode = take_int(r);
  f.code = take(r, 4 * (size_t)f.ncode);
  for (int i = 0; i < f.ncode; i++) f.lens += op_of(instruction(&f, i)) == OP_LEN;
  f.nconstant = take_int(r);
  f.constants = r->at;
  for (int i = 0; i < f.nconstant; i++) skip_constant(r);
  f.upvalues = r->at;
  take(r, 3 * (size_t)take_int(r));
  f.nproto = take_int(r);
  f.protos = r->at;
  *all += f.lens;
  for (int i = 0; i < f.nproto; i++) take_function(r, all);
  f.debug = r->at;
  f.nline = take_int(r);
  f.lines = take(r, (size_t)f.nline);
  if (f.nline && f.nline != f.ncode) take(r, SIZE_MAX);
  f.absolute = r->at;
  for (int n = take_int(r); n > 0; n--) take_int(r), take_int(r);
  f.locals = r->at;
  f.nlocal = take_int(r);
  for (int n = f.nlocal; n > 0; n--) skip_text(r), take_int(r), take_int(r);
  f.upnames = r->at;
  for (int n = take_int(r); n > 0; n--) skip_text(r);
  f.end = r->at;
  return f;
}

/* ---- writing ---- */

/* The output so far is in a userdata at `slot`. */
typedef struct Writer {
  lua_State *L;
  int slot;
  unsigned char *to;
  size_t n, room;
} Writer;

static void put(Writer *w, const void *p, size_t n) {
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

static void put_range(Writer *w, const unsigned char *from, const unsigned char *to) {
  put(w, from, (size_t)(to - from));
}

static void put_byte(Writer *w, int byte) {
  unsigned char b = (unsigned char)byte;
  put(w, &b, 1);
}

static void put_size(Writer *w, size_t n) {
  unsigned char b[10];
  int i = LEN(b);
  b[--i] = (unsigned char)(n & 0x7f) | 0x80;
  while (n >>= 7) b[--i] = (unsigned char)(n & 0x7f);
  put(w, b + i, (size_t)(LEN(b) - i));
}

static void put_code(Writer *w, uint32_t i) { put(w, &i, sizeof i); }

/* ---- names of operands, for messages ---- */

/* The name of the local variable in register `reg` at instruction `pc`, or NULL. */
static const char *local_name(lua_State *L, const Function *f, int reg, int pc,
                              size_t *n) {
  Reader r = {L, f->locals, f->end};
  for (int left = take_int(&r); left > 0; left--) {
    const char *name = take_text(&r, n);
    int from = take_int(&r), to = take_int(&r);
    if (from <= pc && pc < to && reg-- == 0) return name;
  }
  return NULL;
}

static const char *upvalue_name(lua_State *L, const Function *f, int number, size_t *n) {
  Reader r = {L, f->upnames, f->end};
  for (int left = take_int(&r); left > 0; left--, number--) {
    const char *name = take_text(&r, n);
    if (number == 0) return name;
  }
  return NULL;
}

static const char *constant_name(lua_State *L, const Function *f, int number, size_t *n) {
  Reader r = {L, f->constants, f->upvalues};
  for (; number > 0; number--) skip_constant(&r);
  int tag = take_byte(&r);
  return tag == SHORT_TAG || tag == LONG_TAG ? take_text(&r, n) : NULL;
}

/* What Lua's own message would say of the operand of the LEN at pc, such as " (field
 * 'x')"; empty if several paths lead to it. */
static void describe(lua_State *L, const Function *f, int pc, bool target, char *out,
                     size_t room) {
  size_t n = 0, nup;
  const char *kind = "local", *name, *up;
  int reg = b_of(instruction(f, pc));
  *out = 0;
  name = local_name(L, f, reg, pc, &n);
  if (!name && pc > 0 && !target) {
    uint32_t i = instruction(f, pc - 1);
    if (a_of(i) != reg) return;
    switch (op_of(i)) {
    case OP_GETUPVAL:
      kind = "upvalue";
      name = upvalue_name(L, f, b_of(i), &n);
      break;
    case OP_GETTABUP:
      up = upvalue_name(L, f, b_of(i), &nup);
      kind = up && nup == 4 && memcmp(up, "_ENV", 4) == 0 ? "global" : "field";
      name = constant_name(L, f, c_of(i), &n);
      break;
    case OP_GETFIELD: kind = "field"; name = constant_name(L, f, c_of(i), &n);
    }
  }
  if (name) snprintf(out, room, " (%s '%.*s')", kind, (int)MIN(n, 60u), name);
}

/* ---- one function ---- */

/* For each old instruction, and the end: its new position, its line, whether it is a jump
 * target. */
typedef struct Place {
  int now, line;
  bool target;
} Place;

static int first_mark(const Function *f) { return f->nconstant; }

/* Number of instructions that replace LEN. */
static int len_size(const Function *f, int mark) { return mark > BX_MAX ? 4 : 3; }

/* The target of the jump at i, or -1. */
static int jump_target(const Function *f, int i) {
  uint32_t v = instruction(f, i);
  switch (op_of(v)) {
  case OP_JMP: return i + 1 + (int)(v >> 7) - SJ_ZERO;
  case OP_FORLOOP:
  case OP_TFORLOOP: return i + 1 - bx_of(v);
  case OP_FORPREP: return i + 1 + bx_of(v) + 1;
  case OP_TFORPREP: return i + 1 + bx_of(v);
  default: return -1;
  }
}

static int too_large(lua_State *L, const Function *f) {
  return luaL_error(L, "the function at line %d is too large", f->linedefined);
}

/* The instruction of position i moved to `now`, with the distance to its target adjusted.
 */
static uint32_t moved(lua_State *L, const Function *f, const Place *p, int i) {
  uint32_t v = instruction(f, i);
  int target = jump_target(f, i), here = p[i].now + 1;
  if (target < 0) return v;
  int there = p[target].now, op = op_of(v);
  int distance = op == OP_JMP                            ? there - here + SJ_ZERO
                 : op == OP_FORLOOP || op == OP_TFORLOOP ? here - there
                 : op == OP_FORPREP                      ? there - here - 1
                                                         : there - here;
  if (distance < 0 || distance > (op == OP_JMP ? SJ_MAX : BX_MAX)) too_large(L, f);
  return op == OP_JMP ? (uint32_t)op | (uint32_t)distance << 7
                      : abx(op, a_of(v), distance);
}

/* Fills the table; returns the new number of instructions. */
static int find_places(lua_State *L, const Function *f, Place *p) {
  Reader abs = {L, f->absolute, f->locals};
  int now = 0, line = f->linedefined, mark = first_mark(f);
  take_int(&abs);
  for (int i = 0; i < f->ncode; i++) {
    int delta = f->nline ? (signed char)f->lines[i] : 0;
    if (delta == LINE_ABSOLUTE)
      take_int(&abs), line = take_int(&abs);
    else
      line += delta;
    p[i].now = now;
    p[i].line = line;
    now += op_of(instruction(f, i)) == OP_LEN ? len_size(f, mark++) : 1;
    int target = jump_target(f, i);
    if (target < -1 || target > f->ncode) take(&abs, SIZE_MAX);
    if (target >= 0) p[target].target = true;
  }
  p[f->ncode].now = now;
  return now;
}

static void put_instructions(Writer *w, const Function *f, const Place *p) {
  int mark = first_mark(f), temporary = *f->registers;
  put_size(w, (size_t)p[f->ncode].now);
  for (int i = 0; i < f->ncode; i++) {
    uint32_t v = instruction(f, i);
    if (op_of(v) != OP_LEN) {
      put_code(w, moved(w->L, f, p, i));
      continue;
    }
    put_code(w, mark > BX_MAX ? abx(OP_LOADKX, temporary, 0)
                              : abx(OP_LOADK, temporary, mark));
    if (mark > BX_MAX) {
      if (mark >= SJ_MAX) too_large(w->L, f);
      put_code(w, (uint32_t)OP_EXTRAARG | (uint32_t)mark << 7);
    }
    put_code(w, abc(OP_POW, a_of(v), temporary, b_of(v)));
    put_code(w, abc(OP_MMBIN, temporary, b_of(v), EVENT_POW));
    mark++;
  }
}

static void put_constants(Writer *w, const Function *f, const Place *p) {
  put_size(w, (size_t)(f->nconstant + f->lens));
  put_range(w, f->constants, f->upvalues);
  for (int i = 0; i < f->ncode; i++) {
    char name[96];
    if (op_of(instruction(f, i)) != OP_LEN) continue;
    describe(w->L, f, i, p[i].target, name, sizeof name);
    size_t n = LENGTH_MARK_BYTES + strlen(name);
    put_byte(w, n <= 40 ? SHORT_TAG : LONG_TAG); /* the limit is Lua's LUAI_MAXSHORTLEN */
    put_size(w, n + 1);
    put(w, LENGTH_MARK, LENGTH_MARK_BYTES);
    put(w, name, strlen(name));
  }
}

/* Writes lines as differences to the previous line, with absolute lines where the
 * difference is large and at regular distances, as Lua expects. */
static void put_lines(Writer *w, const Function *f, const Place *p) {
  if (!f->nline) {
    put_range(w, (const unsigned char *)"\x80\x80",
              (const unsigned char *)"\x80\x80" + 2);
    return;
  }
  int size = p[f->ncode].now;
  int *full = lua_newuserdatauv(w->L, 2 * sizeof *full * (size_t)size, 0), nfull = 0;
  put_size(w, (size_t)size);
  for (int i = 0, now = 0, line = f->linedefined, since = 0; i < f->ncode; i++)
    for (; now < p[i + 1].now; now++) {
      int delta = p[i].line - line;
      line = p[i].line;
      if (abs(delta) < -LINE_ABSOLUTE && ++since < LINES_APART) {
        put_byte(w, delta);
        continue;
      }
      since = 0;
      put_byte(w, LINE_ABSOLUTE);
      full[nfull++] = now;
      full[nfull++] = line;
    }
  put_size(w, (size_t)(nfull / 2));
  for (int i = 0; i < nfull; i++) put_size(w, (size_t)full[i]);
  lua_pop(w->L, 1);
}

static void put_locals(Writer *w, const Function *f, const Place *p) {
  Reader r = {w->L, f->locals, f->end};
  int n = take_int(&r);
  put_size(w, (size_t)n);
  for (; n > 0; n--) {
    const unsigned char *name = r.at;
    skip_text(&r);
    put_range(w, name, r.at);
    for (int k = 0; k < 2; k++) {
      int pc = take_int(&r);
      if (pc > f->ncode) take(&r, SIZE_MAX);
      put_size(w, (size_t)p[pc].now);
    }
  }
  put_range(w, f->upnames, f->end);
}

static void put_function(Writer *w, Reader *r);

static void put_protos(Writer *w, const Function *f) {
  Reader r = {w->L, f->protos, f->end};
  for (int i = 0; i < f->nproto; i++) put_function(w, &r);
}

static void put_function(Writer *w, Reader *r) {
  int all = 0;
  Function f = take_function(r, &all);
  if (!f.lens) {
    put_range(w, f.begin, f.protos);
    put_protos(w, &f);
    put_range(w, f.debug, f.end);
    return;
  }
  if (*f.registers >= REGISTERS)
    luaL_error(w->L, "the function at line %d has too many variables", f.linedefined);
  luaL_checkstack(w->L, 4, NULL);
  size_t places = sizeof(Place) * ((size_t)f.ncode + 1);
  Place *p = lua_newuserdatauv(w->L, places, 0);
  memset(p, 0, places);
  find_places(w->L, &f, p);
  put_range(w, f.begin, f.registers);
  put_byte(w, *f.registers + 1);
  put_instructions(w, &f, p);
  put_constants(w, &f, p);
  put_range(w, f.upvalues, f.protos);
  put_protos(w, &f);
  put_lines(w, &f, p);
  put_locals(w, &f, p);
  lua_pop(w->L, 1);
}

/* ---- all of it ---- */

/* Checks the header of Lua 5.4: signature, version, format, bytes that detect text
 * conversion, sizes of an instruction, an integer and a number with an example of each,
 * number of upvalues. */
static void check_header(Reader *r) {
  static const char begin[] = "\x1bLua\x54\0\x19\x93\r\n\x1a\n\x04\x08\x08";
  if (memcmp(take(r, sizeof begin - 1), begin, sizeof begin - 1) != 0) take(r, SIZE_MAX);
  take(r, 8 + 8 + 1);
}

const char *length_code(lua_State *L, const char *code, size_t *n) {
  int all = 0;
  luaL_checkstack(L, 8, NULL);
  Reader r = {L, (const unsigned char *)code, (const unsigned char *)code + *n};
  check_header(&r);
  Reader functions = r;
  lua_pushnil(L);
  take_function(&r, &all);
  if (!all) return code;
  Writer w = {.L = L, .slot = lua_gettop(L)};
  put(&w, code, (size_t)(functions.at - (const unsigned char *)code));
  put_function(&w, &functions);
  *n = w.n;
  return (const char *)w.to;
}

static int add_code(lua_State *L, const void *p, size_t n, void *w) {
  put(w, p, n);
  return 0;
}

void length_function(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  if (!length_is_open(L)) return;
  int fn = lua_gettop(L);
  lua_pushnil(L);
  Writer w = {.L = L, .slot = fn + 1};
  lua_pushvalue(L, fn);
  lua_dump(L, add_code, &w, 0);
  size_t n = w.n;
  const char *code = length_code(L, (const char *)w.to, &n);
  if (code != (const char *)w.to) {
    if (luaL_loadbufferx(L, code, n, "=function", "b") != LUA_OK) lua_error(L);
    lua_replace(L, fn);
  }
  lua_settop(L, fn);
}
