/* embed.c - a C program that uses weft: it sees weft.h and libweftlua, nothing else. The
 * example of docs/embedding.md; check_embed.c runs it and compares what it prints.
 *
 *   weft-embed plans/quickstart.lua */
#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

/* A plan that is wrong is still a handle: it has the list of all its errors. */
static int print_errors(const char *path) {
  const char *set[] = {"mesh.tp=3", "train.step=4", "optimizer.clip=-1", NULL};
  weft_plan_options options = {.size = sizeof options, .set = set};
  weft_error err;
  weft_plan *plan;
  weft_status status = weft_plan_load(&options, path, &plan, &err);
  printf("status %d\n%s", status, plan ? weft_plan_report(plan) : err.text);
  weft_plan_free(plan);
  return status == WEFT_EPLAN ? 0 : 1;
}

static void print_plan(weft_plan *plan) {
  const weft_mesh *mesh = weft_plan_mesh(plan);
  int group[8];
  int n = weft_mesh_group(mesh, "tp", 2, group, 8);
  weft_proof proof;
  weft_plan_proof(plan, &proof, NULL);
  printf("%s: %d ranks, pp %d, tp %d\n", weft_plan_name(plan), weft_mesh_world(mesh),
         weft_mesh_size(mesh, "pp"), weft_mesh_size(mesh, "tp"));
  printf("rank 2 shares its tensors with");
  for (int i = 0; i < n; i++)
    if (group[i] != 2) printf(" %d", group[i]);
  printf("\n%lld parameters in %d tensors, %d microbatches, %lld transfers\n",
         (long long)weft_plan_parameters(plan), weft_plan_param_count(plan),
         weft_plan_microbatches(plan), (long long)proof.transfers);
}

/* The mean of a parameter that is cut over ranks, as one. */
static weft_status print_mean(weft_plan *plan, weft_run *run, const char *name,
                              weft_error *err) {
  weft_param param;
  weft_status status = weft_plan_param(plan, name, &param, err);
  if (status) return status;
  float *values = malloc((size_t)param.count * sizeof *values);
  if (!values) return WEFT_ENOMEM;
  status = weft_run_get(run, WEFT_PARAM, name, values, (size_t)param.count, err);
  double sum = 0;
  for (int64_t i = 0; i < param.count && !status; i++) sum += values[i];
  free(values);
  if (!status)
    printf("%s: %lld values, mean %.3f\n", name, (long long)param.count,
           sum / (double)param.count);
  return status;
}

static weft_status train(weft_plan *plan, weft_run *run, weft_error *err) {
  int64_t steps = 0;
  weft_status status = weft_run_init(run, err);
  if (!status) status = weft_run_steps(run, &steps, err);
  for (int64_t i = 0; i < steps && !status; i++) {
    weft_step step;
    status = weft_run_step(run, i, &step, err);
    if (!status)
      printf("step %lld: loss %.2f over %lld tokens\n", (long long)i, step.loss,
             (long long)step.tokens);
  }
  return status ? status : print_mean(plan, run, "model.norm.weight", err);
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: weft-embed PLAN.lua\n"), 2;
  if (print_errors(argv[1])) return 1;
  const char *set[] = {"mesh.dp=1", "batch.global=4", "train.steps=2", NULL};
  weft_plan_options options = {.size = sizeof options, .set = set};
  weft_error err;
  weft_plan *plan;
  weft_run *run = NULL;
  weft_status status = weft_plan_load(&options, argv[1], &plan, &err);
  if (!status) status = weft_plan_compile(plan, 0, &err);
  if (!status) print_plan(plan);
  if (!status) status = weft_run_open(plan, NULL, &run, &err);
  if (!status) status = train(plan, run, &err);
  if (status) fprintf(stderr, "%s:%d: %s\n", err.file, err.line, err.text);
  weft_run_close(run);
  weft_plan_free(plan);
  return weft_exit_code(status);
}
