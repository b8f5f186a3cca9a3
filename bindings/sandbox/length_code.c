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
 * modules and functions that come from a script all get the same operator. */
#include "length.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>

#include "bytecode.h"
#include "vm/base/base.h"

enum {
  EVENT_POW = 10,
  BX_MAX = (1 << 17) - 1,
  SJ_ZERO = (1 << 24) - 1,
  SJ_MAX = (1 << 25) - 1,
  REGISTERS = 255,
  LINE_ABSOLUTE = -128, /* the line is in a list of absolute lines */
  LINES_APART = 100     /* at most so many instructions between two of these */
};
/* ---- names of operands, for messages ---- */

/* The name of the local variable in register `reg` at instruction `pc`, or NULL. */
static const char *local_name(lua_State *L, const CodeFunction *f, int reg, int pc,
                              size_t *n) {
  CodeReader r = {L, f->locals, f->end};
  for (int left = code_take_int(&r); left > 0; left--) {
    const char *name = code_take_text(&r, n);
    int from = code_take_int(&r), to = code_take_int(&r);
    if (from <= pc && pc < to && reg-- == 0) return name;
  }
  return NULL;
}

static const char *upvalue_name(lua_State *L, const CodeFunction *f, int number,
                                size_t *n) {
  CodeReader r = {L, f->upnames, f->end};
  for (int left = code_take_int(&r); left > 0; left--, number--) {
    const char *name = code_take_text(&r, n);
    if (number == 0) return name;
  }
  return NULL;
}

static const char *constant_name(lua_State *L, const CodeFunction *f, int number,
                                 size_t *n) {
  CodeReader r = {L, f->constants, f->upvalues};
  for (; number > 0; number--) code_skip_constant(&r);
  int tag = code_take_byte(&r);
  return tag == SHORT_TAG || tag == LONG_TAG ? code_take_text(&r, n) : NULL;
}

/* What Lua's own message would say of the operand of the LEN at pc, such as " (field
 * 'x')"; empty if several paths lead to it. */
static void describe(lua_State *L, const CodeFunction *f, int pc, bool target, char *out,
                     size_t room) {
  size_t n = 0, nup;
  const char *kind = "local", *name, *up;
  int reg = b_of(code_at(f, pc));
  *out = 0;
  name = local_name(L, f, reg, pc, &n);
  if (!name && pc > 0 && !target) {
    uint32_t i = code_at(f, pc - 1);
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

static int first_mark(const CodeFunction *f) { return f->nconstant; }

/* Number of instructions that replace LEN. */
static int len_size(const CodeFunction *f, int mark) { return mark > BX_MAX ? 4 : 3; }

/* The target of the jump at i, or -1. */
static int jump_target(const CodeFunction *f, int i) {
  uint32_t v = code_at(f, i);
  switch (op_of(v)) {
  case OP_JMP: return i + 1 + (int)(v >> 7) - SJ_ZERO;
  case OP_FORLOOP:
  case OP_TFORLOOP: return i + 1 - bx_of(v);
  case OP_FORPREP: return i + 1 + bx_of(v) + 1;
  case OP_TFORPREP: return i + 1 + bx_of(v);
  default: return -1;
  }
}

static int too_large(lua_State *L, const CodeFunction *f) {
  return luaL_error(L, "the function at line %d is too large", f->linedefined);
}

/* The instruction of position i moved to `now`, with the distance to its target adjusted.
 */
static uint32_t moved(lua_State *L, const CodeFunction *f, const Place *p, int i) {
  uint32_t v = code_at(f, i);
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
static int find_places(lua_State *L, const CodeFunction *f, Place *p) {
  CodeReader abs = {L, f->absolute, f->locals};
  int now = 0, line = f->linedefined, mark = first_mark(f);
  code_take_int(&abs);
  for (int i = 0; i < f->ncode; i++) {
    int delta = f->nline ? (signed char)f->lines[i] : 0;
    if (delta == LINE_ABSOLUTE)
      code_take_int(&abs), line = code_take_int(&abs);
    else
      line += delta;
    p[i].now = now;
    p[i].line = line;
    now += op_of(code_at(f, i)) == OP_LEN ? len_size(f, mark++) : 1;
    int target = jump_target(f, i);
    if (target < -1 || target > f->ncode) code_take(&abs, SIZE_MAX);
    if (target >= 0) p[target].target = true;
  }
  p[f->ncode].now = now;
  return now;
}

static void put_code(CodeWriter *w, uint32_t i) { code_put(w, &i, sizeof i); }

static void put_instructions(CodeWriter *w, const CodeFunction *f, const Place *p) {
  int mark = first_mark(f), temporary = *f->registers;
  code_put_size(w, (size_t)p[f->ncode].now);
  for (int i = 0; i < f->ncode; i++) {
    uint32_t v = code_at(f, i);
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

static void put_constants(CodeWriter *w, const CodeFunction *f, const Place *p) {
  code_put_size(w, (size_t)(f->nconstant + f->lens));
  code_put_range(w, f->constants, f->upvalues);
  for (int i = 0; i < f->ncode; i++) {
    char name[96];
    if (op_of(code_at(f, i)) != OP_LEN) continue;
    describe(w->L, f, i, p[i].target, name, sizeof name);
    size_t n = LENGTH_MARK_BYTES + strlen(name);
    /* The limit is Lua's LUAI_MAXSHORTLEN. */
    code_put_byte(w, n <= 40 ? SHORT_TAG : LONG_TAG);
    code_put_size(w, n + 1);
    code_put(w, LENGTH_MARK, LENGTH_MARK_BYTES);
    code_put(w, name, strlen(name));
  }
}

/* Writes lines as differences to the previous line, with absolute lines where the
 * difference is large and at regular distances, as Lua expects. */
static void put_lines(CodeWriter *w, const CodeFunction *f, const Place *p) {
  if (!f->nline) {
    code_put_range(w, (const unsigned char *)"\x80\x80",
                   (const unsigned char *)"\x80\x80" + 2);
    return;
  }
  int size = p[f->ncode].now;
  int *full = lua_newuserdatauv(w->L, 2 * sizeof *full * (size_t)size, 0), nfull = 0;
  code_put_size(w, (size_t)size);
  for (int i = 0, now = 0, line = f->linedefined, since = 0; i < f->ncode; i++)
    for (; now < p[i + 1].now; now++) {
      int delta = p[i].line - line;
      line = p[i].line;
      if (abs(delta) < -LINE_ABSOLUTE && ++since < LINES_APART) {
        code_put_byte(w, delta);
        continue;
      }
      since = 0;
      code_put_byte(w, LINE_ABSOLUTE);
      full[nfull++] = now;
      full[nfull++] = line;
    }
  code_put_size(w, (size_t)(nfull / 2));
  for (int i = 0; i < nfull; i++) code_put_size(w, (size_t)full[i]);
  lua_pop(w->L, 1);
}

static void put_locals(CodeWriter *w, const CodeFunction *f, const Place *p) {
  CodeReader r = {w->L, f->locals, f->end};
  int n = code_take_int(&r);
  code_put_size(w, (size_t)n);
  for (; n > 0; n--) {
    const unsigned char *name = r.at;
    code_skip_text(&r);
    code_put_range(w, name, r.at);
    for (int k = 0; k < 2; k++) {
      int pc = code_take_int(&r);
      if (pc > f->ncode) code_take(&r, SIZE_MAX);
      code_put_size(w, (size_t)p[pc].now);
    }
  }
  code_put_range(w, f->upnames, f->end);
}

static void put_function(CodeWriter *w, CodeReader *r);

static void put_protos(CodeWriter *w, const CodeFunction *f) {
  CodeReader r = {w->L, f->protos, f->end};
  for (int i = 0; i < f->nproto; i++) put_function(w, &r);
}

static void put_function(CodeWriter *w, CodeReader *r) {
  int all = 0;
  CodeFunction f = code_take_function(r, &all);
  if (!f.lens) {
    code_put_range(w, f.begin, f.protos);
    put_protos(w, &f);
    code_put_range(w, f.debug, f.end);
    return;
  }
  if (*f.registers >= REGISTERS)
    luaL_error(w->L, "the function at line %d has too many variables", f.linedefined);
  luaL_checkstack(w->L, 4, NULL);
  size_t places = sizeof(Place) * ((size_t)f.ncode + 1);
  Place *p = lua_newuserdatauv(w->L, places, 0);
  memset(p, 0, places);
  find_places(w->L, &f, p);
  code_put_range(w, f.begin, f.registers);
  code_put_byte(w, *f.registers + 1);
  put_instructions(w, &f, p);
  put_constants(w, &f, p);
  code_put_range(w, f.upvalues, f.protos);
  put_protos(w, &f);
  put_lines(w, &f, p);
  put_locals(w, &f, p);
  lua_pop(w->L, 1);
}

/* ---- all of it ---- */

const char *length_code(lua_State *L, const char *code, size_t *n) {
  int all = 0;
  luaL_checkstack(L, 8, NULL);
  CodeReader r = {L, (const unsigned char *)code, (const unsigned char *)code + *n};
  code_check_header(&r);
  CodeReader functions = r;
  lua_pushnil(L);
  code_take_function(&r, &all);
  if (!all) return code;
  CodeWriter w = {.L = L, .slot = lua_gettop(L)};
  code_put(&w, code, (size_t)(functions.at - (const unsigned char *)code));
  put_function(&w, &functions);
  *n = w.n;
  return (const char *)w.to;
}

static int add_code(lua_State *L, const void *p, size_t n, void *w) {
  code_put(w, p, n);
  return 0;
}

void length_function(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  if (!length_is_open(L)) return;
  int fn = lua_gettop(L);
  lua_pushnil(L);
  CodeWriter w = {.L = L, .slot = fn + 1};
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
