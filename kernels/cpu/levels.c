/* levels.c - the instruction set of this CPU, limited by WEFT_CPU and by the sets of
 * kernels that are linked: all, or one alone (WEFT_KERNELS of CMakeLists.txt). */
#include "levels.h"

#include <stdlib.h>

#define LEVEL(name, has, set, bf16, onednn)                                              \
  extern const CpuSet cpu_set_##set __attribute__((weak));
#include "levels.def"

static const struct {
  const char *name;
  const CpuSet *set;
  bool bf16;
} levels[CPU_LEVELS] = {
#define LEVEL(name, has, set, bf16, onednn) {#name, &cpu_set_##set, bf16},
#include "levels.def"
};

CpuLevel cpu_best(void) {
  const bool has_level[CPU_LEVELS] = {
#define LEVEL(name, has, set, bf16, onednn) has,
#include "levels.def"
  };
  int best = CPU_plain;
  for (int i = 0; i < CPU_LEVELS && has_level[i]; i++)
    if (levels[i].set) best = i;
  return (CpuLevel)best;
}

/* Of those that are linked the first one. */
static const CpuSet *linked(void) {
  int i = 0;
  while (i < CPU_LEVELS - 1 && !levels[i].set) i++;
  return levels[i].set;
}

static bool all_linked(void) {
  for (int i = 0; i < CPU_LEVELS; i++)
    if (!levels[i].set) return false;
  return true;
}

weft_status cpu_level(CpuLevel *out, weft_error *e) {
  const char *asked = getenv("WEFT_CPU");
  *out = cpu_best();
  if (!levels[*out].set)
    return err_set(
        e, WEFT_EUSAGE,
        "this program was built for another kind of CPU alone (%s): ./dev build "
        "makes one for all",
        linked()->name);
  if (!asked || !*asked) return WEFT_OK;
  for (int i = 0; i <= (int)*out; i++)
    if (levels[i].set && strcmp(asked, levels[i].name) == 0) {
      *out = (CpuLevel)i;
      return WEFT_OK;
    }
  char names[128] = "";
  TextBuf t = textbuf(names, sizeof names);
  for (int i = 0; i <= (int)*out; i++)
    if (levels[i].set) textbuf_printf(&t, "%s%s", *names ? ", " : "", levels[i].name);
  return err_set(e, WEFT_EUSAGE, "WEFT_CPU = \"%s\": this CPU supports the levels %s%s",
                 asked, names,
                 all_linked() ? "" : ", of those that this program was built for");
}

const char *cpu_level_name(CpuLevel l) { return levels[l].name; }

bool cpu_level_bf16(CpuLevel l) { return levels[l].bf16; }

const CpuSet *cpu_set_of(CpuLevel l) { return levels[l].set; }

const CpuSet *cpu_set_here(void) {
  CpuLevel l;
  (void)cpu_level(&l, NULL); /* a wrong one is reported when a device is opened */
  return levels[l].set ? levels[l].set : linked();
}
