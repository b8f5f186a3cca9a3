/* absent.c - what stands behind an error of a file that is not there: the nearest name in
 * its folder, or how to get what a name of the Hugging Face hub or a pickle of PyTorch
 * stands for. */
#include "absent.h"

#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* "owner/name": no path that begins in the working folder or at the root looks so, as
 * long as nothing lies there. */
static bool is_hub_id(const char *path) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_.";
  size_t owner = strspn(path, letters);
  if (!owner || path[owner] != '/' || strchr("-.", *path)) return false;
  const char *name = path + owner + 1;
  return *name && *name != '.' && strspn(name, letters) == strlen(name);
}

/* Names of models have points, too: "Llama-3.1-8B". */
static bool is_file_name(const char *path) {
  static const char *const endings[] = {".json", ".jsonl", ".lua",         ".txt",
                                        ".yaml", ".yml",   ".safetensors", ".bin",
                                        ".py",   ".toml",  ".sh",          ".conf"};
  for (int i = 0; i < LEN(endings); i++)
    if (str_ends(path, endings[i])) return true;
  return false;
}

const char *absent_hub(Arena *a, const char *path) {
  struct stat st;
  if (!is_hub_id(path) || is_file_name(path) || stat(path, &st) == 0) return NULL;
  char *owner = arena_str(a, path), *slash = strchr(owner, '/');
  *slash = 0;
  if (stat(owner, &st) == 0) return NULL; /* a folder of the user's, and a wrong name */
  return arena_printf(a,
                      "a folder is needed and nothing is downloaded; if this is a name "
                      "of the Hugging Face hub, hf download %s --local-dir %s gets it",
                      path, slash + 1);
}

const char *absent_pickle(Arena *a, const char *folder) {
  static const char *const names[] = {"pytorch_model*.bin", "consolidated*.pth",
                                      "*.gguf"};
  for (int i = 0; i < LEN(names); i++) {
    glob_t g = {0};
    const char *what = NULL;
    if (glob(arena_printf(a, "%s/%s", folder, names[i]), GLOB_NOSORT, NULL, &g) == 0) {
      const char *slash = strrchr(g.gl_pathv[0], '/');
      what = arena_str(a, slash ? slash + 1 : g.gl_pathv[0]);
    }
    globfree(&g);
    if (what) return absent_convert(a, folder, what);
  }
  return NULL;
}

const char *absent_convert(Arena *a, const char *folder, const char *name) {
  if (str_ends(name, ".gguf"))
    return arena_printf(a,
                        "%s is of llama.cpp, and quantized; weft reads the folder of "
                        "safetensors that it was made of",
                        name);
  if (str_ends(name, ".pth"))
    return arena_printf(a,
                        "%s is Meta's format; the hub has the same model as a folder "
                        "of safetensors (its name ends in -hf, or has no \"original\")",
                        name);
  if (str_ends(name, ".bin"))
    return arena_printf(a,
                        "%s is a pickle of PyTorch, which is code and is not read. Once, "
                        "with Transformers: python3 -c 'from transformers import "
                        "AutoModelForCausalLM as M; M.from_pretrained(\"%s\", "
                        "torch_dtype=\"auto\").save_pretrained(\"%s\")'",
                        name, folder, folder);
  return NULL;
}

/* ---- the nearest name ---- */

/* The only plan that begins with `start` and goes on with another word, or with the
 * ending alone. */
static const char *only_plan(const char *start, const char *const *names, int n) {
  const char *found = NULL;
  size_t m = strlen(start) - (str_ends(start, ".lua") ? strlen(".lua") : 0);
  for (int i = 0; i < n; i++) {
    if (strncmp(start, names[i], m) || !str_ends(names[i], ".lua")) continue;
    if (!names[i][m] || !strchr(" .-_", names[i][m])) continue;
    if (found) return NULL;
    found = names[i];
  }
  return found;
}

const char *absent_nearest(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *folder = slash ? arena_strn(a, path, (size_t)(slash - path + 1)) : "";
  if (strpbrk(path, "*?[")) return NULL;
  glob_t g = {0};
  const char *nearest = NULL;
  if (glob(arena_printf(a, "%s*", folder), GLOB_NOSORT, NULL, &g) == 0) {
    const char **names = NEW_N(a, const char *, g.gl_pathc);
    for (size_t i = 0; i < g.gl_pathc; i++)
      names[i] = arena_str(a, g.gl_pathv[i] + strlen(folder));
    nearest = *name ? only_plan(name, names, (int)g.gl_pathc) : NULL;
    if (!nearest) nearest = str_nearest(name, names, (int)g.gl_pathc);
  }
  globfree(&g);
  return nearest;
}
