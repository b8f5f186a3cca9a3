/* llamafactory_rows.h - the beginning of LLaMA-Factory's arguments, and rows of what they
 * mean. */
#ifndef WEFT_TESTS_LLAMAFACTORY_ROWS_H
#define WEFT_TESTS_LLAMAFACTORY_ROWS_H

#include "import_files.h"

#define MODEL "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\ndo_train: true\n"

static inline const char *import(const char *more) { return import_file("a.yaml", more); }

/* A few arguments, and what the plan and the report have then; behind a ! what the plan
 * lacks. */
enum { SAYS = 6 };
typedef struct Row {
  const char *arguments, *plan[SAYS], *report[SAYS];
} Row;

/* Behind the arguments of `model`. */
static inline void check_rows_of(const char *model, const Row *rows, int n) {
  for (int i = 0; i < n; i++) {
    import_put("a.yaml", arena_printf(scratch_arena, "%s%s", model, rows[i].arguments));
    const char *report = import("--world 2");
    for (int k = 0; k < SAYS; k++) {
      const char *says = rows[i].plan[k];
      if (says && says[0] == '!') import_plan_lacks(says + 1);
      if (says && says[0] != '!') import_plan_has(says);
      if (rows[i].report[k]) import_has(report, rows[i].report[k]);
    }
  }
}
static inline void check_rows(const Row *rows, int n) { check_rows_of(MODEL, rows, n); }

#endif
