/* verb_explain.c - weft explain: what the codes of diagnostics mean, of vm/base/diag.def.
 */
#include "bindings/cli/cli.h"

static void print_json(const DiagCode *code, int n) {
  Text text = {0};
  Json out = {.out = &text, .pretty = true};
  json_open(&out, NULL, '{');
  json_open(&out, "codes", '[');
  for (int i = 0; i < n; i++) {
    json_open(&out, NULL, '{');
    json_str(&out, "code", code[i].name);
    json_str(&out, "summary", code[i].summary);
    json_str(&out, "text", code[i].text);
    json_close(&out, '}');
  }
  json_close(&out, ']');
  json_close(&out, '}');
  text_add(&text, "\n");
  print_text(stdout, &text);
}

int verb_explain(Cli *cli, Arena *arena) {
  int n;
  const char *name = cli->arg[0];
  const DiagCode *code = cli->narg ? diag_code(name) : diag_codes(&n);
  if (!code) {
    const char *near = diag_code_near(name);
    weft_error e = NO_ERROR;
    err_set(&e, WEFT_EUSAGE, "there is no code \"%s\"%s%s%s", name,
            near ? " (did you mean \"" : "", near ? near : "; weft explain lists them",
            near ? "\"?)" : "");
    return verb_fails(cli, arena, &e);
  }
  if (cli->json) {
    print_json(code, cli->narg ? 1 : n);
  } else if (cli->narg) {
    printf("%s: %s\n\n%s\n", code->name, code->summary, code->text);
  } else {
    for (int i = 0; i < n; i++) printf("%-15s %s\n", code[i].name, code[i].summary);
  }
  return 0;
}
