/* schema_stub.c - the fields of a plan as LuaCATS annotations, of which editors make
 * completion and checks: a class weft.SCOPE for each scope of schema.def. */
#include "api_doc.h"
#include "bindings/schema/schema.h"

/* Adds each name of a row, up to those that are not built, in this form, with bars
 * between; of an alias=name the alias. */
static void add_names(const char *names, const char *form, Text *out) {
  int n = 0;
  for (const char *p = names; *p && *p != '|'; p += *p == ' ') {
    size_t len = strcspn(p, " =|"), all = strcspn(p, " |");
    bool word = (len == 4 && memcmp(p, "true", 4) == 0) ||
                (len == 5 && memcmp(p, "false", 5) == 0);
    if (len > 0 && n++) text_add(out, "|");
    if (len > 0) text_printf(out, word ? "%.*s" : form, (int)len, p);
    p += all;
  }
}
#define WORDS   "\"%.*s\""
#define CLASSES "weft.%.*s"

static void add_type(const Field *f, Text *out) {
  switch (f->type) {
  case FIELD_TEXT: text_add(out, "string"); break;
  case FIELD_INT: text_add(out, "integer"); break;
  case FIELD_NUM: text_add(out, "number"); break;
  case FIELD_BOOL: text_add(out, "boolean"); break;
  case FIELD_NAME: add_names(f->names, WORDS, out); break;
  case FIELD_NAMED:
    add_names(f->names, WORDS, out);
    text_add(out, "|table");
    break;
  case FIELD_TABLE: add_names(f->names, CLASSES, out); break;
  case FIELD_BUILT:
    add_names(f->names, CLASSES, out);
    text_add(out, "|string");
    break;
  default: text_add(out, "any");
  }
}

/* A line of meaning; "@" would begin an annotation. */
static void add_field(const Field *f, Text *out) {
  text_printf(out, "---@field %s%s ", f->key, schema_required(f) ? "" : "?");
  add_type(f, out);
  text_add(out, " ");
  if (f->type == FIELD_OWN) text_printf(out, "(%s) ", f->form);
  for (const char *p = f->doc; *p; p++)
    text_addn(out, *p == '@' ? " at " : p, *p == '@' ? 4 : 1);
  text_add(out, "\n");
}

void schema_stub(Text *out) {
  const char *scope = "";
  for (const Field *f = schema; f->scope; f++) {
    if (f->type == FIELD_REFUSED || f->type == FIELD_ALIAS || f->type == FIELD_NOOP)
      continue;
    if (strcmp(scope, f->scope) != 0) text_printf(out, "\n---@class weft.%s\n", f->scope);
    scope = f->scope;
    add_field(f, out);
  }
}
