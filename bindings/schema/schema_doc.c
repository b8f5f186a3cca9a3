/* schema_doc.c - the tables of docs/plan.md, made from schema.def. */
#include "schema.h"

#include <math.h>

static const char *const type_name[] = {
    [FIELD_TEXT] = "text",     [FIELD_INT] = "integer",
    [FIELD_NUM] = "number",    [FIELD_BOOL] = "true, false",
    [FIELD_NAME] = "name",     [FIELD_NAMED] = "name or { name, options }",
    [FIELD_BUILT] = "builder", [FIELD_TABLE] = "table",
    [FIELD_ALIAS] = "alias",   [FIELD_RANGE] = "number or range",
    [FIELD_OWN] = "",          [FIELD_NOOP] = "no effect",
    [FIELD_REFUSED] = "error",
};

static void add_number(Text *out, double v) {
  if (fabs(v) >= 1e6 || (v != 0 && fabs(v) < 1e-3))
    text_printf(out, "%g", v);
  else
    text_printf(out, "%.10g", v);
}

static void add_range(const Field *f, Text *out) {
  bool number = f->type == FIELD_INT || f->type == FIELD_NUM;
  if (!number) return;
  text_add(out, ", ");
  add_number(out, f->lo);
  text_add(out, " to ");
  add_number(out, f->hi);
}

/* Names built and, after the bar, known for later; aliases as alias=name. */
static void add_names(const Field *f, Text *out) {
  text_add(out, ": ");
  for (const char *p = f->names; *p; p++)
    text_addn(out, *p == '|' ? "- later:" : p, *p == '|' ? 8 : 1);
}

void schema_default(const Field *f, Text *out) {
  if (schema_required(f))
    text_add(out, "required");
  else if (isnan(f->def))
    text_add(out, "-");
  else if (f->type == FIELD_BOOL)
    text_add(out, f->def != 0 ? "true" : "false");
  else if (f->type == FIELD_INT && f->def == 0 && f->lo > 0)
    text_add(out, "-");
  else
    add_number(out, f->def);
}

void schema_form(const Field *f, Text *out) {
  text_add(out, f->type == FIELD_OWN ? f->form : type_name[f->type]);
  add_range(f, out);
  if (f->type == FIELD_NOOP)
    text_printf(out, "; %s", f->names);
  else if (f->names && f->type != FIELD_TABLE && f->type != FIELD_OWN)
    add_names(f, out);
}

static void add_row(const Field *f, Text *out) {
  text_printf(out, "| `%s` | ", f->key);
  if (f->type == FIELD_ALIAS) {
    text_printf(out, "alias | - | the same as `%s` |\n", f->names);
    return;
  }
  schema_form(f, out);
  text_add(out, " | ");
  schema_default(f, out);
  text_add(out, " | ");
  for (const char *p = f->doc; *p; p++) {
    if (*p == '|') text_add(out, "\\"); /* it would end the cell */
    text_addn(out, p, 1);
  }
  text_add(out, " |\n");
}

void schema_markdown(Text *out) {
  const char *scope = NULL;
  for (const Field *f = schema; f->scope; f++) {
    if (!scope || strcmp(scope, f->scope) != 0) {
      scope = f->scope;
      text_printf(out,
                  "\n## %s\n\n| field | form | default | meaning |\n"
                  "| --- | --- | --- | --- |\n",
                  scope);
    }
    add_row(f, out);
  }
}
