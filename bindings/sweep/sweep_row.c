/* sweep_row.c - the figures of a judged point, by column. */
#include "sweep.h"

#include <math.h>

#include "bindings/object/result.h"

const char *const sweep_columns[SWEEP_COLUMNS] = {
    "dp",          "microbatches", "peak_gib", "bubble",      "comm_gib.tp",
    "comm_gib.dp", "comm_gib.pp",  "tflop",    "tflop_again", "step_ms",
    "tokens_per_s"};

int sweep_column(const char *name) {
  for (int i = 0; i < SWEEP_COLUMNS; i++)
    if (strcmp(name, sweep_columns[i]) == 0) return i;
  return -1;
}

double sweep_value(const Sweep *s, int64_t i, int column) {
  const PointRow *r = &s->row[i];
  const double gib = 1 << 30;
  switch (column) {
  case 0:
    return r->dp;
  case 1:
    return r->microbatches;
  case 2:
    return r->bytes / gib;
  case 3:
    return r->bubble;
  case 4:
    return r->tp / gib;
  case 5:
    return r->dp_bytes / gib;
  case 6:
    return r->pp / gib;
  case 7:
    return r->flops / 1e12;
  case 8:
    return r->again / 1e12;
  case 9:
    return r->seconds > 0 ? r->seconds * 1e3 : NAN;
  case 10:
    return s->measured ? s->measured[i] : NAN;
  }
  return NAN;
}

/* Columns with a dot are fields of a table. */
static void set_column(lua_State *L, int column, double v) {
  const char *name = sweep_columns[column], *dot = strchr(name, '.');
  if (column < 2) {
    set_integer(L, name, (int64_t)v);
  } else if (!dot) {
    set_number(L, name, v);
  } else {
    const char *table = lua_pushlstring(L, name, (size_t)(dot - name));
    luaL_getsubtable(L, -2, table);
    set_number(L, dot + 1, v);
    lua_pop(L, 2);
  }
}

void sweep_push_row(lua_State *L, const Sweep *s, int axes, int64_t i) {
  axes = lua_absindex(L, axes);
  luaL_checkstack(L, 10, NULL);
  lua_createtable(L, 0, 2 * s->grid.n + SWEEP_COLUMNS);
  sweep_grid_fields(L, &s->grid, axes, s->todo[i]);
  for (int c = 0; c < SWEEP_COLUMNS; c++) {
    double v = sweep_value(s, i, c);
    if (!isnan(v)) set_column(L, c, v);
  }
  set_integer(L, "worst_rank", s->row[i].worst);
}
