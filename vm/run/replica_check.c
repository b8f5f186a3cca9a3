/* replica_check.c - whether ranks that hold copies of the same parameters and optimizer
 * states still hold the same bits.
 *
 * Every rank steps its copies by itself, so a device that computes wrongly, a bit that
 * flips in memory or ranks with different kernels leave copies that drift apart, without
 * any error: the loss is then that of a model that no rank has.
 *
 * Pieces whose copies are on the same ranks form a set. Each rank makes one checksum of
 * each set, rank 0 compares them within every group of copies, and only if two differ the
 * two ranks list the checksums of the set's pieces, so that the message can name one. */
#include <stdio.h>

#include "run_int.h"
#include "vm/base/checksum.h"
#include "vm/base/plural.h"

enum { AXIS_SETS = 32, REASON = 480 };

/* Pieces that are copied over the same axes. What several pp ranks hold whole (tied
 * embeddings) is a set of its own, and a copy over these ranks, too. */
typedef struct ReplicaSet {
  AxisSet axes;
  int shared; /* that parameter, */
  int kind;   /* in its region of this kind; -1, -1: none */
} ReplicaSet;

typedef struct Verdict {
  int set, rank, from; /* a set, a rank and the one that it is a copy of; set -1: none */
  int ranks;           /* of that set that differ from their first copies */
  char why[REASON];
} Verdict;

typedef struct ReplicaCheck {
  const Compiled *c;
  ReplicaSet *set;
  int nset, room;
  int most;        /* pieces of a rank at most */
  int *group;      /* room for the ranks of a group */
  uint64_t *sum;   /* nset of each rank: of those of this process, on rank 0's of all */
  uint64_t *piece; /* `most` of each of the two ranks that differ */
  Verdict verdict; /* made where rank 0 is, sent to all */
} ReplicaCheck;

/* ---- sets ---- */

/* The region of a kind in which a pp rank holds all of its part of a parameter. */
static const Region *shared_in(const Compiled *c, int param, int kind, int pp) {
  const Regions *s = &c->prog[pp].regions;
  const Stored *at = regions_param(s, param);
  const Region *r = at ? regions_find(s, (RegionKind)kind, at) : NULL;
  return r && r->ways == 1 ? r : NULL;
}

/* The number of the set that a piece belongs to; -1: there is no copy of it. */
static int set_of(ReplicaCheck *x, int param, const Region *r) {
  const CompiledParam *p = &x->c->param[param];
  AxisSet axes = axes_rest(piece_axes(p, r)) & ~AXIS_BIT(AXIS_PP);
  bool shared = p->npp > 1 && r->ways == 1;
  ReplicaSet s = {mesh_axes(&x->c->mesh, axes), shared ? param : -1,
                  shared ? r->kind : -1};
  if (mesh_size(&x->c->mesh, s.axes) < 2 && !shared) return -1;
  for (int i = 0; i < x->nset; i++)
    if (memcmp(&x->set[i], &s, sizeof s) == 0) return i;
  assert(x->nset < x->room);
  x->set[x->nset] = s;
  return x->nset++;
}

/* Calls `each` for all pieces of a rank of which there are copies; returns how many. */
typedef void EachPiece(void *ud, int set, StateKind k, const Piece *p, int param);

static int walk_pieces(ReplicaCheck *x, int rank, EachPiece *each, void *ud) {
  const Regions *s = &x->c->prog[mesh_coord(&x->c->mesh, rank, AXIS_PP)].regions;
  int n = 0;
  for (int i = 0; i < s->nparam * kept_kinds(x->c); i++) {
    StateKind k = kept_kind(i / s->nparam);
    int param = s->param[i % s->nparam].param;
    Piece piece[2];
    int held = state_pieces(x->c, rank, k, param, piece);
    for (int j = 0; j < held; j++) {
      int set = set_of(x, param, piece[j].region);
      if (set < 0) continue;
      if (each) each(ud, set, k, &piece[j], param);
      n++;
    }
  }
  return n;
}

/* All processes number the sets in the same way. */
static void find_sets(ReplicaCheck *x) {
  for (int pp = 0; pp < x->c->mesh.size[AXIS_PP]; pp++)
    x->most = MAX(x->most, walk_pieces(x, rank_on_pp(&x->c->mesh, 0, pp), NULL, NULL));
}

/* ---- checksums ---- */

/* As it is stored, block by block. */
static uint64_t sum_piece(Worker *w, const Piece *p) {
  DType t = (DType)p->region->dtype;
  int64_t room = w->run->block_max * (int64_t)sizeof *w->block;
  int64_t most = room / dtype_size(t) * dtype_elements(t);
  uint64_t sum = 0;
  for (int64_t at = 0; at < p->count; at += most) {
    Piece part = piece_part(p, at, MIN(most, p->count - at));
    rank_read_raw(w->r, &part, w->block);
    sum = sum * 31 + checksum(w->block, region_span(p->region, part.count));
  }
  return sum;
}

typedef struct Summing {
  Worker *w;
  uint64_t *sum; /* of every set; or, */
  int set, n;    /* if it is not -1, of the n pieces of this one */
} Summing;

static void add_piece(void *ud, int set, StateKind k, const Piece *p, int param) {
  Summing *s = ud;
  if (s->set < 0)
    s->sum[set] = s->sum[set] * 31 + sum_piece(s->w, p);
  else if (s->set == set)
    s->sum[s->n++] = sum_piece(s->w, p);
}

/* Of a worker: all sets, or the pieces of one. `to` is where rank 0 has room for them;
 * processes elsewhere send them there. */
static weft_status sums_of(Worker *w, ReplicaCheck *x, int set, uint64_t *to, int n,
                           weft_error *e) {
  Summing s = {w, to, set, 0};
  memset(to, 0, (size_t)n * sizeof *to);
  walk_pieces(x, w->rank, add_piece, &s);
  if (world_has(&w->run->world, 0)) return WEFT_OK;
  return world_send(&w->run->world, to, (size_t)n * sizeof *to, 0, e);
}

/* ---- comparing ---- */

/* The first of the ranks that hold what `rank` holds of a set; -1: it holds nothing. */
static int first_copy(const ReplicaCheck *x, const ReplicaSet *s, int rank) {
  const Mesh *m = &x->c->mesh;
  if (s->shared >= 0) {
    const CompiledParam *p = &x->c->param[s->shared];
    if (!shared_in(x->c, s->shared, s->kind, mesh_coord(m, rank, AXIS_PP))) return -1;
    int i = 0;
    while (!shared_in(x->c, s->shared, s->kind, p->pp[i])) i++;
    rank = rank_on_pp(m, rank, p->pp[i]);
  }
  mesh_group(m, s->axes, rank, x->group);
  return x->group[0];
}

/* Fills the verdict: the first rank that differs, and how many do so like it. */
static void compare(ReplicaCheck *x) {
  Verdict *v = &x->verdict;
  v->set = -1;
  for (int set = 0; set < x->nset && v->set < 0; set++)
    for (int rank = 0; rank < x->c->mesh.world; rank++) {
      int from = first_copy(x, &x->set[set], rank);
      bool same =
          from < 0 || x->sum[rank * x->nset + set] == x->sum[from * x->nset + set];
      if (same) continue;
      if (!v->ranks++) v->set = set, v->rank = rank, v->from = from;
    }
}

/* Finds the first piece of the set that the two ranks hold differently: both list them in
 * the same order. */
typedef struct Naming {
  ReplicaCheck *x;
  int at, differ; /* pieces so far; those that differ */
  StateKind kind; /* of the first of these */
  int param;
} Naming;

static void compare_piece(void *ud, int set, StateKind k, const Piece *p, int param) {
  Naming *n = ud;
  if (set != n->x->verdict.set) return;
  int i = n->at++;
  if (n->x->piece[i] == n->x->piece[n->x->most + i]) return;
  if (!n->differ++) n->kind = k, n->param = param;
}

static void explain(ReplicaCheck *x) {
  Verdict *v = &x->verdict;
  Naming n = {.x = x};
  walk_pieces(x, v->rank, compare_piece, &n);
  const OptimizerInfo *o = &optimizer_info[x->c->optimizer];
  bool state = n.kind != STATE_PARAM;
  snprintf(
      v->why, sizeof v->why,
      "rank %d holds other bits than rank %d, of which it is a copy: %s%s%.160s; %d of "
      "%d such parameters and states differ, on %d rank%s. Device memory, a kernel or "
      "a library of one of them is at fault: go on from a checkpoint without it",
      v->rank, v->from, state ? o->state[n.kind - STATE_OPT1].title : "",
      state ? " of " : "", x->c->param[n.param].name, n.differ, n.at, v->ranks,
      plural(v->ranks, "s"));
}

/* ---- all ranks ---- */

/* The sums of all ranks where rank 0 is. */
static weft_status job_sum(Worker *w, void *arg, weft_error *e) {
  ReplicaCheck *x = arg;
  World *world = &w->run->world;
  int at = world_has(world, 0) ? w->rank : w->rank - world->rank;
  TRY(sums_of(w, x, -1, x->sum + at * x->nset, x->nset, e));
  for (int q = 0; w->rank == 0 && q < world->size; q++)
    if (!world_has(world, q))
      TRY(world_recv(world, x->sum + q * x->nset, (size_t)x->nset * sizeof *x->sum, q,
                     e));
  return WEFT_OK;
}

/* The verdict becomes that of rank 0, and the two ranks that it names list their pieces.
 */
static weft_status job_name(Worker *w, void *arg, weft_error *e) {
  ReplicaCheck *x = arg;
  Verdict *v = &x->verdict;
  World *world = &w->run->world;
  int two[] = {v->rank, v->from};
  for (int i = 0; i < 2; i++) {
    uint64_t *to = x->piece + i * x->most;
    if (w->rank == two[i]) TRY(sums_of(w, x, v->set, to, x->most, e));
    if (w->rank == 0 && !world_has(world, two[i]))
      TRY(world_recv(world, to, (size_t)x->most * sizeof *to, two[i], e));
  }
  return WEFT_OK;
}

static weft_status job_tell(Worker *w, void *arg, weft_error *e) {
  ReplicaCheck *x = arg;
  return world_bcast(&w->run->world, &x->verdict, sizeof x->verdict, 0, e);
}

/* All processes take the verdict of rank 0's. */
static weft_status tell(Run *r, ReplicaCheck *x, weft_error *e) {
  return r->kind->processes ? run_all(r, job_tell, x, false, e) : WEFT_OK;
}

typedef struct Room {
  ReplicaCheck *x;
  Arena *arena;
  int64_t rows; /* ranks whose sums are here */
} Room;

static void make_room(void *ud) {
  Room *m = ud;
  ReplicaCheck *x = m->x;
  int shared = 0;
  for (int i = 0; i < x->c->nparam; i++) shared += x->c->param[i].npp > 1;
  x->room = AXIS_SETS + shared * REGION_N;
  x->set = NEW_N(m->arena, ReplicaSet, x->room);
  find_sets(x);
  x->group = NEW_N(m->arena, int, x->c->mesh.world);
  x->sum = NEW_N(m->arena, uint64_t, m->rows * x->nset);
  x->piece = NEW_N(m->arena, uint64_t, 2 * x->most);
}

static weft_status check(Run *r, ReplicaCheck *x, Arena *a, weft_error *e) {
  bool home = world_has(&r->world, 0);
  Room room = {x, a, home ? r->c->mesh.world : r->nworker};
  if (!arena_try(a, make_room, &room)) return err_set(e, WEFT_ENOMEM, "out of memory");
  if (!x->nset) return WEFT_OK;
  TRY(run_all(r, job_sum, x, false, e));
  if (home) compare(x);
  TRY(tell(r, x, e));
  if (x->verdict.set < 0) return WEFT_OK;
  run_settle(r);
  TRY(run_all(r, job_name, x, false, e));
  if (home) explain(x);
  TRY(tell(r, x, e));
  err_set(e, WEFT_ERUN, "%s", x->verdict.why);
  e->rank = x->verdict.rank; /* its process reports it, for all */
  run_fails(r, e);
  return WEFT_ERUN;
}

bool run_copies_agree(const Run *r) {
  return r->c->device->host || r->plan->deterministic;
}

weft_status run_check_replicas(Run *r, weft_error *e) {
  ReplicaCheck x = {.c = r->c};
  Arena *a = arena_new(&r->alloc);
  if (!a) return err_set(e, WEFT_ENOMEM, "out of memory");
  weft_status st = check(r, &x, a, e);
  arena_free(a);
  return st;
}
