/* compiled_job.c - see compiled_job.h. */
#include <check.h>

#include "compiled_job.h"
#include "scratch.h"

Arena *arena;
Job job;

void job_setup(void) {
  scratch_setup();
  arena = arena_new(NULL);
}

void job_teardown(void) {
  arena_free(arena);
  scratch_teardown();
}

const Compiled *compiled_job(Job *j, Arena *a, const char *path, const char *const *set,
                             int n) {
  weft_status st = job_open(j, a, &(LangOptions){.set = set, .nset = n}, path);
  Text t = {0};
  report_text(&j->d, false, &t);
  ck_assert_msg(st == WEFT_OK && j->compiled, "%s%s", t.s ? t.s : "", j->e.text);
  text_free(&t);
  return j->compiled;
}

int program_ops(const Program *p, int op) {
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++)
    n += p->code[i].code == I_KERNEL && p->code[i].op == op;
  return n;
}

int program_codes(const Program *p, InstrCode code) {
  int n = 0;
  for (uint32_t i = 0; i < p->ncode; i++) n += p->code[i].code == code;
  return n;
}
