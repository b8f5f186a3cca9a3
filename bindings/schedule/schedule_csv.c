/* schedule_csv.c - reads schedules in PyTorch's CSV notation. Cells become actions with
 * global stages; then the placement of stages is found, transfers are checked and
 * dropped, and the rest becomes the action lists of a Schedule. */
#include "schedule_csv.h"
#include "vm/base/plural.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* Kinds of cells; those below ACT_N are actions of a Schedule. */
enum {
  SEND_F = ACT_N,
  RECV_F,
  SEND_B,
  RECV_B,
  WAIT_SEND_F,
  WAIT_SEND_B,
  WAIT_REDUCE_GRAD
};

static const struct {
  const char *name;
  int kind;
  bool mb;
} words[] = {
    {"F", ACT_F, true},
    {"I", ACT_I, true},
    {"W", ACT_W, true},
    {"B", ACT_B, true},
    {"UNSHARD", ACT_UNSHARD, false},
    {"RESHARD", ACT_RESHARD, false},
    {"REDUCE_GRAD", ACT_REDUCE_GRAD, false},
    {"SEND_F", SEND_F, true},
    {"RECV_F", RECV_F, true},
    {"SEND_B", SEND_B, true},
    {"RECV_B", RECV_B, true},
    {"WAIT_SEND_F", WAIT_SEND_F, true},
    {"WAIT_SEND_B", WAIT_SEND_B, true},
    {"WAIT_REDUCE_GRAD", WAIT_REDUCE_GRAD, false},
};

enum { STAGES_MAX = 1 << 20, CHUNKS_MAX = 64, CELLS_MAX = 1 << 24, SHOWN = 8 };

/* A cell; a pair (OVERLAP) has a second stage and microbatch. */
typedef struct Entry {
  int kind, stage, mb, stage2, mb2;
  int cell; /* from 1 */
} Entry;

typedef struct Row {
  VEC(Entry) e;
  int line;
} Row;

typedef struct Reader {
  const char *file;
  Diags *d;
  Arena *arena;
  VEC(Row) row;
  int stages, microbatches, errors;
  int *rank_of; /* stage -> rank */
  bool v, comms;
} Reader;

/* Reports a problem of a cell, or of the row if `cell` is 0. Only the first few are
 * reported: later ones probably follow from them. */
static void PRINTF(4, 5) problem(Reader *r, int line, int cell, const char *fmt, ...) {
  if (r->errors++ >= SHOWN) return;
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(r->arena, fmt, ap);
  va_end(ap);
  Diag *g = cell ? diag_error(r->d, "schedule-csv", "schedule", "cell %d: %s", cell, text)
                 : diag_error(r->d, "schedule-csv", "schedule", "%s", text);
  g->file = r->file;
  g->line = line;
}

/* ---- cells ---- */

static bool number(const char **p, const char *end, int below, int *out) {
  const char *s = *p;
  int64_t v = 0;
  while (s < end && isdigit((unsigned char)*s) && v < below) v = v * 10 + (*s++ - '0');
  bool ok = s > *p && v < below;
  *p = s;
  *out = (int)v;
  return ok;
}

/* Parses "2F0" between p and end: stage, word, microbatch if the word has one. */
static bool simple(const char *p, const char *end, Entry *e) {
  if (!number(&p, end, STAGES_MAX, &e->stage)) return false;
  for (int i = 0; i < LEN(words); i++) {
    size_t n = strlen(words[i].name);
    const char *rest = p + n;
    if ((size_t)(end - p) < n || strncmp(p, words[i].name, n) != 0) continue;
    e->mb = -1;
    if (words[i].mb && !number(&rest, end, MICROBATCHES_MAX, &e->mb)) continue;
    e->kind = words[i].kind;
    if (rest == end) return true;
  }
  return false;
}

static void trim(const char **p, const char **end) {
  while (*p < *end && isspace((unsigned char)**p)) ++*p;
  while (*p < *end && isspace((unsigned char)(*end)[-1])) --*end;
}

/* Removes quotes that spreadsheets put around a cell; no valid cell has a comma. */
static void unquote(const char **p, const char **end) {
  trim(p, end);
  if (*end - *p < 2 || **p != '"' || (*end)[-1] != '"') return;
  ++*p, --*end;
  trim(p, end);
}

/* Parses "(0F1;3B0)OVERLAP_F_B". */
static bool pair(const char *p, const char *end, Entry *e) {
  const char *semi = memchr(p, ';', (size_t)(end - p));
  const char *close = memchr(p, ')', (size_t)(end - p));
  Entry f, b;
  if (!semi || !close || semi > close || end - close != 12 ||
      strncmp(close + 1, "OVERLAP_F_B", 11) != 0)
    return false;
  const char *f0 = p + 1, *f1 = semi, *b0 = semi + 1, *b1 = close;
  trim(&f0, &f1);
  trim(&b0, &b1);
  if (!simple(f0, f1, &f) || !simple(b0, b1, &b) || f.kind != ACT_F || b.kind != ACT_B)
    return false;
  *e = (Entry){ACT_OVERLAP, f.stage, f.mb, b.stage, b.mb, 0};
  return true;
}

static void read_cell(Reader *r, Row *row, const char *p, const char *end, int cell) {
  Entry e = {.stage2 = -1, .mb2 = -1};
  unquote(&p, &end);
  if (p == end) return;
  if (*p == '(' ? pair(p, end, &e) : simple(p, end, &e)) {
    e.cell = cell;
    *VEC_PUSH(r->arena, row->e) = e;
    r->stages = MAX(r->stages, MAX(e.stage, e.stage2) + 1);
    r->microbatches = MAX(r->microbatches, MAX(e.mb, e.mb2) + 1);
    r->comms |= e.kind >= SEND_F && e.kind <= WAIT_SEND_B;
    return;
  }
  problem(r, row->line, cell,
          "\"%.*s\" is not an action such as 2F0, 1UNSHARD or "
          "(0F1;3B0)OVERLAP_F_B",
          (int)MIN(end - p, 40), p);
}

static void read_rows(Reader *r, const char *text) {
  static const char byte_order_mark[] = "\xef\xbb\xbf";
  if (strncmp(text, byte_order_mark, 3) == 0) text += 3;
  size_t n = strlen(text);
  while (n && isspace((unsigned char)text[n - 1])) n--;
  const char *p = text, *stop = text + n;
  for (int line = 1; p < stop; line++) {
    const char *nl = memchr(p, '\n', (size_t)(stop - p)), *end = nl ? nl : stop;
    Row *row = VEC_PUSH(r->arena, r->row);
    *row = (Row){.line = line};
    for (int cell = 1; p <= end; cell++) {
      const char *comma = memchr(p, ',', (size_t)(end - p)), *last = comma ? comma : end;
      read_cell(r, row, p, last, cell);
      p = last + 1;
    }
  }
}

/* ---- placement ---- */

static bool is_compute(const Entry *e) { return e->kind <= ACT_OVERLAP; }

static void place(Reader *r, int rank, const Row *row, const Entry *e, int stage) {
  int *at = &r->rank_of[stage];
  if (*at < 0) *at = rank;
  if (*at == rank) return;
  problem(r, row->line, e->cell, "stage %d is on rank %d (row %d) already", stage, *at,
          *at + 1);
}

/* The rank of stage `s` in a loop or V placement. */
static int placed(const Reader *r, int s, bool v) {
  int ranks = r->row.n;
  return v && s >= ranks ? 2 * ranks - 1 - s : s % ranks;
}

static bool fits(const Reader *r, bool v) {
  for (int s = 0; s < r->stages; s++)
    if (r->rank_of[s] != placed(r, s, v)) return false;
  return true;
}

static void find_placement(Reader *r) {
  int ranks = r->row.n;
  r->rank_of = NEW_N(r->arena, int, r->stages);
  for (int s = 0; s < r->stages; s++) r->rank_of[s] = -1;
  for (int k = 0; k < ranks; k++)
    for (int i = 0; i < r->row.at[k].e.n; i++) {
      const Entry *e = &r->row.at[k].e.at[i];
      if (!is_compute(e)) continue;
      place(r, k, &r->row.at[k], e, e->stage);
      if (e->kind == ACT_OVERLAP) place(r, k, &r->row.at[k], e, e->stage2);
    }
  if (r->errors) return;
  for (int s = 0; s < r->stages; s++)
    if (r->rank_of[s] < 0) {
      problem(r, 1, 0, "stage %d has no forward or backward", s);
      return;
    }
  if (r->stages % ranks != 0 || r->stages / ranks > CHUNKS_MAX) {
    problem(r, 1, 0, "%d stage%s cannot be dealt to %d rank%s (rows)%s", r->stages,
            plural(r->stages, "s"), ranks, plural(ranks, "s"),
            r->stages % ranks
                ? ""
                : arena_printf(r->arena, ", a rank has at most %d", CHUNKS_MAX));
    return;
  }
  if (fits(r, false)) return;
  r->v = r->stages == 2 * ranks;
  if (r->v && fits(r, true)) return;
  int s = 0;
  while (r->rank_of[s] == placed(r, s, false)) s++;
  problem(r, r->row.at[r->rank_of[s]].line, 0,
          "stage %d is on rank %d: with %d stages on %d ranks a loop has it on "
          "rank %d%s",
          s, r->rank_of[s], r->stages, ranks, placed(r, s, false),
          r->v ? arena_printf(r->arena, ", a V on rank %d", placed(r, s, true)) : "");
}

/* ---- transfers ---- */

/* What has happened to a (stage, microbatch). */
enum { DID_F = 1, DID_B = 2, SENT_F = 4, GOT_F = 8, SENT_B = 16, GOT_B = 32 };

static bool crosses(const Reader *r, int stage, int to) {
  return to >= 0 && to < r->stages && r->rank_of[stage] != r->rank_of[to];
}

typedef struct Transfers {
  Reader *r;
  uint8_t *did; /* [stage * microbatches + mb] */
  const Row *row;
  int rank;
} Transfers;

static void transfer_problem(Transfers *t, const Entry *e, int stage, int mb,
                             const char *what, const char *why) {
  problem(t->r, t->row->line, e->cell, "%d%s%d %s", stage, what, mb, why);
}

/* Checks one part of a computation: its input must have been received. */
static void computed(Transfers *t, const Entry *e, int stage, int mb, bool forward) {
  uint8_t *did = &t->did[(size_t)stage * (size_t)t->r->microbatches + (size_t)mb];
  if (crosses(t->r, stage, forward ? stage - 1 : stage + 1) &&
      !(*did & (forward ? GOT_F : GOT_B)))
    transfer_problem(t, e, stage, mb, forward ? "RECV_F" : "RECV_B",
                     "should come before this");
  *did |= forward ? DID_F : DID_B;
}

/* Checks a send, its end or a receive: on the right rank, once, in the right order. */
static void transferred(Transfers *t, const Entry *e) {
  static const struct {
    const char *name;
    uint8_t sets, needs, forbids;
    int to;
  } rule[] = {
      {"SEND_F", SENT_F, DID_F, SENT_F, 1},  {"RECV_F", GOT_F, 0, GOT_F | DID_F, -1},
      {"SEND_B", SENT_B, DID_B, SENT_B, -1}, {"RECV_B", GOT_B, 0, GOT_B | DID_B, 1},
      {"WAIT_SEND_F", 0, SENT_F, 0, 1},      {"WAIT_SEND_B", 0, SENT_B, 0, -1}};
  int k = e->kind - SEND_F;
  uint8_t *did = &t->did[(size_t)e->stage * (size_t)t->r->microbatches + (size_t)e->mb];
  const char *why = NULL;
  if (t->r->rank_of[e->stage] != t->rank)
    why = "is on the rank of another stage";
  else if (!crosses(t->r, e->stage, e->stage + rule[k].to))
    why = "has no other rank";
  else if (*did & rule[k].sets)
    why = "is there twice";
  else if (*did & rule[k].forbids)
    why = "comes too late";
  else if ((*did & rule[k].needs) != rule[k].needs)
    why = "comes too early";
  if (why) transfer_problem(t, e, e->stage, e->mb, rule[k].name, why);
  *did |= rule[k].sets;
}

static void all_sent(Transfers *t) {
  static const struct {
    const char *name;
    uint8_t sets;
    int to;
  } want[] = {{"SEND_F", SENT_F, 1}, {"SEND_B", SENT_B, -1}};
  Reader *r = t->r;
  for (int s = 0; s < r->stages; s++)
    for (int mb = 0; mb < r->microbatches; mb++)
      for (int k = 0; k < LEN(want); k++)
        if (crosses(r, s, s + want[k].to) &&
            !(t->did[(size_t)s * (size_t)r->microbatches + (size_t)mb] & want[k].sets))
          problem(r, r->row.at[r->rank_of[s]].line, 0, "%d%s%d is missing", s,
                  want[k].name, mb);
}

static void check_transfers(Reader *r) {
  Transfers t = {.r = r};
  t.did = NEW_N(r->arena, uint8_t, (size_t)r->stages * (size_t)r->microbatches);
  for (t.rank = 0; t.rank < r->row.n; t.rank++) {
    t.row = &r->row.at[t.rank];
    for (int i = 0; i < t.row->e.n; i++) {
      const Entry *e = &t.row->e.at[i];
      if (e->kind == ACT_F || e->kind == ACT_OVERLAP)
        computed(&t, e, e->stage, e->mb, true);
      if (e->kind == ACT_I || e->kind == ACT_B) computed(&t, e, e->stage, e->mb, false);
      if (e->kind == ACT_OVERLAP) computed(&t, e, e->stage2, e->mb2, false);
      if (e->kind >= SEND_F && e->kind <= WAIT_SEND_B) transferred(&t, e);
    }
  }
  all_sent(&t);
}

/* ---- the result ---- */

static void fill(const Reader *r, Schedule *out) {
  *out = (Schedule){.ranks = r->row.n,
                    .virtual_stages = r->stages / r->row.n,
                    .microbatches = r->microbatches,
                    .v_placement = r->v,
                    .name = "csv",
                    .file = r->file};
  out->list = NEW_N(r->arena, Action *, out->ranks);
  out->n = NEW_N(r->arena, int, out->ranks);
  for (int k = 0; k < out->ranks; k++) {
    const Row *row = &r->row.at[k];
    out->list[k] = NEW_N(r->arena, Action, row->e.n + 1);
    for (int i = 0; i < row->e.n; i++) {
      const Entry *e = &row->e.at[i];
      if (e->kind >= ACT_N) continue;
      int rank, chunk, chunk2 = 0;
      schedule_where(out, e->stage, &rank, &chunk);
      if (e->kind == ACT_OVERLAP) schedule_where(out, e->stage2, &rank, &chunk2);
      out->list[k][out->n[k]++] = (Action){.kind = (uint8_t)e->kind,
                                           .chunk = (int16_t)chunk,
                                           .mb = e->mb,
                                           .chunk2 = (int16_t)chunk2,
                                           .mb2 = MAX(e->mb2, 0),
                                           .line = row->line,
                                           .cell = e->cell};
    }
  }
}

/* Checks that actions on parameters are on the rank of their stage. */
static void check_parameters(Reader *r) {
  for (int k = 0; k < r->row.n; k++)
    for (int i = 0; i < r->row.at[k].e.n; i++) {
      const Entry *e = &r->row.at[k].e.at[i];
      if (e->mb < 0 && r->rank_of[e->stage] != k)
        problem(r, r->row.at[k].line, e->cell, "stage %d is on rank %d (row %d)",
                e->stage, r->rank_of[e->stage], r->rank_of[e->stage] + 1);
    }
}

bool schedule_csv_read(const char *text, const char *file, Schedule *out, Diags *d) {
  Reader r = {.file = file, .d = d, .arena = d->arena};
  read_rows(&r, text);
  if (!r.errors && !r.stages) problem(&r, 1, 0, "there is no action in the file");
  int64_t cells = (int64_t)r.stages * r.microbatches;
  if (!r.errors && cells > CELLS_MAX)
    problem(&r, 1, 0, "%d stages times %d microbatches are too many", r.stages,
            r.microbatches);
  if (!r.errors) find_placement(&r);
  if (!r.errors) check_parameters(&r);
  if (!r.errors && r.comms) check_transfers(&r);
  if (r.errors > SHOWN)
    diag_error(d, "schedule-csv", "schedule", "%d more errors in the file",
               r.errors - SHOWN)
        ->file = file;
  if (r.errors) return false;
  fill(&r, out);
  return true;
}
