/* plan_table.h - the table that a plan file returned: the builders that make its parts,
 * access by field paths, the line of each field, and copies of it in other states. */
#ifndef WEFT_PLAN_TABLE_H
#define WEFT_PLAN_TABLE_H

#include "bindings/sandbox/sandbox.h"

/* ---- builders.c ---- */
void builders_push(lua_State *L, const LangOptions *o); /* the table `weft` of plans */
void builders_add(lua_State *L); /* adds the builders to the table on top */
int builders_plan(lua_State *L); /* the function weft.plan of plans */

/* ---- marks.c ---- */
/* Marks the table on top of the stack and pushes its mark. */
void mark_new(lua_State *L, const char *kind);
/* Notes in the mark at an index what is wrong with the call. */
void mark_note_bad(lua_State *L, int mark, const char *bad, const char *hint);
/* Pushes the mark of the table at idx; false, with nothing pushed, if it has none. Never
 * raises; needs three free slots. */
bool mark_push(lua_State *L, int idx);
/* Pops a mark and attaches it to the table at idx. */
void mark_set(lua_State *L, int idx);
/* The kind of builder that made the table at idx ("adamw"), or NULL. */
const char *mark_kind(lua_State *L, int idx);
/* Line and file of the builder's call; 0 if the table has no mark. */
int mark_line(lua_State *L, int idx, const char **file);
/* What was wrong with the call, or NULL; `hint` is its suggestion. */
const char *mark_bad(lua_State *L, int idx, const char **hint);
/* For a merged table: pushes the table that a key (at the top, popped) came from; the
 * table itself if it was not merged. */
void mark_origin(lua_State *L, int idx);
/* True if the key at the top (popped) came from the library, not from the user. */
bool mark_is_default(lua_State *L, int idx);

/* ---- vars.c ---- */
/* Adds weft.var and weft.vars, with the values of -D, to the table on top. */
void vars_add(lua_State *L, const LangOptions *o);
/* An error of usage if a -D was given that the plan has not read. */
weft_status vars_check(LangState *s, weft_error *e);

/* ---- transfer.c ---- */
/* Pushes onto `to` a copy of the value at idx of `from`, a state of the same program.
 *
 * Into a plan (`owner` is 0): tables with metatables and marks, functions with their
 * upvalues and the globals that they name. Out of a plan, whose object is at index
 * `owner` of `to`: data and marks; functions become stand-ins (function_export.h). Errors
 * are raised in `to` only ("WHERE is a userdata, ..."); `from` may then have more values
 * on its stack. */
void transfer(lua_State *from, int idx, lua_State *to, const char *where, int owner);

/* ---- values.c ---- */
/* Pushes t[key] without metamethods, nil if there is no table at t; returns its type.
 * Plans are read with this, so no code of the plan runs while it is checked. */
int field_push(lua_State *L, int t, const char *key);
/* `string "four"`, `number 0`, `a table`, `weft.adamw{...}`: for messages. */
const char *value_describe(Arena *a, lua_State *L, int idx);
/* Pushes the value of a string given to --set or -D: a Lua literal, else the string
 * itself. */
void value_parse(lua_State *L, const char *text);
/* Pushes the function of a chunk that knows no names, which is an error when it is called
 * with one; false: the message of the syntax error. */
bool literal_load(lua_State *L, const char *code, const char *name);
/* The path of key (at index `key`) below `base`. */
const char *path_join(Arena *a, const char *base, lua_State *L, int key);
/* Reads one step of a path and pushes the key; false at the end, *bad if malformed. */
bool path_next(lua_State *L, const char **path, bool *bad);
/* Pushes the table with the last key of `path` in the plan's table (PLAN_INDEX), and the
 * key; creates tables on the way, also of a name that stands for one. False with a reason
 * (a string owned by L) in *why if that is not possible. */
bool value_find(lua_State *L, const char *path, const char **why);
/* Applies "path=value" of --set to the plan's table. */
weft_status value_set(LangState *s, const char *assignment, weft_error *e);

/* ---- field_lines.c ---- */
typedef struct Replay Replay;
Replay *replay_new(Arena *a);
/* StateHost.on_line of the replaying state; `replay` is a Replay. */
void replay_event(lua_State *L, lua_Debug *ar, void *replay);
/* File and line of `path`. The plan's table must be on top of both stacks; `again` (the
 * replaying state) may be NULL. False if nothing on the path has a line. */
bool replay_find(Replay *r, lua_State *again, lua_State *first, const char *path,
                 const char **file, int *line);

#endif
