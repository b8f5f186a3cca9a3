/* gemm.c - chooses who multiplies: a shared object (see vm/base/module.h), else plain C.
 * Small products stay in plain C, which beats the cost of a call into a library. */
#include "levels.h"

#include <dlfcn.h>

#include "vm/base/module.h"

struct Gemm {
  GemmShape shape;
  int threads;
  const GemmApi *api; /* NULL: plain */
  void *state;
  void *module; /* open while this product lives */
};

/* Opens a module. It is never unmapped (NODELETE): its library may own threads. */
static void *open_module(const char *file) {
  char path[4096];
  module_find(file, path, sizeof path);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* Below this many multiplications a library's call costs more than the product. */
enum { SMALL = 16 * 16 * 16 };

/* In the order in which they are tried. */
static const struct {
  const char *name, *file;
} modules[] = {
    {"onednn", "weft_gemm_dnnl.so"},
    {"openblas", "weft_gemm_blas.so"},
};

static bool try_module(Gemm *g, const char *file) {
  void *m = open_module(file);
  if (!m) return false;
  const GemmApi *api = dlsym(m, "weft_gemm_api");
  if (api && api->version == GEMM_API_VERSION &&
      api->make(&g->shape, g->threads, &g->state) == WEFT_OK) {
    g->api = api;
    g->module = m;
    return true;
  }
  dlclose(m);
  return false;
}

static Gemm *new_plain(const GemmShape *s, int threads, weft_error *e) {
  assert(s->in == DT_F32 || s->in == DT_BF16);
  assert(s->out == DT_F32 || s->out == s->in);
  Gemm *g = mem_new(NULL, sizeof *g);
  if (!g) {
    err_set(e, WEFT_ENOMEM, "out of memory for a matrix product");
    return NULL;
  }
  g->shape = *s;
  g->threads = MAX(1, threads);
  return g;
}

weft_status gemm_new(const GemmShape *s, int threads, Gemm **out, weft_error *e) {
  Gemm *g = new_plain(s, threads, e);
  if (!g) return WEFT_ENOMEM;
  bool found = s->m * s->n * s->k <= SMALL;
  for (int i = 0; i < LEN(modules) && !found; i++)
    found = try_module(g, modules[i].file);
  *out = g;
  return WEFT_OK;
}

weft_status gemm_new_from(const char *backend, const GemmShape *s, int threads,
                          Gemm **out, weft_error *e) {
  Gemm *g = new_plain(s, threads, e);
  if (!g) return WEFT_ENOMEM;
  bool found = strcmp(backend, "plain") == 0;
  for (int i = 0; i < LEN(modules) && !found; i++)
    if (strcmp(backend, modules[i].name) == 0) found = try_module(g, modules[i].file);
  if (!found) {
    gemm_free(g);
    return err_set(e, WEFT_EUSAGE,
                   "no matrix product of this kind from \"%s\" here; there are plain, "
                   "onednn and openblas",
                   backend);
  }
  *out = g;
  return WEFT_OK;
}

bool gemm_has(const char *backend) {
  for (int i = 0; i < LEN(modules); i++) {
    void *m = strcmp(backend, modules[i].name) == 0 ? open_module(modules[i].file) : NULL;
    if (m) {
      dlclose(m);
      return true;
    }
  }
  return strcmp(backend, "plain") == 0;
}

void gemm_run(Gemm *g, const void *a, const void *b, void *c, bool accumulate) {
  if (g->api)
    g->api->run(g->state, a, b, c, accumulate);
  else
    cpu_set_here()->gemm_plain(&g->shape, g->threads, a, b, c, accumulate);
}

void gemm_free(Gemm *g) {
  if (!g) return;
  if (g->api) g->api->free(g->state);
  if (g->module) dlclose(g->module);
  mem_free(NULL, g, sizeof *g);
}

const char *gemm_backend(const Gemm *g) {
  return g->api ? g->api->name : "plain";
}
