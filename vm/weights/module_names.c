/* module_names.c - see module_names.h. */
#include "module_names.h"

#include <stdio.h>

const char *module_name_in(const char *name, const char *module) {
  size_t n = strlen(module);
  for (const char *at = name; (at = strstr(at, module)); at++)
    if ((at == name || at[-1] == '.') && (!at[n] || at[n] == '.')) return at;
  return NULL;
}

static void replace(char name[512], const char *from, const char *to) {
  char old[512];
  const char *at = module_name_in(name, from);
  if (!at) return;
  int before = (int)(at - name);
  memcpy(old, name, sizeof old);
  snprintf(name, 512, "%.*s%s%s", before, old, to, old + before + strlen(from));
}

void module_to_memory(const ModuleNames *m, const char *name, char out[512]) {
  snprintf(out, 512, "%s", name);
  for (int i = 0; i < m->n; i++) replace(out, m->at[i].files, m->at[i].memory);
}

void module_to_files(const ModuleNames *m, const char *name, char out[512]) {
  snprintf(out, 512, "%s", name);
  for (int i = 0; i < m->n; i++) replace(out, m->at[i].memory, m->at[i].files);
}
