/* fuzz_plans.c - runs hostile plans in child processes and reports what broke. */
#include <alloca.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "bindings/runner/runner.h"
#include "hostile_plan.h"

enum {
  BATCH = 200,   /* plans per child; leaks are found at its end */
  PATIENCE = 60, /* timeout of a plan in seconds, on a busy machine */
  INSTRUCTIONS = 300000
};

/* ---- one plan ---- */

typedef struct Run {
  Arena *arena;
  const char *path;
  Text said;   /* its output */
  Text report; /* the errors found */
  weft_status st;
} Run;

static void hear(void *ud, const char *line) {
  Run *r = ud;
  if (r->said.n < 1 << 20) text_printf(&r->said, "%s\n", line);
}

/* Larger plans are slow for reasons outside of the sandbox. */
static bool is_small(const Plan *p, const Mesh *m) {
  return m->world <= 64 && p->batch.global <= 256 && p->batch.seq <= 4096;
}

static void load(void *ud) {
  Run *r = ud;
  Job j;
  LangOptions o = {.memory_limit = 64 << 20,
                   .instruction_limit = INSTRUCTIONS,
                   .print = hear,
                   .ud = r};
  r->st = job_load(&j, r->arena, &o, r->path);
  if (r->st == WEFT_OK) r->st = job_mesh(&j, 0);
  if (r->st == WEFT_OK && is_small(&j.plan, &j.mesh)) r->st = job_compile(&j);
  if (r->st != WEFT_OK) text_printf(&r->report, "%d %s\n", r->st, j.e.text);
  report_text(&j.d, false, &r->report);
  job_free(&j);
}

/* The seed of Lua's hashes depends on a stack address: another `depth` gives another
 * seed. */
static Run run_once(const char *path, int depth) {
  volatile char *room = alloca((size_t)depth + 1);
  room[0] = 0;
  Run r = {.arena = arena_new(NULL), .path = path};
  if (!arena_try(r.arena, load, &r)) r.st = WEFT_ENOMEM;
  arena_free(r.arena);
  return r;
}

/* A script that walks through a plan: no code of the plan may run in it. */
static const char walk[] =
    "local weft = require 'weft'\n"
    "print = function() end\n"
    "local p = weft.load(...)\n"
    "if not p then return end\n"
    "local seen = {}\n"
    "local function go(x)\n"
    "  if type(x) == 'function' then\n"
    "    local ok, why = pcall(x)\n"
    "    assert(not ok and why:find('it runs in plans only', 1, true), why)\n"
    "  end\n"
    "  if type(x) ~= 'table' or seen[x] then return end\n"
    "  seen[x] = true\n"
    "  assert(not getmetatable(x))\n"
    "  for k, v in next, x do go(k) go(v) end\n"
    "end\n"
    "local ok, spec = pcall(function() return p.spec end)\n"
    "if ok then go(spec) pcall(weft.plan, spec) end\n"
    "p:close()\n";

/* Returns the failure, or NULL. */
static const char *walk_through(const char *path, Text *why) {
  lua_State *L = script_new(NULL);
  int status = luaL_loadbuffer(L, walk, strlen(walk), "=walk");
  lua_pushstring(L, path);
  if (status == LUA_OK) status = lua_pcall(L, 1, 0, 0);
  if (status != LUA_OK) text_add(why, luaL_tolstring(L, -1, NULL));
  lua_close(L);
  return status != LUA_OK ? why->s : NULL;
}

static bool has_address(const char *s) {
  while (s && (s = strstr(s, "0x")))
    if (strspn(s += 2, "0123456789abcdef") >= 6) return true;
  return false;
}

/* True if a report has a forged line or a character that a terminal interprets. */
static bool acts(const char *report) {
  for (const char *p = report; *p; p++)
    if (((unsigned char)*p < ' ' && *p != '\n') || *p == 127) return true;
  return strncmp(report, "forged", 6) == 0 || strstr(report, "\nforged") ||
         strstr(report, "\xc2\x9b") || strstr(report, "\xe2\x80\xae");
}

static bool same_result(const Run *a, const Run *b) {
  /* The garbage collector runs at another instruction in every run. */
  const char *weak = "weak tables are not available";
  if (a->st != b->st) return false;
  if (strstr(a->report.s, weak) && strstr(b->report.s, weak)) return true;
  return strcmp(a->said.s, b->said.s) == 0 && strcmp(a->report.s, b->report.s) == 0;
}

/* Returns the failure, or NULL. */
static const char *judge(const char *path, Text *why) {
  Run a = run_once(path, 0), b = run_once(path, 4321);
  const char *found = NULL;
  text_add(&a.said, "");
  text_add(&b.said, "");
  text_add(&a.report, "");
  text_add(&b.report, "");
  bool limit = a.st == WEFT_ELIMIT || b.st == WEFT_ELIMIT;
  if (has_address(a.said.s) || has_address(a.report.s) || strstr(a.said.s, "LEAK "))
    found = "an address";
  else if (!limit && !same_result(&a, &b))
    found = "two results";
  else if (acts(a.report.s))
    found = "a report that acts on a terminal";
  else if (a.st == WEFT_EINTERNAL)
    found = "an internal error";
  if (found)
    text_printf(why, "%s%s--- and then\n%s%s", a.said.s, a.report.s, b.said.s,
                b.report.s);
  text_free(&a.said);
  text_free(&b.said);
  text_free(&a.report);
  text_free(&b.report);
  if (!found && walk_through(path, why)) found = "a script that walks through it fails";
  return found;
}

/* ---- many ---- */

typedef struct Shared {
  uint64_t number; /* the plan that the child is running */
} Shared;

static void run_batch(uint64_t seed, Shared *at, uint64_t end, const char *dir) {
  char path[96];
  snprintf(path, sizeof path, "%s/plan.lua", dir);
  for (; at->number < end; at->number++) {
    Text text = {0}, why = {0};
    strange_plan(seed, at->number, &text);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text.s, 1, text.n, f) != text.n || fclose(f) != 0) exit(2);
    text_free(&text);
    alarm(PATIENCE);
    const char *found = judge(path, &why);
    alarm(0);
    if (found) printf("%s\n%s\n", found, why.s ? why.s : "");
    text_free(&why);
    if (found) fflush(stdout), _exit(3);
  }
}

static bool finding(uint64_t seed, uint64_t number, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
  Text text = {0};
  strange_plan(seed, number, &text);
  const char *what = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "a hang"
                     : WIFSIGNALED(status)                              ? "a crash"
                                                                        : "a finding";
  printf("%s: seed %llu, plan %llu (or before, for a leak)\n%.*s", what,
         (unsigned long long)seed, (unsigned long long)number, (int)text.n, text.s);
  text_free(&text);
  return true;
}

int plans_fuzz(int argc, char **argv) {
  char *unit = "";
  uint64_t most = argc > 0 ? strtoull(argv[0], &unit, 10) : 1000, n = 0;
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t only = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
  bool seconds = *unit == 's';
  if (argc > 3) {
    Text text = {0};
    strange_plan(seed, only, &text);
    fwrite(text.s, 1, text.n, stdout);
    text_free(&text);
    return EXIT_SUCCESS;
  }
  time_t begin = time(NULL);
  Shared *at =
      mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return EXIT_FAILURE;
  char dir[] = "/tmp/weft-plans-XXXXXX", path[96];
  if (!mkdtemp(dir)) return EXIT_FAILURE;
  bool bad = false;
  for (n = only; !bad;) {
    uint64_t end = seconds ? n + BATCH : MIN(n + BATCH, only + most);
    if (seconds ? time(NULL) - begin >= (time_t)most : n >= only + most) break;
    int status = 0;
    at->number = n;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      run_batch(seed, at, end, dir);
      exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) return EXIT_FAILURE;
    bad = finding(seed, at->number, status);
    n = end;
  }
  snprintf(path, sizeof path, "%s/plan.lua", dir);
  unlink(path);
  rmdir(dir);
  if (!bad)
    printf("%llu plans of seed %llu in %lld s: nothing found\n",
           (unsigned long long)(n - only), (unsigned long long)seed,
           (long long)(time(NULL) - begin));
  return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
