/* api_doc.c - api_doc.def as data and as the tables of docs/scripting.md. */
#include "api_doc.h"

const ApiDoc api_doc[] = {
#define DOC(object, name, form, doc) {object, name, form, doc},
#include "api_doc.def"
    {NULL, NULL, NULL, NULL}};

const ApiDoc *api_doc_find(const char *object, const char *name) {
  for (const ApiDoc *d = api_doc; d->object; d++)
    if (strcmp(d->object, object) == 0 && strcmp(d->name, name) == 0) return d;
  return NULL;
}

bool api_doc_is_method(const ApiDoc *d) { return strchr(d->form, ':') != NULL; }

int api_doc_names(const char *object, const char **names, int room) {
  int n = 0;
  for (const ApiDoc *d = api_doc; d->object && n < room; d++)
    if (strcmp(d->object, object) == 0) names[n++] = d->name;
  return n;
}

void api_doc_markdown(Text *out) {
  const char *object = "";
  for (const ApiDoc *d = api_doc; d->object; d++) {
    if (strcmp(object, d->object) != 0)
      text_printf(out, "\n## %s\n\n| form | meaning |\n| --- | --- |\n", d->object);
    object = d->object;
    text_printf(out, "| `%s` | %s |\n", d->form, d->doc);
  }
}
