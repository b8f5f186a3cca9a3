/* api_doc.h - one line for each function of scripts: help(), completion, suggestions,
 * docs. */
#ifndef WEFT_API_DOC_H
#define WEFT_API_DOC_H

#include "vm/base/base.h"

typedef struct ApiDoc {
  const char *object; /* "weft", or the name in __name after "weft.": "plan", "mesh" */
  const char *name;
  const char
      *form; /* as one writes it: "plan:with{ field = value }"; a field: its name */
  const char *doc;
} ApiDoc;

extern const ApiDoc api_doc[]; /* ends with a NULL object; sorted by nothing */
const ApiDoc *api_doc_find(const char *object, const char *name);
/* A method is called with a colon, a field is read. */
bool api_doc_is_method(const ApiDoc *d);
/* Names of an object, for suggestions; returns how many of `room` were filled. */
int api_doc_names(const char *object, const char **names, int room);
/* The tables of docs/scripting.md. */
void api_doc_markdown(Text *out);

#endif
