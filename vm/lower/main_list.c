/* main_list.c - a pp rank's main list: unit calls, sends, receives and gradient
 * reductions in order, with every buffer as an interval of positions in that list.
 * Between two actions a rank first posts, then waits, so that no two ranks wait for each
 * other; main_comm.c has what it posts, sends and reduces. */
#include "main_list_int.h"

/* ---- buffers ---- */

Event *walk_event(Walk *w, EventKind kind) {
  w->now++;
  if (w->t->brief) return &w->unwanted;
  Event *e = VEC_PUSH(w->a, w->t->ev);
  *e = (Event){.kind = (uint8_t)kind,
               .buffer = -1,
               .peer = -1,
               .handle = -1,
               .bucket = -1,
               .unsharded = -1,
               .action = w->action,
               .line = w->line};
  return e;
}

/* Adds a step; `at`: position of its event in the list. */
static void note_step(Walk *w, StepKind kind, int phase, int of, int at) {
  if (!w->t->steps) return;
  *VEC_PUSH(w->a, w->t->step) = (Step){.kind = (uint8_t)kind,
                                       .phase = (uint8_t)phase,
                                       .of = of,
                                       .at = at,
                                       .action = w->action,
                                       .line = w->line};
}

static int new_buffer(Walk *w, uint64_t bytes, int what) {
  *VEC_PUSH(w->a, w->t->buffer[AREA_ACTIVATIONS]) =
      (Interval){.start = w->now, .end = w->now, .size = bytes, .what = what};
  return w->t->buffer[AREA_ACTIVATIONS].n - 1;
}

int walk_new_edge(Walk *w, int32_t edge) {
  return new_buffer(w, w->u->edge[edge].bytes, 3 * w->u->n + edge);
}

int walk_handle(Walk *w) {
  if (w->free_handle.n > 0) return w->free_handle.at[--w->free_handle.n];
  return w->t->handles++;
}

/* ---- calls ---- */

/* Begins or extends the lifetimes of the buffers that a call uses: frames of the unit,
 * and edges of the chunk. */
static void touch_buffers(Walk *w, const CompiledUnit *x, const UnitCall *c, int chunk,
                          const int *number, int32_t *frame, int u, int mb) {
  for (int k = 0; k < 3; k++)
    if (c->opens >> k & 1)
      frame[k] = new_buffer(w, x->code->frame[k], 3 * u + k);
    else if (c->uses >> k & 1)
      walk_touch(w, frame[k]);
  for (int i = 0; i < c->nedge; i++) {
    int k = c->edge[i];
    int32_t *buf = walk_edge_buffer(w, chunk, number[k], mb);
    if (*buf < 0)
      *buf = walk_new_edge(w, x->edge[k]);
    else
      walk_touch(w, *buf);
  }
}

/* The same buffers as bindings of the call: -1 for those that it does not use. */
static uint32_t note_buffers(Walk *w, const CompiledUnit *x, const UnitCall *c, int chunk,
                             const int *number, const int32_t *frame, int mb) {
  uint32_t first = (uint32_t)w->t->call_buffer.n;
  for (int k = 0; k < 3 + x->code->nedge; k++) {
    bool alive = k < 3 && (c->opens | c->uses) >> k & 1;
    *VEC_PUSH(w->a, w->t->call_buffer) = alive ? frame[k] : -1;
  }
  for (int i = 0; i < c->nedge; i++)
    w->t->call_buffer.at[first + 3 + (uint32_t)c->edge[i]] =
        *walk_edge_buffer(w, chunk, number[c->edge[i]], mb);
  return first;
}

static void call(Walk *w, int u, Phase ph, int mb) {
  const CompiledUnit *x = &w->u->at[u];
  if (x->code->body[ph]->n == 0) return;
  int chunk = w->st->chunk[w->st->of_unit[u]], unit = w->local[u];
  int32_t *frame = w->frame[(size_t)unit * (size_t)w->tr->microbatches + (size_t)mb];
  const UnitCall *c = &w->unit_call[unit][ph];
  const int *number = w->unit_edge[unit];
  touch_buffers(w, x, c, chunk, number, frame, u, mb);
  uint32_t first = w->t->brief ? 0 : note_buffers(w, x, c, chunk, number, frame, mb);
  note_step(w, STEP_CALL, ph, u, w->now);
  Event *e = walk_event(w, EV_CALL);
  e->phase = (uint8_t)ph, e->unit = u, e->mb = mb, e->edges = first;
}

/* ---- actions ---- */

static void run_forward(Walk *w, int stage, int mb) {
  transfers_take(w, stage, mb, true);
  for (int u = w->st->first[stage]; u < w->st->first[stage + 1]; u++)
    call(w, u, PH_F, mb);
  transfers_send(w, stage, mb, true);
}

/* The backward of a stage. The gradient for the stage before is sent before the last
 * unit's W, if W is a call of its own. A stage without units forwards what it receives.
 */
static void run_backward(Walk *w, int stage, int mb, int bits) {
  int first = w->st->first[stage], end = w->st->first[stage + 1];
  if (bits & PART_I) transfers_take(w, stage, mb, false);
  if (bits & PART_I && first == end) transfers_send(w, stage, mb, false);
  for (int u = end - 1; u >= first; u--) {
    bool both = w->u->at[u].code->body[PH_B]->n > 0;
    if (bits & PART_I) call(w, u, both ? PH_B : PH_I, mb);
    if (bits & PART_I && u == first) transfers_send(w, stage, mb, false);
    if (bits & PART_W) {
      if (!both) call(w, u, PH_W, mb);
      reductions_finished(w, u);
    }
  }
}

static void post_action(Walk *w, const Action *a, int base) {
  ActionPart part[2];
  int n = action_parts(a, part);
  for (int k = 0; k < n; k++)
    if (part[k].bits != PART_W)
      transfers_post(w, stage_at(w->st, w->rank, part[k].chunk), base + part[k].mb,
                     part[k].bits & PART_F);
}

/* Runs an action. An overlapped pair runs its forward first, then its backward, and the
 * transfers of each overlap with the other. */
static void run_action(Walk *w, const Action *a, int base) {
  ActionPart part[2];
  int n = action_parts(a, part);
  for (int k = 0; k < n; k++) {
    int stage = stage_at(w->st, w->rank, part[k].chunk), mb = base + part[k].mb;
    if (part[k].bits & PART_F)
      run_forward(w, stage, mb);
    else
      run_backward(w, stage, mb, part[k].bits);
  }
}

/* ---- set-up ---- */

/* For each frame, the bodies that use it, and the body that allocates it. */
enum { F = 1 << PH_F, I = 1 << PH_I, W = 1 << PH_W, B = 1 << PH_B };
static const uint8_t frame_use[3] = {F | I | B, F | I | W | B, I | W};
static const uint8_t frame_open[3] = {PH_F, PH_F, PH_I};

static void look_at_calls(Walk *w, const UnitCode *code, UnitCall call[BODIES]) {
  for (Phase ph = PH_F; ph < BODIES; ph++) {
    UnitCall *c = &call[ph];
    c->edge = NEW_N(w->a, int, code->nedge);
    for (int k = 0; k < 3; k++) {
      bool opens = code->frame[k] && ph == frame_open[k];
      c->opens |= (uint8_t)(opens << k);
      c->uses |= (uint8_t)((code->frame[k] && !opens && frame_use[k] >> ph & 1) << k);
    }
    for (int k = 0; k < code->nedge; k++)
      if (code->edge_use[k] >> ph & 1) c->edge[c->nedge++] = k;
  }
}

static void add_chunk_edges(Walk *w, int stage) {
  const Stages *st = w->st;
  int chunk = st->chunk[stage];
  w->chunk[chunk].of = NEW_N(w->a, int32_t, w->u->nedge);
  for (int u = st->first[stage]; u < st->first[stage + 1]; u++) {
    int n = w->u->at[u].code->nedge;
    int *edge = w->unit_edge[w->local[u]] = NEW_N(w->a, int, n);
    look_at_calls(w, w->u->at[u].code, w->unit_call[w->local[u]]);
    for (int k = 0; k < n; k++) edge[k] = walk_chunk_edge(w, chunk, w->u->at[u].edge[k]);
  }
  for (int s = stage - 1; s <= stage; s++) {
    if (s < 0 || s >= st->n - 1) continue;
    for (int i = 0; i < st->fwd[s].n; i++) walk_chunk_edge(w, chunk, st->fwd[s].at[i]);
    for (int i = 0; i < st->bwd[s].n; i++) walk_chunk_edge(w, chunk, st->bwd[s].at[i]);
  }
  size_t n = (size_t)w->chunk[chunk].n * (size_t)w->tr->microbatches;
  w->chunk[chunk].buffer = arena_raw(w->a, n * sizeof(int32_t));
  memset(w->chunk[chunk].buffer, 0xff, n * sizeof(int32_t));
}

/* Numbers the units of the rank; returns how many there are. */
static int number_units(Walk *w) {
  int n = 0;
  w->local = NEW_N(w->a, int, w->u->n);
  for (int u = 0; u < w->u->n; u++)
    if (unit_rank(w->st, u) == w->rank) w->local[u] = n++;
  return n;
}

static void set_up(Walk *w) {
  int units = number_units(w);
  w->chunk = (void *)arena_alloc(w->a, sizeof *w->chunk * (size_t)w->st->chunks);
  w->unit_edge = NEW_N(w->a, int *, units);
  w->unit_call = (void *)arena_alloc(w->a, sizeof *w->unit_call * (size_t)units);
  w->frame =
      arena_raw(w->a, sizeof *w->frame * (size_t)units * (size_t)w->tr->microbatches);
  for (int c = 0; c < w->st->chunks; c++) add_chunk_edges(w, stage_at(w->st, w->rank, c));
  reductions_begin(w, units);
}

/* Index of the next action from `i` + 1 on that computes; `total` if there is none. */
static int next_compute(const Walk *w, int i, int total) {
  int n = w->s->n[w->rank];
  const Action *list = w->s->list[w->rank];
  for (i++; i < total && !action_per_microbatch(&list[i % n]);) i++;
  return i;
}

static const Action *take_up(Walk *w, int i) {
  int n = w->s->n[w->rank];
  const Action *a = &w->s->list[w->rank][i % n];
  w->action = i % n + 1;
  w->line = a->line;
  return a;
}

static void post_number(Walk *w, int i, int total) {
  if (i >= total) return;
  post_action(w, take_up(w, i), i / w->s->n[w->rank] * w->s->microbatches);
}

/* An UNSHARD, RESHARD or REDUCE_GRAD of the schedule. Gradients are reduced in the last
 * round of gradient accumulation only, when they are complete. */
static void about_parameters(Walk *w, const Action *a, bool last) {
  bool reduce = a->kind == ACT_REDUCE_GRAD;
  StepKind kind = reduce                   ? STEP_REDUCE_GRAD
                  : a->kind == ACT_UNSHARD ? STEP_UNSHARD
                                           : STEP_RESHARD;
  if (reduce && !last) return;
  note_step(w, kind, 0, a->chunk, w->now);
  if (reduce) reductions_of_chunk(w, a->chunk);
}

static void walk(Walk *w) {
  const Schedule *s = w->s;
  int n = s->n[w->rank], total = n * (w->tr->microbatches / s->microbatches);
  post_number(w, next_compute(w, -1, total), total);
  for (int i = 0; i < total; i++) {
    int round = i / n;
    const Action *a = take_up(w, i);
    if (!action_per_microbatch(a)) {
      about_parameters(w, a, i + n >= total);
      continue;
    }
    post_number(w, next_compute(w, i, total), total);
    take_up(w, i);
    transfers_wait(w, w->tr->when->slot[w->rank][i % n].start +
                          round * w->tr->when->makespan);
    run_action(w, a, round * s->microbatches);
  }
  w->action = w->line = 0;
  transfers_end(w);
}

/* Makes frames F..I live through the whole list, for key-value caches. */
static void keep_frames(Walk *w) {
  for (int i = 0; i < w->t->buffer[AREA_ACTIVATIONS].n; i++) {
    Interval *v = &w->t->buffer[AREA_ACTIVATIONS].at[i];
    if (v->what < 3 * w->u->n && v->what % 3 == 0) v->start = 0, v->end = w->now;
  }
}

void actions(ActionsInput *in, int rank, const Layout *l, MainList *t) {
  const Transfers *tr = in->tr;
  *t = (MainList){.handles = tr->st->u->handles, .brief = t->brief, .steps = t->steps};
  Walk w = {.in = in,
            .tr = tr,
            .st = tr->st,
            .u = tr->st->u,
            .a = in->scratch,
            .s = tr->s,
            .l = l,
            .t = t,
            .rank = rank};
  set_up(&w);
  walk(&w);
  if (in->keep_frames) keep_frames(&w);
  t->positions = w.now;
}
