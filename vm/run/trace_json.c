/* trace_json.c - trace events as JSON: a process per rank, with a track for the compute
 * queue, one for each communicator and one for each direction to each other stage.
 *
 * A queue runs one transfer at a time, in the order of their starts. Its end is only
 * observed by a WAIT, for it or for a later transfer of the same queue: so a transfer
 * ends no later than the first of these WAITs, and begins no earlier than the one before
 * it ends. */
#include <stdio.h>
#include <stdlib.h>

#include "trace_json.h"

typedef struct View {
  TraceOut *o;
  const Program *p;
  int rank;
  int64_t offset;
} View;

/* ---- tracks ---- */

enum { COMPUTE = 0 };

static int track_of(const View *v, const Instr *in) {
  if (!(instr_is[in->code] & INSTR_PAIR)) return 1 + in->comm;
  return 1 + v->p->ncomm + 2 * in->peer + (in->code == I_RECV);
}

static int tracks(const View *v) {
  return 1 + v->p->ncomm + 2 * v->o->c->mesh.size[AXIS_PP];
}

static void name_track(const View *v, int track, char *to, size_t size) {
  int pair = track - 1 - v->p->ncomm;
  if (track == COMPUTE)
    snprintf(to, size, "compute");
  else if (pair < 0)
    snprintf(to, size, "%s", v->p->comm[track - 1].name);
  else
    snprintf(to, size, "%s rank %d", pair % 2 ? "from" : "to",
             rank_on_pp(&v->o->c->mesh, v->rank, pair / 2));
}

/* ---- JSON ---- */

static void comma(View *v) {
  text_add(v->o->out, v->o->any ? ",\n" : "\n");
  v->o->any = true;
}

/* Writes a JSON string. Names come from plans: quotes and control characters become "?".
 */
static void put_text(Text *out, const char *key, const char *s) {
  text_printf(out, "\"%s\":\"", key);
  for (; *s; s++)
    if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ')
      text_add(out, "?");
    else
      text_addn(out, s, 1);
  text_add(out, "\"");
}

static void put_name(View *v, const char *what, int track, const char *name, int order) {
  Text *out = v->o->out;
  comma(v);
  text_printf(out, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_name\",\"args\":{",
              v->rank, track, what);
  put_text(out, "name", name);
  text_add(out, "}}");
  comma(v);
  text_printf(out,
              "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s_sort_index\","
              "\"args\":{\"sort_index\":%d}}",
              v->rank, track, what, order);
}

static void put_names(View *v, const bool *used) {
  const Mesh *m = &v->o->c->mesh;
  char name[96];
  snprintf(name, sizeof name, "rank %d (pp %d, dp %d, tp %d)", v->rank,
           mesh_coord(m, v->rank, AXIS_PP), mesh_index(m, AXES_DP, v->rank),
           mesh_coord(m, v->rank, AXIS_TP));
  put_name(v, "process", 0, name, v->rank);
  for (int t = 0; t < tracks(v); t++) {
    if (!used[t]) continue;
    name_track(v, t, name, sizeof name);
    put_name(v, "thread", t, name, t);
  }
}

static const Call *call_of(const View *v, const TraceEvent *ev) {
  return ev->call == TRACE_MAIN ? NULL : &v->p->call[v->p->code[ev->call].call];
}

static void describe(const View *v, const TraceEvent *ev, char *to, size_t size) {
  const Instr *in = &v->p->code[ev->instr];
  char name[200];
  if (ev->kind == TRACE_STEP) {
    snprintf(to, size, "step %d", ev->step);
  } else if (in->code == I_CALL) {
    const Call *c = &v->p->call[in->call];
    snprintf(to, size, "%s of %s, microbatch %d", v->p->body[c->body].name,
             v->p->unit[c->unit], c->mb);
  } else {
    instr_describe(v->o->c, v->rank, in, name, sizeof name);
    snprintf(to, size, "%s%s", ev->kind == TRACE_WAIT ? "wait for " : "", name);
  }
}

static const char *category(const View *v, const TraceEvent *ev) {
  static const char *const by_kind[] = {NULL, "wait", "transfer", "step"};
  if (by_kind[ev->kind]) return by_kind[ev->kind];
  return v->p->code[ev->instr].code == I_CALL ? "call" : "kernel";
}

static void put_args(View *v, const TraceEvent *ev) {
  Text *out = v->o->out;
  const Instr *in = &v->p->code[ev->instr];
  const Call *c = call_of(v, ev);
  text_printf(out, "\"args\":{\"step\":%d", ev->step);
  if (ev->kind != TRACE_STEP) {
    text_printf(out, ",\"instruction\":%u", ev->instr);
    if (in->line) text_printf(out, ",\"line\":%d", in->line);
  }
  if (c) {
    text_printf(out, ",\"microbatch\":%d,", c->mb);
    put_text(out, "unit", v->p->unit[c->unit]);
  }
  bool counted = ev->kind == TRACE_MOVE && coll_info[in->coll].is & COLL_COUNTED;
  if (ev->kind == TRACE_MOVE)
    text_printf(out, counted ? ",\"bytes_at_most\":%llu" : ",\"bytes\":%llu",
                (unsigned long long)operand_bytes(&v->p->operand[in->operand]));
  text_add(out, "}");
}

static void put_event(View *v, const TraceEvent *ev, int track) {
  Text *out = v->o->out;
  char name[256];
  int64_t from = ev->from + v->offset - v->o->origin;
  describe(v, ev, name, sizeof name);
  comma(v);
  text_printf(out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,",
              v->rank, track, (double)from / 1e3, (double)(ev->to - ev->from) / 1e3);
  put_text(out, "name", name);
  text_printf(out, ",\"cat\":\"%s\",", category(v, ev));
  put_args(v, ev);
  text_add(out, "}");
}

/* ---- transfers ---- */

static int by_start(const void *a, const void *b) {
  const TraceEvent *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* Places the transfers of one queue; `move` has room for all n events. */
static void put_queue(View *v, int track, const TraceEvent *event, uint32_t n,
                      TraceEvent *move) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < n; i++)
    if (event[i].kind == TRACE_MOVE && track_of(v, &v->p->code[event[i].instr]) == track)
      move[k++] = event[i];
  qsort(move, k, sizeof *move, by_start);
  for (uint32_t i = k; i-- > 1;) move[i - 1].to = MIN(move[i - 1].to, move[i].to);
  for (uint32_t i = 0; i < k; i++) {
    if (i > 0) move[i].from = MAX(move[i].from, move[i - 1].to);
    put_event(v, &move[i], track);
  }
}

weft_status trace_write(TraceOut *o, int rank, const TraceEvent *event, uint32_t n,
                        int64_t offset, weft_error *e) {
  View v = {.o = o,
            .p = &o->c->prog[mesh_coord(&o->c->mesh, rank, AXIS_PP)],
            .rank = rank,
            .offset = offset};
  size_t nused = (size_t)tracks(&v), bytes = (size_t)n * sizeof *event;
  bool *used = mem_new(o->alloc, nused);
  TraceEvent *move = mem_new(o->alloc, bytes);
  if (used && (move || !n)) {
    used[COMPUTE] = true;
    for (uint32_t i = 0; i < n; i++)
      if (event[i].kind == TRACE_MOVE)
        used[track_of(&v, &v.p->code[event[i].instr])] = true;
    put_names(&v, used);
    for (uint32_t i = 0; i < n; i++)
      if (event[i].kind != TRACE_MOVE) put_event(&v, &event[i], COMPUTE);
    for (int t = 1; t < (int)nused; t++)
      if (used[t]) put_queue(&v, t, event, n, move);
  }
  bool ok = used && (move || !n) && !o->out->oom;
  mem_free(o->alloc, move, bytes);
  mem_free(o->alloc, used, nused);
  return ok ? WEFT_OK : err_set(e, WEFT_ENOMEM, "no memory to write the trace");
}
