/* gemm.c - selects the backend of a product: a module (see vm/base/module.h), else plain
 * C. Small products stay in plain C, since a library call costs more. */
#include "gemm.h"

#include "kernels/cpu/levels.h"

#include <dlfcn.h>
#include <stdio.h>

#include "vm/base/module.h"

/* Below this many multiplications a library's call costs more than the product. */
enum { SMALL = 16 * 16 * 16 };

/* Opens a module. It is never unmapped (NODELETE): its library may own threads. */
static void *open_module(const char *file) {
  char path[4096];
  module_find(file, path, sizeof path);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* In the order in which they are tried. */
static const struct {
  const char *name, *file;
} modules[] = {
    {"onednn", "weft_gemm_dnnl.so"},
    {"openblas", "weft_gemm_blas.so"},
};

/* The interface of a module; NULL if it is not here or of another version. */
static const GemmApi *open_api(const char *file, void **module) {
  *module = open_module(file);
  const GemmApi *api = *module ? dlsym(*module, "weft_gemm_api") : NULL;
  if (api && api->version == GEMM_API_VERSION) return api;
  if (*module) dlclose(*module);
  return NULL;
}

/* If the backend does not support the type, operands are widened in blocks. */
static bool try_module(Gemm *g, const char *file) {
  CpuLevel level;
  const GemmApi *api = open_api(file, &g->module);
  if (!api) return false;
  (void)cpu_level(&level, NULL);
  if (level < cpu_best()) api->limit(level);
  DType in = g->shape.in;
  bool native = g->shape.out == DT_F32 || g->shape.out == in;
  native = native && (in == DT_F32 || (in == DT_BF16 && cpu_level_bf16(level)));
  g->made = native && api->make(&g->shape, g->threads, g->state) == WEFT_OK;
  g->widens = !g->made && gemm_in_blocks(&g->shape);
  if (g->made || g->widens) {
    g->api = api;
    return true;
  }
  dlclose(g->module);
  g->module = NULL;
  return false;
}

static void init_plain(Gemm *g, const GemmShape *s, int threads) {
  assert(s->out == DT_F32 || s->out == s->in ||
         (s->in == DT_F32 && dtype_size(s->out) == 2));
  *g = (Gemm){.shape = *s, .threads = MAX(1, threads), .set = cpu_set_here()};
}

void gemm_init(Gemm *g, const GemmShape *s, int threads) {
  init_plain(g, s, threads);
  bool found = s->m * s->n * s->k <= SMALL;
  for (int i = 0; i < LEN(modules) && !found; i++) found = try_module(g, modules[i].file);
}

void gemm_init_many(Gemm *g, const GemmShape *s, int threads) {
  init_plain(g, s, threads);
  if (s->m * s->n * s->k <= SMALL) return;
  for (int i = 0; i < LEN(modules) && !g->api; i++)
    g->api = open_api(modules[i].file, &g->module);
  CpuLevel level;
  (void)cpu_level(&level, NULL);
  if (g->api && level < cpu_best()) g->api->limit(level);
}

void gemm_run_as(Gemm *g, const GemmShape *s, const void *a, const void *b, void *c,
                 bool accumulate, void *work) {
  if (s->m == 0 || s->n == 0) return;
  if (!g->api || s->k == 0)
    g->set->gemm_plain(s, g->threads, a, b, c, accumulate);
  else if (!gemm_in_blocks(s))
    g->api->multiply(s, g->threads, a, b, c, s->n, accumulate);
  else
    g->set->gemm_blocks(s, g->api, g->threads, work, a, b, c, accumulate);
}

weft_status gemm_init_from(Gemm *g, const char *backend, const GemmShape *s, int threads,
                           weft_error *e) {
  init_plain(g, s, threads);
  bool found = strcmp(backend, "plain") == 0;
  for (int i = 0; i < LEN(modules) && !found; i++)
    if (strcmp(backend, modules[i].name) == 0) found = try_module(g, modules[i].file);
  if (found) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE,
                 "there is no GEMM backend \"%s\" for these types here; the backends are "
                 "plain, onednn and openblas",
                 backend);
}

bool gemm_has(const char *backend, char *text, size_t size) {
  for (int i = 0; i < LEN(modules); i++) {
    void *m = NULL;
    const GemmApi *api =
        strcmp(backend, modules[i].name) == 0 ? open_api(modules[i].file, &m) : NULL;
    if (!api) continue;
    if (text) api->describe(text, size);
    dlclose(m);
    return true;
  }
  if (text && size) text[0] = 0;
  return strcmp(backend, "plain") == 0;
}

void gemm_library(char *text, size_t size) {
  for (int i = 0; i < LEN(modules); i++)
    if (gemm_has(modules[i].name, text, size)) return;
  snprintf(text, size, "plain C");
}

void gemm_run(Gemm *g, const void *a, const void *b, void *c, bool accumulate,
              void *work) {
  if (g->widens)
    g->set->gemm_blocks(&g->shape, g->api, g->threads, work, a, b, c, accumulate);
  else if (g->api)
    g->api->run(g->state, a, b, c, accumulate);
  else
    g->set->gemm_plain(&g->shape, g->threads, a, b, c, accumulate);
}

void gemm_end(Gemm *g) {
  if (g->made && g->api->free) g->api->free(g->state);
  if (g->module) dlclose(g->module);
  *g = (Gemm){0};
}

const char *gemm_backend(const Gemm *g) { return g->api ? g->api->name : "plain"; }
