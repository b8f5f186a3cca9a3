/* consensus.c - the consensus check: before a run of several processes starts, they
 * compare what they were given.
 *
 * Processes with different learning rates, data or programs would train wrongly without
 * an error, or deadlock. So would processes with different CPU instructions or libraries:
 * replicas of a parameter are stepped on each rank separately and stay equal only if
 * every rank computes the same bits. Thread counts may differ, for machines with more or
 * fewer ranks; then a warning is given.
 *
 * Every rank sends its facts, as pairs of strings, to rank 0, which compares them and
 * sends its verdict to all. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "run_int.h"
#include "vm/base/build_id.h"
#include "vm/base/plural.h"

enum { FACTS_MAX = 512, BYTES_MAX = 1 << 20, SHOWN = 6, WIDTH = 60 };

/* The facts of one rank, as "what\0value\0" for each. */
typedef struct RankFacts {
  char *s;
  uint64_t bytes;
  const char *value[FACTS_MAX];
} RankFacts;

typedef struct Consensus {
  const weft_alloc *alloc;
  const RunFact *fact;
  int n;
  RankFacts *known; /* on rank 0: one for every rank */
  int world;
  weft_status st;
  struct Verdict {
    bool alike;
    char differs[900]; /* the facts that differ, as a message */
  } verdict;           /* made by rank 0, sent to all */
  char warned[400];    /* on rank 0: the facts of kind FACT_TOLD that differ */
} Consensus;

/* ---- comparing ---- */

/* Points k->value into the received string; false if the rank does not list the same
 * facts. */
static bool read_facts(const Consensus *a, RankFacts *k) {
  const char *s = k->s, *end = s + k->bytes;
  for (int i = 0; i < a->n; i++) {
    if (s >= end || strcmp(s, a->fact[i].what) != 0) return false;
    s += strlen(s) + 1;
    k->value[i] = s;
    s += strlen(s) + 1;
  }
  return s == end;
}

/* Appends the ranks that have this value: "ranks 0-2, 5". */
static void add_ranks(const Consensus *a, int fact, const char *value, Text *out) {
  int first = -1, n = 0;
  Text list = {0};
  for (int r = 0; r <= a->world; r++) {
    bool in = r < a->world && str_eq(a->known[r].value[fact], value);
    if (in) n++;
    if (in && first < 0) first = r;
    if (in || first < 0) continue;
    text_printf(&list, "%s%d", list.n ? ", " : "", first);
    if (r - first > 1) text_printf(&list, "-%d", r - 1);
    first = -1;
  }
  text_printf(out, "rank%s %.80s%s", plural(n, "s"), list.s ? list.s : "",
              list.n > 80 ? " ..." : "");
  text_free(&list);
}

/* Whether a rank below `rank` has the same value. */
static bool seen_before(const Consensus *a, int fact, int rank) {
  for (int r = 0; r < rank; r++)
    if (str_eq(a->known[r].value[fact], a->known[rank].value[fact])) return true;
  return false;
}

static bool differs(const Consensus *a, int fact) {
  for (int r = 1; r < a->world; r++)
    if (!str_eq(a->known[r].value[fact], a->known[0].value[fact])) return true;
  return false;
}

/* "plan.train.seed: 0 on ranks 0-2; 7 on rank 3" */
static void add_difference(const Consensus *a, int fact, Text *out) {
  int shown = 0;
  text_printf(out, "%s: ", a->fact[fact].what);
  for (int r = 0; r < a->world && shown < 4; r++) {
    if (seen_before(a, fact, r)) continue;
    const char *value = a->known[r].value[fact];
    text_printf(out, "%s%.*s%s on ", shown++ ? "; " : "", WIDTH, value,
                strlen(value) > WIDTH ? "..." : "");
    add_ranks(a, fact, value, out);
  }
  if (a->fact[fact].why) text_printf(out, " (%s)", a->fact[fact].why);
}

/* Appends the facts of one kind that differ; returns how many do. */
static int add_differences(const Consensus *a, FactKind kind, const char *lead,
                           Text *out) {
  int found = 0;
  for (int i = 0; i < a->n; i++) {
    if (a->fact[i].kind != kind || !differs(a, i) || found++ >= SHOWN) continue;
    text_add(out, lead);
    add_difference(a, i, out);
  }
  if (found > SHOWN) text_printf(out, "%sand %d more", lead, found - SHOWN);
  return found;
}

static void compare(Consensus *a) {
  Text out = {0}, warned = {0};
  int found = add_differences(a, FACT_SAME, "\n  ", &out);
  if (!found) found = add_differences(a, FACT_FOLLOWS, "\n  ", &out);
  if (add_differences(a, FACT_TOLD, "; ", &warned) && warned.s)
    snprintf(a->warned, sizeof a->warned, "%s", warned.s + 2);
  text_free(&warned);
  if (out.oom) a->st = WEFT_ENOMEM;
  if (found)
    snprintf(a->verdict.differs, sizeof a->verdict.differs,
             "the processes of this run were started with different settings:%s", out.s);
  text_free(&out);
}

/* ---- exchanging ---- */

static bool pack(const Consensus *a, RankFacts *k) {
  Text t = {.alloc = a->alloc};
  for (int i = 0; i < a->n; i++) {
    text_addn(&t, a->fact[i].what, strlen(a->fact[i].what) + 1);
    text_addn(&t, a->fact[i].value, strlen(a->fact[i].value) + 1);
  }
  bool ok = !t.oom && t.n < BYTES_MAX && (k->s = mem_new(a->alloc, t.n + 1));
  if (ok) {
    memcpy(k->s, t.s, t.n);
    k->bytes = t.n;
  }
  text_free(&t);
  return ok;
}

static void unpack(const Consensus *a, RankFacts *k) {
  mem_free(a->alloc, k->s, (size_t)k->bytes + 1);
  k->s = NULL;
}

/* Rank 0 receives the facts of all other ranks. A rank that lists other facts than rank 0
 * is another build or was called differently. */
static weft_status collect(Worker *w, Consensus *a, weft_error *e) {
  Run *r = w->run;
  for (int q = 1; q < a->world; q++) {
    RankFacts *k = &a->known[q];
    TRY(world_recv(&r->world, &k->bytes, sizeof k->bytes, q, e));
    bool room = k->bytes < BYTES_MAX && (k->s = mem_new(a->alloc, (size_t)k->bytes + 1));
    if (!room) return err_set(e, WEFT_ENOMEM, "out of memory");
    TRY(world_recv(&r->world, k->s, (size_t)k->bytes, q, e));
    if (!read_facts(a, k) && !a->verdict.differs[0])
      snprintf(a->verdict.differs, sizeof a->verdict.differs,
               "rank %d runs another build of weft than rank 0, or was started with "
               "other options",
               q);
  }
  if (!a->verdict.differs[0]) compare(a);
  a->verdict.alike = !a->verdict.differs[0];
  return a->st == WEFT_OK ? WEFT_OK : err_set(e, a->st, "out of memory");
}

static weft_status tell(Worker *w, const RankFacts *k, weft_error *e) {
  World *world = &w->run->world;
  TRY(world_send(world, &k->bytes, sizeof k->bytes, 0, e));
  return world_send(world, k->s, (size_t)k->bytes, 0, e);
}

static weft_status job_agree(Worker *w, void *arg, weft_error *e) {
  Consensus *a = arg;
  Run *r = w->run;
  RankFacts mine = {0}, *k = w->rank == 0 ? &a->known[0] : &mine;
  weft_status st;
  if (!pack(a, k) || !read_facts(a, k)) return err_set(e, WEFT_ENOMEM, "out of memory");
  st = w->rank == 0 ? collect(w, a, e) : tell(w, k, e);
  unpack(a, &mine);
  /* If rank 0 is out of memory it ends the run for all. */
  TRY(st);
  TRY(world_bcast(&r->world, &a->verdict, sizeof a->verdict, 0, e));
  return a->verdict.alike ? WEFT_OK : err_set(e, WEFT_EUSAGE, "%s", a->verdict.differs);
}

weft_status run_consensus(Run *r, const RunFact *fact, int n, weft_error *e) {
  int world = r->c->mesh.world;
  if (!r->kind->processes || world < 2) return WEFT_OK;
  assert(n <= FACTS_MAX);
  Consensus a = {.alloc = &r->alloc, .fact = fact, .n = n, .world = world};
  size_t bytes = (r->world.rank == 0 ? (size_t)world : 1) * sizeof *a.known;
  a.known = mem_new(a.alloc, bytes);
  if (!a.known) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = run_all(r, job_agree, &a, false, e);
  if (a.warned[0]) memcpy(r->uneven, a.warned, sizeof r->uneven);
  for (int i = 0; r->world.rank == 0 && i < world; i++) unpack(&a, &a.known[i]);
  mem_free(a.alloc, a.known, bytes);
  return st;
}

/* ---- what every run compares ---- */

/* Hash of all programs and of what is loaded into them: their listings, and the fields
 * that a listing does not print. */
static uint64_t hash_programs(const Compiled *c) {
  uint64_t h = 0;
  for (int i = 0; i < c->nparam; i++) {
    const CompiledParam *p = &c->param[i];
    h = hash_bytes(h, p->name, strlen(p->name));
    h = hash_bytes(h, p->dim, sizeof p->dim);
    h = hash_bytes(h, &p->place, sizeof p->place);
    h = hash_bytes(h, &p->init, sizeof p->init);
    h = hash_bytes(h, &p->std, sizeof p->std);
    h = hash_bytes(h, &p->decay, sizeof p->decay);
    h = hash_bytes(h, &p->share, sizeof p->share);
    h = hash_bytes(h, &p->frozen, sizeof p->frozen);
  }
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    Text t = {0};
    program_print(c, rank_on_pp(&c->mesh, 0, pp), true, &t);
    h = hash_bytes(h, t.s, t.n);
    h = hash_bytes(h, p->attr, p->nattr * sizeof *p->attr);
    text_free(&t);
  }
  return c->eval ? h ^ 31 * hash_programs(c->eval) : h;
}

static weft_status agree_at_start(Run *r, const char *variables, const RunFact *fact,
                                  int n, weft_error *e) {
  char build[96], id[64], programs[32], way[DEVICE_WAY] = "", threads[16],
                                        attention[ATTENTION_WAY] = "", version[40];
  RunFact all[FACTS_MAX];
  assert(n + 8 <= FACTS_MAX);
  build_id(id, sizeof id);
  snprintf(build, sizeof build, "%s, build %.16s", weft_version(), id);
  snprintf(programs, sizeof programs, "%016llx", (unsigned long long)hash_programs(r->c));
  snprintf(threads, sizeof threads, "%d", r->threads);
  if (r->c->device->way) TRY(r->c->device->way(way, e));
  all[0] = (RunFact){"weft", build, FACT_SAME, NULL};
  all[1] = (RunFact){"instructions and libraries", way, FACT_SAME,
                     "replicas of a parameter would not keep the same bits; set WEFT_CPU "
                     "to a level that all have, and use the same libraries"};
  all[2] = (RunFact){"threads of a rank", threads, FACT_TOLD,
                     "sums may be rounded differently, and the slowest rank sets the "
                     "pace; --threads makes them equal"};
  all[3] = (RunFact){"NCCL_* of the environment", variables, FACT_SAME,
                     "ranks that exchange in different ways wait for ever"};
  (void)attention_way(r->c, attention);
  int v = r->plan->attention_library;
  version[0] = 0;
  if (v > 0 && strstr(attention, "cuDNN"))
    snprintf(version, sizeof version, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  all[4] = (RunFact){"attention", attention, FACT_SAME,
                     "what one leaves to a library the other one does not; install the "
                     "same cuDNN everywhere, or set attention_backend = \"native\""};
  all[5] = (RunFact){"version of cuDNN", version, FACT_TOLD,
                     "copies of a parameter may not keep the same bits"};
  const char *gpu = r->kind->device ? getenv("WEFT_GPU") : NULL;
  all[6] = (RunFact){"WEFT_GPU of the environment", gpu && gpu[0] ? gpu : "not set",
                     FACT_SAME, "ranks would compute attention by different kernels"};
  if (n) memcpy(all + 7, fact, (size_t)n * sizeof *fact);
  all[n + 7] = (RunFact){"the compiled programs", programs, FACT_FOLLOWS, NULL};
  return run_consensus(r, all, n + 8, e);
}

/* What is set of NCCL counts only where it carries data. */
weft_status consensus_at_start(Run *r, const RunFact *fact, int n, weft_error *e) {
  static char *const no_variables[] = {NULL};
  Text variables = {0};
  if (!r->kind->processes) return WEFT_OK;
  nccl_variables(r->kind->device ? environ : no_variables, &variables);
  weft_status st = variables.oom ? err_set(e, WEFT_ENOMEM, "out of memory")
                                 : agree_at_start(r, variables.s, fact, n, e);
  text_free(&variables);
  return st;
}
