/* chat_options.h - --template and --option, of verbs that write or continue
 * conversations. Functions that take a lua_State are called in a state of the sandbox,
 * and may raise. */
#ifndef WEFT_CLI_CHAT_OPTIONS_H
#define WEFT_CLI_CHAT_OPTIONS_H

#include "cli.h"

/* Whether more than this end is there. `s` may be NULL. */
bool ends_in(const char *s, const char *end);
/* Whether --template names a Lua file. */
bool chat_template_file(const Cli *cli);
/* A state for the template, in which its file is evaluated if it is one. `o` outlives it.
 */
weft_status chat_state_open(const Cli *cli, Arena *a, LangOptions *o, LangState **out,
                            weft_error *e);
/* Sets `template`, if one is named, and `options` of the spec on top of the stack, whose
 * own options stay where the command line has none of that name. */
void chat_options_set(lua_State *L, const Cli *cli);

#endif
