/* convert.h - verbs that are written in Lua: a file of the library is a function of the
 * command line, and says what is to be printed and written. */
#ifndef WEFT_CONVERT_H
#define WEFT_CONVERT_H

#include <lua.h>

#include "bindings/cli/cli.h"

/* Calls stdlib/NAME.lua with the command line, as a table:
 *
 *   file, folder      the first argument, and whether it is a folder
 *   words, set        the others; --set
 *   define, model, world, gpu, to, output, html
 *
 * `provide`, which may be NULL, gives the library what the file needs beside `shown`,
 * `read_settings` and `weft`. The file returns a table:
 *
 *   ok        false: exit code 1, and nothing is written
 *   document  what is made, for -o or the standard output; nil: nothing
 *   files     instead, a list of { name =, text = } for the folder -o
 *   text      what is said; aside: on the standard error
 *   json      what --json prints in the place of both; nil: the frame of other verbs
 *   errors    then a list of diagnostics for it
 *   page      what is written to --html, also if it is not ok
 *   interrupted   it was cut short by Ctrl-C, and this is what there was
 *
 * An error that it raises is that of a file. With --json a verb that fails before there
 * is an object prints the frame of other verbs, with the diagnostics. Returns the exit
 * code. */
int convert_run(Cli *cli, Arena *arena, const char *name, void (*provide)(lua_State *L));

/* ---- plan_picture.c ---- */
/* Provides plan_picture(plan, whether by the clock): the timeline of its schedule as an
 * element of a page, in units of time or, by the clock, in seconds. */
void plan_picture_provide(lua_State *L);

/* ---- plan_facts.c ---- */
/* Provides plan_facts(plan), what weft check says of a plan object beside its memory;
 * plan_fields(plan), what its fields come to; plan_of_text(name, text); plan_draft, a
 * plan whose layout need not be right, and plan_asks(plan), what it asks for. */
void plan_facts_provide(lua_State *L);

#endif
