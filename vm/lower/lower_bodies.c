/* lower_bodies.c - the bodies of the program of a pp rank: which of them the main list
 * calls, and their instructions, from the code of units. */
#include "lower.h"

/* The number of a body on this rank, -1 if no call has used it. */
static int body_number(const Emit *e, const Bodies *bo, const UnitBody *body, int phase) {
  for (int k = bo->unit.n - 1; k >= 0; k--) {
    int u = bo->unit.at[k] / BODIES, ph = bo->unit.at[k] % BODIES;
    if (ph == phase && e->u->at[u].code->body[ph] == body) return k;
    if (ph != phase) break;
  }
  return -1;
}

void bodies_number(Emit *e, const MainList *t, Bodies *bo) {
  size_t bytes = sizeof *bo->of * (size_t)e->u->n;
  bo->of = (void *)arena_alloc(e->scratch, bytes);
  memset(bo->of, 0xff, bytes);
  for (int i = 0; i < t->ev.n; i++)
    if (t->ev.at[i].kind == EV_CALL) bo->of[t->ev.at[i].unit][t->ev.at[i].phase] = 0;
  for (Phase ph = PH_F; ph < BODIES; ph++)
    for (int u = 0; u < e->u->n; u++) {
      const UnitBody *body = e->u->at[u].code->body[ph];
      if (bo->of[u][ph] < 0) continue;
      bo->of[u][ph] = body_number(e, bo, body, ph);
      if (bo->of[u][ph] >= 0) continue;
      bo->of[u][ph] = bo->unit.n;
      *VEC_PUSH(e->scratch, bo->unit) = u * BODIES + (int)ph;
    }
  e->p->nbody = bo->unit.n;
}

/* Replaces slots whose place is the same for the whole rank by offsets into the arena. */
static Operand absolute(const Emit *e, Operand o, uint64_t temp) {
  switch (o.slot) {
  case SLOT_TEMP: o.off += temp; break;
  case SLOT_SEED: o.off = e->l->seed; break;
  case SLOT_SCALARS: o.off = e->l->scalars; break;
  default: return o;
  }
  o.slot = 0;
  return o;
}

/* Programs that do not train drop nothing, and their tokens choose experts by scores: in
 * bodies of training, attention loses its last operand, token_numbers. Returns that, or
 * -1. */
static int drop_nothing(Instr *x, OpAttr *a) {
  bool drops = x->code == I_KERNEL && a->rate > 0;
  a->rate = 0;
  if (x->code == I_KERNEL && x->op == OP_sinkhorn) a->n = 0;
  return drops && op_info[x->op].nin < 0 ? --x->nin : -1;
}

void body_write(Emit *e, const Bodies *bo, int number, uint64_t temp, bool forward) {
  int u = bo->unit.at[number] / BODIES;
  Phase ph = (Phase)(bo->unit.at[number] % BODIES);
  const CompiledUnit *unit = &e->u->at[u];
  const UnitCode *code = unit->code;
  const UnitBody *from_body = code->body[ph];
  Body *body = VEC_PUSH(e->scratch, e->body);
  *body = (Body){.name = arena_printf(e->scratch, "%s:%s",
                                      unit->layer >= 0 ? "layer" : unit->name,
                                      prog_phase_name[ph]),
                 .first = (uint32_t)e->code.n,
                 .n = (uint32_t)from_body->n,
                 .phase = (uint8_t)ph,
                 .flops = from_body->flops,
                 .recomputed = from_body->recomputed,
                 .room = from_body->room,
                 .nslot = (uint16_t)(1 + 2 * code->nparam + unit_dyn(code))};
  for (int i = 0; i < from_body->n; i++) {
    const CodeInstr *from = &from_body->at[i];
    Instr *x = emit_instr(e, (InstrCode)from->i.code, from->name);
    uint32_t what = x->what, operand = x->operand;
    *x = from->i;
    x->what = what, x->operand = operand;
    if (from->i.code == I_COLL)
      x->comm = (int16_t)comm_for(e->comms, e->u->comm[from->i.comm], NULL, 0);
    OpAttr attr = from->attr;
    int left_out = forward ? drop_nothing(x, &attr) : -1;
    if (from->i.code == I_KERNEL) {
      x->attr = (uint32_t)e->attr.n;
      *VEC_PUSH(e->scratch, e->attr) = attr;
    }
    for (int k = 0; k < instr_operands(&from->i); k++)
      if (k != left_out)
        *VEC_PUSH(e->scratch, e->operand) = absolute(e, from->operand[k], temp);
  }
}
