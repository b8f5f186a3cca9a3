/* api_doc.h - one line for each function of scripts: used by help(), completion,
 * suggestions and docs. */
#ifndef WEFT_API_DOC_H
#define WEFT_API_DOC_H

#include "vm/base/base.h"

typedef struct ApiDoc {
  /* "weft", or the type name after "weft." in __name: "plan", "mesh" */
  const char *object;
  const char *name;
  /* how it is written: "plan:with{ field = value }"; for a field, its name */
  const char *form;
  const char *doc;
} ApiDoc;

extern const ApiDoc api_doc[]; /* not sorted; ends with a NULL object */
const ApiDoc *api_doc_find(const char *object, const char *name);
/* A method is called with a colon, a field is read. */
bool api_doc_is_method(const ApiDoc *d);
/* The names of an object, for suggestions; returns how many were written to `room`. */
int api_doc_names(const char *object, const char **names, int room);
/* The tables of docs/scripting.md. */
void api_doc_markdown(Text *out);
/* ---- schema_stub.c ---- */
/* The fields of a plan, as LuaCATS classes. */
void schema_stub(Text *out);

/* All that a plan can say and call, as a file of LuaCATS annotations. */
void api_doc_stub(Text *out);

#endif
