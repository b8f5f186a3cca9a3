/* plan_memory.c - plan:memory([rank]): what each rank and each process of a compiled plan
 * holds, and what CUDA, NCCL and cuDNN take besides. */
#include "plan_object.h"
#include "vm/session/host_memory.h"
#include "vm/base/plural.h"
#include "vm/session/gpu_memory.h"

/* Sets field `field` to the lines of the host memory: what a run has besides the arenas.
 */
static void add_held(lua_State *L, const Job *j, HostMemoryOwner by, int pp,
                     const char *field) {
  HostMemoryLine line[HOST_MEMORY_MOST];
  int n =
      host_memory_lines(&j->plan, j->compiled, lang_weights(j->lp) != NULL, by, pp, line);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 3);
    set_text(L, "name", line[i].name);
    if (line[i].known) set_integer(L, "bytes", (int64_t)line[i].bytes);
    set_text(L, "note", line[i].what);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, field);
}

static void add_classes(lua_State *L, const MemClass *m, int n, const char *field) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++, m++) {
    lua_createtable(L, 0, 3);
    set_text(L, "name", m->name);
    set_integer(L, "bytes", (int64_t)m->bytes);
    if (m->note) set_text(L, "note", m->note);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, field);
}

/* A line of the table on top. */
static void add_estimate(lua_State *L, const char *name, uint64_t bytes,
                         const char *note) {
  if (!bytes) return;
  lua_createtable(L, 0, 3);
  set_text(L, "name", name);
  set_integer(L, "bytes", (int64_t)bytes);
  set_text(L, "note", note);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* Sets field "gpu" to what CUDA and NCCL take besides on a GPU: estimates. */
static void add_gpu(lua_State *L, const Job *j, int pp) {
  GpuMemory m = gpu_memory(j->arena, &j->plan, j->compiled, pp);
  char note[80];
  lua_newtable(L);
  add_estimate(L, "CUDA", m.context, "context, kernels of weft and cuBLAS");
  snprintf(note, sizeof note, "buffers of %d communicator%s of %d CTA%s", m.ngroup,
           plural(m.ngroup, "s"), m.group_ctas, plural(m.group_ctas, "s"));
  add_estimate(L, "NCCL groups", m.groups, note);
  snprintf(note, sizeof note, "of %d direction%s to other stages, of %d CTA%s", m.npair,
           plural(m.npair, "s"), m.pair_ctas, plural(m.pair_ctas, "s"));
  add_estimate(L, "NCCL pairs", m.pairs, note);
  add_estimate(L, "NCCL arena", m.arena, "to whole pages of 2 MiB, for the arena");
  snprintf(note, sizeof note, "buffers for symmetric windows of %d group%s", m.nwindow,
           plural(m.nwindow, "s"));
  add_estimate(L, "NCCL windows", m.windows, note);
  add_estimate(L, "cuDNN", m.scratch,
               "scratch of attention, at most; --device cuda has it in the arena");
  lua_setfield(L, -2, "gpu");
}

/* Adds the memory classes of a rank and its footprint to the table on top. */
static void add_memory(lua_State *L, const Job *j, int pp) {
  const Program *p = &j->compiled->prog[pp];
  set_integer(L, "total", (int64_t)p->arena_bytes);
  set_integer(L, "pp", p->pp);
  add_classes(L, p->mem, p->nmem, "classes");
  if (p->nhost) add_classes(L, p->host, p->nhost, "host");
  add_held(L, j, HOST_MEMORY_RANK, pp, "outside");
  add_gpu(L, j, pp);
}

/* Ranks that differ only in dp, cp and tp have equal sizes, so there is one entry per pp
 * rank. */
int plan_memory(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  bool one = !lua_isnoneornil(L, 2);
  int rank = one ? plan_object_rank(L, j, 2) : 0, worst;
  lua_newtable(L);
  add_held(L, j, HOST_MEMORY_PROCESS, 0, "process");
  add_held(L, j, HOST_MEMORY_LIBRARY, 0, "libraries");
  double scores = score_bytes(j->compiled);
  if (scores > 0) set_integer(L, "scores", (int64_t)scores);
  if (one) {
    add_memory(L, j, mesh_coord(&j->mesh, rank, AXIS_PP));
    set_integer(L, "rank", rank);
    return 1;
  }
  set_integer(L, "peak", (int64_t)job_worst_memory(j, &worst));
  set_integer(L, "worst_pp", worst);
  for (int pp = 0; pp < j->mesh.size[AXIS_PP]; pp++) {
    lua_createtable(L, 0, 3);
    add_memory(L, j, pp);
    lua_rawseti(L, -2, pp + 1);
  }
  return 1;
}
