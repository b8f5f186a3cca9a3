/* timeline_draw.h - a timeline as text, as SVG, and its figures as text or JSON. */
#ifndef WEFT_TIMELINE_DRAW_H
#define WEFT_TIMELINE_DRAW_H

#include "vm/base/json.h"
#include "vm/pipeline/timeline.h"
#include "vm/program/program.h"

/* One row per rank, time from left to right, at most `width` columns: every unit with its
 * microbatches if they fit, else letters, else several units to a column. What was done
 * is said below. `colour` adds escapes of a terminal with 256 colours. */
void timeline_text(const Schedule *s, const Timeline *t, int width, bool colour,
                   Text *out);
/* Idle shares, peaks and, unless `bytes` is NULL, what traffic() gave; `copies`: so many
 * ranks of the mesh share a pp rank. */
void timeline_figures(const Timeline *t, const RankTraffic *bytes, int copies, Text *out);
/* The picture, a whole file. */
void timeline_svg(const Schedule *s, const Timeline *t, Text *out);
/* Members of an object that the caller has open: "bubble" to "makespan", in the order of
 * the alphabet; and "ranks", an array with `bytes`, peaks, idle time and slots. */
void timeline_json_shares(const Timeline *t, Json *out);
void timeline_json_ranks(const Schedule *s, const Timeline *t, const RankTraffic *bytes,
                         Json *out);

/* ---- what both drawings share ---- */

/* Parts of an action that are drawn: F, I, W, B; an overlapped pair is two. */
typedef enum { DRAW_IDLE, DRAW_F, DRAW_I, DRAW_W, DRAW_B, DRAW_PAIR, DRAW_N } DrawKind;
/* DRAW_IDLE for what takes no time. */
DrawKind draw_kind(const Action *a);
int draw_digits(int64_t n);

#endif
