/* chat_modules.h - the modules that a template asks for when it is called, which are not
 * known before. */
#ifndef WEFT_CHAT_MODULES_H
#define WEFT_CHAT_MODULES_H

#include "bindings/sandbox/sandbox.h"

/* What require has given so far; chat_modules_end forgets what it gives from here on, so
 * that each data set is written by templates that find the same. */
weft_status chat_modules_begin(LangState *s, int *before, weft_error *e);
void chat_modules_end(LangState *s, int *before);
/* *out: the modules loaded since, as in ChatCounts; lies in the arena. */
weft_status chat_modules_since(LangState *s, int before, Arena *a, const char **out,
                               weft_error *e);
/* *out: the same modules with the texts that they have now. */
weft_status chat_modules_now(LangState *s, const char *modules, Arena *a,
                             const char **out, weft_error *e);

#endif
