/* small_llama.c - builds the model of small_llama.h through the graph API. */
#include "small_llama.h"
#include "vm/compile/compile.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct B {
  Graph *g;
  const ToyOptions *o;
  weft_error *e;
} B;

static Tid op(B *b, int code, const Tid *in, int nin, OpAttr attr, const char *name) {
  Tid out[8] = {-1};
  if (graph_op(b->g, code, in, nin, &attr, name, 0, out, b->e) != WEFT_OK) {
    fprintf(stderr, "toy: %s\n", b->e->text);
    abort();
  }
  return out[0];
}
#define OP(b, code, name, attr, ...)                                                     \
  op(b, OP_##code, (Tid[]){__VA_ARGS__}, LEN(((Tid[]){__VA_ARGS__})), (OpAttr)attr, name)
#define NONE                                                                             \
  { 0 }

static Tid any_param(B *b, int layer, const char *name, int ndim, const Dim *dim) {
  char full[128];
  if (layer >= 0)
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
  else
    snprintf(full, sizeof full, "%s", name);
  Tid t = -1;
  bool norm = ndim == 1 && !strstr(name, "bias");
  if (graph_param(b->g, full, dim, ndim, norm ? INIT_ONES : INIT_NORMAL, 0.1f, &t, b->e))
    abort();
  return t;
}

static Tid param(B *b, int layer, const char *name, int ndim, Dim d0, Dim d1) {
  return any_param(b, layer, name, ndim, (Dim[]){d0, d1});
}

static Dim dim(DimTag tag, int64_t n, int unit) {
  return (Dim){.size = n, .tag = (uint8_t)tag, .unit = unit};
}

static Tid linear(B *b, int layer, const char *module, Tid x, Dim out, Dim in,
                  bool bias) {
  char name[128];
  snprintf(name, sizeof name, "%s.weight", module);
  Tid y = OP(b, linear, NULL, NONE, x, param(b, layer, name, 2, out, in));
  if (!bias) return y;
  snprintf(name, sizeof name, "%s.bias", module);
  return OP(b, add_bias, NULL, NONE, y, param(b, layer, name, 1, out, out));
}

static Tid norm(B *b, int layer, const char *name, Tid x, Dim c) {
  return OP(b, rmsnorm, NULL, {.eps = 1e-5f}, x, param(b, layer, name, 1, c, c));
}

static Tid mlp(B *b, int i, Tid h, Dim c, Dim ffn) {
  Tid gate = linear(b, i, "mlp.gate_proj", h, ffn, c, false);
  Tid up = linear(b, i, "mlp.up_proj", h, ffn, c, false);
  h = OP(b, silu_mul, NULL, NONE, gate, up);
  return linear(b, i, "mlp.down_proj", h, c, ffn, b->o->bias);
}

/* Gate and up projections of all experts: separate weights or a fused one. */
static Tid gated(B *b, int i, const Tid *rows, Dim e, Dim ffn, Dim c) {
  Tid both[8];
  if (b->o->fused) {
    Dim two = {.size = 2 * ffn.size, .tag = TAG_FFN, .parts = 2, .unit = 1};
    Tid w = any_param(b, i, "mlp.experts.gate_up_proj", 3, (Dim[]){e, two, c});
    Tid h = OP(b, grouped_linear, NULL, NONE, rows[0], w, rows[1]);
    OpAttr halves = {.n = 2};
    if (graph_op(b->g, OP_split, &h, 1, &halves, NULL, 0, both, b->e)) abort();
  } else {
    static const char *const name[] = {"mlp.experts.gate_proj", "mlp.experts.up_proj"};
    for (int k = 0; k < 2; k++)
      both[k] = OP(b, grouped_linear, NULL, NONE, rows[0],
                   any_param(b, i, name[k], 3, (Dim[]){e, ffn, c}), rows[1]);
  }
  return OP(b, silu_mul, NULL, NONE, both[0], both[1]);
}

/* Experts with top-k routing; adds the router's losses to *loss. */
static Tid experts(B *b, int i, Tid h, Dim c, Dim ffn, Tid *loss) {
  const ToyOptions *o = b->o;
  Dim e = dim(TAG_EXPERT, o->experts, 1), any = {.size = o->experts};
  Tid x = OP(b, flatten, NULL, NONE, h), way[8], rows[8];
  Tid l = OP(b, router_logits, NULL, NONE, x, param(b, i, "mlp.gate.weight", 2, any, c));
  OpAttr choose = {.topk = o->topk, .norm_topk = 1};
  OpAttr sort = {.experts = o->experts,
                 .bound = o->bound,
                 .capacity = o->capacity,
                 .drop = o->drop,
                 .n = o->senders,
                 .parts = o->owners};
  if (graph_op(b->g, OP_route, &l, 1, &choose, NULL, 0, way, b->e)) abort();
  if (graph_op(b->g, OP_permute, (Tid[]){x, way[1], way[0]}, 3, &sort, NULL, 0, rows,
               b->e))
    abort();
  if (o->aux > 0 || o->z > 0) {
    OpAttr count = {.experts = o->experts};
    OpAttr how = {.topk = o->topk, .aux = o->aux, .z = o->z};
    Tid labels = OP(b, flatten, NULL, NONE, graph_input(b->g, IN_LABELS));
    Tid n = op(b, OP_expert_counts, (Tid[]){way[1], labels}, 2, count, NULL);
    if (o->running) n = op(b, OP_running_counts, &n, 1, (OpAttr)NONE, NULL);
    Tid more = op(b, OP_router_loss, (Tid[]){l, n}, 2, how, NULL);
    *loss = *loss < 0 ? more : OP(b, add, NULL, NONE, *loss, more);
  }
  Tid y = gated(b, i, rows, e, ffn, c);
  Tid down = any_param(b, i, "mlp.experts.down_proj", 3, (Dim[]){e, c, ffn});
  y = OP(b, grouped_linear, NULL, NONE, y, down, rows[1]);
  return OP(b, unflatten, NULL, NONE, OP(b, combine, NULL, NONE, y, way[0], rows[2]));
}

static Tid layer(B *b, int i, Tid x, Tid *loss) {
  const ToyOptions *o = b->o;
  int d = o->hidden / o->heads;
  Dim c = dim(TAG_HIDDEN, o->hidden, 1), q = dim(TAG_HEAD, o->hidden, d);
  int dv = o->value_dim ? o->value_dim : d;
  Dim k = dim(TAG_KV_HEAD, o->kv_heads * d, d),
      v = dim(TAG_KV_HEAD, o->kv_heads * dv, dv);
  Dim ffn = dim(TAG_FFN, o->ffn, 1), out = dim(TAG_HEAD, o->heads * dv, dv);
  OpAttr rope = {.head_dim = d, .theta = 10000};
  OpAttr att = {.head_dim = d, .scale = 0.35f, .value_dim = o->value_dim};
  if (i % 2) att.window = o->window;
  char unit[32];
  snprintf(unit, sizeof unit, "layers.%d", i);
  graph_open_unit(b->g, unit, i, b->e);
  Tid pos = graph_input(b->g, IN_POSITIONS);
  Tid h = norm(b, i, "input_layernorm.weight", x, c);
  Tid tq = linear(b, i, "self_attn.q_proj", h, q, c, o->bias);
  Tid tk = linear(b, i, "self_attn.k_proj", h, k, c, o->bias);
  Tid tv = linear(b, i, "self_attn.v_proj", h, v, c, o->bias);
  tq = op(b, OP_rope, (Tid[]){tq, pos}, 2, rope, NULL);
  tk = op(b, OP_rope, (Tid[]){tk, pos}, 2, rope, NULL);
  Tid qkv[4] = {tq, tk, tv, o->packed ? graph_input(b->g, IN_DOC_STARTS) : -1};
  Tid a = op(b, OP_attention, qkv, o->packed ? 4 : 3, att, NULL);
  x = OP(b, add, NULL, NONE, x, linear(b, i, "self_attn.o_proj", a, c, out, o->bias));
  h = norm(b, i, "post_attention_layernorm.weight", x, c);
  h = o->experts ? experts(b, i, h, c, ffn, loss) : mlp(b, i, h, c, ffn);
  x = OP(b, add, NULL, NONE, x, h);
  graph_close_unit(b->g);
  return x;
}

static Tid model(B *b) {
  const ToyOptions *o = b->o;
  Dim c = dim(TAG_HIDDEN, o->hidden, 1), v = dim(TAG_VOCAB, o->vocab, 1);
  graph_open_unit(b->g, "embed_tokens", -1, b->e);
  Tid table = param(b, -1, "model.embed_tokens.weight", 2, v, c);
  Tid x = OP(b, embedding, NULL, NONE, graph_input(b->g, IN_TOKENS), table);
  graph_close_unit(b->g);
  Tid more = -1;
  for (int i = 0; i < o->layers; i++) x = layer(b, i, x, &more);
  graph_open_unit(b->g, "norm", -1, b->e);
  x = norm(b, -1, "model.norm.weight", x, c);
  graph_close_unit(b->g);
  graph_open_unit(b->g, "lm_head", -1, b->e);
  Tid w = o->tied ? table : param(b, -1, "lm_head.weight", 2, v, c);
  Tid logits = OP(b, linear, "lm_head", NONE, x, w);
  Tid labels = graph_input(b->g, IN_LABELS);
  Tid m = OP(b, ce_max, NULL, NONE, logits);
  Tid s = OP(b, ce_sum, NULL, NONE, logits, labels, m);
  Tid loss = OP(b, ce_loss, NULL, NONE, s, labels);
  if (more >= 0) loss = OP(b, add, NULL, NONE, loss, more);
  graph_close_unit(b->g);
  return loss;
}

static const TpRule llama_rules[] = {
    {"embed_tokens", STYLE_EMBEDDING_ROWWISE, true, 0},
    {"layers.*.self_attn.q_proj", STYLE_COLWISE, true, 0},
    {"layers.*.self_attn.k_proj", STYLE_COLWISE, true, 0},
    {"layers.*.self_attn.v_proj", STYLE_COLWISE, true, 0},
    {"layers.*.self_attn.o_proj", STYLE_ROWWISE, true, 0},
    {"layers.*.mlp.gate_proj", STYLE_COLWISE, true, 0},
    {"layers.*.mlp.up_proj", STYLE_COLWISE, true, 0},
    {"layers.*.mlp.down_proj", STYLE_ROWWISE, true, 0},
    {"layers.*.mlp.experts.gate_proj", STYLE_COLWISE, true, 0},
    {"layers.*.mlp.experts.up_proj", STYLE_COLWISE, true, 0},
    {"layers.*.mlp.experts.gate_up_proj", STYLE_PACKED_COLWISE, true, 0},
    {"layers.*.mlp.experts.down_proj", STYLE_ROWWISE, true, 0},
    {"lm_head", STYLE_COLWISE, true, 0},
};

ToyOptions toy_default(void) {
  return (ToyOptions){.layers = 4,
                      .hidden = 32,
                      .heads = 4,
                      .kv_heads = 2,
                      .ffn = 48,
                      .vocab = 50,
                      .tp = 1,
                      .pp = 1,
                      .dp = 1,
                      .micro = 1,
                      .microbatches = 2,
                      .seq = 8,
                      .dtype = DT_F32,
                      .clip = 1};
}

/* 1F1B, in executed order, unless the options have another one. */
static void make_schedule(Toy *t, const ToyOptions *o) {
  int m = o->microbatches;
  if (o->schedule) {
    t->schedule = *o->schedule;
    return;
  }
  t->schedule = (Schedule){.ranks = o->pp,
                           .virtual_stages = 1,
                           .microbatches = m,
                           .list = NEW_N(t->arena, Action *, o->pp),
                           .n = NEW_N(t->arena, int, o->pp),
                           .name = "1f1b"};
  for (int r = 0; r < o->pp; r++) {
    Action *a = t->schedule.list[r] = NEW_N(t->arena, Action, 2 * m);
    int f = 0, b = 0, n = 0, warm = MIN(m, o->pp - r);
    while (f < warm) a[n++] = (Action){.kind = ACT_F, .mb = f++};
    while (b < m) {
      a[n++] = (Action){.kind = ACT_B, .mb = b++};
      if (f < m) a[n++] = (Action){.kind = ACT_F, .mb = f++};
    }
    t->schedule.n[r] = n;
  }
}

weft_status toy_compile(Toy *t, const ToyOptions *o, const char *dump) {
  *t = (Toy){.arena = arena_new(NULL)};
  bool bare = o->optimizer == OPTIMIZER_SGD_PLAIN; /* a plan names it SGD */
  if (setjmp(*arena_guard(t->arena))) abort();
  t->diags.arena = t->arena;
  t->plan = (Plan){
      .cuda_graph = !o->no_graph,
      .name = "toy",
      .mesh = {.tp = o->tp,
               .pp = o->pp,
               .dp = o->dp,
               .dp_replicate = o->replicate,
               .cp = o->cp,
               .ep = o->ep,
               .etp = o->etp},
      .cp = o->how,
      .moe = {.dispatcher = o->dispatcher,
              .exchange = o->exchange,
              .most = o->bound,
              .keep_router = o->keep_router},
      .packed = {.on = o->packed, .within = true, .separator = 3},
      .strategy = o->strategy,
      .tp = o->rules ? o->rules : llama_rules,
      .ntp = o->rules ? o->nrules : LEN(llama_rules),
      .dtype = o->dtype,
      .fp8 = o->fp8,
      .reduce = o->reduce,
      .grad = o->grad,
      .master = o->master,
      .recompute = o->recompute,
      .loss_scale = {.init = 65536,
                     .growth = 2,
                     .backoff = 0.5,
                     .min = 1,
                     .interval = 2000,
                     .hysteresis = 1},
      .batch = {.global = (int64_t)o->micro * o->dp * o->microbatches * MAX(o->rounds, 1),
                .micro = o->micro,
                .seq = o->seq,
                .rounds = MAX(o->rounds, 1)},
      .opt = {.kind = bare ? OPTIMIZER_SGD : (OptimizerKind)o->optimizer,
              .lr = {.kind = LR_CONSTANT, .max = 1e-2},
              .beta1 = 0.9,
              .beta2 = 0.95,
              .momentum = bare ? 0 : 0.9,
              .dampening = 0.1,
              .eps = 1e-8,
              .ns_steps = o->ns_steps ? o->ns_steps : 3,
              .beta2_decay = -0.8,
              .epsilon = 1e-6,
              .least_rms = 1e-3,
              .threshold = 1,
              .relative_step = true,
              .scale_parameter = true,
              .ns = {{3.4445, -4.775, 2.0315}},
              .ns_eps = 1e-7,
              .adamw_lr_ratio = 1,
              .weight_decay = 0.1,
              .clip = o->clip,
              .state = o->state,
              .stochastic = o->stochastic,
              .post_validation = o->post_validation},
      .steps = 10,
      .eval_every = o->eval_every,
      .eval_batches = 16,
      .seed = 7};
  t->plan.fused_ops = o->fuses;
  t->plan.strategy.sequence_parallel = o->sp;
  t->plan.strategy.loss_parallel = !o->whole_logits;
  t->plan.strategy.overlap_tp = !o->as_written;
  t->plan.strategy.async_tp = o->async;
  t->plan.strategy.overlap_grad_reduce = o->overlap;
  t->plan.strategy.bucket_bytes = o->bucket_bytes ? o->bucket_bytes : 16 << 10;
  if (!mesh_resolve(&t->plan.mesh, 0, &t->mesh, &t->diags)) return WEFT_EPLAN;
  t->graph = graph_new(t->arena, (int64_t)o->micro * o->dp, o->seq);
  B b = {t->graph, o, &t->err};
  Tid loss = model(&b);
  if (graph_finish(t->graph, loss, &t->err)) return WEFT_EPLAN;
  make_schedule(t, o);
  CompileInput in = {.plan = &t->plan,
                     .mesh = &t->mesh,
                     .graph = t->graph,
                     .schedule = &t->schedule,
                     .device = o->device,
                     .arena = t->arena,
                     .dump = dump,
                     .dump_out = &t->dump};
  return compile(&in, &t->compiled, &t->diags, &t->err);
}

void toy_free(Toy *t) {
  text_free(&t->dump);
  arena_free(t->arena);
}
