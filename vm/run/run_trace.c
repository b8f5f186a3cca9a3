/* run_trace.c - the trace of a run (vm/rank/trace.h): rank 0 receives the events of all
 * ranks, shifts their times to its own clock, and writes the file. */
#include "run_int.h"
#include "trace_json.h"
#include "vm/io/file.h"

/* ---- clocks ---- */

enum { ROUNDS = 16 };

/* The offset from the clock of rank q to this one, from the round trip that took the
 * least time. */
static weft_status ask_clock(World *w, int q, int64_t *offset, weft_error *e) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < ROUNDS; i++) {
    int64_t asked = trace_ns(), there = 0;
    TRY(world_send(w, &asked, sizeof asked, q, e));
    TRY(world_recv(w, &there, sizeof there, q, e));
    int64_t now = trace_ns();
    if (now - asked >= best) continue;
    best = now - asked;
    *offset = asked + best / 2 - there;
  }
  return WEFT_OK;
}

static weft_status tell_clock(World *w, weft_error *e) {
  for (int i = 0; i < ROUNDS; i++) {
    int64_t asked, now;
    TRY(world_recv(w, &asked, sizeof asked, 0, e));
    now = trace_ns();
    TRY(world_send(w, &now, sizeof now, 0, e));
  }
  return WEFT_OK;
}

/* ---- the file ---- */

typedef struct Writing {
  FileOut file;
  uint64_t at; /* bytes written so far */
  Text text;
  TraceOut out;
  int64_t *offset; /* [world] of ranks in other processes */
  weft_status st;
} Writing;

static weft_status flush(Writing *x, weft_error *e) {
  if (x->text.oom) return err_set(e, WEFT_ENOMEM, "no memory for the trace");
  TRY(file_put(&x->file, x->at, x->text.s, x->text.n, e));
  x->at += x->text.n;
  x->text.n = 0;
  return WEFT_OK;
}

static weft_status write_rank(Writing *x, int rank, const TraceEvent *event, uint32_t n,
                              int64_t offset, weft_error *e) {
  TRY(trace_write(&x->out, rank, event, n, offset, e));
  return flush(x, e);
}

/* When the first event of a rank began; INT64_MAX: it has none. */
static int64_t first_of(const Tracer *t) {
  int64_t first = INT64_MAX;
  for (uint32_t i = 0; i < t->whole; i++) first = MIN(first, t->event[i].from);
  return first;
}

static size_t offset_bytes(const Run *r) {
  return (size_t)r->c->mesh.world * sizeof(int64_t);
}

/* The file begins with the first event of any rank: readers drop those before 0. */
static weft_status find_origin(Writing *x, Run *r, weft_error *e) {
  int64_t first = INT64_MAX;
  x->offset = mem_new(&r->alloc, offset_bytes(r));
  if (!x->offset) return err_set(e, WEFT_ENOMEM, "no memory for the trace");
  for (int i = 0; i < r->nworker; i++) first = MIN(first, first_of(&r->worker[i].tracer));
  for (int q = 0; q < r->c->mesh.world; q++) {
    int64_t there = INT64_MAX;
    if (world_has(&r->world, q)) continue;
    TRY(ask_clock(&r->world, q, &x->offset[q], e));
    TRY(world_recv(&r->world, &there, sizeof there, q, e));
    if (there != INT64_MAX) first = MIN(first, there + x->offset[q]);
  }
  x->out.origin = first == INT64_MAX ? 0 : first;
  return WEFT_OK;
}

/* Receives and writes the events of a rank in another process. They are received even if
 * writing has failed, because that rank sends them in any case. */
static weft_status take_rank(Writing *x, Worker *w, int q, weft_error *e) {
  World *world = &w->run->world;
  uint32_t n = 0;
  TRY(world_recv(world, &n, sizeof n, q, e));
  n = MIN(n, (uint32_t)TRACE_EVENTS);
  size_t bytes = (size_t)n * sizeof(TraceEvent);
  TraceEvent *event = mem_new(&w->run->alloc, bytes);
  if (!event && n)
    return err_set(e, WEFT_ENOMEM, "no memory for the trace of rank %d", q);
  weft_status st = world_recv(world, event, bytes, q, e);
  if (st == WEFT_OK)
    st = x->st == WEFT_OK ? write_rank(x, q, event, n, x->offset[q], e) : x->st;
  mem_free(&w->run->alloc, event, bytes);
  return st;
}

static weft_status give_rank(Worker *w, weft_error *e) {
  World *world = &w->run->world;
  const Tracer *t = &w->tracer;
  int64_t first = first_of(t);
  TRY(tell_clock(world, e));
  TRY(world_send(world, &first, sizeof first, 0, e));
  TRY(world_send(world, &t->whole, sizeof t->whole, 0, e));
  return world_send(world, t->event, t->whole * sizeof(TraceEvent), 0, e);
}

/* Writes the events of this process's ranks, which share one clock, then those of the
 * others. */
static weft_status job_write(Worker *w, void *arg, weft_error *e) {
  Writing *x = arg;
  Run *r = w->run;
  bool home = world_has(&r->world, 0);
  if (!home) return give_rank(w, e);
  if (w->rank != 0) return WEFT_OK;
  TRY(find_origin(x, r, e));
  for (int i = 0; i < r->nworker && x->st == WEFT_OK; i++) {
    Tracer *t = &r->worker[i].tracer;
    x->st = write_rank(x, r->worker[i].rank, t->event, t->whole, 0, e);
  }
  for (int q = 0; q < r->c->mesh.world; q++)
    if (!world_has(&r->world, q)) x->st = take_rank(x, w, q, e);
  return x->st;
}

/* Number of whole steps in the event buffer. */
static int steps_of(const Tracer *t) {
  int n = 0;
  for (uint32_t i = 0; i < t->whole; i++) n += t->event[i].kind == TRACE_STEP;
  return n;
}

weft_status run_trace(Run *r, const char *path, weft_error *e) {
  Writing x = {.file = {.own = DIR_CLOSED, .fd = -1}};
  weft_error why = NO_ERROR;
  const Tracer *t = &r->worker[0].tracer;
  if (!t->event || r->dead) return WEFT_OK;
  x.out = (TraceOut){.out = &x.text, .c = r->c, .alloc = &r->alloc};
  if (world_has(&r->world, 0)) x.st = file_stream(NULL, path, &x.file, &why);
  text_printf(&x.text,
              "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"weft %s\","
              "\"programs\":\"%016llx\",\"steps\":%d,\"complete\":%s},\n"
              "\"traceEvents\":[",
              weft_version(), (unsigned long long)program_key(r->c), steps_of(t),
              t->full ? "false" : "true");
  weft_status st = run_all(r, job_write, &x, false, &why);
  if (x.st == WEFT_OK) x.st = st;
  text_add(&x.text, "\n]}\n");
  if (x.file.fd >= 0 && x.st == WEFT_OK) x.st = flush(&x, &why);
  if (x.file.fd >= 0 && x.st == WEFT_OK) x.st = file_finish(&x.file, &why);
  file_drop(&x.file);
  text_free(&x.text);
  mem_free(&r->alloc, x.offset, offset_bytes(r));
  if (x.st != WEFT_OK && e->code == WEFT_OK) *e = why;
  return x.st;
}
