/* memory_report.c - what a rank's program needs: bytes of its arenas by class, operations
 * in flight per communicator, flops. */
#include "lower.h"

/* ---- memory ---- */

/* Adds bytes to the class of this name. */
static void add_to(MemClass *at, int *n, const char *name, uint64_t bytes) {
  int i = 0;
  while (i < *n && strcmp(at[i].name, name) != 0) i++;
  if (!bytes) return;
  at[i].name = name;
  at[i].bytes += bytes;
  *n = MAX(*n, i + 1);
}

static void add_class(Program *p, const char *name, uint64_t bytes) {
  add_to(p->mem, &p->nmem, name, bytes);
}

/* What a region counts as: that of frozen parameters by itself, so that the base of an
 * adapter and the adapter are told apart. */
static const char *class_of(const Emit *e, const Region *r) {
  const Regions *s = &e->p->regions;
  for (int i = 0; i < s->nparam && r->kind == REGION_WORK; i++)
    if (s->param[i].at >= r->first && s->param[i].at < r->first + r->whole)
      return e->u->param[s->param[i].param].frozen ? "frozen parameters"
                                                   : region_class[r->kind];
  return region_class[r->kind];
}

/* The classes of the host arena. */
static void account_host(Emit *e, Compiled *c) {
  Program *p = e->p;
  uint64_t rest = p->host_bytes = e->l->host_end;
  p->host = NEW_N(c->arena, MemClass, p->regions.nregion + 1);
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    if (!on_host(r->off)) continue;
    add_to(p->host, &p->nhost, class_of(e, r), align_up(region_bytes(r)));
    rest -= align_up(region_bytes(r));
  }
  add_to(p->host, &p->nhost, "on their way", rest);
}

const char *const area_class[AREA_N] = {
#define AREA(id, class) [AREA_##id] = class,
#include "area.def"
};

static void account_arena(Emit *e, Compiled *c, const uint64_t *area, uint64_t temp) {
  Program *p = e->p;
  uint64_t passes = temp, rest = e->l->end;
  for (int k = 0; k < AREA_N; k++) passes += area[k];
  uint64_t more = e->l->kept > passes ? e->l->kept - passes : 0;
  p->mem = NEW_N(c->arena, MemClass, p->regions.nregion + AREA_N + 3);
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    if (on_host(r->off)) continue;
    add_class(p, class_of(e, r), align_up(region_bytes(r)));
    rest -= align_up(region_bytes(r));
  }
  uint64_t wires = WIRES * align_up(e->l->wire_bytes);
  rest -= align_up(e->l->work_bytes) + wires;
  add_class(p, "inputs and scalars", rest);
  add_class(p, area_class[AREA_GATHER], wires);
  for (int k = 0; k < AREA_N; k++) add_class(p, area_class[k], area[k]);
  add_class(p, "workspace", temp + align_up(e->l->work_bytes));
  add_class(p,
            e->l->matrices ? "whole matrices"
            : e->l->sums   ? "sums of squares"
                           : "undo copies",
            more);
  if (more)
    p->mem[p->nmem - 1].note =
        arena_printf(c->arena, "%llu bytes, the rest in the place of the activations",
                     (unsigned long long)e->l->kept);
  p->arena_bytes = e->l->end + passes + more;
}

/* ---- operations and flops ---- */

/* For each communicator the largest number of operations in flight at once in
 * instructions [first, first + n). */
static void peak_in_flight(const Emit *e, uint32_t first, uint32_t n, int *peak) {
  int *now = NEW_N(e->scratch, int, e->comms->list.n);
  int *comm_of = NEW_N(e->scratch, int, e->p->nhandle);
  for (int h = 0; h < e->p->nhandle; h++) comm_of[h] = -1;
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *x = &e->code.at[i];
    if (instr_is[x->code] & INSTR_COLL) {
      comm_of[x->handle] = x->comm;
      now[x->comm]++;
      peak[x->comm] = MAX(peak[x->comm], now[x->comm]);
    } else if (x->code == I_WAIT && comm_of[x->handle] >= 0) {
      now[comm_of[x->handle]]--;
      comm_of[x->handle] = -1;
    }
  }
}

/* Operations in flight per communicator: those of a body add to those of the main list
 * around its call. */
static void count_in_flight(const Emit *e) {
  int *main_peak = NEW_N(e->scratch, int, e->comms->list.n);
  int *body_peak = NEW_N(e->scratch, int, e->comms->list.n);
  peak_in_flight(e, 0, e->p->nmain, main_peak);
  for (int k = 0; k < e->body.n; k++)
    peak_in_flight(e, e->body.at[k].first, e->body.at[k].n, body_peak);
  for (int c = 0; c < e->comms->list.n; c++) {
    CommDesc *d = &e->comms->list.at[c];
    d->in_flight = MAX(d->in_flight, main_peak[c] + body_peak[c]);
  }
}

static void count_flops(const Emit *e) {
  for (int i = 0; i < e->call.n; i++) {
    const Body *b = &e->body.at[e->call.at[i].body];
    e->p->flops += b->flops;
    e->p->recomputed += b->recomputed;
    e->p->room += b->room;
  }
}

void memory_report(Emit *e, Compiled *c, const uint64_t *area, uint64_t temp) {
  account_arena(e, c, area, temp);
  account_host(e, c);
  count_in_flight(e);
  count_flops(e);
}
