/* syntax_hint.c - what is usually meant where Lua's parser stops: by words of its
 * message, which name the token. */
#include "sandbox.h"

const char *syntax_hint(const char *msg) {
  static const struct {
    const char *words, *hint;
  } hints[] = {
      {"syntax error near 'weft'", "write local weft = require \"weft\""},
      {"function arguments expected", "a field is written NAME = VALUE"},
      {"')' expected near '='", "a table is written { NAME = VALUE }"},
      {"symbol near '='", "a field is written NAME = VALUE"},
      {"near '='", "the name of a field stands alone, without quotes"},
      {"near ':'", "a field is written NAME = VALUE"},
      {"near '['", "lists and tables are written { ... }"},
      {"near ')'", "a table ends with }"},
      {"near '#'", "a comment begins with --"},
      {"near '//'", "a comment begins with --"},
      {"near '/'", "a comment begins with --"},
      {"near '?'", "a choice is written CONDITION and A or B"},
      {"near 'if'", "a choice is written CONDITION and A or B"},
      {"near '!'", "it is written not, and unequal ~="},
      {"near 'local'", "local variables are declared before \"return weft.plan\""},
      {"symbol near ','", "one comma stands between two fields"},
      {"symbol near ';'", "one comma stands between two fields"},
      {"<eof> expected", "a bracket was closed too early, or once too often"},
      {"near <eof>", "a bracket, a string or a function was opened and not closed"},
      {"unfinished string", "a string ends with the quote with which it began"},
      {"'}' expected", "a comma, a quote or a bracket is missing before it"},
  };
  for (int i = 0; i < LEN(hints); i++)
    if (strstr(msg, hints[i].words)) return hints[i].hint;
  return NULL;
}

const char *settings_hint(Arena *a, const char *file) {
  static const char *const endings[] = {".yaml", ".yml", ".json", ".toml",  ".conf",
                                        ".py",   ".sh",  ".bash", ".slurm", ".sbatch"};
  const char *end = strrchr(file, '.');
  for (int i = 0; end && i < LEN(endings); i++)
    if (strcmp(end, endings[i]) == 0)
      return arena_printf(
          a,
          "a plan is Lua; of settings, weft import %s makes one, and weft "
          "report %s says whether they fit",
          file, file);
  return NULL;
}
