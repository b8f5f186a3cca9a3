/* library_variables.c - what the environment of a process sets of NCCL, as a fact: ranks
 * with another algorithm or protocol wait for each other for ever. */
#include <stdlib.h>

#include "run_int.h"

/* How a machine reaches the others, and what it tells of it, may be its own. */
static bool is_of_machine(const char *variable) {
  static const char *const own[] = {
      "SOCKET_", "IB_",      "HOSTID",   "DEBUG", "TOPO_",      "CONF_FILE",
      "GRAPH_",  "NET_GDR_", "OOB_NET_", "RAS_",  "MNNVL_UUID", "MNNVL_CLIQUE_ID"};
  for (int i = 0; i < LEN(own); i++)
    if (strncmp(variable + 5, own[i], strlen(own[i])) == 0) return true;
  return false;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void nccl_variables(char *const *environment, Text *out) {
  enum { MOST = 256 };
  const char *set[MOST];
  int n = 0;
  for (char *const *v = environment; *v && n < MOST; v++)
    if (strncmp(*v, "NCCL_", 5) == 0 && !is_of_machine(*v)) set[n++] = *v;
  qsort(set, (size_t)n, sizeof *set, by_name);
  for (int i = 0; i < n; i++) text_printf(out, "%s%s", i ? " " : "", set[i]);
  if (!n) text_add(out, "none");
}
