/* verb_export.c - weft export: a plan as settings of another system. Weights are exported
 * by weft ckpt export. */
#include "convert.h"

static void provide(lua_State *L) {
  plan_facts_provide(L);
  scratch_files_provide(L);
}

int verb_export(Cli *cli, Arena *arena) {
  return convert_run(cli, "export/export", provide);
}
