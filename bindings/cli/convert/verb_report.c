/* verb_report.c - weft report: whether a plan, or settings of another system, fit. */
#include "convert.h"

int verb_report(Cli *cli, Arena *arena) {
  return convert_run(cli, "fits/fits", plan_facts_provide);
}
