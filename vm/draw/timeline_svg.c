/* timeline_svg.c - a timeline as one self-contained SVG, on a light or a dark ground as
 * the reader's screen is. All cells of one kind and tint are one path, so large schedules
 * give small files. The time axis has units, or seconds where the timeline is of a clock.
 */
#include "timeline_draw.h"
#include "vm/base/plural.h"

#include <stdio.h>

enum {
  WIDTH = 1080,   /* of the time axis, about */
  ROW = 26,       /* from one rank to the next */
  BAR = 22,       /* height of a cell */
  LEFT = 78,      /* room for the ranks' names */
  RIGHT = 92,     /* room for the peaks */
  TOP = 60,       /* of the first row */
  TINTS = 4,      /* chunks that can be told apart; then the tints repeat */
  CELL_MOST = 26, /* most pixels per unit */
  SWATCH = 16,    /* of the legend */
  FONT = 11,      /* of numbers in cells */
  FONT_HALF = 9,  /* in halves of cells */
  FONT_LEAST = 6
};

typedef struct Look {
  const char *name;
  const char *fill[TINTS], *text[TINTS];
} Look;

#define LIGHT "#fff"
#define DARK  "#10283f"
/* Forward is light, backward dark; a later chunk is a darker tint of its kind. */
static const Look look[DRAW_N] = {
    [DRAW_F] = {"forward",
                {"#bcd8f8", "#8fbef0", "#68a5e4", "#4a8cd3"},
                {DARK, DARK, DARK, LIGHT}},
    [DRAW_I] = {"input gradients",
                {"#2f9d91", "#23857b", "#186c64", "#0e544e"},
                {LIGHT, LIGHT, LIGHT, LIGHT}},
    [DRAW_W] = {"weight gradients",
                {"#9a79c6", "#8461b3", "#6e4b9c", "#573783"},
                {LIGHT, LIGHT, LIGHT, LIGHT}},
    [DRAW_B] = {"backward",
                {"#3f72b8", "#305f9f", "#244c84", "#193a69"},
                {LIGHT, LIGHT, LIGHT, LIGHT}},
};

#define AFTER "#c9a227" /* reductions and optimizer */

typedef struct Picture {
  const Schedule *s;
  const Timeline *t;
  Text *out;
  double unit;  /* pixels of a unit */
  double cell;  /* pixels of the narrowest cell */
  double width; /* of the time axis */
  int bottom;   /* of the last row */
} Picture;

/* ---- text ---- */

static void add_escaped(Text *out, const char *s) {
  for (; *s; s++) switch (*s) {
    case '&': text_add(out, "&amp;"); break;
    case '<': text_add(out, "&lt;"); break;
    case '>': text_add(out, "&gt;"); break;
    case '"': text_add(out, "&quot;"); break;
    default:
      /* Control characters may not stand in XML at all. */
      text_addn(out, (unsigned char)*s < ' ' ? " " : s, 1);
    }
}

/* At most two decimals, none where it has none. */
static void add_number(Text *out, double v) {
  char buf[400]; /* room for any double */
  TextBuf t = textbuf(buf, sizeof buf);
  textbuf_printf(&t, "%.2f", v);
  while (t.s[t.n - 1] == '0') t.n--;
  if (t.s[t.n - 1] == '.') t.n--;
  text_addn(out, t.s, t.n);
}

/* ---- cells ---- */

/* A rectangle for a part of an action. The halves of a pair are one above the other. */
typedef struct Box {
  double x, width;
  int y, height;
} Box;

static Box box_of(const Picture *p, int rank, const TimelineSlot *slot, int half) {
  int y = TOP + rank * ROW;
  return (Box){.x = LEFT + (double)slot->start * p->unit,
               .width = (double)(slot->end - slot->start) * p->unit,
               .y = half == 2 ? y + BAR / 2 : y,
               .height = half ? BAR / 2 : BAR};
}

typedef void PartFn(Picture *p, const Box *b, int mb);

/* Calls fn for every part of this kind on chunks of this tint; returns their number. */
static int each_part(Picture *p, DrawKind kind, int tint, PartFn *fn) {
  int n = 0;
  for (int r = 0; r < p->t->ranks; r++)
    for (int i = 0; i < p->s->n[r]; i++) {
      const Action *a = &p->s->list[r][i];
      const TimelineSlot *slot = &p->t->slot[r][i];
      DrawKind is = draw_kind(a);
      bool pair = is == DRAW_PAIR, back = pair && kind == DRAW_B;
      if (slot->start == slot->end) continue;
      if (is != kind && !(pair && (kind == DRAW_F || kind == DRAW_B))) continue;
      if ((back ? a->chunk2 : a->chunk) % TINTS != tint) continue;
      n++;
      Box b = box_of(p, r, slot, pair ? 1 + back : 0);
      if (fn) fn(p, &b, back ? a->mb2 : a->mb);
    }
  return n;
}

static void add_cell(Picture *p, const Box *b, int mb) {
  text_add(p->out, "M");
  add_number(p->out, b->x);
  text_printf(p->out, " %dh", b->y);
  add_number(p->out, b->width);
  text_printf(p->out, "v%dh", b->height);
  add_number(p->out, -b->width);
  text_add(p->out, "z");
}

/* Font size at which any microbatch number fits into this many pixels (a digit is a
 * little more than half as wide as high). 0: too small to read. */
static double font_for(const Picture *p, double width) {
  double font = (width - 2) / (0.6 * draw_digits(p->s->microbatches - 1));
  return font < FONT_LEAST ? 0 : MIN(font, FONT);
}

/* Either all cells of one width have a number, or none. */
static void add_label(Picture *p, const Box *b, int mb) {
  double font = font_for(p, b->width);
  if (b->height < BAR) font = MIN(font, FONT_HALF);
  if (font <= 0) return;
  text_add(p->out, "<text x=\"");
  add_number(p->out, b->x + b->width / 2);
  text_add(p->out, "\" y=\"");
  add_number(p->out, b->y + b->height / 2.0 + font * 0.36);
  if (b->height < BAR)
    text_add(p->out, "\" class=\"s");
  else if (font < FONT)
    text_add(p->out, "\" class=\"m");
  text_printf(p->out, "\">%d</text>", mb);
}

/* What follows the actions of a rank. */
static void add_after(Picture *p) {
  if (!p->t->after) return;
  text_add(p->out, "<path class=\"c\" fill=\"" AFTER "\" d=\"");
  for (int r = 0; r < p->t->ranks; r++)
    for (int i = 0; i < p->t->nafter[r]; i++) {
      Box b = box_of(p, r, &p->t->after[r][i], 0);
      add_cell(p, &b, 0);
    }
  text_add(p->out, "\"/>\n");
}

static void add_cells(Picture *p) {
  for (int k = DRAW_F; k <= DRAW_B; k++)
    for (int tint = 0; tint < TINTS; tint++) {
      if (!each_part(p, (DrawKind)k, tint, NULL)) continue;
      text_printf(p->out, "<path class=\"c\" fill=\"%s\" d=\"", look[k].fill[tint]);
      each_part(p, (DrawKind)k, tint, add_cell);
      text_printf(p->out, "\"/>\n<g class=\"n\" fill=\"%s\">", look[k].text[tint]);
      each_part(p, (DrawKind)k, tint, add_label);
      text_add(p->out, "</g>\n");
    }
  add_after(p);
}

/* ---- axes, names, legend ---- */

static void add_rows(Picture *p) {
  text_add(p->out, "<g class=\"r\">");
  for (int r = 0; r < p->t->ranks; r++) {
    int y = TOP + r * ROW;
    text_printf(p->out, "<rect x=\"%d\" y=\"%d\" width=\"", LEFT, y);
    add_number(p->out, p->width);
    text_printf(p->out, "\" height=\"%d\"/><text x=\"%d\" y=\"%d\">rank %d</text>", BAR,
                LEFT - 10, y + BAR / 2 + 4, r);
    text_add(p->out, "<text class=\"p\" x=\"");
    add_number(p->out, LEFT + p->width + RIGHT / 2);
    text_printf(p->out, "\" y=\"%d\">%d</text>\n", y + BAR / 2 + 4, p->t->peak[r]);
  }
  text_add(p->out, "<text class=\"p\" x=\"");
  add_number(p->out, LEFT + p->width + RIGHT / 2);
  text_printf(p->out, "\" y=\"%d\">peak chunks</text></g>\n", TOP - 8);
}

/* A place on the time axis: units, or with the unit of the whole axis. */
static void add_time(const Picture *p, int64_t at) {
  double tick = p->t->tick, all = tick * (double)p->t->makespan;
  if (tick == 0)
    text_printf(p->out, "%lld", (long long)at);
  else if (all >= 2)
    text_printf(p->out, "%.4g s", tick * (double)at);
  else
    text_printf(p->out, all >= 2e-3 ? "%.4g ms" : "%.4g µs",
                tick * (double)at * (all >= 2e-3 ? 1e3 : 1e6));
}

static int64_t tick(const Picture *p) {
  for (int64_t power = 1;; power *= 10)
    for (int k = 0; k < 3; k++) {
      int64_t step = power * (int64_t[]){1, 2, 5}[k];
      if ((double)step * p->unit >= 60) return step;
    }
}

static void add_axis(Picture *p) {
  int64_t step = tick(p);
  text_printf(p->out, "<g class=\"a\"><path d=\"");
  for (int64_t t = 0; t <= p->t->makespan; t += step) {
    text_add(p->out, "M");
    add_number(p->out, LEFT + (double)t * p->unit);
    text_printf(p->out, " %dv5", p->bottom);
  }
  text_add(p->out, "\"/>");
  for (int64_t t = 0; t <= p->t->makespan; t += step) {
    text_add(p->out, "<text x=\"");
    add_number(p->out, LEFT + (double)t * p->unit);
    text_printf(p->out, "\" y=\"%d\">", p->bottom + 17);
    add_time(p, t);
    text_add(p->out, "</text>");
  }
  text_add(p->out, "</g>\n");
}

static int swatch(Picture *p, int x, int y, const char *fill, const char *name) {
  text_printf(p->out,
              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\" fill=\"%s\"/>"
              "<text x=\"%d\" y=\"%d\">%s</text>",
              x, y - 10, SWATCH, fill, x + SWATCH + 5, y, name);
  return x + SWATCH + 5 + 7 * (int)strlen(name) + 16;
}

/* The two halves of a pair, then the label. */
static int swatch_pair(Picture *p, int x, int y) {
  text_printf(p->out,
              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"6\" fill=\"%s\"/>"
              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"6\" fill=\"%s\"/>"
              "<text x=\"%d\" y=\"%d\">overlapped pair</text>",
              x, y - 10, SWATCH, look[DRAW_F].fill[0], x, y - 4, SWATCH,
              look[DRAW_B].fill[0], x + SWATCH + 5, y);
  return x + SWATCH + 5 + 7 * 15 + 16;
}

static bool has_pairs(const Picture *p) {
  for (int r = 0; r < p->t->ranks; r++)
    for (int i = 0; i < p->s->n[r]; i++)
      if (p->s->list[r][i].kind == ACT_OVERLAP) return true;
  return false;
}

static void add_legend(Picture *p) {
  int x = LEFT, y = p->bottom + 42;
  text_add(p->out, "<g class=\"l\">");
  for (int k = DRAW_F; k <= DRAW_B; k++) {
    int tint = 0;
    while (tint < TINTS && !each_part(p, (DrawKind)k, tint, NULL)) tint++;
    if (tint < TINTS) x = swatch(p, x, y, look[k].fill[tint], look[k].name);
  }
  if (has_pairs(p)) x = swatch_pair(p, x, y);
  if (p->t->after) x = swatch(p, x, y, AFTER, "reductions, optimizer");
  text_printf(p->out,
              "<rect class=\"i\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\"/>"
              "<text x=\"%d\" y=\"%d\">idle</text>",
              x, y - 10, SWATCH, x + SWATCH + 5, y);
  x += SWATCH + 5 + 7 * 4 + 16;
  if (p->s->virtual_stages > 1)
    text_printf(p->out, "<text x=\"%d\" y=\"%d\">darker: later chunks</text>", x, y);
  text_add(p->out, "</g>\n");
}

static void add_captions(Picture *p) {
  const Schedule *s = p->s;
  text_printf(p->out, "<text class=\"t\" x=\"%d\" y=\"28\">", LEFT);
  add_escaped(p->out, s->name ? s->name : "schedule");
  text_printf(p->out, "</text><text class=\"u\" x=\"%d\" y=\"46\">%d rank%s", LEFT,
              s->ranks, plural(s->ranks, "s"));
  if (s->virtual_stages > 1) text_printf(p->out, " × %d chunks", s->virtual_stages);
  text_printf(p->out, ", %d microbatch%s; ", s->microbatches,
              plural(s->microbatches, "es"));
  if (p->t->tick > 0) {
    text_add(p->out, "a step of ");
    add_time(p, p->t->makespan);
    text_printf(p->out, " by the clock, %.1f %% of it idle between actions</text>\n",
                100 * timeline_bubble(p->t));
  } else {
    text_printf(p->out, "bubble %.1f %%, %.1f %% within the ranks’ own spans</text>\n",
                100 * timeline_bubble(p->t), 100 * timeline_bubble_own(p->t));
  }
}

/* Every rule is below .tl: in a page it must not reach what is around the picture. */
static const char style[] =
    "<style>.tl text{font-family:system-ui,\"DejaVu Sans\",Verdana,sans-serif}"
    ".tl .c{stroke:#fff;stroke-width:%s}"
    ".tl .n{font-size:11px;text-anchor:middle}.tl .s{font-size:9px}.tl .m{font-size:%s}"
    ".tl .r,.tl .i{fill:#ececee}"
    ".tl .r text{font-size:12px;fill:#333;text-anchor:end}.tl .r .p{text-anchor:middle}"
    ".tl .a path{stroke:#999;fill:none}"
    ".tl .a text{font-size:10px;fill:#666;text-anchor:middle}"
    ".tl .l text{font-size:12px;fill:#333}.tl .g{fill:#fff}"
    ".tl .t{font-size:16px;font-weight:600;fill:#111}.tl .u{font-size:12px;fill:#444}"
    "@media screen and (prefers-color-scheme:dark){.tl .g{fill:#15181c}"
    ".tl .c{stroke:#15181c}.tl .r,.tl .i{fill:#2a2f36}.tl .a path{stroke:#5b636d}"
    ".tl .r text,.tl .l text,.tl .u{fill:#c8ced6}.tl .a text{fill:#9aa4af}"
    ".tl .t{fill:#f0f2f4}}</style>\n";

/* Pixels of a unit of time. */
static double unit_pixels(const Timeline *t) {
  double unit = (double)WIDTH / (double)MAX(t->makespan, 1);
  if (t->tick > 0) return unit;
  unit = MIN(unit, CELL_MOST);
  /* Whole pixels look sharper, unless rounding would distort too much. */
  return MAX(unit >= 8 ? (double)(int)unit : unit, 1);
}

/* Pixels of the narrowest slot. */
static double narrowest(const Picture *p) {
  int64_t least = p->t->tick > 0 ? p->t->makespan : 1;
  for (int r = 0; p->t->tick > 0 && r < p->t->ranks; r++)
    for (int i = 0; i < p->s->n[r]; i++) {
      const TimelineSlot *slot = &p->t->slot[r][i];
      if (slot->end > slot->start) least = MIN(least, slot->end - slot->start);
    }
  return p->unit * (double)least;
}

void timeline_svg(const Schedule *s, const Timeline *t, bool in_page, Text *out) {
  Picture p = {.s = s, .t = t, .out = out, .bottom = TOP + t->ranks * ROW};
  p.unit = unit_pixels(t);
  p.cell = narrowest(&p);
  p.width = (double)MAX(t->makespan, 1) * p.unit;
  int width = MAX(LEFT + (int)p.width + RIGHT, 640), height = p.bottom + 58;
  text_printf(out,
              "<svg %sclass=\"tl\" role=\"img\" width=\"%d\" height=\"%d\" "
              "viewBox=\"0 0 %d %d\">\n<title>Timeline of the schedule ",
              in_page ? "" : "xmlns=\"http://www.w3.org/2000/svg\" ", width, height,
              width, height);
  add_escaped(out, s->name ? s->name : "");
  text_add(out, "</title>\n");
  char small[16];
  snprintf(small, sizeof small, "%.2gpx", MAX(font_for(&p, p.cell), FONT_LEAST));
  text_printf(out, style, p.cell >= 6 ? "1" : p.cell >= 3 ? ".5" : "0", small);
  text_printf(out, "<rect class=\"g\" width=\"%d\" height=\"%d\"/>\n", width, height);
  add_captions(&p);
  add_rows(&p);
  add_cells(&p);
  add_axis(&p);
  add_legend(&p);
  text_add(out, "</svg>\n");
}
