/* gpu_memory.c - what CUDA, NCCL and cuDNN take of a GPU besides the arena.
 *
 * NCCL says nowhere what a communicator takes, but it follows from how it connects ranks
 * when one is created (NCCL 2.28: init.cc, graph/connect.cc, graph/paths.cc and
 * transport/p2p.cc, net.cc, nvls.cc, generic.cc), as the backend sets
 * NCCL_RUNTIME_CONNECT=0. Per channel, which is a CTA:
 *
 *   a connection to a peer of the machine: at the receiver a FIFO for each protocol, 0.5
 * MiB (LL), 4.7 MiB (LL128) and NCCL_BUFFSIZE (simple), at the sender a page; one over
 * the network: on both sides those FIFOs but LL's, which is of the host; collectives have
 * the neighbours of a ring and of two trees, and where a machine has one member all
 * members at distances 1, 2, 4, ... (PAT); in a machine with NVLink switches that add up
 * (NVLS), two pieces of 1 MiB per member; a pool for sends over the network, which is
 * there in each case.
 *
 * Sends and receives have connections of their own, to each peer that has any.
 *
 * The arena is in pages of NCCL's memory (allocator.cc). The first symmetric window of a
 * communicator brings buffers of its kernels (sym_kernels.cc, nccl_device/ll_a2a.cc): for
 * each of 64 blocks, two slots of 16 bytes for each of 512 threads and each member. */
#include "gpu_memory.h"

#include <stdlib.h>

#include "vm/comm/nccl_shares.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
enum { H100_SMS = 132 };
/* A context takes 0.4 to 0.55 GiB on Ampere and Hopper by nvidia-smi, with kernels that
 * are loaded when they are used; cuBLAS's workspace is in the arena. */
#define CONTEXT (600 * MIB)
#define PAGE    (2 * MIB) /* what NCCL rounds allocations to */
#define LL      (512 * KIB)
#define LL128   (4800 * KIB)
enum { POOL_STEPS = 16, NVLS_CTAS = 16 };
enum { SYM_BLOCKS = 64, SYM_THREADS = 512, SYM_SLOT = 16 };

typedef struct Nccl {
  uint64_t simple; /* bytes of that FIFO */
  uint64_t near,
      far;  /* what a receiver has of a connection in a machine, over the network */
  int most; /* channels of a communicator; 0: not limited */
  bool nvls;
} Nccl;

/* The members of a communicator, seen from one. */
typedef struct Members {
  int n, here; /* all; those of its machine */
  int nodes;
} Members;

static uint64_t pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* A setting of the plan, which are texts, or `otherwise`. */
static uint64_t setting(const char *text, uint64_t otherwise) {
  return text ? strtoull(text, NULL, 10) : otherwise;
}

/* FP8 came with it. */
static bool since_hopper(const Plan *p) { return !p->cluster.gpu || p->cluster.fp8 > 0; }

/* So did NVLS. */
static Nccl settings(const Plan *p) {
  Nccl s = {.simple = setting(p->nccl.buffsize, 4 * MIB),
            .most = (int)setting(p->nccl.max_nchannels, 0),
            .nvls = setting(p->nccl.nvls_enable, 2) && since_hopper(p)};
  s.near = pages(LL + LL128 + s.simple);
  s.far = pages(LL128 + s.simple);
  return s;
}

/* `met` has a byte for each machine, zeros, and is left so. */
static Members members_of(const int *rank, int n, int me, int node, uint8_t *met) {
  Members m = {.n = n};
  for (int i = 0; i < n; i++) {
    m.here += rank[i] / node == me / node;
    m.nodes += !met[rank[i] / node];
    met[rank[i] / node] = 1;
  }
  for (int i = 0; i < n; i++) met[rank[i] / node] = 0;
  return m;
}

static bool is_power(int n) { return (n & (n - 1)) == 0; }

/* Members at a distance of a power of two, one way around the n or the other. */
static int powers_around(int n) {
  int peers = 0;
  for (int d = 1; d < n; d++) peers += is_power(d) || is_power(n - d);
  return peers;
}

/* Of collectives, per channel. Neighbours over the network are those of one member of a
 * machine in each channel: two of a ring, six of trees. */
static uint64_t connections(const Nccl *s, Members m) {
  uint64_t near = s->near + PAGE, far = 2 * s->far;
  if (m.nodes == m.n) return far * (uint64_t)powers_around(m.n);
  uint64_t bytes = near * (m.here > 2 ? 2 : m.here > 1);
  if (m.nodes > 1) bytes += 4 * far / (uint64_t)m.here;
  return bytes;
}

/* What every communicator takes, whatever is started on it. */
static uint64_t communicator(const Nccl *s, Members m, int ctas) {
  uint64_t chunk = m.nodes > 1 ? 128 * KIB : 512 * KIB;
  chunk = MIN(chunk, s->simple / 8);
  uint64_t bytes = (uint64_t)ctas * connections(s, m);
  bytes += pages((uint64_t)nccl_exchange_ctas(ctas) * POOL_STEPS * chunk);
  if (s->nvls && m.here > 1)
    bytes += pages((uint64_t)MIN(ctas, NVLS_CTAS) * 2 * MIB * (uint64_t)m.here);
  return bytes;
}

/* Sends to and receives from that many members of the machine each, with all channels;
 * over the network receives have a pool, as sends have. */
static uint64_t exchanges(const Nccl *s, Members m, int peers, int ctas) {
  uint64_t channels = (uint64_t)nccl_exchange_ctas(ctas);
  uint64_t bytes = channels * (uint64_t)MIN(peers, m.here - 1) * (s->near + PAGE);
  if (m.nodes > 1) bytes += pages(channels * POOL_STEPS * MIN(128 * KIB, s->simple / 8));
  return bytes;
}

/* ---- what a program starts ---- */

/* Whether instructions of `p` exchange pieces on the communicator: with all members (2),
 * with neighbours (1), or not (0). */
static int exchanged(const Program *p, int comm) {
  int most = 0;
  for (uint32_t i = 0; i < p->ncode && most < 2; i++) {
    const Instr *in = &p->code[i];
    if (!(instr_is[in->code] & INSTR_COLL) || in->comm != comm) continue;
    if (in->coll == COLL_ALL_TO_ALL || in->coll == COLL_ALL_TO_ALL_V) most = 2;
    if (in->coll == COLL_SHIFT) most = MAX(most, in->by > 1 ? 2 : 1);
  }
  return most;
}

/* The communicators of collectives, each with its members and what is exchanged. */
static void add_groups(GpuMemory *m, const Nccl *s, const Program *p, const Members *w) {
  for (int i = 0; i < p->ncomm; i++) {
    if (w[i].n < 2) continue;
    int with = exchanged(p, i);
    m->groups += communicator(s, w[i], m->group_ctas);
    if (with) m->groups += exchanges(s, w[i], with > 1 ? w[i].n - 1 : 1, m->group_ctas);
  }
}

/* A communicator of two for each direction; in one of them this rank sends alone, in the
 * other it receives alone: together both sides of one exchange. */
static void add_pair(GpuMemory *m, const Nccl *s, Members w) {
  m->pairs += 2 * communicator(s, w, m->pair_ctas) + exchanges(s, w, 1, m->pair_ctas);
}

/* Groups within a machine and a stage: stages have arenas of other sizes. */
static void add_windows(GpuMemory *m, const Mesh *mesh, const Program *p,
                        const Members *w) {
  for (int i = 0; i < p->ncomm; i++) {
    if (w[i].n < 2 || w[i].nodes > 1 || comm_spans_pp(mesh, &p->comm[i])) continue;
    uint64_t slots = 1 + (uint64_t)w[i].n * 2 * SYM_THREADS;
    m->windows += pages(SYM_BLOCKS * slots * SYM_SLOT); /* barriers fit behind them */
    m->nwindow++;
  }
}

static int ctas_of(const Nccl *s, int given, int otherwise) {
  int ctas = given ? given : otherwise;
  return s->most ? MIN(s->most, ctas) : ctas;
}

/* ---- cuDNN ---- */

/* The scratch of an attention that "auto" leaves to cuDNN where the plan is compiled for
 * a GPU; 0 for other ops. */
static uint64_t attention_scratch(const Plan *p, const Program *prog, const Instr *in,
                                  const DeviceKind *gpu) {
  bool back = in->op == OP_attention_dx || in->op == OP_attention_part_dx;
  bool forward = in->op == OP_attention || in->op == OP_attention_part;
  if (in->code != I_KERNEL || !(back || forward)) return 0;
  if (back && p->deterministic) return 0;
  OpAttr attr = prog->attr[in->attr];
  KernelArgs args = {.attr = &attr, .nin = in->nin, .nout = in->nout};
  const Operand *o = &prog->operand[in->operand];
  for (int k = 0; k < args.nin; k++) {
    args.in[k] = operand_shape(o++);
    if (args.in[k].dtype == DT_I32 && p->attention == ATTENTION_AUTO)
      return 0; /* packed documents, which it leaves to weft's kernels */
  }
  for (int k = 0; k < args.nout; k++) args.out[k] = operand_shape(o++);
  if (gpu->refuses(in->op, &args)) return 0;
  attr.backend = BACKEND_CUDNN;
  return gpu->work(in->op, &args);
}

/* Where the arena is that of another device, whose kernels need less. "auto" takes cuDNN
 * from Hopper on. */
static uint64_t library_scratch(const Plan *p, const Compiled *c, const Program *prog) {
  const DeviceKind *gpu = device_kind("cuda", NULL);
  uint64_t most = 0;
  if (p->attention == ATTENTION_AUTO && !since_hopper(p)) return 0;
  if (c->device->refuses || p->attention == ATTENTION_NATIVE || !gpu) return 0;
  for (uint32_t i = 0; i < prog->ncode; i++)
    most = MAX(most, attention_scratch(p, prog, &prog->code[i], gpu));
  return most;
}

GpuMemory gpu_memory(Arena *a, const Plan *p, const Compiled *c, int pp) {
  const Program *prog = &c->prog[pp];
  const Mesh *mesh = &c->mesh;
  Nccl s = settings(p);
  int me = rank_on_pp(mesh, 0, pp), stages = mesh->size[AXIS_PP];
  int node = p->cluster.gpus ? (int)p->cluster.gpus : GPUS_OF_A_NODE;
  int64_t sms = p->cluster.sms ? p->cluster.sms : H100_SMS;
  node = MAX(node, (int)p->cluster.domain); /* NCCL takes what NVLink joins for one */
  GpuMemory m = {.context = CONTEXT, .scratch = library_scratch(p, c, prog)};
  int *rank = NEW_N(a, int, mesh->world);
  uint8_t *met = NEW_N(a, uint8_t, mesh->world / node + 1);
  Members *w = NEW_N(a, Members, prog->ncomm + 1);
  for (int i = 0; i < prog->ncomm; i++) {
    w[i] = members_of(rank, comm_group(mesh, &prog->comm[i], me, rank), me, node, met);
    m.ngroup += w[i].n > 1;
  }
  for (int i = 0; i < stages; i++) m.npair += 2 * (i != pp && program_meets(prog, i));
  m.group_ctas = ctas_of(&s, p->nccl.group_ctas, nccl_group_ctas(sms, m.ngroup));
  m.pair_ctas = ctas_of(&s, p->nccl.pair_ctas, nccl_pair_ctas(sms, m.npair));
  add_groups(&m, &s, prog, w);
  if (m.ngroup + m.npair && p->nccl.arena != NCCL_ARENA_CUDA)
    m.arena = pages(prog->arena_bytes) - prog->arena_bytes;
  if (p->nccl.arena == NCCL_ARENA_SYMMETRIC) add_windows(&m, mesh, prog, w);
  for (int i = 0; i < stages; i++) {
    if (i == pp || !program_meets(prog, i)) continue;
    int two[] = {me, rank_on_pp(mesh, me, i)};
    add_pair(&m, &s, members_of(two, 2, me, node, met));
  }
  return m;
}

uint64_t gpu_memory_sum(const GpuMemory *m) {
  return m->context + m->groups + m->pairs + m->arena + m->windows + m->scratch;
}

uint64_t gpu_memory_worst(Arena *a, const Plan *p, const Compiled *c, int *pp) {
  uint64_t worst = 0;
  *pp = 0;
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++) {
    GpuMemory m = gpu_memory(a, p, c, r);
    uint64_t all = c->prog[r].arena_bytes + gpu_memory_sum(&m);
    if (all > worst) worst = all, *pp = r;
  }
  return worst;
}
