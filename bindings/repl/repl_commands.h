/* repl_commands.h - the commands of the prompt, which begin with a comma: no Lua does. */
#ifndef WEFT_REPL_COMMANDS_H
#define WEFT_REPL_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct Repl;

typedef enum {
  COMMAND_NOTHING,
  COMMAND_FILE,
  COMMAND_SET,
  COMMAND_CODE,
  COMMAND_TOPIC
} CommandTakes;

typedef struct Command {
  const char *name, *form, *doc; /* form: what follows the name, "" for nothing */
  CommandTakes takes;
  bool (*run)(struct Repl *r, const char *arg); /* false: it failed, and said so */
} Command;

extern const Command commands[]; /* ends with a NULL name */
const Command *command_find(const char *name, size_t n);
/* Runs a line that begins with a comma. */
bool command_run(struct Repl *r, const char *line);

#endif
