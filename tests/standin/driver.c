/* driver.c - stands in for libcuda.so.1, for cuDNN alone: there is no GPU, but a library
 * that makes plans for one elsewhere may load kernels and ask what they need. Where it is
 * the driver of a process, no call of CUDA's runtime works. */
#include <stddef.h>
#include <string.h>

enum { DONE = 0, NOT_FOUND = 34, VERSION = 13000 };

int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return DONE;
}

/* Handles that nobody looks into. */
static int some_handle(void **to) {
  static char it;
  *to = &it;
  return DONE;
}
int cuLibraryLoadData(void **library) { return some_handle(library); }
int cuLibraryGetKernel(void **kernel) { return some_handle(kernel); }
int cuLibraryGetModule(void **module) { return some_handle(module); }
int cuModuleLoadData(void **module) { return some_handle(module); }
int cuModuleGetFunction(void **function) { return some_handle(function); }
int cuKernelGetFunction(void **function) { return some_handle(function); }
int cuKernelSetAttribute(void) { return DONE; }
int cuFuncSetAttribute(void) { return DONE; }

/* What cuDNN looks for by name when it loads, and does not need. */
/* clang-format off */
#define MISSING(F) \
  F(cuCtxGetCurrent) F(cuCtxGetLimit) F(cuCtxPopCurrent) F(cuCtxPushCurrent) \
  F(cuDeviceGet) F(cuDeviceGetCount) F(cuGetErrorName) F(cuGetErrorString) \
  F(cuKernelGetAttribute) F(cuLaunchCooperativeKernel) F(cuLaunchKernel) \
  F(cuLaunchKernelEx) F(cuLibraryLoadFromFile) F(cuLibraryUnload) F(cuLinkAddData) \
  F(cuLinkComplete) F(cuLinkCreate) F(cuLinkDestroy) \
  F(cuOccupancyMaxPotentialClusterSize) F(cuStreamGetCtx)
/* clang-format on */
#define DEFINE(name)                                                                     \
  int name(void) { return NOT_FOUND; }
MISSING(DEFINE)

static int not_found(void) { return NOT_FOUND; }

int cuGetProcAddress_v2(const char *name, void **to, int version,
                        unsigned long long flags, int *found) {
  static const struct {
    const char *name;
    void *it;
  } there[] = {
#define HERE(f) {#f, (void *)f},
      HERE(cuDriverGetVersion) HERE(cuGetProcAddress_v2) HERE(cuLibraryLoadData)
          HERE(cuLibraryGetKernel) HERE(cuLibraryGetModule) HERE(cuModuleLoadData) HERE(
              cuModuleGetFunction) HERE(cuKernelGetFunction) HERE(cuKernelSetAttribute)
              HERE(cuFuncSetAttribute){"cuGetProcAddress", (void *)cuGetProcAddress_v2}};
  if (found) *found = 0;
  *to = (void *)not_found;
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    if (strcmp(there[i].name, name) == 0) *to = there[i].it;
  return DONE;
}
