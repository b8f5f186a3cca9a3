/* print_json.c - program_json(): the program of one world rank as JSON with sorted keys,
 * the same content as program_print(). Peers are world ranks, offsets are bytes. */
#include "vm/base/json.h"

#include "print_attr.h"

typedef struct Print {
  const Compiled *c;
  const Program *p;
  Json *j;
  int rank;
  int *group;            /* room for the members of a communicator */
} Print;

static uint64_t in_its_arena(uint64_t off) {
  return on_host(off) ? off - HOST_BASE : off;
}

static void offset(Json *j, const char *key, uint64_t at) {
  json_int(j, key, (int64_t)at);
}

static void write_operands(const Print *k, const char *key, uint32_t first, int n) {
  Json *j = k->j;
  char buf[64];
  json_open(j, key, '[');
  for (int i = 0; i < n; i++) {
    const Operand *o = &k->p->operand[first + (uint32_t)i];
    json_open(j, NULL, '{');
    json_str(j, "dtype", dtype_name(o->dtype));
    if (on_host(o->off)) json_bool(j, "host", true);
    offset(j, "offset", in_its_arena(o->off));
    if (o->shard) json_str(j, "shard", axes_name(o->shard, buf));
    json_open(j, "shape", '[');
    for (int d = 0; d < o->ndim; d++) json_int(j, NULL, o->dim[d]);
    json_close(j, ']');
    json_int(j, "slot", o->slot);
    json_close(j, '}');
  }
  json_close(j, ']');
}

static void write_call(const Print *k, const Instr *in) {
  const Call *call = &k->p->call[in->call];
  Json *j = k->j;
  json_int(j, "bind", call->bind);
  json_str(j, "body", k->p->body[call->body].name);
  json_int(j, "chunk", call->chunk);
  json_str(j, "code", instr_name[in->code]);
  json_open(j, "dyn", '[');
  for (uint32_t i = 0; i < call->ndyn; i++) offset(j, NULL, k->p->dyn[call->dyn + i]);
  json_close(j, ']');
  offset(j, "fresh", call->fresh);
  json_int(j, "line", in->line);
  json_int(j, "microbatch", call->mb);
  json_str(j, "unit", k->p->unit[call->unit]);
}

static void write_attr(void *ud, const char *name, double v) { json_num(ud, name, v); }

/* Whether to accumulate: "never", "always", or the number of the bit of the call. */
static void write_kernel(const Print *k, const Instr *in) {
  Json *j = k->j;
  if (in->acc >= ACC_BIT)
    json_int(j, "accumulate", in->acc - ACC_BIT);
  else
    json_str(j, "accumulate", in->acc == ACC_ALWAYS ? "always" : "never");
  json_open(j, "attr", '{');
  attr_each(&k->p->attr[in->attr], write_attr, j);
  json_close(j, '}');
  json_str(j, "code", instr_name[in->code]);
  write_operands(k, "in", in->operand, in->nin);
  json_int(j, "line", in->line);
  json_str(j, "op", op_info[in->op].name);
  uint32_t out = in->operand + (uint32_t)in->nin;
  write_operands(k, "out", out, in->nout);
  if (in->nwork) write_operands(k, "scratch", out + (uint32_t)in->nout, in->nwork);
}

static void write_transfer(const Print *k, const Instr *in) {
  Json *j = k->j;
  bool coll = instr_is[in->code] & INSTR_COLL;
  offset(j, "bytes", operand_bytes(&k->p->operand[in->operand]));
  json_str(j, "code", instr_name[in->code]);
  if (coll) json_str(j, "collective", coll_info[in->coll].name);
  if (coll) json_str(j, "communicator", k->p->comm[in->comm].name);
  json_int(j, "handle", in->handle);
  if (in->nin) write_operands(k, "in", in->operand, in->nin);
  json_int(j, "line", in->line);
  if (in->nout) write_operands(k, "out", in->operand + (uint32_t)in->nin, 1);
  if (!coll) json_int(j, "peer", rank_on_pp(&k->c->mesh, k->rank, in->peer));
  if (coll && coll_info[in->coll].is & COLL_SUMS)
    json_str(j, "reduction", in->red == RED_MAX ? "max" : "sum");
  if (instr_is[in->code] & INSTR_MAIN) json_str(j, "unit", k->p->unit[in->unit]);
}

static void write_free(const Print *k, const Instr *in) {
  json_str(k->j, "code", instr_name[in->code]);
  write_operands(k, "in", in->operand, 1);
  json_int(k->j, "line", in->line);
  json_str(k->j, "unit", k->p->unit[in->unit]);
}

static void write_code(const Print *k, const char *key, uint32_t first, uint32_t n) {
  json_open(k->j, key, '[');
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &k->p->code[i];
    json_open(k->j, NULL, '{');
    switch ((InstrCode)in->code) {
    case I_CALL: write_call(k, in); break;
    case I_KERNEL: write_kernel(k, in); break;
    case I_COLL: case I_SEND: case I_RECV: case I_GATHER: case I_SCATTER:
      write_transfer(k, in);
      break;
    case I_FREE: write_free(k, in); break;
    case I_WAIT:
      json_str(k->j, "code", instr_name[in->code]);
      json_int(k->j, "handle", in->handle);
      json_int(k->j, "line", in->line);
      break;
    case I_N: break;
    }
    json_str(k->j, "what", k->p->what[in->what]);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

/* ---- what belongs to the whole program ---- */

static void write_bodies(const Print *k) {
  json_open(k->j, "bodies", '[');
  for (int i = 0; i < k->p->nbody; i++) {
    const Body *b = &k->p->body[i];
    json_open(k->j, NULL, '{');
    write_code(k, "code", b->first, b->n);
    json_num(k->j, "flops", b->flops);
    json_num(k->j, "flops_again", b->again);
    json_str(k->j, "name", b->name);
    json_str(k->j, "phase", prog_phase_name[b->phase]);
    json_int(k->j, "slots", b->nslot);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_comms(const Print *k) {
  json_open(k->j, "communicators", '[');
  for (int i = 0; i < k->p->ncomm; i++) {
    const CommDesc *d = &k->p->comm[i];
    int n = comm_group(&k->c->mesh, d, k->rank, k->group);
    json_open(k->j, NULL, '{');
    json_int(k->j, "in_flight", d->in_flight);
    json_open(k->j, "members", '[');
    for (int j = 0; j < n; j++) json_int(k->j, NULL, k->group[j]);
    json_close(k->j, ']');
    json_str(k->j, "name", d->name);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_coordinates(const Print *k) {
  json_open(k->j, "coordinates", '{');
  for (int i = 0; i < AXIS_N; i++)
    json_int(k->j, axis_name(axis_by_name(i)),
             mesh_coord(&k->c->mesh, k->rank, axis_by_name(i)));
  json_close(k->j, '}');
}

static void write_inputs(const Print *k) {
  static const InputKind sorted[IN_N] = {IN_DOC_STARTS, IN_LABELS, IN_POSITIONS, IN_SEED,
                                         IN_TOKENS};
  json_open(k->j, "inputs", '{');
  for (int i = 0; i < IN_N; i++)
    if (k->p->input[sorted[i]] != UINT64_MAX)
      offset(k->j, prog_input_name[sorted[i]], k->p->input[sorted[i]]);
  json_close(k->j, '}');
}

static void write_memory(const Print *k, const char *key, const MemClass *m, int n) {
  json_open(k->j, key, '[');
  for (int i = 0; i < n; i++) {
    json_open(k->j, NULL, '{');
    offset(k->j, "bytes", m[i].bytes);
    json_str(k->j, "name", m[i].name);
    json_str(k->j, "note", m[i].note);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_params(const Print *k) {
  const Regions *s = &k->p->regions;
  json_open(k->j, "parameters", '[');
  for (int i = 0; i < s->nparam; i++) {
    const Stored *q = &s->param[i];
    json_open(k->j, NULL, '{');
    json_int(k->j, "at", q->at);
    json_int(k->j, "block", q->block);
    json_int(k->j, "count", q->count);
    json_str(k->j, "name", k->c->param[q->param].name);
    json_bool(k->j, "owner", q->owner);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_regions(const Print *k) {
  const Regions *s = &k->p->regions;
  char buf[64];
  json_open(k->j, "regions", '[');
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    json_open(k->j, NULL, '{');
    json_int(k->j, "count", r->count);
    json_str(k->j, "dtype", dtype_name((DType)r->dtype));
    json_int(k->j, "first", r->first);
    json_str(k->j, "flat", r->flat ? axes_name(r->flat, buf) : NULL);
    json_bool(k->j, "host", on_host(r->off));
    json_str(k->j, "kind", region_name[r->kind]);
    offset(k->j, "offset", in_its_arena(r->off));
    json_bool(k->j, "spread", r->spread);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

/* A binding is an offset; in the gathered copy of a unit it comes with that. */
static void write_bindings(const Print *k) {
  const Program *p = k->p;
  json_open(k->j, "bindings", '[');
  for (uint32_t i = 0; i < p->nbind; i++) {
    const Call *call = call_that_binds(p, i);
    if (!call) continue;
    json_open(k->j, NULL, '{');
    json_open(k->j, "bind", '[');
    for (uint32_t j = i; j < i + call->nbind; j++) {
      json_open(k->j, NULL, '{');
      if (p->bind[j].copy >= 0) json_str(k->j, "copy", p->unit[p->bind[j].copy]);
      offset(k->j, "offset", p->bind[j].off);
      json_close(k->j, '}');
    }
    json_close(k->j, ']');
    json_int(k->j, "first", i);
    json_str(k->j, "unit", p->unit[call->unit]);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_program(const Print *k) {
  Json *j = k->j;
  json_open(j, NULL, '{');
  offset(j, "arena_bytes", k->p->arena_bytes);
  write_bindings(k);
  write_bodies(k);
  write_comms(k);
  write_coordinates(k);
  json_str(j, "dtype", dtype_name(k->c->dtype));
  json_num(j, "flops", k->p->flops);
  json_num(j, "flops_again", k->p->again);
  json_int(j, "handles", k->p->nhandle);
  if (k->p->host_bytes) {
    offset(j, "host_bytes", k->p->host_bytes);
    write_memory(k, "host_memory", k->p->host, k->p->nhost);
  }
  write_inputs(k);
  write_code(k, "main", 0, k->p->nmain);
  write_memory(k, "memory", k->p->mem, k->p->nmem);
  json_int(j, "micro", k->c->micro);
  json_int(j, "microbatches", k->c->microbatches);
  write_params(k);
  json_int(j, "rank", k->rank);
  write_regions(k);
  offset(j, "scalars", k->p->scalars);
  json_int(j, "seq", k->c->seq);
  json_int(j, "world", k->c->mesh.world);
  json_close(j, '}');
}

void program_json(const Compiled *c, int rank, Text *out) {
  Json j = {.out = out, .pretty = true};
  const weft_alloc *alloc = arena_allocator(c->arena);
  size_t bytes = sizeof(int) * (size_t)c->mesh.world;
  Print k = {.c = c, .p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)], .j = &j,
             .rank = rank, .group = mem_new(alloc, bytes)};
  if (!k.group) {
    out->oom = true;
    return;
  }
  write_program(&k);
  mem_free(alloc, k.group, bytes);
}
