/* unit_buffers.c - where a tensor of a unit lives: on an edge if another unit reads it,
 * in a frame if a later body of the same unit does (F..I, F..W, I..W), else among the
 * temporaries of the body, which share memory by lifetime. */
#include "unit_code_int.h"

#include "vm/storage/memory_plan.h"

/* ---- readers of each tensor ---- */

/* The operand whose storage result k of an op may overwrite, or -1. */
static int in_place(const Op *op, int k) {
  for (const OpPlace *p = op_place; p < op_place + op_places; p++)
    if (op_place_is(p, op->code, &op->attr) && place_is_free(p) && p->result == k)
      return p->other;
  return -1;
}

/* Whether op `at` is the last reader of tensor t. */
static bool last_reader(const Coder *c, Tid t, Oid at) {
  const Graph *g = c->g;
  for (int i = at + 1; i < g->op.n && c->use.at[t].count > 1; i++)
    for (int k = 0; k < g->op.at[i].nin; k++)
      if (g->op.at[i].in[k] == t) return false;
  return true;
}

/* Lets result k of an op overwrite an operand, if nothing reads the operand later and
 * this unit made it. If its forward made it, it is in a frame, where the result then
 * stays. */
static void share_place(Coder *c, Oid id, int k) {
  const Graph *g = c->g;
  const Op *op = &g->op.at[id];
  int from = in_place(op, k);
  if (from < 0) return;
  const Tensor *t = &g->t.at[op->in[from]];
  const Op *maker = t->producer >= 0 ? &g->op.at[t->producer] : NULL;
  Uses *u = &c->use.at[op->in[from]], *to = &c->use.at[op->out[k]];
  if (!maker || maker->unit != op->unit || u->edge || !last_reader(c, op->in[from], id) ||
      tensor_bytes(t) != tensor_bytes(&g->t.at[op->out[k]]))
    return;
  if (maker->phase != op->phase && (maker->phase != PH_F || to->edge)) return;
  u->alias = op->out[k];
  to->forward = maker->phase == PH_F && op->phase != PH_F;
  to->phases |= (uint8_t)(1u << op->phase); /* its storage is in use in this phase even if
                                               no op reads it */
}

void coder_uses(Coder *c) {
  const Graph *g = c->g;
  for (int i = 0; i < g->t.n; i++) {
    *VEC_PUSH(c->a, c->use) = (Uses){.alias = -1};
    *VEC_PUSH(c->a, c->store) = (Storage){0};
    *VEC_PUSH(c->a, c->temp) = 0;
  }
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    for (int k = 0; k < op->nin; k++) {
      Uses *u = &c->use.at[op->in[k]];
      const Tensor *t = &g->t.at[op->in[k]];
      u->count++;
      if (t->unit >= 0 && t->unit != op->unit)
        u->edge = true;
      else
        u->phases |= (uint8_t)(1u << op->phase);
    }
  }
  for (int i = 0; i < g->op.n; i++)
    for (int k = 0; k < g->op.at[i].nout; k++) share_place(c, i, k);
}

/* ---- storage ---- */

static void add_param(Coder *c, int param, bool joined) {
  *VEC_PUSH(c->scratch, c->code->param) = param;
  *VEC_PUSH(c->scratch, c->code->joined) = joined;
}

/* The number of a parameter within the unit. Weights of a fused projection are added
 * together, so that they are adjacent. */
static int param_index(Coder *c, int param) {
  const RawUnit *u = c->code;
  const Joined *w = c->joined ? c->joined[param] : NULL;
  for (int i = 0; i < u->param.n; i++)
    if (u->param.at[i] == param) return i;
  if (!w) add_param(c, param, false);
  for (int k = 0; w && k < w->n; k++) add_param(c, w->param[k], k + 1 < w->n);
  return param_index(c, param);
}

int coder_edge(Coder *c, Tid t) {
  RawUnit *u = c->code;
  for (int i = 0; i < u->edge.n; i++)
    if (u->edge.at[i] == t) return i;
  *VEC_PUSH(c->scratch, u->edge) = t;
  return u->edge.n - 1;
}

static Storage in_frame(Coder *c, int kind, const Tensor *t) {
  uint64_t *frame = &c->code->frame[kind - ST_FI];
  Storage s = {.kind = (uint8_t)kind, .off = *frame};
  *frame += align_up((uint64_t)tensor_bytes(t));
  return s;
}

bool coder_stays(const Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  if (x->producer < 0) return false;
  const Op *op = &c->g->op.at[x->producer];
  bool rows = op->code == OP_attention_step && t != op->out[0];
  return rows || (t == c->g->loss && x->ndim > 1);
}

/* Whether a tensor is a sum over the microbatches of a step. */
static bool adds_up(const Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  const Op *op = x->producer < 0 ? NULL : &c->g->op.at[x->producer];
  return op && op->code == OP_running_counts && t == op->out[1];
}

static Storage in_sums(Coder *c, const Tensor *t) {
  Storage s = {.kind = ST_SUMS, .off = c->code->sums};
  c->code->sums += align_up((uint64_t)tensor_bytes(t));
  return s;
}

/* The storage of a tensor in the current unit; decided when it is first used. */
Storage coder_place(Coder *c, Tid t) {
  const Tensor *x = &c->g->t.at[t];
  if (x->kind == T_PARAM)
    return (Storage){
        .kind = ST_PARAM, .index = param_index(c, x->index), .joined = x->joined};
  if (x->kind == T_INPUT && x->index == IN_SEED) return (Storage){.kind = ST_SEED};
  if (x->kind == T_INPUT) {
    c->code->input_mask |= 1u << x->index;
    return (Storage){.kind = ST_INPUT, .index = x->index};
  }
  const Uses *use = &c->use.at[t];
  if (use->alias >= 0) return coder_place(c, use->alias);
  if (use->edge) return (Storage){.kind = ST_EDGE, .index = coder_edge(c, t)};
  if (c->store.at[t].kind != ST_NONE) return c->store.at[t];
  const Tensor *of = x->grad_of >= 0 ? &c->logical->t.at[x->grad_of] : NULL;
  Storage s = {.kind = ST_TEMP};
  if (of && of->kind == T_PARAM) {
    s = (Storage){
        .kind = ST_GRAD, .index = param_index(c, of->index), .joined = x->joined};
  } else if (adds_up(c, t)) {
    s = in_sums(c, x);
  } else if (x->producer >= 0) {
    Phase made = use->forward ? PH_F : (Phase)c->g->op.at[x->producer].phase;
    bool by_i = use->phases & (1u << PH_I), by_w = use->phases & (1u << PH_W);
    if (coder_stays(c, t))
      s = in_frame(c, ST_FI, x);
    else if (made == PH_F && by_w)
      s = in_frame(c, ST_FW, x);
    else if (made == PH_F && by_i)
      s = in_frame(c, ST_FI, x);
    else if (made == PH_I && by_w && c->phase != PH_B)
      s = in_frame(c, ST_IW, x);
  }
  return c->store.at[t] = s;
}

Tid coder_temp(Coder *c, const Tensor *t, const Dim *dim, int ndim) {
  Tid id = graph_tensor(c->g, T_VALUE, (DType)t->dtype, dim, ndim);
  *VEC_PUSH(c->a, c->use) = (Uses){.alias = -1};
  *VEC_PUSH(c->a, c->store) = (Storage){.kind = ST_TEMP};
  *VEC_PUSH(c->a, c->temp) = 0;
  return id;
}

/* ---- slots and temporaries of a finished body ---- */

static void set_slot(Coder *c, Operand *o, Storage s) {
  int np = c->code->param.n, dyn = 1 + 2 * np;
  switch (s.kind) {
  case ST_PARAM: o->slot = (uint16_t)(1 + s.index); break;
  case ST_GRAD: o->slot = (uint16_t)(1 + np + s.index); break;
  case ST_INPUT: o->slot = (uint16_t)(dyn + DYN_INPUT + s.index); break;
  case ST_SEED: o->slot = SLOT_SEED; break;
  case ST_SCALARS: o->slot = SLOT_SCALARS; break;
  case ST_EDGE: o->slot = (uint16_t)(dyn + DYN_EDGE + s.index); break;
  case ST_SUMS: o->slot = (uint16_t)(dyn + DYN_EDGE + c->code->edge.n); break;
  case ST_FI:
  case ST_FW:
  case ST_IW: o->slot = (uint16_t)(dyn + DYN_FI + s.kind - ST_FI); break;
  default: o->slot = SLOT_TEMP; break;
  }
  o->off += s.off; /* for an operand that is a part of the tensor */
}

Tid coder_root(const Coder *c, Tid t) {
  while (c->use.at[t].alias >= 0) t = c->use.at[t].alias;
  return t;
}

uint64_t coder_offsets(Coder *c) {
  int n = c->out.n, *slot = c->temp.at;
  VEC(Interval) v = {0};
  VEC(Tid) of = {0};
  for (int i = 0; i < n; i++) {
    CodeInstr *x = &c->out.at[i];
    int operands = x->i.code == I_WAIT ? COLL_OPERANDS : instr_operands(&x->i);
    for (int k = 0; k < operands; k++) {
      if (x->t[k] < 0) continue;
      Tid t = coder_root(c, x->t[k]);
      if (coder_place(c, t).kind != ST_TEMP) continue;
      if (!slot[t]) {
        uint64_t bytes = (uint64_t)tensor_bytes(&c->g->t.at[t]);
        *VEC_PUSH(c->scratch, v) = (Interval){.start = i, .end = i, .size = bytes};
        *VEC_PUSH(c->scratch, of) = t;
        slot[t] = v.n;
      }
      v.at[slot[t] - 1].end = i;
    }
  }
  uint64_t bytes = offsets(c->scratch, v.at, v.n);
  for (int i = 0; i < of.n; i++) {
    c->store.at[of.at[i]] = (Storage){.kind = ST_TEMP, .off = v.at[i].off};
    slot[of.at[i]] = 0;
  }
  return bytes;
}

/* The bit of a gradient among those of the unit: frozen parameters have none. */
static int gradient_bit(const Coder *c, int index) {
  int bit = 0;
  for (int i = 0; i < index; i++)
    bit += !c->logical->param.at[c->code->param.at[i]].frozen;
  return bit;
}

/* The parameters whose gradients a kernel writes, by number in the unit. */
static int gradients_of(Coder *c, const CodeInstr *x, int index[KERNEL_OPERANDS]) {
  int n = 0;
  for (int k = 0; x->i.code == I_KERNEL && k < x->i.nout; k++) {
    if (x->t[x->i.nin + k] < 0) continue;
    Storage s = coder_place(c, x->t[x->i.nin + k]);
    if (s.kind == ST_GRAD) index[n++] = s.index;
  }
  return n;
}

/* Of the results that write a parameter's gradient in a body, the first overwrites if the
 * call says so; later ones accumulate. A kernel does the one or the other with all its
 * results (a norm's weight and bias): the first one's bit decides, or, if a part of them
 * was written before, it accumulates. */
static void mark_accumulation(Coder *c, Phase ph) {
  int16_t *bit = c->code->grad_bit + ph * c->code->param.n;
  bool *seen = NEW_N(c->scratch, bool, c->code->param.n);
  for (int i = 0; i < c->code->param.n; i++) bit[i] = (int16_t)i;
  for (int i = 0; i < c->out.n; i++) {
    CodeInstr *x = &c->out.at[i];
    int of[KERNEL_OPERANDS], n = gradients_of(c, x, of), written = 0;
    for (int k = 0; k < n; k++) written += seen[of[k]];
    if (n == 0) continue;
    x->i.acc = written ? ACC_ALWAYS : (uint8_t)(ACC_BIT + gradient_bit(c, of[0]));
    for (int k = 0; k < n; k++) {
      if (!seen[of[k]]) bit[of[k]] = (int16_t)(written ? GRAD_CLEARED : of[0]);
      seen[of[k]] = true;
    }
  }
}

/* Records that a body uses this parameter or its gradient. */
static void use_param(Coder *c, uint8_t *use, Storage at, Phase ph) {
  int param = c->code->param.at[at.index];
  use[at.index] |= (uint8_t)(1u << ph);
  for (int k = 0; at.joined && k < c->joined[param]->n; k++)
    use[param_index(c, c->joined[param]->param[k])] |= (uint8_t)(1u << ph);
}

void coder_slots(Coder *c, Phase ph) {
  c->out.at = c->code->body[ph].at, c->out.n = c->code->body[ph].n;
  mark_accumulation(c, ph);
  for (int i = 0; i < c->out.n; i++) {
    CodeInstr *x = &c->out.at[i];
    if (x->i.code == I_WAIT) continue;
    for (int k = 0; k < instr_operands(&x->i); k++)
      if (x->t[k] >= 0) {
        Storage at = coder_place(c, coder_root(c, x->t[k]));
        set_slot(c, &x->operand[k], at);
        if (at.kind == ST_GRAD) use_param(c, c->code->grad_use, at, ph);
        if (at.kind == ST_EDGE) c->code->edge_use[at.index] |= (uint8_t)(1u << ph);
        if (at.kind == ST_PARAM) use_param(c, c->code->param_use, at, ph);
      }
  }
}
