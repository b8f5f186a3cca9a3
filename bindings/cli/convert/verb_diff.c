/* verb_diff.c - weft diff: how two plans differ. */
#include "convert.h"

int verb_diff(Cli *cli, Arena *arena) {
  if (cli->narg == 2) return convert_run(cli, arena, "fits/diff", plan_facts_provide);
  weft_error e = NO_ERROR;
  err_set(&e, WEFT_EUSAGE, "diff takes two plans: weft diff %s", cli->verb->args);
  return verb_fails(cli, arena, &e);
}
