/* program_key.c - what the programs of a mesh compute and send, as a number: the same in
 * every process and of every build that compiles the same. Where things lie, and room
 * that only some devices need, is no part of it. */
#include "program.h"

static uint64_t add_number(uint64_t h, int64_t v) { return hash_bytes(h, &v, sizeof v); }

static uint64_t add_operands(uint64_t h, const Program *p, const Instr *in) {
  for (int i = 0; i < in->nin + in->nout; i++) {
    const Operand *o = &p->operand[in->operand + (uint32_t)i];
    h = add_number(h, o->dtype);
    h = hash_bytes(h, o->dim, (size_t)o->ndim * sizeof *o->dim);
  }
  return h;
}

/* Windows and dropout, for example, but not who computes, which is the device's matter,
 * and no hyperparameters of the optimizer. */
static uint64_t add_attr(uint64_t h, const OpAttr *attr) {
  OpAttr a;
  memcpy(&a, attr, sizeof a);
  a.backend = BACKEND_NATIVE;
#define NUMBER(name) a.name = 0;
#define SWITCH(name) a.name = 0;
#include "vm/plan/optimizers.def"
  return hash_bytes(h, &a, sizeof a);
}

static uint64_t add_instr(uint64_t h, const Program *p, const Instr *in) {
  h = add_number(h, in->code);
  if (in->code == I_KERNEL) h = add_attr(add_number(h, in->op), &p->attr[in->attr]);
  if (in->code == I_CALL) h = add_number(h, p->call[in->call].body);
  if (instr_is[in->code] & INSTR_STARTS) {
    h = add_number(h, in->coll);
    h = add_number(h, in->peer);
    h = add_number(h, in->comm);
  }
  return add_operands(h, p, in);
}

uint64_t program_key(const Compiled *c) {
  uint64_t h = hash_bytes(0, c->mesh.size, sizeof c->mesh.size);
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) {
    const Program *p = &c->prog[pp];
    h = add_number(h, p->ncode);
    for (uint32_t i = 0; i < p->ncode; i++) h = add_instr(h, p, &p->code[i]);
  }
  return h;
}
