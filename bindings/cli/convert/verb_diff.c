/* verb_diff.c - weft diff: how two plans differ. */
#include "convert.h"

int verb_diff(Cli *cli, Arena *arena) {
  if (cli->narg == 2) return convert_run(cli, "fits/diff", plan_facts_provide);
  report_error("diff takes two plans: weft diff %s", cli->verb->args);
  return weft_exit_code(WEFT_EUSAGE);
}
