/* import.c - weft import: takes settings of another system, gives a plan and says what
 * became of each setting. */
#include "convert.h"

int verb_import(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "import/import", plan_facts_provide);
}
