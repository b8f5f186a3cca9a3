/* verb_best.c - weft best: the fastest layout of a plan, by a search. */
#include "convert.h"

int verb_best(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "best/verb", plan_facts_provide);
}
