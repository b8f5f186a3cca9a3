/* timeline_text.c - draws a timeline with characters, with or without colours. */
#include "timeline_draw.h"
#include "vm/base/plural.h"

enum {
  LINES_MOST = 48, /* of a drawing that is cut into blocks, one below the other */
  COLUMNS_LEAST = 16,
  TICK_COLUMNS = 8, /* from one number of the ruler to the next, at least */
  TINTS = 2         /* the first chunk and the others */
};

/* How much detail of an action is shown. */
typedef enum { DETAIL_NUMBERS, DETAIL_LETTERS, DETAIL_SCALED } Detail;

/* A column of a row: its character, and the part of an action it belongs to. */
typedef struct Cell {
  char c;
  uint8_t kind, tint;
} Cell;

typedef struct Canvas {
  const Schedule *s;
  const Timeline *t;
  Text *out;
  bool colour;
  Detail detail;
  int label;     /* columns for a rank's name */
  int unit;      /* columns per unit; 1 if scaled */
  int64_t scale; /* units per column; 1 unless scaled */
  int64_t block; /* units per row of the drawing */
  Cell *cell;    /* one row */
} Canvas;

static const char letter[DRAW_N] = {'.', 'F', 'I', 'W', 'B', '='};

DrawKind draw_kind(const Action *a) {
  static const uint8_t kind[ACT_N] = {[ACT_F] = DRAW_F,
                                      [ACT_I] = DRAW_I,
                                      [ACT_W] = DRAW_W,
                                      [ACT_B] = DRAW_B,
                                      [ACT_OVERLAP] = DRAW_PAIR};
  return (DrawKind)kind[a->kind];
}

int draw_digits(int64_t n) {
  int digits = 1;
  while (n >= 10) n /= 10, digits++;
  return digits;
}

/* ---- the layout ---- */

static bool readable(const Canvas *v, int columns, int unit) {
  int64_t units = MAX(columns / unit, 1);
  int64_t blocks = (v->t->makespan + units - 1) / units;
  return blocks <= 1 || blocks * (v->t->ranks + 2) <= LINES_MOST;
}

static void lay_out(Canvas *v, int width) {
  v->label = MAX(4, draw_digits(v->t->ranks - 1));
  int columns = MAX(width - v->label - 1, COLUMNS_LEAST);
  int unit = 1 + draw_digits(v->s->microbatches - 1);
  v->unit = 1;
  v->scale = 1;
  if (readable(v, columns, unit)) {
    v->detail = DETAIL_NUMBERS;
    v->unit = unit;
  } else if (readable(v, columns, 1)) {
    v->detail = DETAIL_LETTERS;
  } else {
    v->detail = DETAIL_SCALED;
    v->scale = (v->t->makespan + columns - 1) / columns;
  }
  v->block = MAX(columns / v->unit, 1) * v->scale;
}

/* ---- rows ---- */

static char lower(char c) { return (char)(c + ('a' - 'A')); }

static char part_letter(DrawKind kind, int chunk) {
  return chunk > 0 ? lower(letter[kind]) : letter[kind];
}

static void part_label(const Canvas *v, DrawKind kind, int chunk, int mb, TextBuf *out) {
  textbuf_printf(out, "%c", part_letter(kind, chunk));
  if (v->detail == DETAIL_NUMBERS) textbuf_printf(out, "%d", mb);
}

/* Paints columns from..to as far as they are on the row; the label is at `from`. */
static void paint(Canvas *v, int64_t from, int64_t to, const char *label, DrawKind kind,
                  int chunk) {
  int64_t end = v->block * v->unit, n = (int64_t)strlen(label);
  for (int64_t x = MAX(from, 0); x < MIN(to, end); x++)
    v->cell[x] = (Cell){x - from < n ? label[x - from]
                        : v->colour  ? ' '
                                     : '-',
                        (uint8_t)kind, (uint8_t)(chunk > 0)};
}

/* The halves of a pair are side by side, "F3/b1", and share the time of both. */
static void paint_slot(Canvas *v, const Action *a, int64_t from, int64_t to) {
  DrawKind kind = draw_kind(a);
  char text[2][16];
  TextBuf label = textbuf(text[0], sizeof text[0]),
          back = textbuf(text[1], sizeof text[1]);
  if (kind != DRAW_PAIR) {
    part_label(v, kind, a->chunk, a->mb, &label);
    paint(v, from, to, label.s, kind, a->chunk);
    return;
  }
  part_label(v, DRAW_F, a->chunk, a->mb, &label);
  part_label(v, DRAW_B, a->chunk2, a->mb2, &back);
  textbuf_printf(&label, "/");
  int64_t middle = from + (int64_t)label.n;
  paint(v, from, middle, label.s, DRAW_F, a->chunk);
  paint(v, middle, to, back.s, DRAW_B, a->chunk2);
}

static void row_exact(Canvas *v, int rank, int64_t begin) {
  const TimelineSlot *slot = v->t->slot[rank];
  for (int i = 0; i < v->s->n[rank]; i++) {
    if (slot[i].end <= begin || slot[i].start == slot[i].end) continue;
    if (slot[i].start >= begin + v->block) break;
    paint_slot(v, &v->s->list[rank][i], (slot[i].start - begin) * v->unit,
               (slot[i].end - begin) * v->unit);
  }
}

/* One column from the number of its units per kind: the most frequent kind, or = if
 * forward and backward alternate. */
static Cell scaled_cell(const int64_t units[DRAW_N], int64_t scale) {
  int64_t back = units[DRAW_I] + units[DRAW_W] + units[DRAW_B];
  int64_t busy = units[DRAW_F] + back + units[DRAW_PAIR];
  DrawKind kind = DRAW_PAIR;
  if (2 * busy < scale) return (Cell){letter[DRAW_IDLE], DRAW_IDLE, 0};
  if (4 * back >= 3 * busy) kind = DRAW_B;
  for (int k = DRAW_F; k <= DRAW_W; k++)
    if (4 * units[k] >= 3 * busy) kind = (DrawKind)k;
  bool partly = busy < scale;
  char c = kind != DRAW_PAIR ? letter[kind] : partly ? '-' : '=';
  return (Cell){partly && kind != DRAW_PAIR ? lower(c) : c, (uint8_t)kind, partly};
}

static void row_scaled(Canvas *v, int rank) {
  const TimelineSlot *slot = v->t->slot[rank];
  int64_t columns = (v->t->makespan + v->scale - 1) / v->scale;
  for (int64_t x = 0, i = 0; x < columns; x++) {
    int64_t from = x * v->scale, to = MIN(from + v->scale, v->t->makespan);
    int64_t units[DRAW_N] = {0};
    for (; i < v->s->n[rank] && slot[i].start < to; i++) {
      units[draw_kind(&v->s->list[rank][i])] +=
          MIN(slot[i].end, to) - MAX(slot[i].start, from);
      if (slot[i].end > to) break; /* the rest belongs to the next column */
    }
    v->cell[x] = scaled_cell(units, to - from);
  }
}

/* ---- output ---- */

/* 256 colours: light ones for forward, dark ones for backward; two tints each. */
static void set_colour(Canvas *v, Cell c) {
  static const uint8_t back[DRAW_N][TINTS] = {[DRAW_F] = {153, 117},
                                              [DRAW_I] = {30, 23},
                                              [DRAW_W] = {97, 54},
                                              [DRAW_B] = {25, 18},
                                              [DRAW_PAIR] = {67, 60}};
  if (!v->colour) return;
  text_add(v->out, "\033[0m");
  if (c.kind == DRAW_IDLE)
    text_add(v->out, "\033[2m");
  else
    text_printf(v->out, "\033[38;5;%d;48;5;%dm", c.kind == DRAW_F ? 16 : 231,
                back[c.kind][c.tint]);
}

static void put_row(Canvas *v, int64_t columns) {
  Cell last = {0};
  for (int64_t x = 0; x < columns; x++) {
    Cell c = v->cell[x];
    if (x == 0 || c.kind != last.kind || c.tint != last.tint) set_colour(v, c);
    text_addn(v->out, &c.c, 1);
    last = c;
  }
  text_add(v->out, v->colour ? "\033[0m\n" : "\n");
}

static int64_t tick(const Canvas *v) {
  for (int64_t power = 1;; power *= 10)
    for (int k = 0; k < 3; k++) {
      int64_t step = power * (int64_t[]){1, 2, 5}[k];
      if (step % v->scale == 0 && step * v->unit / v->scale >= TICK_COLUMNS) return step;
    }
}

/* A scaled drawing numbers its columns: a round number need not begin one. */
static void put_ruler(Canvas *v, int64_t begin, int64_t units) {
  int64_t step = v->detail == DETAIL_SCALED ? 10 * v->scale : tick(v), at = 0;
  text_printf(v->out, "%*s ", v->label, "rank");
  for (int64_t time = (begin + step - 1) / step * step; time < begin + units;
       time += step) {
    int64_t column = (time - begin) / v->scale * v->unit;
    if (column + draw_digits(time) > v->block / v->scale * v->unit) break;
    text_printf(v->out, "%*s%lld", (int)(column - at), "", (long long)time);
    at = column + draw_digits(time);
  }
  text_add(v->out, "\n");
}

static void put_block(Canvas *v, int64_t begin) {
  int64_t units = MIN(v->block, v->t->makespan - begin);
  int64_t columns = (units + v->scale - 1) / v->scale * v->unit;
  put_ruler(v, begin, units);
  for (int r = 0; r < v->t->ranks; r++) {
    for (int64_t x = 0; x < columns; x++)
      v->cell[x] = (Cell){letter[DRAW_IDLE], DRAW_IDLE, 0};
    if (v->detail == DETAIL_SCALED)
      row_scaled(v, r);
    else
      row_exact(v, r, begin);
    text_printf(v->out, "%*d ", v->label, r);
    put_row(v, columns);
  }
}

/* ---- legend ---- */

static unsigned kinds(const Canvas *v) {
  unsigned used = 0;
  for (int r = 0; r < v->t->ranks; r++)
    for (int i = 0; i < v->s->n[r]; i++) used |= 1u << draw_kind(&v->s->list[r][i]);
  return used;
}

static void legend_exact(Canvas *v) {
  static const char *const meaning[DRAW_N] = {
      NULL,     "F forward", "I input gradients", "W weight gradients",
      "B both", "F/B a pair"};
  unsigned used = kinds(v);
  for (int k = DRAW_F; k < DRAW_N; k++)
    if (used >> k & 1)
      text_printf(v->out, "%s, ",
                  k == DRAW_B && !(used >> DRAW_I & 1) ? "B backward" : meaning[k]);
  text_add(v->out, v->colour ? ". idle\n" : ". idle, - goes on\n");
  if (v->detail == DETAIL_NUMBERS) text_add(v->out, "numbers: the microbatch\n");
  if (v->s->virtual_stages > 1)
    text_add(v->out, "lower case: chunks after the first one of a rank\n");
  if (v->t->makespan > v->block)
    text_printf(v->out, "cut into %lld rows of %lld unit%s\n",
                (long long)((v->t->makespan + v->block - 1) / v->block),
                (long long)v->block, plural(v->block, "s"));
}

static void legend_scaled(Canvas *v) {
  text_printf(v->out,
              "a column is %lld unit%s: F forward, %sB backward, = both, . mostly idle;\n"
              "in lower case, or - for =, if the rank was idle for a part of it\n",
              (long long)v->scale, plural(v->scale, "s"),
              kinds(v) >> DRAW_W & 1 ? "I and W its halves, " : "");
  text_printf(v->out, "%lld units do not fit here; --width %lld shows each of them\n",
              (long long)v->t->makespan, (long long)v->t->makespan + v->label + 1);
}

void timeline_text(const Schedule *s, const Timeline *t, int width, bool colour,
                   Text *out) {
  Canvas v = {.s = s, .t = t, .out = out, .colour = colour};
  lay_out(&v, width);
  size_t n = sizeof(Cell) * (size_t)(v.block / v.scale * v.unit);
  v.cell = mem_new(out->alloc, n);
  if (!v.cell) {
    out->oom = true;
    return;
  }
  for (int64_t begin = 0; begin < t->makespan; begin += v.block) put_block(&v, begin);
  if (v.detail == DETAIL_SCALED)
    legend_scaled(&v);
  else
    legend_exact(&v);
  mem_free(out->alloc, v.cell, n);
}
