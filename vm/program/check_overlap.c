/* check_overlap.c - what may not lie over what, by places alone: results of a kernel over
 * each other or over what it reads, but where in_place.def says so; regions over each
 * other; what a body writes over parameters or state; the copies that undo a step over
 * anything that is written before they are read. What depends on when something happens
 * is the proof's (machine_bytes.c). */
#include "program_check_int.h"
#include "vm/plan/optimizer.h"

#include <stdio.h>

typedef struct Bytes {
  uint64_t lo, hi;
} Bytes;

static bool meet(Bytes a, Bytes b) { return a.lo < b.hi && b.lo < a.hi; }

/* Of a shard: what any rank touches. */
static Bytes bytes_of(const Check *k, const Operand *o, uint64_t base) {
  uint64_t lo = base + o->off;
  return (Bytes){lo, lo + operand_reach(&k->c->mesh, o)};
}

#define BYTES(x) (unsigned long long)(x).lo, (unsigned long long)(x).hi

/* ---- operands of one kernel ---- */

/* Whether result x of a kernel may have the very bytes of operand or result y. */
static bool may_be_one(const Program *p, const Instr *in, int x, int y) {
  for (const OpPlace *r = op_place; r < op_place + op_places; r++) {
    if (!op_place_is(r, in->op, &p->attr[in->attr])) continue;
    int result = in->nin + r->result, other = r->twice ? in->nin + r->other : r->other;
    if ((result == x && other == y) || (r->twice && result == y && other == x))
      return true;
  }
  return false;
}

/* What is operand i of it? */
static const char *what_is(const Instr *in, int i, char out[32]) {
  if (i < in->nin)
    snprintf(out, 32, "operand %d", i);
  else if (i < in->nin + in->nout)
    snprintf(out, 32, "result %d", i - in->nin);
  else
    snprintf(out, 32, "the scratch");
  return out;
}

/* Operand y of an instruction lies over x, which it writes; `how`: "" or " when main[..]
 * calls it". */
static weft_status over(const Check *k, uint32_t pc, const Body *b, int x, Bytes at,
                        int y, Bytes to, const char *how) {
  const Instr *in = &k->p->code[pc];
  char one[32], other[32];
  FAIL("%s of %s, bytes %llu..%llu, lies over %s, bytes %llu..%llu%s",
       what_is(in, x, one), op_info[in->op].name, BYTES(at), what_is(in, y, other),
       BYTES(to), how);
}

/* Two operands of a body in different slots, of which the first is written. */
typedef struct Pair {
  uint32_t pc;
  uint8_t x, y; /* operands of the instruction */
  uint16_t slot[2];
  Bytes at[2]; /* from the beginning of the slot */
  bool same;   /* they may be the very same */
} Pair;

/* What a body writes in a slot. */
typedef struct Written {
  uint32_t pc; /* one of the instructions that do */
  Bytes at;
} Written;

typedef struct BodyPlaces {
  VEC(Pair) pair;
  Written *written; /* of each slot but 0, which is the arena itself */
} BodyPlaces;

static bool same_pair(const Pair *a, const Pair *b) {
  for (int i = 0; i < 2; i++)
    if (a->slot[i] != b->slot[i] || a->at[i].lo != b->at[i].lo ||
        a->at[i].hi != b->at[i].hi)
      return false;
  return a->same == b->same;
}

static void add_pair(BodyPlaces *to, Arena *a, const Pair *x) {
  for (int i = 0; i < to->pair.n; i++)
    if (same_pair(&to->pair.at[i], x)) return;
  *VEC_PUSH(a, to->pair) = *x;
}

/* Results that change some of an operand alone are that operand. */
static weft_status check_must(const Check *k, uint32_t pc, const Body *b) {
  const Instr *in = &k->p->code[pc];
  const Operand *o = &k->p->operand[in->operand];
  for (const OpPlace *r = op_place; r < op_place + op_places; r++) {
    if (r->when != PLACE_ALWAYS || !op_place_is(r, in->op, &k->p->attr[in->attr]))
      continue;
    const Operand *x = &o[in->nin + r->result], *y = &o[r->other];
    if (x->slot != y->slot || x->off != y->off || x->shard != y->shard ||
        operand_bytes(x) != operand_bytes(y))
      FAIL("result %d of %s is not its operand %d, which it changes", r->result,
           op_info[in->op].name, r->other);
  }
  return WEFT_OK;
}

/* Operands of one slot lie where they lie; those of two slots are for each call to see.
 */
static weft_status check_kernel_places(const Check *k, uint32_t pc, const Body *b,
                                       BodyPlaces *to, Arena *a) {
  const Instr *in = &k->p->code[pc];
  const Operand *o = &k->p->operand[in->operand];
  for (int x = in->nin; x < instr_operands(in); x++)
    for (int y = 0; y < x; y++) {
      Bytes at = bytes_of(k, &o[x], 0), other = bytes_of(k, &o[y], 0);
      if (at.lo == at.hi || other.lo == other.hi) continue;
      bool same = o[x].shard == o[y].shard && may_be_one(k->p, in, x, y);
      if (o[x].slot != o[y].slot)
        add_pair(
            to, a,
            &(Pair){
                pc, (uint8_t)x, (uint8_t)y, {o[x].slot, o[y].slot}, {at, other}, same});
      else if (meet(at, other) && !(same && at.lo == other.lo && at.hi == other.hi))
        return over(k, pc, b, x, at, y, other, "");
    }
  return WEFT_OK;
}

/* ---- bodies ---- */

/* The region that lies there and that a body may not write: gradients are written where a
 * call binds them. */
static const Region *region_under(const Program *p, Bytes at, bool bound) {
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    if (bound && r->kind == REGION_GRAD) continue;
    if (meet(at, (Bytes){r->off, r->off + region_bytes(r)})) return r;
  }
  return NULL;
}

static weft_status over_region(const Check *k, uint32_t pc, const Body *b, Bytes at,
                               const Region *r, const char *how) {
  FAIL("it writes bytes %llu..%llu%s, where a region of the rank lies: %s", BYTES(at),
       how, region_name[r->kind]);
}

static weft_status add_written(const Check *k, uint32_t pc, const Body *b,
                               BodyPlaces *to) {
  const Instr *in = &k->p->code[pc];
  for (int i = in->nin; i < instr_operands(in); i++) {
    const Operand *o = &k->p->operand[in->operand + (uint32_t)i];
    Bytes at = bytes_of(k, o, 0);
    if (at.lo == at.hi) continue;
    const Region *r = o->slot ? NULL : region_under(k->p, at, false);
    if (r) return over_region(k, pc, b, at, r, "");
    Written *w = &to->written[o->slot];
    w->pc = pc;
    w->at = w->at.hi ? (Bytes){MIN(w->at.lo, at.lo), MAX(w->at.hi, at.hi)} : at;
  }
  return WEFT_OK;
}

static weft_status look_at_body(const Check *k, const Body *b, BodyPlaces *to, Arena *a) {
  to->written = (void *)arena_alloc(a, sizeof *to->written * (size_t)b->nslot);
  for (uint32_t pc = b->first; pc < b->first + b->n; pc++) {
    const Instr *in = &k->p->code[pc];
    if (in->code == I_KERNEL) TRY(check_must(k, pc, b));
    if (in->code == I_KERNEL) TRY(check_kernel_places(k, pc, b, to, a));
    if (instr_is[in->code] & INSTR_TOUCHES) TRY(add_written(k, pc, b, to));
  }
  return WEFT_OK;
}

static Bytes moved(Bytes x, uint64_t by) { return (Bytes){x.lo + by, x.hi + by}; }

/* With what a call binds. */
static weft_status check_bound(const Check *k, uint32_t pc, const BodyPlaces *of) {
  const Program *p = k->p;
  const Call *call = &p->call[p->code[pc].call];
  const Body *b = &p->body[call->body];
  char how[64];
  snprintf(how, sizeof how, " when main[%u] calls it", pc);
  for (int i = 0; i < of->pair.n; i++) {
    const Pair *x = &of->pair.at[i];
    Bytes at = moved(x->at[0], slot_base(p, call, x->slot[0]));
    Bytes other = moved(x->at[1], slot_base(p, call, x->slot[1]));
    if (meet(at, other) && !(x->same && at.lo == other.lo && at.hi == other.hi))
      return over(k, x->pc, b, x->x, at, x->y, other, how);
  }
  for (int s = 1; s < b->nslot; s++) {
    const Written *w = &of->written[s];
    Bytes at = moved(w->at, slot_base(p, call, s));
    const Region *r = w->at.hi ? region_under(p, at, s <= call->nbind) : NULL;
    if (r) return over_region(k, w->pc, b, at, r, how);
  }
  return WEFT_OK;
}

static weft_status check_bodies(const Check *k, Arena *a) {
  const Program *p = k->p;
  BodyPlaces *of = (void *)arena_alloc(a, sizeof *of * (size_t)(p->nbody + 1));
  for (int i = 0; i < p->nbody; i++) TRY(look_at_body(k, &p->body[i], &of[i], a));
  for (uint32_t pc = 0; pc < p->nmain; pc++)
    if (p->code[pc].code == I_CALL)
      TRY(check_bound(k, pc, &of[p->call[p->code[pc].call].body]));
  return WEFT_OK;
}

/* ---- the optimizer's part ---- */

static bool is_attempt(int op) {
  for (int i = 0; i < OPTIMIZER_N; i++)
    if (optimizer_info[i].attempt == op) return true;
  return false;
}

/* The attempt of an optimizer before `pc` whose first result is at `p`; UINT32_MAX if
 * there is none. */
static uint32_t step_of(const Check *k, uint32_t pc, Bytes p) {
  while (pc-- > 0) {
    const Instr *in = &k->p->code[pc];
    if (in->code != I_KERNEL || !is_attempt(in->op)) continue;
    Bytes at = bytes_of(k, &k->p->operand[in->operand + (uint32_t)in->nin], 0);
    if (at.lo == p.lo && at.hi == p.hi) return pc;
  }
  return UINT32_MAX;
}

/* An instruction of main between two that writes there. */
static uint32_t writer_between(const Check *k, uint32_t from, uint32_t to, Bytes at) {
  for (uint32_t pc = from + 1; pc < to; pc++) {
    const Instr *in = &k->p->code[pc];
    if (in->code == I_CALL) return pc;
    if (!(instr_is[in->code] & INSTR_TOUCHES)) continue;
    for (int i = in->nin; i < instr_operands(in); i++)
      if (meet(at, bytes_of(k, &k->p->operand[in->operand + (uint32_t)i], 0))) return pc;
  }
  return UINT32_MAX;
}

/* What a step_undo puts back is what the attempt at the same parameters kept. */
static weft_status check_undo(const Check *k, uint32_t pc) {
  const Body *b = NULL;
  const Instr *in = &k->p->code[pc];
  const Operand *o = &k->p->operand[in->operand];
  Bytes back = bytes_of(k, &o[in->nin], 0);
  if (back.lo == back.hi) return WEFT_OK;
  uint32_t from = step_of(k, pc, back);
  if (from == UINT32_MAX) FAIL("no step before it keeps what these parameters were");
  const Instr *step = &k->p->code[from];
  int copies = in->nin - 1, first = step->nout - copies;
  if (copies != in->nout - 1 || 2 * copies + 1 != step->nout)
    FAIL("has %d copies, main[%u] keeps %d", copies, from, (step->nout - 1) / 2);
  for (int i = 0; i < copies; i++) {
    Bytes at = bytes_of(k, &o[i], 0);
    Bytes kept =
        bytes_of(k, &k->p->operand[step->operand + (uint32_t)(step->nin + first + i)], 0);
    if (at.lo != kept.lo || at.hi != kept.hi)
      FAIL("operand %d, bytes %llu..%llu, is not what main[%u] kept, bytes %llu..%llu", i,
           BYTES(at), from, BYTES(kept));
    uint32_t by = writer_between(k, from, pc, at);
    if (by != UINT32_MAX)
      FAIL("operand %d, bytes %llu..%llu, which main[%u] kept, is written by main[%u] %s "
           "before it is read",
           i, BYTES(at), from, by, instr_name[k->p->code[by].code]);
  }
  return WEFT_OK;
}

static weft_status check_main(const Check *k, Arena *a) {
  for (uint32_t pc = 0; pc < k->p->nmain; pc++) {
    const Instr *in = &k->p->code[pc];
    if (in->code != I_KERNEL) continue;
    TRY(check_must(k, pc, NULL));
    TRY(check_kernel_places(k, pc, NULL, NULL, a));
    if (in->op == OP_step_undo) TRY(check_undo(k, pc));
  }
  return WEFT_OK;
}

/* ---- what lies in the arena all the time ---- */

typedef struct Resident {
  const char *what;
  Bytes at;
} Resident;

static weft_status check_residents(const Check *k, Arena *a) {
  const Program *p = k->p;
  Resident *all = arena_raw(a, sizeof *all * (size_t)(p->regions.nregion + IN_N + 2));
  int n = 0;
  all[n++] =
      (Resident){"the scalars", {p->scalars, p->scalars + 8 * (uint64_t)p->nscalar}};
  all[n++] = (Resident){"the sums of units", {p->sums, p->sums + p->sums_bytes}};
  uint64_t ids =
      4 * (uint64_t)k->c->microbatches * (uint64_t)k->c->micro * (uint64_t)k->c->tokens;
  for (int i = 0; i < IN_SEED; i++)
    if (p->input[i] != UINT64_MAX)
      all[n++] = (Resident){input_name[i], {p->input[i], p->input[i] + ids}};
  for (int i = 0; i < p->regions.nregion; i++) {
    const Region *r = &p->regions.region[i];
    all[n++] = (Resident){region_name[r->kind], {r->off, r->off + region_bytes(r)}};
  }
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      if (meet(all[i].at, all[j].at))
        return err_set(k->e, WEFT_EINTERNAL,
                       "pp rank %d: %s, bytes %llu..%llu, lies over %s, bytes %llu..%llu",
                       p->pp, all[i].what, BYTES(all[i].at), all[j].what,
                       BYTES(all[j].at));
  return WEFT_OK;
}

weft_status check_overlap(const Check *k, Arena *a) {
  TRY(check_residents(k, a));
  TRY(check_main(k, a));
  return check_bodies(k, a);
}
