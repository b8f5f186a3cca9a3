/* report.c - diagnostics as lines of text and as JSON. */
#include "report.h"

#include "vm/base/json.h"
#include "vm/base/terminal.h"
#include "vm/base/plural.h"

/* Whether a suggestion is the right value; if it has several words it is advice. */
static bool is_word(const char *s) { return *s && !strchr(s, ' '); }

/* Adds the name of a file or a key. */
static void add_name(const char *s, Text *out) {
  text_add_shown(out, s, strlen(s), ONE_LINE, true);
}

static void add_place(const Diag *g, Text *out) {
  if (!g->file) return;
  add_name(g->file, out);
  if (g->line) text_printf(out, ":%d", g->line);
  text_add(out, ": ");
}

static void add_message(const Diag *g, Text *out) {
  if (*g->path) {
    text_add(out, *g->path == '[' ? "plan" : "plan.");
    add_name(g->path, out);
    text_add(out, ": ");
  }
  text_add(out, g->summary);
  if (!g->suggestion) return;
  bool word = is_word(g->suggestion);
  text_add(out, word ? " (did you mean \"" : " (");
  add_name(g->suggestion, out);
  text_add(out, word ? "\"?)" : ")");
}

static void add_diag(const Diag *g, unsigned how, Text *out) {
  bool colour = how & REPORT_COLOUR, error = g->severity == DIAG_ERROR;
  add_place(g, out);
  if (colour) text_add(out, error ? "\033[1;31m" : "\033[1;35m");
  text_add(out, error ? "error" : "warning");
  if (colour) text_add(out, "\033[0m");
  text_add(out, ": ");
  add_message(g, out);
  if (how & REPORT_CODES)
    text_printf(out, colour ? " \033[2m[%s]\033[0m" : " [%s]", g->code);
  text_add(out, "\n");
}

void report_text(const Diags *d, unsigned how, Text *out) {
  for (int i = 0; i < d->list.n; i++) add_diag(&d->list.at[i], how, out);
  if (d->errors) text_printf(out, "%d error%s", d->errors, plural(d->errors, "s"));
  if (d->warnings)
    text_printf(out, "%s%d warning%s", d->errors ? ", " : "", d->warnings,
                plural(d->warnings, "s"));
  if (d->list.n) text_add(out, "\n");
}

weft_status report_first(const Diags *d, weft_error *e) {
  Text t = {.alloc = arena_allocator(d->arena)};
  int i = 0;
  while (i < d->list.n && d->list.at[i].severity != DIAG_ERROR) i++;
  assert(i < d->list.n);
  const Diag *g = &d->list.at[i];
  add_message(g, &t);
  if (d->errors > 1) text_printf(&t, " (the first of %d errors)", d->errors);
  weft_status st = t.oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                         : err_file(e, WEFT_EPLAN, g->file, g->line, "%s", t.s);
  text_free(&t);
  return st;
}

void report_codes_markdown(Text *out) {
  int n;
  const DiagCode *code = diag_codes(&n);
  text_add(out, "\n| code | is | what it means, and what to do |\n| --- | --- | --- |\n");
  for (int i = 0; i < n; i++) {
    text_printf(out, "| `%s` | %s | ", code[i].name, code[i].summary);
    for (const char *s = code[i].text; *s; s++)
      text_printf(out, *s == '|' ? "\\%c" : "%c", *s == '\n' ? ' ' : *s);
    text_add(out, " |\n");
  }
}

static void json_diag(const Diag *g, Json *j) {
  json_open(j, NULL, '{');
  json_str(j, "code", g->code);
  json_str(j, "path", g->path);
  if (g->file) {
    json_open(j, "range", '{');
    json_str(j, "filename", g->file);
    json_open(j, "start", '{');
    json_int(j, "column", 1);
    json_int(j, "line", g->line ? g->line : 1);
    json_close(j, '}');
    json_close(j, '}');
  } else {
    json_none(j, "range");
  }
  json_str(j, "severity", g->severity == DIAG_ERROR ? "error" : "warning");
  json_open(j, "suggestions", '[');
  if (g->suggestion) json_str(j, NULL, g->suggestion);
  json_close(j, ']');
  json_str(j, "summary", g->summary);
  json_close(j, '}');
}

void report_json_begin(const Diags *d, const char *command, Json *j) {
  json_open(j, NULL, '{');
  json_str(j, "command", command);
  json_open(j, "diagnostics", '[');
  for (int i = 0; i < d->list.n; i++) json_diag(&d->list.at[i], j);
  json_close(j, ']');
  json_int(j, "error_count", d->errors);
  json_str(j, "format_version", "1.0");
}

void report_json_end(const Diags *d, Json *j) {
  json_bool(j, "valid", d->errors == 0);
  json_int(j, "warning_count", d->warnings);
  json_close(j, '}');
}
