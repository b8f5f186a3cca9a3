/* sim_diff.c - weft sim PLAN --diff OTHER: where the steps of two plans spend different
 * time. What pipeline ranks do is the mean of them, so that the parts add up to the step,
 * and their differences to that of the steps. */
#include <math.h>
#include <stdlib.h>

#include "sim_job.h"

#include "vm/sim/step_clock.h"

typedef struct Part {
  const char *what, *in; /* "tp", "exposed" */
  double a, b;           /* seconds */
} Part;

enum { PARTS_MOST = WORK_N + SIM_AXES + 2, WAITS = 8 };

typedef struct SimDiff {
  const char *path[2];
  SimReport r[2];
  double scale[2]; /* from a second of each to what is compared */
  bool per_token;
  Part part[PARTS_MOST];
  int n;
  VEC(Part) wait; /* of transfers by what they are for; those that differ most first */
} SimDiff;

/* ---- what is compared ---- */

static double mean_of(const SimReport *r, double (*of)(const SimRank *rank, int i),
                      int i) {
  double sum = 0;
  for (int pp = 0; pp < r->npp; pp++) sum += of(&r->rank[pp], i);
  return sum / r->npp;
}

static double kernels_of(const SimRank *r, int i) { return r->kernels[i]; }
static double exposed_of(const SimRank *r, int i) { return r->exposed[i]; }
static double shared_of(const SimRank *r, int i) { return r->shared; }
static double bubble_of(const SimRank *r, int i) { return r->bubble; }

static void add_part(SimDiff *d, const char *what, const char *in,
                     double (*of)(const SimRank *rank, int i), int i) {
  double a = mean_of(&d->r[0], of, i) * d->scale[0];
  double b = mean_of(&d->r[1], of, i) * d->scale[1];
  if (a > 0 || b > 0) d->part[d->n++] = (Part){what, in, a, b};
}

static Part *wait_of(SimDiff *d, const SimWait *w, Arena *arena) {
  const char *axis = sim_axis_name[w->axis];
  for (int i = 0; i < d->wait.n; i++) {
    Part *p = &d->wait.at[i];
    if (strcmp(p->in, axis) == 0 && strcmp(p->what, w->what) == 0) return p;
  }
  Part *p = VEC_PUSH(arena, d->wait);
  *p = (Part){.what = w->what, .in = axis};
  return p;
}

static void add_waits(SimDiff *d, int side, Arena *arena) {
  const SimReport *r = &d->r[side];
  for (int i = 0; i < r->nwait; i++) {
    Part *p = wait_of(d, &r->wait[i], arena);
    *(side ? &p->b : &p->a) += r->wait[i].seconds / r->npp * d->scale[side];
  }
}

static int by_difference(const void *x, const void *y) {
  const Part *a = x, *b = y;
  double p = fabs(a->b - a->a), q = fabs(b->b - b->a);
  return p < q ? 1 : p > q ? -1 : 0;
}

/* Steps of as many tokens on as many ranks are compared as they are; others by what all
 * GPUs together spend on a token. */
static void find_parts(SimDiff *d, Arena *arena) {
  const SimReport *a = &d->r[0], *b = &d->r[1];
  d->per_token = a->tokens != b->tokens || a->ranks != b->ranks;
  for (int i = 0; i < 2; i++)
    d->scale[i] = d->per_token ? (double)d->r[i].ranks / (double)d->r[i].tokens : 1;
  for (int i = 0; i < WORK_N; i++) add_part(d, work_name[i], "kernels", kernels_of, i);
  for (int i = 0; i < SIM_AXES; i++)
    add_part(d, sim_axis_name[i], "exposed", exposed_of, i);
  add_part(d, "shared", "", shared_of, 0);
  add_part(d, "bubble", "", bubble_of, 0);
  for (int side = 0; side < 2; side++) add_waits(d, side, arena);
  if (d->wait.n) qsort(d->wait.at, (size_t)d->wait.n, sizeof *d->wait.at, by_difference);
}

/* ---- what is said ---- */

/* Milliseconds of a step, or microseconds of all GPUs for a token. */
static double shown(const SimDiff *d, double seconds) {
  return seconds * (d->per_token ? 1e6 : 1e3);
}

static void print_line(const SimDiff *d, const char *in, const char *what, double a,
                       double b) {
  printf("  %-8s %-28s %12.3f %12.3f %+12.3f\n", in, what, shown(d, a), shown(d, b),
         shown(d, b - a));
}

static double step_of(const SimDiff *d, int side) {
  return d->r[side].seconds * d->scale[side];
}

static void print_diff(const SimDiff *d) {
  double a = step_of(d, 0), b = step_of(d, 1);
  printf("A  %s\nB  %s\n\n%s\n", d->path[0], d->path[1],
         d->per_token ? "microseconds of all ranks together for a token"
                      : "milliseconds of a step, the mean of the pipeline ranks");
  printf("  %-8s %-28s %12s %12s %12s\n", "", "", "A", "B", "B - A");
  for (int i = 0; i < d->n; i++) {
    const Part *p = &d->part[i];
    print_line(d, p->in, p->what, p->a, p->b);
  }
  print_line(d, "all", "", a, b);
  printf("\nB takes %.3f of A's time%s\n", b / a, d->per_token ? " for a token" : "");
  for (int i = 0; i < MIN(d->wait.n, WAITS) && d->wait.at[i].a != d->wait.at[i].b; i++) {
    if (i == 0) printf("\nexposed transfers that differ most\n");
    const Part *p = &d->wait.at[i];
    print_line(d, p->in, *p->what ? p->what : "between stages", p->a, p->b);
  }
}

static void json_part(Json *out, const Part *p) {
  json_open(out, NULL, '{');
  json_num(out, "a", p->a);
  json_num(out, "b", p->b);
  json_str(out, "in", p->in);
  json_str(out, "what", p->what);
  json_close(out, '}');
}

static void json_diff(Json *out, void *ud) {
  const SimDiff *d = ud;
  json_open(out, "diff", '{');
  json_num(out, "a", step_of(d, 0));
  json_num(out, "b", step_of(d, 1));
  json_open(out, "parts", '[');
  for (int i = 0; i < d->n; i++) json_part(out, &d->part[i]);
  json_close(out, ']');
  json_bool(out, "per_token", d->per_token);
  json_open(out, "waits", '[');
  for (int i = 0; i < d->wait.n; i++) json_part(out, &d->wait.at[i]);
  json_close(out, ']');
  json_close(out, '}');
}

/* ---- the verb ---- */

static weft_status on_clock(Job *j, const Cli *cli, const char *path, SimReport *out) {
  TRY(sim_job(j, cli, path));
  SimOptions o = {.rates = sheet_rates(RATES_USUAL), .table = j->costs};
  return simulate(j->compiled, &j->plan, &o, j->arena, out, &j->e);
}

/* What the other plan is warned of is said with the first one's. */
static void take_diags(Diags *to, const Diags *from) {
  for (int i = 0; i < from->list.n; i++)
    *VEC_PUSH(to->arena, to->list) = from->list.at[i];
  to->warnings += from->warnings;
}

/* The second plan may be the first one with a change, which the first is loaded without.
 */
static weft_status second_on_clock(Job *j, Cli *cli, SimDiff *d) {
  if (!is_assignment(cli->diff)) return on_clock(j, cli, cli->diff, &d->r[1]);
  if (cli->nset == CLI_LIST)
    return err_set(&j->e, WEFT_EUSAGE, "--set is given more than %d times", CLI_LIST - 1);
  cli->set[cli->nset++] = cli->diff;
  d->path[1] = arena_printf(j->arena, "%s %s", cli->arg[0], cli->diff);
  return on_clock(j, cli, cli->arg[0], &d->r[1]);
}

int sim_diff(Cli *cli, Arena *arena) {
  SimDiff d = {.path = {cli->arg[0], cli->diff}};
  Job j[2];
  for (int i = 0; i < 2; i++) {
    j[i] = (Job){.arena = arena, .d = {.arena = arena}};
    weft_status st = i == 0 && (cli->trace || cli->svg || cli->compare)
                         ? err_set(&j[0].e, WEFT_EUSAGE,
                                   "--diff prints a comparison of two plans: --trace, "
                                   "--svg and --compare are of one")
                     : i == 0 ? on_clock(&j[0], cli, d.path[0], &d.r[0])
                              : second_on_clock(&j[1], cli, &d);
    if (st == WEFT_OK) continue;
    if (i == 1) job_free(&j[0]);
    return job_end(&j[i], cli, st, NULL, NULL);
  }
  find_parts(&d, arena);
  if (!cli->json) print_diff(&d);
  take_diags(&j[0].d, &j[1].d);
  job_free(&j[1]);
  return job_end(&j[0], cli, WEFT_OK, json_diff, &d);
}
