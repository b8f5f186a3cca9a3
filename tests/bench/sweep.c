/* sweep.c - points per second of a sweep over Llama 3 70B on 64 ranks, on one core: every
 * point with at most 128 microbatches, first with all bytes exact, then with a limit. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bindings/runner/runner.h"

static const char script[] =
    "local weft = require 'weft'\n"
    "local max_gib, bounds = ...\n"
    "local r = weft.sweep { plan = 'plans/llama3_70b.lua', threads = 1, max_gib = "
    "max_gib,\n"
    "  bounds = bounds, keep = 10, over = weft.grid {\n"
    "    { 'mesh.tp', 1, 2, 4, 8 }, { 'mesh.pp', 1, 2, 4, 8, 16 },\n"
    "    { 'batch.micro', 1, 2, 4 }, { 'strategy.sequence_parallel', false, true },\n"
    "    { 'schedule', 'gpipe', '1f1b' },\n"
    "    { 'batch.global', 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024 } },\n"
    "  where = function(p)\n"
    "    local dp = 64 / (p.tp * p.pp)\n"
    "    return p.global / (p.micro * dp) <= 128\n"
    "  end }\n"
    "return r.judged, r.legal, r.memory, r.illegal, r.seconds\n";

static double cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void measure(const char *name, double max_gib, bool bounds) {
  enum { N = 5 };
  double wall[N], busy[N];
  int n[4] = {0};
  for (int i = 0; i < N; i++) {
    lua_State *L = script_new(NULL);
    double start = cpu();
    if (!L || luaL_loadstring(L, script) != LUA_OK) exit(3);
    lua_pushnumber(L, max_gib > 0 ? max_gib : 1e9); /* above any rank */
    lua_pushboolean(L, bounds);
    if (lua_pcall(L, 2, 5, 0) != LUA_OK) {
      fprintf(stderr, "%s\n", lua_tostring(L, -1));
      exit(1);
    }
    busy[i] = cpu() - start;
    wall[i] = lua_tonumber(L, -1);
    for (int k = 0; k < 4; k++) n[k] = (int)lua_tointeger(L, k - 5);
    lua_close(L);
  }
  double w = bench_median(wall, N), b = bench_median(busy, N);
  printf(
      "%-12s %d points (%d plans, %d over the limit, %d illegal): %.2f s, %.0f points/s; "
      "%.2f s of CPU with everything around, %.0f points/s\n",
      name, n[0], n[1], n[2], n[3], w, n[0] / w, b, n[0] / b);
}

void bench_sweep(void) {
  measure("no limit", 0, false);
  measure("max_gib 79", 79, false);
  measure("bounds", 0, true);
}
