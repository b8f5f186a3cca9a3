/* action.c - where stages are placed, what an action consists of, and names for messages.
 */
#include "action.h"

int schedule_stage(const Schedule *s, int rank, int chunk) {
  if (s->v_placement && chunk == 1) return 2 * s->ranks - 1 - rank;
  return chunk * s->ranks + rank;
}

void schedule_where(const Schedule *s, int stage, int *rank, int *chunk) {
  *chunk = stage / s->ranks;
  *rank = stage % s->ranks;
  if (s->v_placement && *chunk == 1) *rank = 2 * s->ranks - 1 - stage;
}

Schedule schedule_copy(const Schedule *from, Arena *a) {
  Schedule s = *from;
  s.list = NEW_N(a, Action *, s.ranks);
  s.n = arena_copy(a, from->n, sizeof *s.n * (size_t)s.ranks);
  s.name = arena_str(a, s.name);
  s.file = arena_str(a, s.file);
  for (int r = 0; r < s.ranks; r++)
    s.list[r] = arena_copy(a, from->list[r], sizeof(Action) * (size_t)s.n[r]);
  return s;
}

int action_parts(const Action *a, ActionPart part[2]) {
  static const uint8_t bits[ACT_N] = {[ACT_F] = PART_F,
                                      [ACT_I] = PART_I,
                                      [ACT_W] = PART_W,
                                      [ACT_B] = PART_I | PART_W,
                                      [ACT_OVERLAP] = PART_F};
  if (!bits[a->kind]) return 0;
  part[0] = (ActionPart){a->chunk, a->mb, bits[a->kind]};
  if (a->kind != ACT_OVERLAP) return 1;
  part[1] = (ActionPart){a->chunk2, a->mb2, PART_I | PART_W};
  return 2;
}

bool schedule_splits(const Schedule *s) {
  for (int r = 0; r < s->ranks; r++)
    for (int i = 0; i < s->n[r]; i++)
      if (s->list[r][i].kind == ACT_W) return true;
  return false;
}

static void add_chunk(const Schedule *s, int rank, int chunk, TextBuf *to) {
  if (s->virtual_stages < 2) return;
  textbuf_printf(to, ", chunk %d (stage %d)", chunk, schedule_stage(s, rank, chunk));
}

const char *action_name(const Schedule *s, int rank, const Action *a,
                        char buf[ACTION_NAME]) {
  static const char *const name[ACT_N] = {
      "F", "I", "W", "B", "the pair F", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  TextBuf t = textbuf(buf, ACTION_NAME);
  textbuf_printf(&t, "%s", name[a->kind]);
  if (!action_per_microbatch(a)) {
    textbuf_printf(&t, " of chunk %d", a->chunk);
    return buf;
  }
  textbuf_printf(&t, " of microbatch %d", a->mb);
  add_chunk(s, rank, a->chunk, &t);
  if (a->kind != ACT_OVERLAP) return buf;
  textbuf_printf(&t, " with B of microbatch %d", a->mb2);
  add_chunk(s, rank, a->chunk2, &t);
  return buf;
}
