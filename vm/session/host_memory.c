/* host_memory.c - host memory of a run besides its arenas, from the plan and its programs
 * alone. The size in each line comes from a function beside the code that allocates it.
 */
#include "host_memory.h"

#include "vm/rank/saved_pieces.h"
#include "vm/run/run_int.h"
#include "vm/sim/kernel_work.h"
#include "vm/weights/weights_load.h"

static uint64_t held_run(const Compiled *c) {
  return sizeof(Run) + (uint64_t)c->mesh.world * sizeof(Worker);
}

/* Bytes of all communicators with two or more members; each is counted at its first
 * member. */
static uint64_t groups(const Compiled *c, const WorldBytes *w, int *member) {
  uint64_t bytes = 0;
  for (int rank = 0; rank < c->mesh.world; rank++) {
    const Program *p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)];
    for (int i = 0; i < p->ncomm; i++) {
      int n = comm_group(&c->mesh, &p->comm[i], rank, member);
      if (n > 1 && member[0] == rank) bytes += w->group(n, p->comm[i].in_flight);
    }
    bytes += w->rank(p->ncomm, p->nhandle) + comm_bytes(p->ncomm, p->nhandle);
  }
  return bytes;
}

/* Bytes of the local backend; 0 if it cannot have so many ranks as threads. */
static uint64_t virtual_ranks(const Compiled *c) {
  const WorldKind *k = world_default(false, false, true);
  int member[1 << 10];
  if (c->mesh.world > MIN(k->most, LEN(member))) return 0;
  return k->bytes->world(c->mesh.world) + groups(c, k->bytes, member);
}

typedef enum {
#define FOOTPRINT(id, name, by, what) LINE_##id,
#include "host_memory.def"
  LINE_N
} Line;

static uint64_t bytes_of(Line line, const Plan *p, const Compiled *c, int pp) {
  switch (line) {
  case LINE_TABLES: return rank_footprint(c, pp).tables;
  case LINE_STATES: return rank_footprint(c, pp).states;
  case LINE_STAGING: return rank_footprint(c, pp).staging;
  case LINE_PIECE: return (uint64_t)rank_block(c) * sizeof(float);
  case LINE_COPY: return p->checkpoint.dir ? saved_most(c, pp) : 0;
  case LINE_TRACE: return TRACE_BYTES;
  case LINE_PADDING: return c->prog[pp].host_bytes ? 2 * DEVICE_ALIGN : DEVICE_ALIGN;
  case LINE_WORKERS: return held_run(c);
  case LINE_BATCH:
    return 2 * (uint64_t)p->batch.global * (uint64_t)c->seq * sizeof(int32_t);
  case LINE_WORLD: return virtual_ranks(c);
  case LINE_WEIGHTS: return weights_bytes(c);
  case LINE_DATA: return data_bytes(&p->data);
  case LINE_PROGRAMS: return arena_bytes(c->arena);
  default: return 0;
  }
}

int host_memory_lines(const Plan *p, const Compiled *c, unsigned with, HostMemoryOwner by,
                      int pp, HostMemoryLine out[HOST_MEMORY_MOST]) {
  static const HostMemoryLine lines[LINE_N] = {
#define FOOTPRINT(id, name, by, what)                                                    \
  {name, what, HOST_MEMORY_##by, HOST_MEMORY_##by != HOST_MEMORY_LIBRARY, 0},
#include "host_memory.def"
  };
  int n = 0;
  for (int i = 0; i < LINE_N; i++) {
    if (i == LINE_TRACE && !(with & HOST_MEMORY_TRACE)) continue;
    if (lines[i].by != by || (i == LINE_WEIGHTS && !(with & HOST_MEMORY_WEIGHTS)))
      continue;
    HostMemoryLine h = lines[i];
    if (h.known) h.bytes = bytes_of((Line)i, p, c, pp);
    if (!h.known || h.bytes) out[n++] = h;
  }
  return n;
}

/* A ring has a kernel for each of its steps, the first of which is 0: a layer's scores
 * are those of all. */
double score_bytes(const Compiled *c) {
  const EvenList none = {0};
  double most = 0;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    double layer = 0;
    for (uint32_t i = 0; i < p->ncode; i++) {
      const Instr *x = &p->code[i];
      if (x->code != I_KERNEL) continue;
      KernelWork w = kernel_work(p, x, &none);
      if (w.kind != WORK_ATTENTION) continue;
      bool further = x->op == OP_attention_part && p->attr[x->attr].step > 0;
      layer = (further ? layer : 0) + 5 * w.heads * w.m * w.n;
      most = MAX(most, layer);
    }
  }
  return most;
}
