/* module.c - finds and opens modules: in a build folder beside the binary, after an
 * installation in LIBDIR/weft. Paths are relative to the program and the library, so an
 * installed tree may be moved. */
#include "module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#ifndef WEFT_MODULES_FROM_BIN
#error "WEFT_MODULES_FROM_BIN: the path from the folder of programs to that of modules"
#endif

enum { FOLDER = 3072 };

/* "dir/" of a path, cut in place; false without a slash. */
static bool cut_name(char *path) {
  char *slash = strrchr(path, '/');
  if (slash) slash[1] = 0;
  return slash != NULL;
}

static bool program_folder(char dir[FOLDER]) {
  ssize_t n = readlink("/proc/self/exe", dir, FOLDER - 1);
  if (n <= 0) return false;
  dir[n] = 0;
  return cut_name(dir);
}

/* The folder of the shared library or program that contains this function. */
static bool library_folder(char dir[FOLDER]) {
  Dl_info info;
  if (!dladdr((void *)library_folder, &info) || !info.dli_fname) return false;
  TextBuf t = textbuf(dir, FOLDER);
  textbuf_printf(&t, "%s", info.dli_fname);
  return !t.cut && cut_name(dir);
}

static bool there(const char *dir, const char *below, const char *file, char *path,
                  size_t size) {
  TextBuf t = textbuf(path, size);
  textbuf_printf(&t, "%s%s%s", dir, below, file);
  return !t.cut && access(path, R_OK) == 0;
}

bool module_find(const char *file, char *path, size_t size) {
  char program[FOLDER], library[FOLDER];
  bool has_program = program_folder(program), has_library = library_folder(library);
  if (has_program && there(program, "", file, path, size)) return true;
  if (has_library && there(library, "", file, path, size)) return true;
  if (has_library && there(library, "weft/", file, path, size)) return true;
  /* From LIBDIR/lua/5.4, the folder of Lua modules. */
  if (has_library && there(library, "../../weft/", file, path, size)) return true;
  if (has_program && there(program, WEFT_MODULES_FROM_BIN "/", file, path, size))
    return true;
  snprintf(path, size, "%s", file);
  return false;
}

const void *module_open(const Module *m, weft_error *e) {
  char path[FOLDER];
  if (!module_find(m->file, path, sizeof path)) {
    err_set(
        e, m->code,
        "%s is not there: %s is built where %s is found when weft is configured; install "
        "it and build again, or install the package that has this module",
        m->what, m->file, m->built);
    return NULL;
  }
  void *so = dlopen(path, RTLD_NOW | (m->global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!so) {
    const char *why = dlerror();
    err_set(e, m->code, "%s cannot be opened: %s; it needs %s", m->what, why ? why : path,
            m->needs);
    return NULL;
  }
  const void *symbol = dlsym(so, m->symbol);
  if (!symbol) module_other(m, e);
  return symbol;
}

void module_other(const Module *m, weft_error *e) {
  err_set(e, m->code,
          "%s is not the module of this version of weft: build and install both together",
          m->file);
}
