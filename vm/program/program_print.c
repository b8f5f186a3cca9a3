/* program_print.c - program_print(): the program of one world rank as text. Peers are
 * world ranks, communicators list their members for this rank, operands are written as
 * dtype[shape] $slot+offset (slot 0, the arena: @offset). */
#include "program.h"
#include "vm/graph/op_attrs.h"
#include "vm/base/plural.h"

typedef struct Print {
  const Compiled *c;
  const Program *p;
  Text *out;
  bool offsets; /* with places in the arena */
  int rank;
  int *group; /* room for the members of a communicator */
} Print;

#define ULL(x) ((unsigned long long)(x))

/* In the arena, or in that of the host. */
static void print_place(const Print *k, uint64_t off) {
  text_add(k->out, on_host(off) ? " host" : "");
  if (k->offsets)
    text_printf(k->out, " @%llu", ULL(on_host(off) ? off - HOST_BASE : off));
}

static void print_operand(const Print *k, const Operand *o) {
  text_printf(k->out, "%s[", dtype_name(o->dtype));
  for (int i = 0; i < o->ndim; i++)
    text_printf(k->out, i ? ",%lld" : "%lld", (long long)o->dim[i]);
  text_add(k->out, "]");
  char buf[64];
  if (o->shard) text_printf(k->out, " shard over %s", axes_name(o->shard, buf));
  if (k->offsets && o->slot)
    text_printf(k->out, " $%d+%llu", o->slot, ULL(o->off));
  else if (k->offsets || on_host(o->off))
    print_place(k, o->off);
}

static void print_operands(const Print *k, uint32_t first, int n) {
  for (int i = 0; i < n; i++) {
    if (i) text_add(k->out, ", ");
    print_operand(k, &k->p->operand[first + (uint32_t)i]);
  }
}

static void print_call(const Print *k, const Instr *in) {
  const Call *call = &k->p->call[in->call];
  text_printf(k->out, "body %u %s %s mb %d chunk %d", call->body,
              k->p->body[call->body].name, k->p->unit[call->unit], call->mb, call->chunk);
  if (call->nbind && k->offsets) text_printf(k->out, " binds %u", call->bind);
  if (call->fresh) text_printf(k->out, " fresh 0x%llx", ULL(call->fresh));
  if (!k->offsets) return;
  if (call->ndyn) text_add(k->out, " with");
  for (int i = 0; i < call->ndyn; i++)
    text_printf(k->out, " @%llu", ULL(k->p->dyn[call->dyn + (uint32_t)i]));
}

static void print_attr(void *ud, const char *name, double v) {
  text_printf(ud, " %s=%.6g", name, v);
}

static void print_kernel(const Print *k, const Instr *in) {
  text_printf(k->out, "%s ", op_info[in->op].name);
  print_operands(k, in->operand, in->nin);
  text_add(k->out, " -> ");
  print_operands(k, in->operand + (uint32_t)in->nin, in->nout);
  if (in->nwork) {
    text_add(k->out, " using ");
    print_operands(k, in->operand + (uint32_t)(in->nin + in->nout), in->nwork);
  }
  if (in->acc == ACC_ALWAYS) text_add(k->out, " accumulate");
  if (in->acc >= ACC_BIT)
    text_printf(k->out, " accumulate unless fresh bit %d", in->acc - ACC_BIT);
  attr_each(&k->p->attr[in->attr], print_attr, k->out);
}

static void print_transfer(const Print *k, const Instr *in) {
  const Operand *o = &k->p->operand[in->operand];
  bool coll = instr_is[in->code] & INSTR_COLL;
  text_printf(k->out, "h%d ", in->handle);
  if (coll) {
    if (in->code != I_COLL) text_printf(k->out, "%s ", k->p->unit[in->unit]);
    text_printf(k->out, "%s", coll_info[in->coll].name);
    if (coll_info[in->coll].is & COLL_SUMS)
      text_add(k->out, in->red == RED_MAX ? " max" : " sum");
    if (in->by > 1) text_printf(k->out, " by %d", in->by);
    text_printf(k->out, " on %s, ", k->p->comm[in->comm].name);
  } else {
    text_printf(k->out, "%s rank %d, ", in->code == I_SEND ? "to" : "from",
                rank_on_pp(&k->c->mesh, k->rank, in->peer));
  }
  bool counted = coll && coll_info[in->coll].is & COLL_COUNTED;
  text_printf(k->out, "%s%llu bytes, ", counted ? "at most " : "", ULL(operand_bytes(o)));
  print_operand(k, o);
  if (!coll) return;
  if (counted) {
    text_add(k->out, " rows ");
    print_operands(k, in->operand + 1, 2);
  }
  text_add(k->out, " -> ");
  print_operand(k, o + in->nin);
}

static void print_free(const Print *k, const Instr *in) {
  const Operand *o = &k->p->operand[in->operand];
  text_printf(k->out, "%s, %llu bytes, ", k->p->unit[in->unit], ULL(operand_bytes(o)));
  print_operand(k, o);
}

static void print_instr(const Print *k, uint32_t pc, uint32_t index) {
  const Instr *in = &k->p->code[pc];
  text_printf(k->out, "%6u  %-6s ", index, instr_name[in->code]);
  switch ((InstrCode)in->code) {
  case I_CALL: print_call(k, in); break;
  case I_KERNEL: print_kernel(k, in); break;
  case I_COLL:
  case I_SEND:
  case I_RECV:
  case I_GATHER:
  case I_SCATTER: print_transfer(k, in); break;
  case I_FREE: print_free(k, in); break;
  case I_WAIT: text_printf(k->out, "h%d", in->handle); break;
  case I_N: break;
  }
  if (*k->p->what[in->what]) text_printf(k->out, "  \"%s\"", k->p->what[in->what]);
  if (in->line) text_printf(k->out, "  line %d", in->line);
  text_add(k->out, "\n");
}

/* ---- what belongs to the whole program ---- */

static void print_flops(const Print *k, double flops, double repeated, double room) {
  text_printf(k->out, "%.6g flops", flops);
  if (repeated > 0) text_printf(k->out, ", %.6g of them repeated", repeated);
  if (room > 0) text_printf(k->out, ", room for %.6g more", room);
  text_add(k->out, "\n");
}

static void print_header(const Print *k) {
  const Compiled *c = k->c;
  text_printf(k->out, "rank %d of %d:", k->rank, c->mesh.world);
  for (int a = 0; a < AXIS_N; a++)
    text_printf(k->out, "%s %s %d", a ? "," : "", axis_name((Axis)a),
                mesh_coord(&c->mesh, k->rank, (Axis)a));
  text_printf(k->out,
              "\nprogram of pp rank %d: %u instruction%s in main, %d bod%s, %d handle%s\n"
              "one step: %d microbatch%s of %d x %lld tokens, %s, ",
              k->p->pp, k->p->nmain, plural(k->p->nmain, "s"), k->p->nbody,
              k->p->nbody == 1 ? "y" : "ies", k->p->nhandle, plural(k->p->nhandle, "s"),
              c->microbatches, plural(c->microbatches, "es"), c->micro, (long long)c->seq,
              dtype_name(c->dtype));
  print_flops(k, k->p->flops, k->p->recomputed, k->p->room);
}

static void print_classes(const Print *k, const MemClass *m, int n) {
  for (int i = 0; i < n; i++)
    text_printf(k->out, "  %-16s %14llu%s%s\n", m[i].name, ULL(m[i].bytes),
                m[i].note ? "  " : "", m[i].note ? m[i].note : "");
}

static void print_memory(const Print *k) {
  const Program *p = k->p;
  text_printf(k->out, "\narena %llu bytes\n", ULL(p->arena_bytes));
  print_classes(k, p->mem, p->nmem);
  if (p->host_bytes) {
    text_printf(k->out, "on the host %llu bytes\n", ULL(p->host_bytes));
    print_classes(k, p->host, p->nhost);
  }
  if (!k->offsets) return;
  text_printf(k->out, "  %-16s @%llu\n", "scalars", ULL(p->scalars));
  for (int i = 0; i < IN_N; i++)
    if (p->input[i] != UINT64_MAX)
      text_printf(k->out, "  %-16s @%llu\n", input_name[i], ULL(p->input[i]));
}

static void print_comms(const Print *k) {
  if (k->p->ncomm) text_add(k->out, "\ncommunicators\n");
  for (int i = 0; i < k->p->ncomm; i++) {
    const CommDesc *d = &k->p->comm[i];
    int n = comm_group(&k->c->mesh, d, k->rank, k->group);
    text_printf(k->out, "%6d  %-12s in flight %d, ranks", i, d->name, d->in_flight);
    for (int j = 0; j < n; j++) text_printf(k->out, " %d", k->group[j]);
    text_add(k->out, n ? "\n" : ": not a member\n");
  }
}

static void print_regions(const Print *k) {
  const Regions *s = &k->p->regions;
  char buf[64];
  if (s->nregion) text_add(k->out, "\nregions of the flat parameter buffer\n");
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    text_printf(k->out, "%6d  %s: %lld %s", i, region_name[r->kind], (long long)r->count,
                dtype_name((DType)r->dtype));
    if (k->offsets || on_host(r->off)) print_place(k, r->off);
    if (r->factors) text_add(k->out, ", averages of rows and columns");
    if (r->first) text_printf(k->out, ", from %lld on", (long long)r->first);
    if (r->flat)
      text_printf(k->out, ", %s over %s", r->spread ? "of which a shard" : "shards",
                  axes_name(r->flat, buf));
    text_add(k->out, "\n");
  }
  if (s->nparam) text_add(k->out, "\nflat parameter buffer\n");
  for (int i = 0; i < s->nparam; i++) {
    const Stored *q = &s->param[i];
    text_printf(k->out, "%6d  %s: %lld elements", i, k->c->param[q->param].name,
                (long long)q->count);
    if (k->offsets) text_printf(k->out, " at %lld, block %d", (long long)q->at, q->block);
    text_add(k->out, q->owner ? "\n" : ", owned elsewhere\n");
  }
}

static void print_bindings(const Print *k) {
  const Program *p = k->p;
  if (p->nbind && k->offsets) text_add(k->out, "\nwhat calls bind to slots 1, 2, ...\n");
  for (uint32_t i = 0; k->offsets && i < p->nbind; i++) {
    const Call *call = call_that_binds(p, i);
    if (!call) continue;
    text_printf(k->out, "%6u  %s:", i, p->unit[call->unit]);
    for (uint32_t j = i; j < i + call->nbind; j++) {
      text_printf(k->out, " @%llu", ULL(p->bind[j].off));
      if (p->bind[j].copy >= 0)
        text_printf(k->out, " in the copy of %s", p->unit[p->bind[j].copy]);
    }
    text_add(k->out, "\n");
  }
}

static void print_code(const Print *k) {
  text_add(k->out, "\nmain\n");
  for (uint32_t i = 0; i < k->p->nmain; i++) print_instr(k, i, i);
  for (int i = 0; i < k->p->nbody; i++) {
    const Body *b = &k->p->body[i];
    text_printf(k->out, "\nbody %d: %s, phase %s, %d slot%s, ", i, b->name,
                prog_phase_name[b->phase], b->nslot, plural(b->nslot, "s"));
    print_flops(k, b->flops, b->recomputed, b->room);
    for (uint32_t j = 0; j < b->n; j++) print_instr(k, b->first + j, j);
  }
}

/* Every op that occurs, once, in the order of ops.def. */
static void print_meanings(const Print *k) {
  bool used[OP_N] = {0}, any = false;
  for (uint32_t i = 0; i < k->p->ncode; i++)
    if (k->p->code[i].code == I_KERNEL) used[k->p->code[i].op] = any = true;
  if (any) text_add(k->out, "\nkernels\n");
  for (int i = 0; i < OP_N; i++)
    if (used[i]) text_printf(k->out, "  %-16s %s\n", op_info[i].name, op_info[i].doc);
}

void program_print(const Compiled *c, int rank, bool offsets, Text *out) {
  const Program *p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)];
  Print k = {.c = c, .p = p, .out = out, .offsets = offsets, .rank = rank};
  size_t bytes = sizeof(int) * (size_t)c->mesh.world;
  const weft_alloc *alloc = arena_allocator(c->arena);
  k.group = mem_new(alloc, bytes);
  if (!k.group) {
    out->oom = true;
    return;
  }
  print_header(&k);
  print_memory(&k);
  print_comms(&k);
  print_regions(&k);
  print_bindings(&k);
  print_code(&k);
  print_meanings(&k);
  mem_free(alloc, k.group, bytes);
}
