/* cuda_launch.c - what a kernel needs of the GPU, looked at before it is launched.
 *
 * CUDA loads a kernel at its first launch, and may wait for all that runs on the GPU to
 * do so: behind an operation of NCCL that waits for a peer this never ends. So each
 * kernel of a program is loaded when the program is (Device.loads), and this table
 * remembers it. A block has 48 KiB of shared memory, its own variables and dynamic memory
 * together; beyond that a kernel has to ask for it, up to what the GPU has. */
#include <stdio.h>
#include <stdlib.h>

#include "failed_before.h"
#include "kernels/cuda/cuda_device.h"

enum { ALWAYS = 48 << 10, LOADED_MOST = 1024 };

typedef struct LoadedKernel {
  const void *kernel;
  size_t fixed; /* bytes of shared memory of its own variables */
  size_t room;  /* dynamic bytes that it may have */
  int threads;  /* of a block at most: by its registers */
} LoadedKernel;

struct LoadedKernels {
  size_t shared_most;           /* of a block, where it is asked for */
  int capability;               /* 90 */
  double seconds;               /* that loading took */
  LoadedKernel at[LOADED_MOST]; /* open addressing; at least one stays empty */
  int n;
};

/* ---- machine code and PTX ---- */

/* Architectures of the build, as CMAKE_CUDA_ARCHITECTURES has them: "80,90-real", of
 * which those that are "80-virtual" are PTX alone. */
#ifndef WEFT_CUDA_CODE
#define WEFT_CUDA_CODE "native"
#endif

/* The architecture whose machine code a GPU of this capability runs: of its generation,
 * and not newer; 0: there is none, and PTX has to be translated. Code for the machine of
 * the build counts as its own. */
static int code_for(int capability) {
  int best = 0;
  if (WEFT_CUDA_CODE[0] == 'n') return capability;
  for (const char *at = WEFT_CUDA_CODE; *at;) {
    char *end;
    int arch = (int)strtol(at, &end, 10);
    bool ptx = strncmp(end, "-virtual", 8) == 0;
    if (!ptx && arch / 10 == capability / 10 && arch <= capability)
      best = MAX(best, arch);
    at = strchr(end, ',') ? strchr(end, ',') + 1 : "";
  }
  return best;
}

static cudaError_t capability_of(int gpu, int *capability) {
  int major = 0, minor = 0;
  cudaError_t r = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  if (r == cudaSuccess)
    r = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
  *capability = major * 10 + minor;
  return r;
}

static void say_how_they_came(CudaContext *c) {
  const struct LoadedKernels *t = c->loaded;
  int arch = code_for(t->capability);
  char beside[72] = "";
  if (c->others > 0)
    snprintf(beside, sizeof beside,
             "; other processes hold %.1f GiB of the GPU (nvidia-smi)", c->others);
  if (arch)
    snprintf(c->came, sizeof c->came, "machine code for %d.%d, loaded in %.1f s%s",
             arch / 10, arch % 10, t->seconds, beside);
  else
    snprintf(c->came, sizeof c->came,
             "PTX, translated by the driver for %d.%d in %.1f s%s", t->capability / 10,
             t->capability % 10, t->seconds, beside);
}

/* What to do about a kernel that there is no code for. */
static const char *no_code(const CudaContext *c, cudaError_t r, char text[160]) {
  int has = c->loaded->capability;
  if (r == cudaErrorUnsupportedPtxVersion)
    snprintf(
        text, 160,
        "; the driver is older than the toolkit of weft_cuda.so, whose PTX it cannot "
        "translate: install a newer one, or build with "
        "-DCMAKE_CUDA_ARCHITECTURES=%d",
        has);
  else if (r == cudaErrorNoKernelImageForDevice || r == cudaErrorInvalidDeviceFunction)
    snprintf(text, 160,
             "; weft_cuda.so has no code for compute capability %d.%d: build with "
             "-DCMAKE_CUDA_ARCHITECTURES=%d",
             has / 10, has % 10, has);
  else
    text[0] = 0;
  return text;
}

cudaError_t cuda_launch_open(CudaDevice *c, const weft_alloc *a) {
  int gpu = 0, most = 0;
  cudaError_t r = cudaGetDevice(&gpu);
  if (r == cudaSuccess)
    r = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  if (r != cudaSuccess) return r;
  c->c.loaded = mem_new(a, sizeof *c->c.loaded);
  if (!c->c.loaded) return cudaErrorMemoryAllocation;
  c->c.loaded->shared_most = (size_t)most;
  return capability_of(gpu, &c->c.loaded->capability);
}

void cuda_launch_close(CudaDevice *c, const weft_alloc *a) {
  mem_free(a, c->c.loaded, sizeof *c->c.loaded);
  c->c.loaded = NULL;
}

/* ---- what is said ---- */

static void say(CudaContext *c, const char *what, const CudaLaunch *l, size_t fixed,
                const char *why) {
  if (c->refused[0]) return;
  snprintf(c->refused, sizeof c->refused,
           "its kernel %s with a grid of %u x %u x %u blocks of %u threads, %zu + %zu "
           "bytes of shared memory (own and dynamic): %.300s",
           what, l->grid[0], l->grid[1], l->grid[2],
           l->block[0] * l->block[1] * l->block[2], fixed, l->room, why);
}

static void refuse(CudaContext *c, const CudaLaunch *l, size_t fixed, const char *why) {
  say(c, "cannot be launched", l, fixed, why);
}

static bool refuse_error(CudaContext *c, const CudaLaunch *l, size_t fixed,
                         cudaError_t r) {
  char why[320], more[160];
  if (cuda_failed_before(c)) return false;
  bool ran = cuda_error_of_what_ran(c) != 0;
  snprintf(why, sizeof why, "%.80s (%.60s)%s", cudaGetErrorString(r), cudaGetErrorName(r),
           no_code(c, r, more));
  (void)cudaGetLastError(); /* clears the error */
  say(c, ran ? "failed" : "cannot be launched", l, fixed, why);
  return false;
}

/* ---- the table ---- */

/* Its row, or the empty one where it goes. */
static LoadedKernel *row_of(struct LoadedKernels *t, const void *kernel) {
  uint64_t i = hash_bytes(0, &kernel, sizeof kernel) % LOADED_MOST;
  while (t->at[i].kernel && t->at[i].kernel != kernel) i = (i + 1) % LOADED_MOST;
  return &t->at[i];
}

static cudaError_t load(LoadedKernel *k, const void *kernel) {
  struct cudaFuncAttributes a;
  cudaError_t r = cudaFuncGetAttributes(&a, kernel);
  if (r != cudaSuccess) return r;
  *k = (LoadedKernel){.kernel = kernel,
                      .fixed = a.sharedSizeBytes,
                      .room = ALWAYS - MIN(a.sharedSizeBytes, ALWAYS),
                      .threads = a.maxThreadsPerBlock};
  return cudaSuccess;
}

static bool grid_fits(const unsigned grid[3]) {
  const unsigned most[3] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
  bool fits = true;
  for (int i = 0; i < 3; i++) fits &= grid[i] > 0 && grid[i] <= most[i];
  return fits;
}

static bool fits(CudaContext *c, const CudaLaunch *l, LoadedKernel *k) {
  const struct LoadedKernels *t = c->loaded;
  unsigned threads = l->block[0] * l->block[1] * l->block[2];
  char why[120];
  if (!grid_fits(l->grid))
    return refuse(c, l, k->fixed,
                  "a grid has at least 1 and at most 2147483647 x 65535 "
                  "x 65535 blocks"),
           false;
  if (threads > (unsigned)k->threads) {
    snprintf(why, sizeof why, "with its registers a block has at most %d threads",
             k->threads);
    return refuse(c, l, k->fixed, why), false;
  }
  if (k->fixed + l->room > t->shared_most) {
    snprintf(why, sizeof why, "the GPU has %zu bytes for a block", t->shared_most);
    return refuse(c, l, k->fixed, why), false;
  }
  if (l->room <= k->room) return true;
  cudaError_t r = cudaFuncSetAttribute(
      l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)l->room);
  if (r != cudaSuccess) return refuse_error(c, l, k->fixed, r);
  k->room = l->room;
  return true;
}

/* Without a table nothing is remembered, and CUDA itself refuses what does not fit. */
static bool allow_room(const CudaLaunch *l) {
  return l->room == 0 ||
         cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)l->room) == cudaSuccess;
}

bool cuda_launch_fits(CudaContext *c, const CudaLaunch *l) {
  struct LoadedKernels *t = c ? c->loaded : NULL;
  if (!t) return allow_room(l);
  LoadedKernel other, *k = row_of(t, l->kernel);
  if (k->kernel) return fits(c, l, k);
  bool full = t->n == LOADED_MOST - 1; /* then it is asked for each time */
  double from = now_s();
  cudaError_t r = load(full ? &other : k, l->kernel);
  t->seconds += now_s() - from;
  say_how_they_came(c);
  if (r != cudaSuccess) return refuse_error(c, l, 0, r);
  t->n += !full;
  return fits(c, l, full ? &other : k);
}

void cuda_launch_failed(CudaContext *c, const CudaLaunch *l, int error) {
  const LoadedKernel *k = c->loaded ? row_of(c->loaded, l->kernel) : NULL;
  (void)refuse_error(c, l, k ? k->fixed : 0, (cudaError_t)error);
}
