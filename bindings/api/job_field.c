/* job_field.c - an error of a file that a plan names says which field names it, and where
 * that stands: "a.txt: error: no file matches (plan.data, plan.lua:9)"; in front of a
 * list. */
#include "job.h"

/* Whether the file of an error is this one, or in it. */
static bool is_within(const weft_error *e, const char *path) {
  size_t n = path ? strlen(path) : 0;
  const char *name = n ? strstr(e->file, path) : NULL;
  return name && (!name[n] || name[n] == '/');
}

/* Files of adapters and of a teacher are opened with those of the model. */
static const char *field_of(const Plan *p, const char *field, const weft_error *e) {
  if (!str_eq(field, "model")) return field;
  if (is_within(e, p->adapter.from)) return "adapter.from";
  if (is_within(e, p->loss.teacher)) return "loss";
  return field;
}

weft_status job_of_field(Job *j, weft_status st, const char *field, weft_error *e) {
  if (st != WEFT_EFILE || !e || !*e->file) return st;
  Diags d = {.arena = j->arena};
  const char *name = field_of(&j->plan, field, e), *place = "";
  diag_error(&d, "file", name, "%s", e->text);
  lang_locate(j->lp, &d);
  const Diag *g = &d.list.at[0];
  if (g->file && g->line)
    place = arena_printf(j->arena, ", %s:%d", g->file, g->line);
  else if (g->file)
    place = arena_printf(j->arena, ", %s", g->file);
  const char *list = strstr(e->text, ":\n");
  const char *text = arena_printf(j->arena, "%.*s (plan.%s%s)%s",
                                  list ? (int)(list - e->text) : (int)sizeof e->text,
                                  e->text, name, place, list ? list : "");
  size_t n = strlen(text);
  if (n < sizeof e->text) memcpy(e->text, text, n + 1);
  return st;
}
