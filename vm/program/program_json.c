/* program_json.c - program_json(): the program of one world rank as JSON with sorted
 * keys, all that executing it takes. docs/program.md says what every key means; what is
 * added here is added there. */
#include "program_json_int.h"

#include <stdlib.h>

#include "vm/graph/sequence.h"
#include "vm/storage/piece.h"

/* ---- what belongs to the whole program ---- */

static void write_bodies(const ProgramJson *k) {
  json_open(k->j, "bodies", '[');
  for (int i = 0; i < k->p->nbody; i++) {
    const Body *b = &k->p->body[i];
    json_open(k->j, NULL, '{');
    json_code(k, "code", b->first, b->n);
    json_num(k->j, "flops", b->flops);
    json_num(k->j, "flops_recomputed", b->recomputed);
    json_num(k->j, "flops_room", b->room);
    json_str(k->j, "name", b->name);
    json_str(k->j, "phase", prog_phase_name[b->phase]);
    json_int(k->j, "slots", b->nslot);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_comms(const ProgramJson *k) {
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

static void write_coordinates(const ProgramJson *k) {
  json_open(k->j, "coordinates", '{');
  for (int i = 0; i < AXIS_N; i++)
    json_int(k->j, axis_name(axis_by_name(i)),
             mesh_coord(&k->c->mesh, k->rank, axis_by_name(i)));
  json_close(k->j, '}');
}

static void write_inputs(const ProgramJson *k) {
  InputKind sorted[IN_N];
  for (int i = 0; i < IN_N; i++) {
    int at = i;
    for (; at > 0 && strcmp(input_name[sorted[at - 1]], input_name[i]) > 0; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = (InputKind)i;
  }
  json_open(k->j, "inputs", '{');
  for (int i = 0; i < IN_N; i++)
    if (k->p->input[sorted[i]] != UINT64_MAX)
      json_offset(k->j, input_name[sorted[i]], k->p->input[sorted[i]]);
  json_close(k->j, '}');
}

static void write_memory(const ProgramJson *k, const char *key, const MemClass *m,
                         int n) {
  json_open(k->j, key, '[');
  for (int i = 0; i < n; i++) {
    json_open(k->j, NULL, '{');
    json_offset(k->j, "bytes", m[i].bytes);
    json_str(k->j, "name", m[i].name);
    json_str(k->j, "note", m[i].note);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

/* The axes of a place cut dimensions; a region's cut comes after them. */
static void write_box(const ProgramJson *k, const Stored *q) {
  const Regions *s = &k->p->regions;
  int i = 0;
  while (i < s->nregion &&
         regions_find(s, (RegionKind)s->region[i].kind, q) != &s->region[i])
    i++;
  assert(i < s->nregion);
  Piece p = piece_make(&k->c->mesh, &k->c->param[q->param], s, q, &s->region[i], k->rank);
  json_open(k->j, "box", '[');
  for (int d = 0; d < p.ndim; d++) {
    json_open(k->j, NULL, '{');
    json_int(k->j, "first", p.dim[d].first);
    json_int(k->j, "parts", p.dim[d].parts);
    json_int(k->j, "size", p.dim[d].size);
    json_int(k->j, "slice", p.dim[d].slice);
    json_int(k->j, "valid", p.dim[d].valid);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_params(const ProgramJson *k) {
  const Regions *s = &k->p->regions;
  json_open(k->j, "parameters", '[');
  for (int i = 0; i < s->nparam; i++) {
    const Stored *q = &s->param[i];
    json_open(k->j, NULL, '{');
    json_int(k->j, "at", q->at);
    const CompiledParam *whole = &k->c->param[q->param];
    json_int(k->j, "block", q->block);
    write_box(k, q);
    json_int(k->j, "count", q->count);
    json_str(k->j, "name", whole->name);
    json_bool(k->j, "owner", q->owner);
    json_ints(k->j, "shape", whole->dim, whole->ndim);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_regions(const ProgramJson *k) {
  const Regions *s = &k->p->regions;
  char buf[64];
  json_open(k->j, "regions", '[');
  for (int i = 0; i < s->nregion; i++) {
    const Region *r = &s->region[i];
    json_open(k->j, NULL, '{');
    json_int(k->j, "count", r->count);
    json_str(k->j, "dtype", dtype_name((DType)r->dtype));
    if (r->factors) json_bool(k->j, "factors", true);
    json_int(k->j, "first", r->first);
    json_str(k->j, "flat", r->flat ? axes_name(r->flat, buf) : NULL);
    json_bool(k->j, "host", on_host(r->off));
    json_int(k->j, "index", r->flat ? mesh_index(&k->c->mesh, r->flat, k->rank) : 0);
    json_str(k->j, "kind", region_name[r->kind]);
    json_offset(k->j, "offset", in_its_arena(r->off));
    json_bool(k->j, "spread", r->spread);
    json_int(k->j, "ways", r->ways);
    json_int(k->j, "whole", r->whole);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

/* A binding is an offset; in the gathered copy of a unit it comes with that. */
static void write_bindings(const ProgramJson *k) {
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
      if (on_host(p->bind[j].off)) json_bool(k->j, "host", true);
      json_offset(k->j, "offset", in_its_arena(p->bind[j].off));
      json_close(k->j, '}');
    }
    json_close(k->j, ']');
    json_int(k->j, "first", i);
    json_str(k->j, "unit", p->unit[call->unit]);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_blocks(const ProgramJson *k) {
  const Regions *s = &k->p->regions;
  json_open(k->j, "blocks", '[');
  for (int i = 0; i < s->nblock; i++) {
    json_open(k->j, NULL, '{');
    json_int(k->j, "count", s->block[i].whole);
    json_int(k->j, "first", s->block[i].first);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

/* ---- what a step is given ---- */

/* What a rank reads of a step: its rows, in order, and of each the tokens that it has. */
static void write_rows(const ProgramJson *k) {
  const Mesh *m = &k->c->mesh;
  int64_t micro = k->c->micro, dp = mesh_size(m, AXES_DP);
  json_open(k->j, "rows", '[');
  for (int64_t i = 0; i < k->c->microbatches * micro; i++)
    json_int(k->j, NULL,
             (i / micro * dp + mesh_index(m, AXES_DP, k->rank)) * micro + i % micro);
  json_close(k->j, ']');
}

static void write_positions(const ProgramJson *k) {
  const Mesh *m = &k->c->mesh;
  if (k->c->documents) {
    json_none(k->j, "positions");
    return;
  }
  SeqPiece p = seq_piece(k->c->seq, m->size[AXIS_CP], mesh_coord(m, k->rank, AXIS_CP),
                         k->c->zigzag);
  json_open(k->j, "positions", '[');
  for (int i = 0; i < p.runs; i++) {
    json_open(k->j, NULL, '{');
    json_int(k->j, "count", p.run);
    json_int(k->j, "first", p.first[i]);
    json_close(k->j, '}');
  }
  json_close(k->j, ']');
}

static void write_scalars(const ProgramJson *k) {
#define SCALAR(name)                                                                     \
  { #name, name }
  static const struct {
    const char *name;
    int index;
  } sorted[] = {
      SCALAR(SC_BC1),   SCALAR(SC_BC2),          SCALAR(SC_CAREFUL),
      SCALAR(SC_CLIP),  SCALAR(SC_DROPPED),      SCALAR(SC_GUESS),
      SCALAR(SC_HOLD),  SCALAR(SC_LOSS),         SCALAR(SC_LR),
      SCALAR(SC_NORM),  SCALAR(SC_NORM2),        SCALAR(SC_NORM2_CUT),
      SCALAR(SC_ROWS),  SCALAR(SC_ROWS_EXPERTS), SCALAR(SC_ROWS_MAX),
      SCALAR(SC_SCALE), SCALAR(SC_SKIP),         SCALAR(SC_SOURCES),
      SCALAR(SC_STEP),  SCALAR(SC_TOKENS),       SCALAR(SC_UNDO),
  };
#undef SCALAR
  _Static_assert(LEN(sorted) == SC_NORM2_CUT + 2, "a scalar has no name");
  json_open(k->j, "scalars", '{');
  json_int(k->j, "count", k->p->nscalar);
  json_open(k->j, "names", '{');
  for (int i = 0; i < LEN(sorted); i++) json_int(k->j, sorted[i].name, sorted[i].index);
  json_close(k->j, '}');
  json_offset(k->j, "offset", k->p->scalars);
  json_close(k->j, '}');
}

static int by_name(const void *a, const void *b) {
  return strcmp(op_info[*(const int *)a].name, op_info[*(const int *)b].name);
}

/* What every op means that occurs. */
static void write_kernels(const ProgramJson *k) {
  bool used[OP_N] = {0};
  int op[OP_N], n = 0;
  for (uint32_t i = 0; i < k->p->ncode; i++)
    if (k->p->code[i].code == I_KERNEL) used[k->p->code[i].op] = true;
  for (int i = 0; i < OP_N; i++)
    if (used[i]) op[n++] = i;
  qsort(op, (size_t)n, sizeof *op, by_name);
  json_open(k->j, "kernels", '{');
  for (int i = 0; i < n; i++) json_str(k->j, op_info[op[i]].name, op_info[op[i]].doc);
  json_close(k->j, '}');
}

static void write_program(const ProgramJson *k) {
  Json *j = k->j;
  json_open(j, NULL, '{');
  json_offset(j, "arena_bytes", k->p->arena_bytes);
  write_bindings(k);
  write_blocks(k);
  write_bodies(k);
  write_comms(k);
  write_coordinates(k);
  json_str(j, "dtype", dtype_name(k->c->dtype));
  json_num(j, "flops", k->p->flops);
  json_num(j, "flops_recomputed", k->p->recomputed);
  json_num(j, "flops_room", k->p->room);
  json_int(j, "handles", k->p->nhandle);
  if (k->p->host_bytes) {
    json_offset(j, "host_bytes", k->p->host_bytes);
    write_memory(k, "host_memory", k->p->host, k->p->nhost);
  }
  write_inputs(k);
  write_kernels(k);
  json_code(k, "main", 0, k->p->nmain);
  write_memory(k, "memory", k->p->mem, k->p->nmem);
  json_int(j, "micro", k->c->micro);
  json_int(j, "microbatches", k->c->microbatches);
  write_params(k);
  write_positions(k);
  json_int(j, "rank", k->rank);
  write_regions(k);
  write_rows(k);
  write_scalars(k);
  json_int(j, "seq", k->c->seq);
  json_int(j, "world", k->c->mesh.world);
  json_close(j, '}');
}

void program_json(const Compiled *c, int rank, Text *out) {
  Json j = {.out = out, .pretty = true};
  const weft_alloc *alloc = arena_allocator(c->arena);
  size_t bytes = sizeof(int) * (size_t)c->mesh.world;
  ProgramJson k = {.c = c,
                   .p = &c->prog[mesh_coord(&c->mesh, rank, AXIS_PP)],
                   .j = &j,
                   .rank = rank,
                   .group = mem_new(alloc, bytes)};
  if (!k.group) {
    out->oom = true;
    return;
  }
  write_program(&k);
  mem_free(alloc, k.group, bytes);
}
