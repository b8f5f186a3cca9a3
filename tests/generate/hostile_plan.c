/* hostile_plan.c - hostile plans as Lua code. */
#include "hostile_plan.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- random choice ---- */

typedef struct Dice {
  uint64_t state;
  Text *out;
} Dice;

static uint64_t roll(Dice *d) {
  uint64_t z = d->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static int below(Dice *d, int n) { return (int)(roll(d) % (uint64_t)n); }

#define PICK(d, list) (list)[below(d, LEN(list))]

/* ---- generated Lua ---- */

/* V holds values, also results of calls; F functions; M metatables. */
static const char prelude[] =
    "local weft = require 'weft'\n"
    "local V, F, M = {}, {}, {}\n"
    "local tostring, pcall, pack, find, type, print, ipairs, setmetatable =\n"
    "  tostring, pcall, table.pack, string.find, type, print, ipairs, setmetatable\n"
    "local cresume, ccreate = coroutine.resume, coroutine.create\n"
    "local function keep(x)\n"
    "  local t = type(x)\n"
    "  if t == 'function' and #F < 150 then F[#F + 1] = x end\n"
    "  if t ~= 'nil' and t ~= 'number' and #V < 120 then V[#V + 1] = x end\n"
    "end\n"
    "local function clean(x)\n"
    "  local ok, s = pcall(tostring, x)\n"
    "  if type(s) == 'string' and #s < 9999 and find(s, '0x%x%x%x%x%x') then\n"
    "    print('LEAK ' .. s) end\n"
    "end\n"
    "local function try(f, ...)\n"
    "  local r = pack(pcall(f, ...))\n"
    "  for i = 1, r.n < 9 and r.n or 9 do clean(r[i]) if r[1] then keep(r[i]) end end\n"
    "  return r[2]\n"
    "end\n"
    /* Tables with holes, whose length depends on Lua's hash seed, and keys with equal
     * hashes. */
    "local function holes(n, step)\n"
    "  local t = {}\n"
    "  for i = 1, n do t['k' .. i] = i if i % step > 0 then t[i] = i end end\n"
    "  for i = 1, n do t['k' .. i] = nil end\n"
    "  for i = n, n + 3 do t['l' .. i] = i t[i] = i end\n"
    "  return t\n"
    "end\n"
    "local function chain(k)\n"
    "  local t = {}\n"
    "  for i = 1, 1 << k - 1 do t[i * ((1 << k) - 1)] = i end\n"
    "  return t\n"
    "end\n"
    "for _, t in ipairs { string, table, math, utf8, coroutine } do\n"
    "  for _, f in pairs(t) do keep(f) end\n"
    "end\n"
    "for _, f in ipairs { assert, error, getmetatable, ipairs, pairs, pcall, print,\n"
    "  rawequal, rawget, rawlen, require, select, setmetatable, tonumber, tostring, "
    "type,\n"
    "  xpcall, weft.plan, weft.model, weft.hf, weft.cluster, weft.adamw, weft.cosine,\n"
    "  weft.linear, weft.constant, weft.text, weft.tokens, weft.synthetic, "
    "weft.at_most,\n"
    "  weft.between, weft.schedule_csv, weft.tp_plan, weft.extend } do keep(f) end\n"
    "V = { false, true, 0, 1, -1, 2, 7, 255, 2^31, 2^53, math.maxinteger,\n"
    "  math.mininteger, 0.5, -0.0, 1/0, 0/0, '', 'a', '%d', '%s%s%s', '(.-)%1', "
    "'[^a-z]*',\n"
    "  '%b()', '%f[%a]', ('ab '):rep(40), ('x'):rep(5000), '\\0\\255', '0x10', '1e400', "
    "'12',\n"
    "  'a\\nforged: \\27[2J\\194\\155\\226\\128\\174', '\\27]0;forged\\7', '%z*',\n"
    "  'weft', 'weft.models.llama', 'i8s4z', '!16d', 'name', 'tp', {}, { 1, 2, 3 },\n"
    "  { a = 1, b = { c = {} } }, { [1] = 1, [3] = 3 }, { [{}] = 1 }, { ['x y'] = 2 },\n"
    "  string, table, math, _ENV, weft, coroutine.running(), coroutine.create(print) }\n"
    "for _, v in ipairs { 5, 'n', false, {}, print, error, function() return 1e15 end,\n"
    "  function(t, k) return k end, function(t) return t end, function() error({}) end,\n"
    "  function() return nil, 2 end, function(...) return ... end } do\n"
    "  local m = {}\n"
    "  for _, k in ipairs { 'index', 'newindex', 'call', 'len', 'eq', 'lt', 'le', "
    "'concat',\n"
    "    'add', 'unm', 'tostring', 'name', 'pairs', 'close', 'metatable' } do\n"
    "    if (#k + #M) % 3 > 0 then m['__' .. k] = v end\n"
    "  end\n"
    "  M[#M + 1] = m\n"
    "  V[#V + 1] = setmetatable({ 1, 2, x = 3 }, m)\n"
    "end\n";

static void expression(Dice *d, int nest);

static void arguments(Dice *d, int nest, int most) {
  int n = below(d, most + 1);
  for (int i = 0; i < n; i++) {
    if (i) text_add(d->out, ", ");
    expression(d, nest);
  }
}

static void table_of(Dice *d, int nest) {
  static const char *const keys[] = {"name",     "init",  "std", "unit", "parts",
                                     "head_dim", "scale", "n",   "kind", "layout"};
  text_add(d->out, "{ ");
  for (int n = below(d, 4); n > 0; n--) {
    if (below(d, 2)) text_printf(d->out, "%s = ", PICK(d, keys));
    expression(d, nest);
    text_add(d->out, ", ");
  }
  text_add(d->out, "}");
}

static void expression(Dice *d, int nest) {
  static const char *const literals[] = {"nil",
                                         "true",
                                         "0",
                                         "1",
                                         "2",
                                         "-1",
                                         "16",
                                         "64",
                                         "1e300",
                                         "0/0",
                                         "'hidden'",
                                         "'a'",
                                         "2^40",
                                         "math.maxinteger",
                                         "{ 'ffn', 64 }",
                                         "{ { 'vocab', 64 }, { 'hidden', 16 } }"};
  static const char *const operators[] = {"..", "+", "-", "*",  "//", "%",   "<",
                                          "==", "&", "|", "<<", "^",  "and", "or"};
  switch (nest ? below(d, 12) : below(d, 6)) {
  case 0:
  case 1:
  case 2: text_printf(d->out, "V[%d]", 1 + below(d, 90)); return;
  case 3:
  case 4: text_add(d->out, PICK(d, literals)); return;
  case 5: text_printf(d->out, "F[%d]", 1 + below(d, 110)); return;
  case 6:
    text_add(d->out, "try(");
    expression(d, nest - 1);
    text_add(d->out, ", ");
    expression(d, nest - 1);
    text_add(d->out, ")");
    return;
  case 7:
    text_add(d->out, "function(...) return ");
    arguments(d, nest - 1, 2);
    text_add(d->out, " end");
    return;
  case 8: text_printf(d->out, "setmetatable({ x = 1 }, M[%d])", 1 + below(d, 12)); return;
  case 9:
    text_add(d->out, "try(function(...) return ");
    expression(d, nest - 1);
    text_printf(d->out, " %s ", PICK(d, operators));
    expression(d, nest - 1);
    text_add(d->out, " end)");
    return;
  case 10:
    text_add(d->out, "try(function() local x = ");
    expression(d, nest - 1);
    text_add(d->out, " return #x, x[");
    expression(d, nest - 1);
    text_add(d->out, "], -x end)");
    return;
  default: table_of(d, nest - 1);
  }
}

static const char *const ops[] = {
    "tokens",        "labels",  "positions",   "doc_starts", "layer",   "param",
    "unit",          "linear",  "embed",       "embedding",  "add",     "mul",
    "scale",         "gelu",    "silu",        "swiglu",     "rmsnorm", "layernorm",
    "split",         "rope",    "attention",   "ce_max",     "ce_sum",  "ce_loss",
    "cross_entropy", "F",       "I",           "W",          "B",       "overlap",
    "unshard",       "reshard", "reduce_grad", "stage",      "shape",   "size",
    "rank",          "ranks"};

/* `object` is a local of that name, or NULL. */
static void statement(Dice *d, const char *object) {
  static const char *const ends[] = {"break", "V[#V + 1] = k", "x[k] = nil", "x[1] = k"};
  static const char *const events[] = {"mode", "gc", "name", "close", "len", "metatable"};
  static const char *const late[] = {"'k'", "'v'", "nil", "print",
                                     "'x\\nforged: \\27[2J'"};
  static const char *const patterns[] = {"%baa", "%b()",     "[%z]",
                                         "%z-",  "%f[%a]()", "(.-)%1"};
  switch (below(d, object ? 14 : 13)) {
  case 0:
    text_add(d->out, "try(function() local x = ");
    expression(d, 1);
    text_printf(d->out, " for k, v in pairs(x) do %s end end)\n", PICK(d, ends));
    return;
  case 1:
    text_add(d->out, "try(function() local x = ");
    expression(d, 1);
    text_add(d->out, " x[");
    expression(d, 1);
    text_add(d->out, "] = ");
    expression(d, 1);
    text_add(d->out, " end)\n");
    return;
  case 2:
    text_printf(d->out,
                "try(function() local co = ccreate(F[%d]) for i = 1, 3 do "
                "keep(cresume(co",
                1 + below(d, 110));
    for (int more = below(d, 4); more > 0; more--) {
      text_add(d->out, ", ");
      expression(d, 1);
    }
    text_add(d->out, ")) end end)\n");
    return;
  case 3:
    text_printf(d->out, "try(F[%d], function(...) ", 1 + below(d, 110));
    text_add(d->out, "try(coroutine.yield, ...) return ");
    arguments(d, 1, 2);
    text_add(d->out, " end, ");
    expression(d, 1);
    text_add(d->out, ")\n");
    return;
  case 4:
    text_printf(d->out, "try(function() local t = holes(%d, %d) keep(t) ",
                4 + below(d, 30), 2 + below(d, 4));
    text_add(d->out, "print(#t, rawlen(t), select('#', table.unpack(t)), #t // 1 | 0)\n"
                     "table.insert(t, ");
    expression(d, 1);
    text_add(d->out,
             ") print(#t, #table.pack(table.remove(t), #t), pcall(table.concat, t))\n"
             "for i = #t, 1, -1 do if #t % 2 == 0 then t[#t] = nil end end\n"
             "print(#t, #{ nil, #t, nil, 1 }) end)\n");
    return;
  case 5:
    text_printf(d->out,
                "try(function() local x = M[%d] x.__%s = %s x = ", 1 + below(d, 12),
                PICK(d, events), PICK(d, late));
    expression(d, 1);
    text_printf(d->out,
                " for i = 1, %d do local y = { i, {} } end return #x, x .. x end)\n",
                below(d, 3000));
    return;
  case 6:
    text_printf(d->out, "try(function() local t = chain(%d) print(#t, ",
                1 + below(d, 12));
    text_printf(d->out,
                "select(2, pcall(string.gsub, V[%d], '%s', '<%%0>'))) keep(t) end)\n",
                1 + below(d, 60), PICK(d, patterns));
    return;
  default:
    if (below(d, 2) || !object) {
      text_printf(d->out, "try(F[%d]%s", 1 + below(d, 130), below(d, 5) ? ", " : ", nil");
      if (d->out->s[d->out->n - 1] == ' ') expression(d, 1);
      text_add(d->out, ", ");
      expression(d, 2);
      for (int more = below(d, 3); more > 0; more--) {
        text_add(d->out, ", ");
        expression(d, 1);
      }
      text_add(d->out, ")\n");
      return;
    }
    text_printf(d->out, "try(function(...) return %s.%s(...) end, %s, ", object,
                PICK(d, ops), below(d, 9) ? object : "V[9]");
    expression(d, 1);
    text_add(d->out, ", ");
    expression(d, 2);
    text_add(d->out, ", ");
    expression(d, 1);
    text_add(d->out, ")\n");
  }
}

static void function_of(Dice *d, const char *object, const char *end) {
  text_printf(d->out, "local function with_%s(%s)\nkeep(%s)\n", object, object, object);
  for (int n = below(d, 30); n > 0; n--) statement(d, object);
  text_printf(d->out, "%s\nend\n", end);
}

static void generated(Dice *d) {
  static const char *const fields[] = {"name",     "model",     "cluster",   "mesh",
                                       "strategy", "tp_plan",   "pp_plan",   "schedule",
                                       "batch",    "data",      "precision", "optimizer",
                                       "train",    "recompute", "packed",    "expect"};
  text_add(d->out, prelude);
  for (int n = 5 + below(d, 40); n > 0; n--) statement(d, NULL);
  function_of(d, "g",
              "local x = g:param('w', { { 'vocab', 64 }, { 'hidden', 16 } })\n"
              "local h = g:embedding(g:tokens(), x)\n"
              "return g:cross_entropy(g:linear(h, x), g:labels())");
  function_of(d, "s", "for mb = 0, s.microbatches - 1 do s:F(0, mb) s:B(0, mb) end");
  text_printf(
      d->out,
      "local t = { model = %s, batch = { global = 4, seq = 8 }, schedule = %s }\n",
      below(d, 3) ? "with_g" : "weft.model 'llama-tiny'",
      below(d, 2) ? "with_s" : "'1f1b'");
  for (int n = below(d, 5) - 2; n > 0; n--) {
    text_printf(d->out, "t.%s = ", PICK(d, fields));
    expression(d, 2);
    text_add(d->out, "\n");
  }
  text_add(d->out, "return weft.plan(t)\n");
}

/* ---- mutations ---- */

static const char *const sources[] = {
    "plans/quickstart.lua",      "plans/custom_model.lua",      "plans/my_schedule.lua",
    "tests/plans/bad_cross.lua", "tests/plans/bad_fields.lua",  "tests/run/model.lua",
    "tests/run/schedule.lua",    "tests/plans/bad_builders.lua"};

static char *slurp(const char *name, size_t *n) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", WEFT_SOURCE_DIR, name);
  FILE *f = fopen(path, "rb");
  char *s = malloc(1 << 16);
  *n = f && s ? fread(s, 1, (1 << 16) - 1, f) : 0;
  if (f) fclose(f);
  if (s) s[*n] = 0;
  return s;
}

static bool in_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '_';
}

/* Copies the text with one mutation at a word. */
static void mutate(Dice *d, const char *s, size_t n, Text *out) {
  static const char *const instead[] = {
      "nil",
      "-1",
      "0",
      "1e18",
      "{}",
      "'x'",
      "(0/0)",
      "math.mininteger",
      "function() end",
      "setmetatable({}, { __index = function() return 3 end })",
      "pairs{a=1}",
      "weft",
      "_ENV",
      "string.rep",
      "64",
      "3",
      ""};
  size_t at = n ? (size_t)roll(d) % n : 0, end;
  while (at < n && !in_word(s[at])) at++;
  while (at > 0 && in_word(s[at - 1])) at--;
  for (end = at; end < n && in_word(s[end]);) end++;
  text_addn(out, s, at);
  switch (below(d, 6)) {
  case 0:
    text_addn(out, s + at, end - at);
    text_addn(out, s + at, end - at);
    break;
  case 1: end = MIN(n, end + (size_t)below(d, 12)); break;
  case 2: text_printf(out, "%c", below(d, 256)); break;
  default: text_add(out, PICK(d, instead));
  }
  text_addn(out, s + end, n - end);
}

static void mutated(Dice *d) {
  size_t n;
  char *s = slurp(PICK(d, sources), &n);
  Text a = {0}, b = {0};
  text_addn(&a, s, n);
  for (int i = below(d, 4); i >= 0; i--) {
    mutate(d, a.s, a.n, &b);
    Text was = a;
    a = b, b = was;
    b.n = 0;
  }
  text_addn(d->out, a.s, a.n);
  text_free(&a);
  text_free(&b);
  free(s);
}

void strange_plan(uint64_t seed, uint64_t number, Text *out) {
  Dice d = {.state = seed * 0x9e3779b97f4a7c15u ^ number * 0xd1342543de82ef95u,
            .out = out};
  roll(&d);
  if (below(&d, 4))
    generated(&d);
  else
    mutated(&d);
}
