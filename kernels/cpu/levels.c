/* levels.c - the instruction set of this CPU, limited by WEFT_CPU. */
#include "levels.h"

#include <stdlib.h>

#define LEVEL(name, has, set, bf16, onednn) extern const CpuSet cpu_set_##set;
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
  while (best + 1 < CPU_LEVELS && has_level[best + 1]) best++;
  return (CpuLevel)best;
}

weft_status cpu_level(CpuLevel *out, weft_error *e) {
  const char *asked = getenv("WEFT_CPU");
  *out = cpu_best();
  if (!asked || !*asked) return WEFT_OK;
  for (int i = 0; i <= (int)*out; i++)
    if (strcmp(asked, levels[i].name) == 0) {
      *out = (CpuLevel)i;
      return WEFT_OK;
    }
  char names[128];
  TextBuf t = textbuf(names, sizeof names);
  for (int i = 0; i <= (int)*out; i++)
    textbuf_printf(&t, "%s%s", i ? ", " : "", levels[i].name);
  return err_set(e, WEFT_EUSAGE, "WEFT_CPU = \"%s\": this CPU supports the levels %s",
                 asked, names);
}

const char *cpu_level_name(CpuLevel l) { return levels[l].name; }

bool cpu_level_bf16(CpuLevel l) { return levels[l].bf16; }

const CpuSet *cpu_set_of(CpuLevel l) { return levels[l].set; }

const CpuSet *cpu_set_here(void) {
  CpuLevel l;
  (void)cpu_level(&l, NULL); /* a wrong WEFT_CPU is reported when a device is opened */
  return levels[l].set;
}
