/* code_json.c - the instructions of a program as JSON, each with its operands, for
 * program_json.c. */
#include "program_json_int.h"

#include "vm/graph/op_attrs.h"

static void write_operands(const ProgramJson *k, const char *key, uint32_t first, int n) {
  Json *j = k->j;
  char buf[64];
  json_open(j, key, '[');
  for (int i = 0; i < n; i++) {
    const Operand *o = &k->p->operand[first + (uint32_t)i];
    json_open(j, NULL, '{');
    json_str(j, "dtype", dtype_name(o->dtype));
    if (on_host(o->off)) json_bool(j, "host", true);
    json_offset(j, "offset", in_its_arena(o->off));
    if (o->shard) {
      json_open(j, "shard", '{');
      json_str(j, "axes", axes_name(o->shard, buf));
      json_int(j, "index", mesh_index(&k->c->mesh, o->shard, k->rank));
      json_close(j, '}');
    }
    json_ints(j, "shape", o->dim, o->ndim);
    json_int(j, "slot", o->slot);
    json_close(j, '}');
  }
  json_close(j, ']');
}

static void write_call(const ProgramJson *k, const Instr *in) {
  const Call *call = &k->p->call[in->call];
  Json *j = k->j;
  json_int(j, "bind", call->bind);
  json_int(j, "body", call->body);
  json_int(j, "chunk", call->chunk);
  json_str(j, "code", instr_name[in->code]);
  json_open(j, "dyn", '[');
  for (uint32_t i = 0; i < call->ndyn; i++) {
    assert(!on_host(k->p->dyn[call->dyn + i]));
    json_offset(j, NULL, k->p->dyn[call->dyn + i]);
  }
  json_close(j, ']');
  json_offset(j, "fresh", call->fresh);
  json_int(j, "line", in->line);
  json_int(j, "microbatch", call->mb);
  json_int(j, "number", k->p->number[call->unit]);
  json_str(j, "unit", k->p->unit[call->unit]);
}

static void write_attr(void *ud, const char *name, double v) { json_num(ud, name, v); }

/* Whether to accumulate: "never", "always", or the number of the bit of the call. */
static void write_kernel(const ProgramJson *k, const Instr *in) {
  Json *j = k->j;
  if (in->acc >= ACC_BIT)
    json_int(j, "accumulate", in->acc - ACC_BIT);
  else
    json_str(j, "accumulate", in->acc == ACC_ALWAYS ? "always" : "never");
  json_open(j, "attr", '{');
  attr_each(&k->p->attr[in->attr], write_attr, j);
  json_close(j, '}');
  json_str(j, "code", instr_name[in->code]);
  const OpAttr *attr = &k->p->attr[in->attr];
  AxisSet cut = attr->cut, heads = attr->heads_cut;
  if (heads) json_int(j, "heads_index", heads_index(&k->c->mesh, heads, k->rank));
  write_operands(k, "in", in->operand, in->nin);
  if (cut) json_int(j, "index", mesh_index(&k->c->mesh, cut, k->rank));
  json_int(j, "line", in->line);
  if (attr->flat) json_int(j, "shard", mesh_index(&k->c->mesh, attr->flat, k->rank));
  json_str(j, "op", op_info[in->op].name);
  uint32_t out = in->operand + (uint32_t)in->nin;
  write_operands(k, "out", out, in->nout);
  if (in->nwork) write_operands(k, "scratch", out + (uint32_t)in->nout, in->nwork);
}

static void write_transfer(const ProgramJson *k, const Instr *in) {
  Json *j = k->j;
  bool coll = instr_is[in->code] & INSTR_COLL;
  if (in->by) json_int(j, "by", in->by);
  json_offset(j, "bytes", operand_bytes(&k->p->operand[in->operand]));
  json_str(j, "code", instr_name[in->code]);
  if (coll) json_str(j, "collective", coll_info[in->coll].name);
  if (coll) json_int(j, "communicator", in->comm);
  json_int(j, "handle", in->handle);
  if (in->nin) write_operands(k, "in", in->operand, in->nin);
  json_int(j, "line", in->line);
  if (in->nout) write_operands(k, "out", in->operand + (uint32_t)in->nin, 1);
  if (!coll) json_int(j, "peer", rank_on_pp(&k->c->mesh, k->rank, in->peer));
  if (coll && coll_info[in->coll].is & COLL_SUMS)
    json_str(j, "reduction", in->red == RED_MAX ? "max" : "sum");
  if (instr_is[in->code] & INSTR_MAIN) json_str(j, "unit", k->p->unit[in->unit]);
}

static void write_free(const ProgramJson *k, const Instr *in) {
  json_str(k->j, "code", instr_name[in->code]);
  write_operands(k, "in", in->operand, 1);
  json_int(k->j, "line", in->line);
  json_str(k->j, "unit", k->p->unit[in->unit]);
}

void json_code(const ProgramJson *k, const char *key, uint32_t first, uint32_t n) {
  json_open(k->j, key, '[');
  for (uint32_t i = first; i < first + n; i++) {
    const Instr *in = &k->p->code[i];
    json_open(k->j, NULL, '{');
    switch ((InstrCode)in->code) {
    case I_CALL: write_call(k, in); break;
    case I_KERNEL: write_kernel(k, in); break;
    case I_COLL:
    case I_SEND:
    case I_RECV:
    case I_GATHER:
    case I_SCATTER: write_transfer(k, in); break;
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
