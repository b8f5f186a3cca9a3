/* verb_frame.c - begin and end of every verb: load the plan, report, exit code. */
#include "cli.h"
#include "vm/base/terminal.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The processes of a run have the same plan; only one of them reports. */
bool is_rank0(const Cli *cli) {
  return !(cli->verb->bit & RUN_VERBS) || launched_rank() == 0;
}

/* print() of the plan; its argument may have several lines. */
static void print_line(void *ud, const char *line) {
  Text t = {0};
  text_add_shown(&t, line, strlen(line), FREE_LINES, true);
  text_add(&t, "\n");
  print_text(stderr, &t);
}

weft_status job_start(Job *j, const Cli *cli, Arena *arena, const char *path) {
  LangOptions o = {.set = cli->set,
                   .nset = cli->nset,
                   .define = cli->define,
                   .ndefine = cli->ndefine,
                   .data = cli->data,
                   .ndata = cli->ndata,
                   .stop = cli->stop,
                   .measures = str_eq(cli->verb->name, "eval"),
                   .print = is_rank0(cli) ? print_line : NULL};
  TRY(job_load(j, arena, &o, path));
  if (cli->device && !(j->device = device_kind(cli->device, &j->e))) return j->e.code;
  if (cli->verb->bit & (RUN_VERBS | ON_VERIFY | ON_CALIBRATE | ON_SAMPLE)) job_library(j);
  /* WEFT_DUMP=as prints the graph after the passes with letters a and s */
  j->dump = getenv("WEFT_DUMP");
  return WEFT_OK;
}

static void print_error(const weft_error *e) {
  if (!e->file[0])
    report_error("%s", e->text);
  else if (!e->line)
    fprintf(stderr, "%s: error: %s\n", e->file, e->text);
  else
    fprintf(stderr, "%s:%d: error: %s\n", e->file, e->line, e->text);
}

int job_end(Job *j, const Cli *cli, weft_status st, void (*result)(Json *out, void *ud),
            void *ud) {
  return job_end_part(j, cli, st, st == WEFT_OK ? result : NULL, ud);
}

static Text json_report(Job *j, const Cli *cli, void (*result)(Json *out, void *ud),
                        void *ud) {
  Text text = {0};
  Json out = {.out = &text, .pretty = true};
  report_json_begin(&j->d, cli->verb->name, &out);
  if (result) {
    json_open(&out, "result", '{');
    result(&out, ud);
    json_close(&out, '}');
  } else {
    json_none(&out, "result");
  }
  report_json_end(&j->d, &out);
  text_add(&text, "\n");
  return text;
}

/* A result that could not be made is an error of the whole. */
static weft_status print_json(Job *j, const Cli *cli, weft_status st,
                              void (*result)(Json *out, void *ud), void *ud) {
  if (st == WEFT_OK) err_clear(&j->e);
  Text text = json_report(j, cli, result, ud);
  if (st == WEFT_OK && j->e.code != WEFT_OK) {
    st = j->e.code;
    job_note(j, st);
    text_free(&text);
    text = json_report(j, cli, NULL, NULL);
  }
  print_text(stdout, &text);
  return st;
}

int job_end_part(Job *j, const Cli *cli, weft_status st,
                 void (*result)(Json *out, void *ud), void *ud) {
  print_text(stderr, &j->dumped);
  /* A wrong plan has diagnostics; any other error is in `e`. */
  bool other = st != WEFT_OK && !(st == WEFT_EPLAN && j->d.errors);
  if (other && !j->e.text[0]) err_set(&j->e, st, "failed for a reason that is not known");
  if (cli->json) {
    if (other) job_note(j, st);
    st = print_json(j, cli, st, result, ud);
  } else {
    Text text = {0};
    report_text(&j->d, REPORT_CODES | (colour_wanted(stderr) ? REPORT_COLOUR : 0), &text);
    print_text(stderr, &text);
    if (other) print_error(&j->e);
  }
  job_free(j);
  return weft_exit_code(st);
}

void heed_ends(const Cli *cli) {
  cli->heed(SIGTERM);
  cli->heed(SIGHUP);
}

int code_of_signal(const Cli *cli, weft_status st, int code) {
  return st == WEFT_EINTR && *cli->stop ? 128 + *cli->stop : code;
}

void let_rank0_report(void) { sleep(2); }

int verb_fails(const Cli *cli, Arena *arena, const weft_error *e) {
  if (!is_rank0(cli)) {
    let_rank0_report();
    return weft_exit_code(e->code);
  }
  if (!cli->json) {
    report_error("%s%s%s", e->file, *e->file ? ": " : "", e->text);
    return weft_exit_code(e->code);
  }
  Job j = {.arena = arena, .d = {.arena = arena}, .e = *e};
  return job_end(&j, cli, e->code, NULL, NULL);
}

void verb_warns(const Cli *cli, Job *j, const char *fmt, ...) {
  va_list ap;
  char text[1024];
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  report_error("warning: %s", text);
  if (cli->json) diag_warn(&j->d, "run", "", "%s", text);
}

void verb_warns_of_run(const Cli *cli, Job *j, const Run *r) {
  const char *why;
  for (int i = 0; (why = run_warning(r, i)); i++) verb_warns(cli, j, "%s", why);
}
