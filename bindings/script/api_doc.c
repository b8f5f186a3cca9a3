/* api_doc.c - api_doc.def as data, as the tables of docs/scripting.md, and as LuaCATS
 * annotations for editors. */
#include "api_doc.h"

#include "bindings/schema/schema.h"

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

/* A function of `weft` takes the fields of the scope of its name, and returns the object
 * of its name, if there are such. */
static void add_function(const ApiDoc *d, Text *out) {
  bool of_weft = strcmp(d->object, "weft") == 0;
  bool fields = of_weft && schema_has_scope(d->name);
  bool object = of_weft && api_doc_names(d->name, &(const char *){NULL}, 1) > 0;
  text_printf(out, "\n---%s\n---`%s`\n", d->doc, d->form);
  if (fields) text_printf(out, "---@param options? weft.%s|any\n", d->name);
  text_printf(out, "---@return %s%s\n", object ? "weft.object." : "any",
              object ? d->name : "");
  text_printf(out, "function %s%c%s(%s) end\n", d->object,
              api_doc_is_method(d) ? ':' : '.', d->name, fields ? "options" : "...");
}

/* What is called has a parenthesis, a brace or a string behind its name. */
static bool is_called(const ApiDoc *d) {
  const char *end = strstr(d->form, d->name);
  return end && strcspn(end, "({\"[") < strlen(end);
}

void api_doc_stub(Text *out) {
  const char *object = "";
  text_add(out, "---@meta weft\n");
  schema_stub(out);
  for (const ApiDoc *d = api_doc; d->object; d++) {
    if (strcmp(object, d->object) != 0)
      text_printf(out, "\n---@class weft.object.%s\nlocal %s = {}\n", d->object,
                  d->object);
    object = d->object;
    if (is_called(d))
      add_function(d, out);
    else
      text_printf(out, "\n---%s\n---@type any\n%s.%s = nil\n", d->doc, d->object,
                  d->name);
  }
  text_add(out, "\nreturn weft\n");
}
