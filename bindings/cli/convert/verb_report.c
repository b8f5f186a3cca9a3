/* verb_report.c - weft report: whether a plan, or settings of another system, fit; on the
 * terminal, and with --html as a page. */
#include "convert.h"

static void provide(lua_State *L) {
  plan_facts_provide(L);
  plan_picture_provide(L);
}

int verb_report(Cli *cli, Arena *arena) {
  return convert_run(cli, arena, "fits/fits", provide);
}
