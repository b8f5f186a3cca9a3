/* timeline_draw.h - a timeline as text, as SVG, and its figures as text or JSON. */
#ifndef WEFT_TIMELINE_DRAW_H
#define WEFT_TIMELINE_DRAW_H

#include "vm/base/json.h"
#include "vm/pipeline/timeline.h"
#include "vm/program/program.h"

/* One row per rank, time from left to right, at most `width` columns: each unit with its
 * microbatch if that fits, else a letter, else several units per column; a line below
 * says which. `colour` adds escapes for 256 colours. */
void timeline_text(const Schedule *s, const Timeline *t, int width, bool colour,
                   Text *out);
/* Bubble, peaks and, unless `bytes` is NULL, traffic()'s result; `copies`: ranks per pp
 * rank. */
void timeline_figures(const Timeline *t, const RankTraffic *bytes, int copies, Text *out);
/* The picture as a complete file, or as an element of a page in HTML. */
void timeline_svg(const Schedule *s, const Timeline *t, bool in_page, Text *out);
/* Writes members into an open JSON object: "bubble" to "makespan", in alphabetical order;
 * and "ranks", an array with `bytes`, peaks, idle time and slots. */
void timeline_json_shares(const Timeline *t, Json *out);
void timeline_json_ranks(const Schedule *s, const Timeline *t, const RankTraffic *bytes,
                         Json *out);

/* ---- shared by both drawings ---- */

/* Parts of an action that are drawn: F, I, W, B; an overlapped pair is two. */
typedef enum { DRAW_IDLE, DRAW_F, DRAW_I, DRAW_W, DRAW_B, DRAW_PAIR, DRAW_N } DrawKind;
/* DRAW_IDLE for actions that take no time. */
DrawKind draw_kind(const Action *a);
int draw_digits(int64_t n);

#endif
