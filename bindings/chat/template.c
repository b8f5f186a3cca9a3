/* template.c - calls the template of a data set for each row. It runs in the sandbox of a
 * plan, like schedules and models; all of it but these calls is in stdlib/chat. */
#include "chat.h"

#include <stdio.h>

/* ---- text and ranges ---- */

void chat_text_free(ChatText *t) {
  text_free(&t->text);
  mem_free(NULL, t->learnt, t->cap * sizeof *t->learnt);
  *t = (ChatText){0};
}

/* Adds a piece; ranges that touch are one. False without memory. */
static bool add_piece(ChatText *t, const char *s, size_t n, bool learn) {
  size_t from = t->text.n;
  text_addn(&t->text, s, n);
  if (!learn || n == 0 || t->text.oom) return !t->text.oom;
  if (t->n && t->learnt[t->n - 1].to == from) {
    t->learnt[t->n - 1].to = from + n;
    return true;
  }
  if (t->n == t->cap) {
    size_t cap = t->cap ? 2 * t->cap : 16, size = sizeof *t->learnt;
    ChatRange *at = mem_resize(NULL, t->learnt, t->cap * size, cap * size);
    if (!at) return false;
    t->learnt = at;
    t->cap = cap;
  }
  t->learnt[t->n++] = (ChatRange){from, from + n};
  return true;
}

/* ---- calls ---- */

typedef struct Call {
  const ChatTemplate *t;
  const json_t *row;
  int answer;
  ChatText *out;
  bool oom;
} Call;

/* The pieces are checked by stdlib/chat/chat.lua. */
static int take_pieces(lua_State *L, Call *c) {
  lua_getfield(L, -1, "begins");
  c->out->begins = lua_toboolean(L, -1);
  lua_getfield(L, -2, "unreasoned");
  c->out->unreasoned = lua_tointeger(L, -1);
  lua_pop(L, 2);
  for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
    size_t n;
    lua_rawgeti(L, -1, 1);
    lua_getfield(L, -2, "learn");
    const char *s = lua_tolstring(L, -2, &n);
    c->oom = !add_piece(c->out, s, n, lua_toboolean(L, -1));
    if (c->oom) return luaL_error(L, "out of memory");
    lua_pop(L, 3);
  }
  return 0;
}

static int render(lua_State *L) {
  Call *c = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, c->t->call);
  json_push_ordered(L, c->row);
  lua_pushinteger(L, c->answer + 1);
  lua_call(L, 2, 1);
  return take_pieces(L, c);
}

/* The last diagnostic as an error; it names the place if that is not in the library. */
static weft_status why(const Diags *d, weft_error *e) {
  const Diag *g = &d->list.at[d->list.n - 1];
  if (g->file && g->line && strncmp(g->file, "stdlib/", 7) != 0)
    return err_set(e, WEFT_EPLAN, "%s (%s:%d)", g->summary, g->file, g->line);
  return err_set(e, WEFT_EPLAN, "%s", g->summary);
}

/* Calls the function below its argument, with one result at most. */
static weft_status call(LangState *s, int results, weft_error *e) {
  Arena *a = arena_new(NULL);
  if (!a) return err_set(e, WEFT_ENOMEM, "out of memory");
  Diags d = {.arena = a};
  s->file[0] = 0;
  s->line = 0;
  weft_status st = setjmp(*arena_guard(a)) ? err_set(e, WEFT_ENOMEM, "out of memory")
                                           : state_call(s, 1, results, "", &d, e);
  if (st == WEFT_EPLAN && d.list.n) why(&d, e);
  arena_free(a);
  return st;
}

weft_status chat_render(const ChatTemplate *t, const json_t *row, int answer,
                        ChatText *out, weft_error *e) {
  Call c = {t, row, answer, out, false};
  out->text.n = out->n = 0;
  lua_pushcfunction(t->state->L, render);
  lua_pushlightuserdata(t->state->L, &c);
  weft_status st = call(t->state, 0, e);
  return c.oom ? err_set(e, WEFT_ENOMEM, "out of memory") : st;
}

/* ---- conversations that go on ---- */

typedef struct Talk {
  const ChatTemplate *t;
  const char *verb, *s;
  size_t n;
  Text *out;
} Talk;

static int talk(lua_State *L) {
  const Talk *k = lua_touserdata(L, 1);
  size_t n;
  lua_rawgeti(L, LUA_REGISTRYINDEX, k->t->call);
  lua_pushstring(L, k->verb);
  lua_pushlstring(L, k->s, k->n);
  lua_call(L, 2, 1);
  const char *s = lua_tolstring(L, -1, &n);
  text_addn(k->out, s, n);
  return 0;
}

weft_status chat_talk(const ChatTemplate *t, const char *verb, const char *s, size_t n,
                      Text *out, weft_error *e) {
  Talk k = {t, verb, s, n, out};
  out->n = 0;
  lua_pushcfunction(t->state->L, talk);
  lua_pushlightuserdata(t->state->L, &k);
  TRY(call(t->state, 0, e));
  return out->oom ? err_set(e, WEFT_ENOMEM, "out of memory") : WEFT_OK;
}

/* ---- begin and end ---- */

/* options.special(text): the special token that is in it, or nil. Upvalue: the tokenizer.
 */
static int special_in(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  lua_pushstring(L, tokenizer_special_in(lua_touserdata(L, lua_upvalueindex(1)), s, n));
  return 1;
}

typedef struct Opening {
  const ChatOpen *o;
  ChatTemplate *to;
} Opening;

static int open_spec(lua_State *L) {
  const Opening *opening = lua_touserdata(L, 1);
  const ChatOpen *o = opening->o;
  lua_settop(L, 0);
  o->push_spec(L, o->ud);
  lua_getfield(L, 1, "options");
  lua_pushcfunction(L, json_from_text);
  lua_setfield(L, 2, "json");
  if (o->refuse) {
    lua_pushlightuserdata(L, (void *)o->refuse);
    lua_pushcclosure(L, special_in, 1);
    lua_setfield(L, 2, "special");
  }
  lua_settop(L, 1);
  tokenizer_config_apply(L, o->config);
  lua_getfield(L, 1, "format");
  bool pairs = str_eq(lua_tostring(L, -1), "preference");
  opening->to->answers = pairs ? 2 : 1;
  lua_settop(L, 1);
  stdlib_push(L, o->talks ? "chat/talk" : "chat/chat");
  lua_getfield(L, -1, "open");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

weft_status chat_template_open(LangState *s, const ChatOpen *o, ChatTemplate *out,
                               weft_error *e) {
  *out = (ChatTemplate){.state = s, .call = LUA_NOREF};
  Opening opening = {o, out};
  lua_pushcfunction(s->L, open_spec);
  lua_pushlightuserdata(s->L, &opening);
  weft_status st = call(s, 1, e);
  if (st == WEFT_OK) out->call = luaL_ref(s->L, LUA_REGISTRYINDEX);
  if (st != WEFT_OK && e && !*e->file) snprintf(e->file, sizeof e->file, "%s", o->path);
  return st;
}

void chat_template_close(ChatTemplate *t) {
  if (t->state) luaL_unref(t->state->L, LUA_REGISTRYINDEX, t->call);
  *t = (ChatTemplate){0};
}
