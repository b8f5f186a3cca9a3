/* verb_export.c - weft export: a plan as settings of another system. Weights are exported
 * by weft ckpt export. */
#include "convert.h"

int verb_export(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "export/export", plan_facts_provide);
}
