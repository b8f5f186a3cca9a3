/* launch_way.c - how the kernels of a run reach its device: op by op or as a graph. */
#include "run_int.h"

#include <stdio.h>

/* Whether the host fetches row counts in steps or evaluations. */
static bool counts_rows(const Compiled *c) {
  if (c->eval && counts_rows(c->eval)) return true;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++)
    for (uint32_t i = 0; i < c->prog[pp].ncode; i++) {
      const Instr *in = &c->prog[pp].code[i];
      if (in->code == I_COLL && coll_info[in->coll].is & COLL_COUNTED) return true;
    }
  return false;
}

/* NULL, or why steps are not captured as graphs. Ranks in one process exchange data
 * between their device queues, while a capture covers the queue of one rank. */
static const char *why_not_captured(const Run *r, char text[96]) {
  if (!r->plan->cuda_graph) return "cuda_graph = false";
  if (!r->c->device->host && counts_rows(r->c))
    return "the host waits for rows of experts (moe.exchange)";
  if (r->traces) return "--trace records every op";
  if (r->nworker == 1) return NULL;
  snprintf(text, 96, "%d ranks in one process", r->nworker);
  return text;
}

bool run_captures(const Run *r) {
  char why[96];
  return !why_not_captured(r, why);
}

const char *run_way(const Run *r, char text[96]) {
  char why[96];
  if (!r->c->device->keeps) return NULL;
  const char *no = why_not_captured(r, why);
  snprintf(text, 96, "%s%s", no ? "launched op by op: " : "replayed as one graph",
           no ? no : "");
  return text;
}

static const char *crowded_queues(const Run *r) {
  bool crowded = false;
  for (int i = 0; i < r->nworker; i++) crowded |= r->worker[i].comm.crowded;
  if (!crowded || (r->c->device->keeps && run_captures(r))) return NULL;
  return "the rank's queues and NCCL's own are more than the GPU's connections: steps "
         "that are launched op by op may stop";
}

const char *run_instead(const Run *r) {
  for (int i = 0; i < r->nworker; i++)
    if (r->worker[i].dev.instead) return r->worker[i].dev.instead;
  return NULL;
}

const char *run_arena(const Run *r) {
  const char *text = r->nworker ? r->worker[0].comm.arena : "";
  return *text ? text : NULL;
}

static const char *fallback(const Run *r) {
  for (int i = 0; i < r->nworker; i++)
    if (r->worker[i].dev.fallback) return r->worker[i].dev.fallback;
  return NULL;
}

const char *run_warning(const Run *r, int i) {
  const char *all[] = {r->uneven[0] ? r->uneven : NULL, crowded_queues(r), run_instead(r),
                       fallback(r)};
  _Static_assert(LEN(all) == RUN_WARNINGS, "what run.h says");
  for (int k = 0; k < LEN(all); k++)
    if (all[k] && i-- == 0) return all[k];
  return NULL;
}

const char *run_kernels(const Run *r) {
  return r->nworker ? r->worker[0].dev.kernels : NULL;
}

const char *run_not_captured(Run *r) {
  for (int i = 0; i < r->nworker; i++) {
    const Worker *w = &r->worker[i];
    const char *why = rank_not_captured(w->r);
    if (!why && w->eval) why = rank_not_captured(w->eval);
    if (why) return why;
  }
  return NULL;
}
