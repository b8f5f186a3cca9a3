/* packed_modules.c - see packed_modules.h. */
#include "packed_modules.h"

#include <stdio.h>
#include <string.h>

#include "vm/base/base.h"

static const PackedModule modules[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"in_proj", {"z_proj", "x_proj", "B_proj", "C_proj", "dt_proj"}},
    {"conv1d", {"x_conv", "B_conv", "C_conv"}},
};

static bool is_listed(const char *const *names, const char *name) {
  while (*names && strcmp(*names, name) != 0) names++;
  return *names != NULL;
}

/* Where `module` is as a whole word between dots, or -1. */
static int word_at(const char *name, const char *module) {
  size_t n = strlen(module);
  for (const char *s = name; (s = strstr(s, module)); s++)
    if ((s == name || s[-1] == '.') && (s[n] == '.' || s[n] == '\0'))
      return (int)(s - name);
  return -1;
}

bool packed_find(const char *name, const char *const *listed, PackedName *found) {
  for (int i = 0; i < LEN(modules); i++)
    for (int k = 0; k < PACKED_PARTS && modules[i].part[k]; k++) {
      int at = word_at(name, modules[i].part[k]);
      if (at < 0 || (listed && !is_listed(listed, modules[i].whole))) continue;
      *found = (PackedName){&modules[i], k, at};
      return true;
    }
  return false;
}

void packed_rename(const char *name, const PackedName *found, const char *module,
                   char out[PACKED_NAME]) {
  const char *rest = name + found->begin + strlen(found->of->part[found->part]);
  snprintf(out, PACKED_NAME, "%.*s%s%s", found->begin, name, module, rest);
}
