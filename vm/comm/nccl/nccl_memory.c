/* nccl_memory.c - the arena of a rank in NCCL's memory, and how communicators know it.
 *
 * What follows is read from NCCL's sources (2.27.3 to 2.28.9; the files are named).
 *
 * ncclMemAlloc (allocator.cc) rounds up to the granularity that CUDA recommends for
 * virtual memory, 2 MiB on today's GPUs, and adds nothing for multicast; where NCCL does
 * without virtual memory (NCCL_CUMEM_ENABLE=0, an old driver) it is cudaMalloc. Only such
 * memory can be mapped by other GPUs of the machine, so that NCCL moves what lies in it
 * without a copy (transport/p2p.cc), or joined in the switch (transport/nvls.cc): memory
 * of cudaMalloc is not registered inside of a machine (NCCL_LEGACY_CUDA_REGISTER is 0).
 * In contrast to cudaFree, ncclMemFree does not wait for the GPU.
 *
 * ncclCommWindowRegister (dev_runtime.cc) is collective: members map each other's memory
 * in the order of their calls and meet in a barrier. They map as many bytes of a peer as
 * they have themselves, so allocations must be of one size; the address lies at a
 * multiple of 4096 of its allocation. Of a nonblocking communicator it goes on in a
 * thread, which writes the window when it ends: whatever the call returns, it is over
 * when ncclCommGetAsyncError says so. The window is NULL where there are none (2.27
 * with NCCL_LOCAL_REGISTER=0), or one that is a registration alone (2.28 where members
 * do not reach each other). It registers as ncclCommRegister does, too, and may be done
 * for one memory by any number of communicators. The end of a
 * communicator releases no window: the memory would stay taken (ncclDevrFinalize), so
 * windows go before.
 *
 * With NCCL_WIN_COLL_SYMMETRIC operations of which both operands lie in windows are other
 * kernels (sym_kernels.cc, device/symmetric): all-gathers, and sums of f32, bf16 and f16
 * by all-reduce and reduce-scatter, within one machine, eager or captured, whatever
 * NCCL_GRAPH_REGISTER says. These take the offset of an operand in the own window for
 * that of all members. Nothing compares it: with other offsets they read and write the
 * wrong memory. So members compare their programs first (CommGroup.layout).
 */
#include "nccl_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if NCCL_VERSION_CODE >= 22700
/* An older library does not have them, and the module opens all the same. */
extern __typeof__(ncclCommWindowRegister) ncclCommWindowRegister __attribute__((weak));
extern __typeof__(ncclCommWindowDeregister) ncclCommWindowDeregister
    __attribute__((weak));

static bool has_windows(const NcclWorld *w) {
  return w->version >= WINDOWS_SINCE && ncclCommWindowRegister &&
         ncclCommWindowDeregister;
}

static ncclResult_t open_window(NcclLine *l, const CommNeeds *needs) {
  return ncclCommWindowRegister(l->comm, needs->memory, needs->bytes, &l->window,
                                NCCL_WIN_COLL_SYMMETRIC);
}

static ncclResult_t close_window(NcclLine *l) {
  return ncclCommWindowDeregister(l->comm, l->window);
}
#else
static bool has_windows(const NcclWorld *w) { return false; }
static ncclResult_t open_window(NcclLine *l, const CommNeeds *needs) {
  return ncclInvalidUsage;
}
static ncclResult_t close_window(NcclLine *l) { return ncclInvalidUsage; }
#endif

/* ---- memory ---- */

/* A process has one rank, so there is one arena at a time. */
static void *take(void *ud, size_t bytes) {
  NcclWorld *w = ud;
  void *p = NULL;
  if (w->taken || !bytes || ncclMemAlloc(&p, bytes) != ncclSuccess) {
    (void)cudaGetLastError(); /* the device tries, too, and says what there is not */
    return NULL;
  }
  return w->taken = p;
}

static bool give_back(void *ud, void *p) {
  NcclWorld *w = ud;
  if (!p || p != w->taken) return false;
  (void)cudaDeviceSynchronize();
  (void)ncclMemFree(p);
  w->taken = NULL;
  return true;
}

const DeviceArenas *nccl_arenas(World *world) {
  NcclWorld *w = world->ctx;
  if (w->arena == ARENA_DEVICE || !has_windows(w)) return NULL;
  w->arenas = (DeviceArenas){.alloc = take, .free = give_back, .ud = w};
  return &w->arenas;
}

/* ---- registration ---- */

static bool is_off(const char *name) {
  const char *text = getenv(name);
  return text && strcmp(text, "0") == 0;
}

/* As NCCL tells machines apart (misc/utils.cc, getHostHash). */
static uint64_t machine_here(void) {
  char name[256] = "", boot[64] = "";
  const char *told = getenv("NCCL_HOSTID");
  if (told) return hash_bytes(1, told, strlen(told));
  (void)gethostname(name, sizeof name - 1);
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (f && !fgets(boot, sizeof boot, f)) boot[0] = 0;
  if (f) fclose(f);
  return hash_bytes(hash_bytes(1, name, strlen(name)), boot, strlen(boot));
}

ArenaFacts nccl_arena_facts(const NcclEndpoint *p, const CommNeeds *needs,
                            const CommGroup *g) {
  bool nccls = p->w->taken && needs->memory == p->w->taken;
  bool can = nccls && p->w->arena == ARENA_SYMMETRIC && g && g->layout &&
             !is_off("NCCL_CUMEM_ENABLE") && !is_off("NCCL_WIN_ENABLE");
  ArenaFacts facts = {.nccl_memory = nccls};
  if (can)
    facts.bytes = needs->bytes, facts.layout = g->layout, facts.machine = machine_here();
  return facts;
}

bool nccl_arenas_alike(const ArenaFacts *a, const ArenaFacts *b) {
  return a->bytes && a->bytes == b->bytes && a->layout == b->layout &&
         a->machine == b->machine;
}

weft_status nccl_register(NcclEndpoint *p, NcclLine *l, const CommNeeds *needs,
                          bool window, weft_error *e) {
  if (!needs->memory || l->alone) return WEFT_OK;
  pthread_mutex_lock(&p->w->lock);
  weft_status st = atomic_load(&p->w->ended) ? nccl_why(p->w, e) : WEFT_OK;
  l->windows = window;
  if (st == WEFT_OK && window)
    st = nccl_settle(p, l, open_window(l, needs), "a window on the arena", e);
  if (st == WEFT_OK && !l->window)
    st = nccl_settle(
        p, l, ncclCommRegister(l->comm, needs->memory, needs->bytes, &l->registered),
        "registration of the arena", e);
  pthread_mutex_unlock(&p->w->lock);
  return st;
}

bool nccl_deregister(NcclEndpoint *p, NcclLine *l) {
  weft_error ignored = NO_ERROR;
  if (l->registered) (void)ncclCommDeregister(l->comm, l->registered);
  l->registered = NULL;
  if (!l->window) return true;
  ncclResult_t r = close_window(l);
  l->window = NULL;
  return nccl_settle(p, l, r, "the end of a window", &ignored) == WEFT_OK;
}

/* ---- words ---- */

static const char *memory_of(const NcclEndpoint *p, const CommNeeds *needs) {
  return p->w->taken && needs->memory == p->w->taken ? "NCCL's memory" : "CUDA's memory";
}

void nccl_tell_arena(const NcclEndpoint *p, const CommNeeds *needs, char *text,
                     size_t size) {
  int groups = 0, windows = 0;
  bool alone = false;
  for (int i = 0; i < p->ngroup; i++) {
    groups += p->line[i].n > 1;
    windows += p->line[i].window != NULL;
  }
  for (int i = 0; i < p->nline; i++) alone |= p->line[i].alone;
  if (!needs->memory) return;
  bool older = p->w->version >= WINDOWS_SINCE; /* the header */
  int v = older ? NCCL_VERSION_CODE : p->w->version;
  if (alone)
    snprintf(text, size, "%s, not registered where members have other memory",
             memory_of(p, needs));
  else if (p->w->arena != ARENA_SYMMETRIC)
    snprintf(text, size, "%s, registered", memory_of(p, needs));
  else if (!has_windows(p->w))
    snprintf(text, size, "%s, registered (NCCL %d.%d%s has no windows)",
             memory_of(p, needs), v / 10000, v % 10000 / 100,
             older ? ", with which weft was built," : "");
  else
    snprintf(text, size, "%s, symmetric windows of %d of %d groups, registered elsewhere",
             memory_of(p, needs), windows, groups);
}
