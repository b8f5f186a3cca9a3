/* scratch_files.c - files for the length of a verb: settings that weft export has made
 * are read again as a user's would be. */
#include "convert.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/script/library.h"
#include "vm/io/file.h"

enum { FILES = 16 };

typedef struct Scratch {
  char folder[256]; /* "": none yet */
  char *file[FILES];
  int n;
} Scratch;

static int remove_all(lua_State *L) {
  Scratch *s = lua_touserdata(L, 1);
  for (int i = 0; i < s->n; i++) {
    unlink(s->file[i]);
    free(s->file[i]);
  }
  s->n = 0;
  if (s->folder[0]) rmdir(s->folder);
  s->folder[0] = 0;
  return 0;
}

static void make_folder(lua_State *L, Scratch *s) {
  const char *tmp = getenv("TMPDIR");
  snprintf(s->folder, sizeof s->folder, "%s/weft-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (mkdtemp(s->folder)) return;
  int why = errno;
  lua_pushstring(L, s->folder);
  s->folder[0] = 0;
  luaL_error(L, "cannot make the folder %s: %s", lua_tostring(L, -1), strerror(why));
}

/* scratch_file(name, text): upvalue 1 is the Scratch. The file of that name is replaced.
 */
static int scratch_file(lua_State *L) {
  Scratch *s = lua_touserdata(L, lua_upvalueindex(1));
  FilePart part;
  weft_error e;
  err_clear(&e);
  const char *name = luaL_checkstring(L, 1);
  part.data = luaL_checklstring(L, 2, &part.bytes);
  if (!s->folder[0]) make_folder(L, s);
  const char *path = lua_pushfstring(L, "%s/%s", s->folder, name);
  int i = 0;
  while (i < s->n && strcmp(s->file[i], path) != 0) i++;
  if (i == FILES) return luaL_error(L, "too many files at once");
  if (i == s->n && !(s->file[s->n] = strdup(path))) return luaL_error(L, "out of memory");
  if (i == s->n) s->n++;
  if (file_write(NULL, path, &part, 1, &e) != WEFT_OK) return luaL_error(L, "%s", e.text);
  return 1;
}

void scratch_files_provide(lua_State *L) {
  Scratch *s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = (Scratch){0};
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, remove_all);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushcclosure(L, scratch_file, 1);
  library_provide(L, "scratch_file");
}
