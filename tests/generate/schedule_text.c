/* schedule_text.c - reads schedules from text. */
#include "schedule_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static int local_chunk(const Schedule *s, int rank, int stage) {
  int where, chunk;
  if (stage >= s->ranks * s->virtual_stages) return -1;
  schedule_where(s, stage, &where, &chunk);
  return where == rank ? chunk : -1;
}

static Action one(const Schedule *s, int rank, const char *text) {
  static const char *const kind[] = {[ACT_F] = "F",
                                     [ACT_I] = "I",
                                     [ACT_W] = "W",
                                     [ACT_B] = "B",
                                     [ACT_OVERLAP] = "",
                                     [ACT_UNSHARD] = "UNSHARD",
                                     [ACT_RESHARD] = "RESHARD",
                                     [ACT_REDUCE_GRAD] = "REDUCE_GRAD"};
  int stage, mb, stage2, mb2, n = 0;
  char name[16];
  if (sscanf(text, "(%dF%d;%dB%d)OVERLAP_F_B%n", &stage, &mb, &stage2, &mb2, &n) == 4 &&
      n)
    return (Action){.kind = ACT_OVERLAP,
                    .mb = mb,
                    .mb2 = mb2,
                    .chunk = (int16_t)local_chunk(s, rank, stage),
                    .chunk2 = (int16_t)local_chunk(s, rank, stage2)};
  int got = sscanf(text, "%d%15[A-Z_]%d", &stage, name, &mb);
  ck_assert_msg(got >= 2, "no action: %s", text);
  for (int k = 0; k < ACT_N; k++)
    if (strcmp(name, kind[k]) == 0)
      return (Action){.kind = (uint8_t)k,
                      .chunk = (int16_t)local_chunk(s, rank, stage),
                      .mb = got == 3 ? mb : -1};
  ck_abort_msg("no action: %s", text);
}

static void row(Arena *a, Schedule *s, int rank, char *text) {
  VEC(Action) list = {0};
  for (char *save, *t = strtok_r(text, ",", &save); t; t = strtok_r(NULL, ",", &save))
    *VEC_PUSH(a, list) = one(s, rank, t);
  s->list[rank] = list.at;
  s->n[rank] = list.n;
}

Schedule sched_text(Arena *a, const char *text, int virtual_stages, int microbatches,
                    bool v_placement) {
  Schedule s = {.virtual_stages = virtual_stages,
                .microbatches = microbatches,
                .v_placement = v_placement,
                .name = "text"};
  for (const char *p = text; *p; p++) s.ranks += *p == '\n' || !p[1];
  s.list = NEW_N(a, Action *, s.ranks);
  s.n = NEW_N(a, int, s.ranks);
  char *copy = arena_str(a, text), *save;
  int rank = 0;
  for (char *t = strtok_r(copy, "\n", &save); t; t = strtok_r(NULL, "\n", &save))
    row(a, &s, rank++, t);
  return s;
}
