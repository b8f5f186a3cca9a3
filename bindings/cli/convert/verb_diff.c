/* verb_diff.c - weft diff: how two plans differ. */
#include "convert.h"

int verb_diff(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "fits/diff", plan_facts_provide);
}
