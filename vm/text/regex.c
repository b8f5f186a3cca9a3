/* regex.c - opens weft_text.so; see regex.h. */
#include "regex.h"

#include <dlfcn.h>

#include "vm/base/module.h"

#define MODULE "weft_text.so"

weft_status regex_api(const RegexApi **out, weft_error *e) {
  char path[4096];
  module_find(MODULE, path, sizeof path);
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const RegexApi *api = so ? dlsym(so, "weft_regex_api") : NULL;
  *out = api;
  if (!so)
    return err_set(e, WEFT_EFILE,
                   "tokenizers and patterns of adapters need %s (Debian: libonig5, "
                   "libutf8proc2): %s",
                   MODULE, dlerror());
  if (api && api->version == REGEX_API_VERSION) return WEFT_OK;
  return err_set(e, WEFT_EFILE, "%s is of another version of weft", path);
}
