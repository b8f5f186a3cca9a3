/* random_plan.c - draws plans and runs them against one rank. */
#include "random_plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "vm/io/io.h"
#include "vm/base/rng.h"
#include "vm/session/verify.h"

typedef struct Draw {
  Rng rng;
  uint64_t at;
} Draw;

/* Ends the program: what it draws from is not as this file knows it. */
static _Noreturn void give_up(const char *form, ...) {
  va_list args;
  va_start(args, form);
  vfprintf(stderr, form, args);
  va_end(args);
  fputc('\n', stderr);
  abort();
}

static int below(Draw *d, int n) {
  return (int)(rng_u32(&d->rng, d->at++) % (uint32_t)n);
}
static int pick(Draw *d, const int *list, int n) { return list[below(d, n)]; }
#define PICK(d, ...)                                                                     \
  pick(d, (const int[]){__VA_ARGS__}, LEN(((const int[]){__VA_ARGS__})))

/* ---- schedules ---- */

const SchedulePick schedule_picks[] = {{"1f1b", 1, NEEDS_RANKS},
                                       {"gpipe", 1, NEEDS_NOTHING},
                                       {"eager_1f1b", 1, NEEDS_NOTHING},
                                       {"zb_h2", 1, NEEDS_NOTHING},
                                       {"interleaved_1f1b", 3, NEEDS_ROUNDS},
                                       {"looped_bfs", 3, NEEDS_NOTHING},
                                       {"zero_bubble", 3, NEEDS_ROUNDS},
                                       {"zbv", 2, NEEDS_NOTHING},
                                       {"v_half", 2, NEEDS_NOTHING},
                                       {"v_min", 2, NEEDS_NOTHING},
                                       {"dualpipe_v", 2, NEEDS_TWICE},
                                       {NULL, 0, NEEDS_NOTHING}};

bool schedule_takes(const SchedulePick *s, int ranks, int chunks, int m) {
  int rounds = MAX(1, m / ranks);
  switch (s->needs) {
  case NEEDS_NOTHING: return true;
  case NEEDS_RANKS: return m >= ranks;
  case NEEDS_TWICE: return m >= 2 * ranks;
  case NEEDS_ROUNDS: return chunks == 1 || m % rounds == 0;
  }
  return false;
}

/* Draws a schedule and a legal number of microbatches for it. */
static void draw_schedule(Draw *d, RandomPlan *p) {
  const SchedulePick *s = &schedule_picks[below(d, SCHEDULES)];
  p->schedule = s->name;
  p->virtual_stages = s->chunks == 3 ? PICK(d, 1, 2, 3) : s->chunks;
  p->microbatches = PICK(d, 1, p->pp, 2 * p->pp) + below(d, 4);
  while (!schedule_takes(s, p->pp, p->virtual_stages, p->microbatches)) p->microbatches++;
}

static const char *const arch[] = {"llama", "qwen2", "qwen3", "gpt2"};

/* The cp ranks and their strategy; with a generator of its own, so that the rest of a
 * plan is unchanged. At most 16 ranks in all. */
static void draw_context(uint64_t seed, uint64_t number, RandomPlan *p) {
  static const char *const comm[] = {"allgather", "ring", "a2a", "a2a+p2p"};
  char name[32];
  snprintf(name, sizeof name, "context %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  int ranks = p->tp * p->pp * p->dp, how = below(&d, LEN(comm));
  p->cp = PICK(&d, 1, 1, 2, 4);
  while (ranks * p->cp > 16 && p->cp > 1) p->cp /= 2;
  p->head_ranks = how == 2 ? p->cp : how == 3 ? MIN(p->cp, 2) : 1;
  char heads[32] = "";
  if (how == 3) snprintf(heads, sizeof heads, ", heads_size = %d", p->head_ranks);
  snprintf(p->context, sizeof p->context, "comm = \"%s\", balance = \"%s\"%s", comm[how],
           below(&d, 4) ? "zigzag" : "none", heads);
}

/* Dropout of GPT-2, or of others, with a generator of its own, too: the rest of a plan is
 * unchanged. */
static const char *draw_dropout(const Draw *model, bool gpt2) {
  static const char *const rates[][2] = {
      {"", ""},
      {"", ""},
      {"", "resid_pdrop = 0.1, "},
      {"attention_dropout = 0.2, ",
       "embd_pdrop = 0.3, resid_pdrop = 0.5, attn_pdrop = 0.2, "}};
  Draw d = {rng_make(rng_u32(&model->rng, 0), "dropout"), 0};
  return rates[below(&d, LEN(rates))][gpt2];
}

/* Whether linears have rows of whole blocks of 4 bits on every rank of tp, for a base
 * that is stored so; with a generator of its own, too. */
static bool draw_blocks(const Draw *model, int which) {
  Draw d = {rng_make(rng_u32(&model->rng, 0), "blocks"), 0};
  return below(&d, 6) == 0 && which < 2;
}

/* The size of a head with which the heads of a rank make up whole blocks. */
static int head_of_blocks(int heads) {
  int size = 64;
  while (size > 8 && heads * (size / 2) % 64 == 0) size /= 2;
  return size;
}

/* The model as Lua code. Sizes are legal for tp; the vocabulary need not be divisible. */
static int draw_model(Draw *d, const RandomPlan *p, int which, char *s, size_t n) {
  int kv = p->tp * p->head_ranks * PICK(d, 1, 2), heads = kv * PICK(d, 1, 2);
  if (below(d, 3) == 0 && p->head_ranks == 1)
    kv = MAX(p->tp / PICK(d, 2, 4), 1), heads = p->tp * PICK(d, 1, 2);
  int stages = p->pp * p->virtual_stages, head_dim = PICK(d, 4, 8, 16);
  int layers = stages * PICK(d, 1, stages > 4 ? 1 : 2) + below(d, 2);
  int vocab = PICK(d, 37, 48, 53);
  if (p->blocks) head_dim = head_of_blocks(heads / p->tp);
  int hidden = heads * head_dim;
  if (which == 3)
    return snprintf(s, n,
                    "weft.model { \"gpt2\", n_layer = %d, n_embd = %d, n_head = %d, "
                    "%svocab_size = %d, n_positions = %d, initializer_range = 0.1 }",
                    layers, hidden, heads, draw_dropout(d, true), vocab, 32 * p->cp);
  bool tied = below(d, 2);
  int ffn = PICK(d, 8, 12, 20, 32);
  return snprintf(s, n,
                  "weft.model { \"%s\", %snum_hidden_layers = %d, hidden_size = %d, "
                  "num_attention_heads = %d, num_key_value_heads = %d, "
                  "intermediate_size = %d, vocab_size = %d, initializer_range = 0.1, "
                  "tie_word_embeddings = %s%s }",
                  arch[which], draw_dropout(d, false), layers, hidden, heads, kv,
                  p->tp * (p->blocks ? 64 : ffn), vocab, tied ? "true" : "false",
                  which == 2 ? ", head_dim = 8" : "");
}

/* A model function of random_model.lua. */
static void draw_function(Draw *d, const RandomPlan *p, int key, char *s, size_t n) {
  int stages = p->pp * p->virtual_stages;
  snprintf(s, n,
           "weft.model { random.model(%d), layers = %d, heads = %d, head_dim = %d, "
           "ffn = %d, vocab_size = %d }",
           key, stages * PICK(d, 1, stages > 4 ? 1 : 2) + below(d, 2),
           p->tp * p->head_ranks * PICK(d, 1, 2), PICK(d, 4, 8, 16),
           p->tp * PICK(d, 8, 12, 20, 32), PICK(d, 37, 48, 53));
}

/* Groups of ranks that keep parameters after the forward (hybrid sharding), and what is
 * offloaded to the host; with a generator of its own, too. */
static void draw_storage(uint64_t seed, uint64_t number, int group, bool zero3, Text *t) {
  char name[40];
  snprintf(name, sizeof name, "storage %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  bool groups = below(&d, 3) == 0, persist = below(&d, 3) == 0;
  bool host = number % 2 == 0 && below(&d, 2); /* else there is post-validation */
  if (!zero3) {
    if (host) text_add(t, "offload_policy = true, ");
    return;
  }
  if (groups) text_printf(t, "zero_hpz_partition_size = %d, ", group);
  if (persist) text_add(t, "param_persistence_threshold = 200, ");
  if (host) text_add(t, "offload_optimizer = \"cpu\", offload_param = \"cpu\", ");
}

/* What is sharded over dp, and over which part; with a generator of its own, so that the
 * rest of a plan does not depend on it. */
static void draw_strategy(uint64_t seed, uint64_t number, const RandomPlan *p,
                          int *copies, Text *t) {
  char name[40];
  snprintf(name, sizeof name, "strategy %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  int stage = -1;
  if (below(&d, 3)) {
    stage = below(&d, 4);
    text_printf(t, "\"zero\", stage = %d, overlap_param_gather = %s, ", stage,
                below(&d, 2) ? "true" : "false");
  } else {
    static const char *const reshard[] = {"true", "false", "nil"};
    text_printf(t,
                "\"fsdp2\", reshard_after_forward = %s, forward_prefetch_depth = %d, "
                "backward_prefetch_depth = %d, defer_fsdp_grad_sync = %s, ",
                reshard[below(&d, 3)], below(&d, 3), below(&d, 3),
                below(&d, 2) ? "true" : "false");
  }
  if (below(&d, 3) == 0) text_add(t, "loss_parallel = false, ");
  if (below(&d, 4) == 0) text_add(t, "overlap_tp = false, ");
  if (p->sp && below(&d, 3) == 0) text_add(t, "enable_async_tensor_parallel = true, ");
  *copies = p->dp % 2 == 0 && below(&d, 3) == 0 ? 2 : 1;
  if (stage < 0 && *copies == p->dp) *copies = 1; /* FSDP2 needs shards */
  if (stage < 0 || stage == 3)
    draw_storage(seed, number, p->cp > 1 ? p->cp : p->dp / *copies, stage == 3, t);
}

/* What is recomputed, as Lua code; with a generator of its own, so that the rest of a
 * plan is unchanged. */
static const char *draw_recompute(uint64_t seed, uint64_t number, bool *keep_gathered) {
  static const char *const list[] = {"\"none\"",
                                     "\"full\"",
                                     "\"selective\"",
                                     "\"cheap\"",
                                     "{ \"cheap\", \"selective\" }",
                                     "{ \"layers.*\", \"lm_head\" }",
                                     "{ \"selective\", \"layers.0\" }"};
  char name[32];
  snprintf(name, sizeof name, "recompute %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  *keep_gathered = below(&d, 4) == 0;
  return list[below(&d, LEN(list))];
}

/* The rest of the plan, around its model and its styles. */
static void write_plan(Draw *d, uint64_t seed, uint64_t number, int rounds, Text *t,
                       const char *model, const char *styles, RandomPlan *p) {
  Text strategy = {0};
  int copies;
  draw_strategy(seed, number, p, &copies, &strategy);
  const char *family = strstr(model, "\"gpt2\"")          ? "gpt2"
                       : strstr(model, "weft.model { \"") ? "llama"
                                                          : "function";
  text_printf(t, "local learning = learning(new_draw, %llu, \"%s\", %s)\n",
              (unsigned long long)(seed * 100000 + number), family,
              p->blocks ? "true" : "false");
  text_printf(t, "local formats, pieces = precision(new_draw, %llu, false)\n",
              (unsigned long long)(seed * 100000 + number));
  text_printf(
      t, "local loss, rows, mtp = loss(new_draw, %llu, \"%s\", %d, learning.adapter)\n",
      (unsigned long long)(seed * 100000 + number), family, p->micro);
  text_printf(t,
              "return weft.plan {\n"
              "  name = \"random-%llu-%llu\",\n"
              "  model = %s,\n%s"
              "  mesh = { tp = %d, pp = %d, cp = %d, dp = %d, dp_replicate = %d },\n"
              "  cp = { %s },\n",
              (unsigned long long)seed, (unsigned long long)number, model, styles, p->tp,
              p->pp, p->cp, p->dp, copies, p->context);
  bool keep;
  const char *again = draw_recompute(seed, number, &keep);
  p->recompute = strcmp(styles, "") == 0 ? again : again[0] == '{' ? "\"full\"" : again;
  text_printf(t, "  recompute = %s,\n", p->recompute);
  int overlap = below(d, 2), bucket = PICK(d, 1000, 20000, 1000000);
  char reduced[80] = "";
  if (strstr(strategy.s, "zero"))
    snprintf(reduced, sizeof reduced, ", overlap_grad_reduce = %s, bucket_bytes = %d",
             overlap ? "true" : "false", bucket);
  text_printf(t,
              "  strategy = { %ssequence_parallel = %s%s, keep_gathered = %s },\n"
              "  schedule = \"%s\",\n"
              "  pp_plan = { virtual = %d, balance = \"%s\" },\n",
              strategy.s, p->sp ? "true" : "false", reduced, keep ? "true" : "false",
              p->schedule, p->virtual_stages, number % 3 ? "even" : "cost");
  /* ranks that exchange logits have them whole */
  bool cut = p->tp == 1 || (!strstr(strategy.s, "loss_parallel = false") && !*styles);
  bool offloads = strstr(strategy.s, "offload") != NULL;
  text_free(&strategy);
  int seq = PICK(d, 8, 12, 16) * p->cp;
  text_printf(t, "  batch = { global = %d, micro = %d, seq = %d, rounds = %d },\n",
              p->micro * p->dp * p->microbatches * rounds, p->micro, seq, rounds);
  text_printf(t, "  freeze = learning.freeze, groups = learning.groups, "
                 "adapter = learning.adapter,\n");
  unsigned long long key = seed * 100000 + number;
  text_printf(t, "  optimizer = optimizer(weft, new_draw, %llu, %s, %s),\n", key,
              number % 2 ? "true" : "false", offloads ? "true" : "false");
  text_printf(t, "  precision = formats, loss = loss, mtp = mtp, loss_chunks = %s,\n",
              cut ? "(not loss or loss.z_loss) and pieces or nil" : "nil");
  text_printf(t, "  data = weft.synthetic { learnt = masks(new_draw, %llu) },\n", key);
  const char *stream = below(d, 3) == 0 ? "not rows and { eot = 3 } or nil" : "nil";
  text_printf(t, "  packed = packing(new_draw, %llu, rows, %d, %s),\n", key, seq, stream);
  text_printf(t, "  train = { steps = 3, seed = %d, log_every = 1 },\n}\n",
              below(d, 1000));
  if (t->oom || t->n >= sizeof p->text)
    give_up("a random plan of %zu bytes, for which there is no room", t->n);
  memcpy(p->text, t->s, t->n + 1);
  text_free(t);
}

static int draw_sizes(Draw *d, RandomPlan *p) {
  p->sp = below(d, 2);
  draw_schedule(d, p);
  return PICK(d, 1, 1, 2);
}

/* Embeds a file of tests/generate as a value of the plan. */
static void add_library(Text *t, const char *name, const char *file) {
  char path[256], *s;
  size_t n;
  weft_error e = {.rank = -1};
  snprintf(path, sizeof path, WEFT_SOURCE_DIR "/tests/generate/%s.lua", file);
  if (file_read(NULL, path, FILE_OWN_MAX, &s, &n, &e) != WEFT_OK) give_up("%s", e.text);
  text_printf(t, "local %s = (function()\n%s\nend)()\n", name, s);
  mem_free(NULL, s, n + 1);
}

/* The beginning of all plans. */
static void add_head(Text *t) {
  text_add(t, "local weft = require \"weft\"\n");
  add_library(t, "new_draw", "random_draw");
  add_library(t, "optimizer", "random_optimizer");
  add_library(t, "precision", "random_precision");
  add_library(t, "learning", "random_learning");
  add_library(t, "loss", "random_loss");
  add_library(t, "packing", "random_packing");
  add_library(t, "masks", "random_masks");
}

void random_plan(uint64_t seed, uint64_t number, RandomPlan *p) {
  char name[32], model[512];
  Text t = {0};
  snprintf(name, sizeof name, "plan %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  *p = (RandomPlan){.tp = PICK(&d, 1, 2, 4),
                    .pp = PICK(&d, 1, 2, 4),
                    .dp = PICK(&d, 1, 2, 3),
                    .micro = PICK(&d, 1, 1, 2)};
  int rounds = draw_sizes(&d, p);
  draw_context(seed, number, p);
  int which = below(&d, 4);
  p->blocks = draw_blocks(&d, which);
  draw_model(&d, p, which, model, sizeof model);
  add_head(&t);
  write_plan(&d, seed, number, rounds, &t, model, "", p);
}

int random_ranks(const RandomPlan *p) { return p->tp * p->pp * p->dp * p->cp; }

void styled_plan(uint64_t seed, uint64_t number, RandomPlan *p) {
  char name[32], model[512], styles[256];
  Text t = {0};
  snprintf(name, sizeof name, "styled %llu", (unsigned long long)number);
  Draw d = {rng_make(seed, name), 0};
  *p = (RandomPlan){.tp = PICK(&d, 2, 2, 4),
                    .pp = PICK(&d, 1, 1, 2),
                    .dp = PICK(&d, 1, 1, 2),
                    .micro = PICK(&d, 1, 1, 2)};
  int rounds = draw_sizes(&d, p), which = below(&d, 8), key = below(&d, 1 << 30);
  draw_context(seed, number, p);
  add_head(&t);
  add_library(&t, "random", "random_model");
  if (which < LEN(arch)) {
    draw_model(&d, p, which, model, sizeof model);
    snprintf(styles, sizeof styles, "  tp_plan = random.change(weft, %d, \"%s\"),\n", key,
             arch[which]);
  } else {
    draw_function(&d, p, key, model, sizeof model);
    text_printf(&t, "local model = %s\n", model);
    snprintf(model, sizeof model, "model");
    snprintf(styles, sizeof styles, "  tp_plan = random.tp_plan(%d, model),\n", key);
  }
  write_plan(&d, seed, number, rounds, &t, model, styles, p);
}

void experts_plan(uint64_t number, Text *t) {
  add_head(t);
  add_library(t, "experts", "random_experts");
  text_printf(t, "return experts(weft, %llu)\n", (unsigned long long)number);
}

/* ---- N ranks against one ---- */

/* What each figure of a report may be. */
typedef struct Limits {
  double loss, grad, param;
} Limits;

static double half_unit(DType t) {
  return t == DT_BF16 ? 0x1p-9 : t == DT_F16 ? 0x1p-12 : 0;
}

/* The one rank has f32 everywhere. Gradients are rounded when a microbatch is added and
 * when ranks sum them, each rank its own part; a value or a state when it is stored. Ops
 * in 16 bits round their results, as often as a model is deep: see fuzz_only_rounds. */
static Limits limits_of(const Job *j, double tolerance) {
  const Plan *p = &j->plan;
  double ranks = (double)j->mesh.world / j->mesh.size[AXIS_PP];
  double unit = MAX(half_unit(p->grad), half_unit(p->reduce));
  double sums = unit * (sqrt(j->microbatches) + sqrt(ranks) + 1);
  double ops = p->dtype == DT_F32 ? 0 : 2e-2;
  double state = p->opt.state == DT_F32 ? 0 : 2e-2;
  Limits l = {.loss = tolerance + ops,
              .grad = tolerance + sums + ops + state,
              .param = tolerance + ops + state + 2 * half_unit(p->master)};
  return l;
}

static void judge_figures(const Limits *l, VerifyReport *r) {
  bool grads = r->grad <= l->grad && r->grad_norm <= l->grad;
  if (!r->ok || (grads && r->loss <= l->loss && r->param <= l->param)) return;
  r->ok = false;
  snprintf(r->first_bad, sizeof r->first_bad,
           "%s: loss %.1e of %.1e, gradients %.1e, norm %.1e of %.1e, parameters %.1e of "
           "%.1e",
           r->worst, r->loss, l->loss, r->grad, r->grad_norm, l->grad, r->param,
           l->param);
}

static weft_status compare(Job *many, const char *path, const DeviceKind *device,
                           const RunOptions *options, uint64_t data, int steps,
                           double tolerance, Arena *a, VerifyReport *r) {
  Job one;
  TRY(job_load(many, a, &(LangOptions){0}, path));
  many->plan.seed += data;
  many->device = device;
  TRY(job_mesh(many, 0));
  TRY(job_compile(many));
  weft_status st = job_twin(many, &one);
  Limits l = limits_of(many, tolerance);
  if (st == WEFT_OK) {
    TRY(verify(&many->plan, many->compiled, &one.plan, one.compiled, steps,
               MAX(l.loss, MAX(l.grad, l.param)), options, r, &many->e));
    judge_figures(&l, r);
    return WEFT_OK;
  }
  many->d = one.d;
  many->e = one.e;
  return st;
}

static weft_status parity_on(const DeviceKind *device, const RunOptions *options,
                             const char *plan, uint64_t data, int steps, double tolerance,
                             VerifyReport *r, Text *report) {
  char path[] = "/tmp/weft-plan-XXXXXX.lua";
  int fd = mkstemps(path, 4);
  *r = (VerifyReport){0};
  if (fd < 0 || write(fd, plan, strlen(plan)) < 0) return WEFT_EFILE;
  close(fd);
  Arena *a = arena_new(NULL);
  Job j;
  if (setjmp(*arena_guard(a))) give_up("out of memory");
  weft_status st = compare(&j, path, device, options, data, steps, tolerance, a, r);
  unlink(path);
  if (st != WEFT_OK || !r->ok) {
    report_text(&j.d, false, report);
    text_printf(report, "%s%s\n", j.e.text, r->first_bad);
  }
  job_free(&j);
  arena_free(a);
  return st;
}

weft_status plan_parity_with(const char *plan, uint64_t data, int steps, double tolerance,
                             VerifyReport *r, Text *report) {
  RunOptions options = {.threads = 1};
  return parity_on(NULL, &options, plan, data, steps, tolerance, r, report);
}

weft_status plan_parity(const char *plan, int steps, double tolerance, VerifyReport *r,
                        Text *report) {
  return plan_parity_with(plan, 0, steps, tolerance, r, report);
}

static void describe(uint64_t number, const RandomPlan *p, Text *out) {
  text_printf(out,
              "plan %llu: tp %d pp %d cp %d (%s) dp %d sp %d micro %d x %d, %s of %d, "
              "again %s: ",
              (unsigned long long)number, p->tp, p->pp, p->cp, p->context, p->dp, p->sp,
              p->micro, p->microbatches, p->schedule, p->virtual_stages, p->recompute);
}

static bool agrees(weft_status st, const char *plan, const VerifyReport *r) {
  return st == WEFT_OK && (r->ok || fuzz_formats_do(plan, r));
}

void random_plan_in_f32(RandomPlan *p) {
  static const char drawn[] = "precision = formats,", f32[] = "precision = \"f32\",";
  char *at = strstr(p->text, drawn), *end = at ? at + strlen(drawn) : at;
  if (!at || strlen(f32) > strlen(drawn)) give_up("a random plan without \"%s\"", drawn);
  memcpy(at, f32, strlen(f32));
  memmove(at + strlen(f32), end, strlen(end) + 1);
}

/* Other devices, whose products are rounded in another order, in f32. */
bool parity_holds_on(const DeviceKind *device, const RunOptions *options, uint64_t seed,
                     uint64_t number, int steps, double tolerance, Text *report) {
  RandomPlan p;
  VerifyReport r;
  Text why = {0};
  random_plan(seed, number, &p);
  if (device) random_plan_in_f32(&p);
  weft_status st = parity_on(device, options, p.text, 0, steps, tolerance, &r, &why);
  bool ok = agrees(st, p.text, &r) ||
            (st == WEFT_OK && !device && fuzz_only_rounds(p.text, &r));
  describe(number, &p, report);
  text_printf(report, "loss %.1e grad %.1e param %.1e\n", r.loss, r.grad, r.param);
  if (!ok) text_printf(report, "%s%s", why.s ? why.s : "", p.text);
  text_free(&why);
  return ok;
}

bool parity_holds(uint64_t seed, uint64_t number, int steps, double tolerance,
                  Text *report) {
  return parity_holds_on(NULL, &(RunOptions){.threads = 1}, seed, number, steps,
                         tolerance, report);
}

bool experts_hold(uint64_t number, int steps, double tolerance, Text *report) {
  VerifyReport r;
  Text plan = {0}, why = {0};
  experts_plan(number, &plan);
  weft_status st = plan_parity(plan.s, steps, tolerance, &r, &why);
  bool ok = agrees(st, plan.s, &r) || (st == WEFT_OK && fuzz_only_rounds(plan.s, &r));
  text_printf(report, "experts %llu: loss %.1e grad %.1e param %.1e\n",
              (unsigned long long)number, r.loss, r.grad, r.param);
  if (!ok && why.s) text_add(report, why.s);
  text_free(&plan);
  text_free(&why);
  return ok;
}

Verdict styles_hold(uint64_t seed, uint64_t number, int steps, double tolerance,
                    Text *report) {
  RandomPlan p;
  VerifyReport r;
  Text why = {0};
  styled_plan(seed, number, &p);
  weft_status st = plan_parity(p.text, steps, tolerance, &r, &why);
  Verdict o = agrees(st, p.text, &r) ? EQUAL : st == WEFT_EPLAN ? REFUSED : DIFFERENT;
  if (o == REFUSED && (!why.s || !strstr(why.s, "error: "))) o = DIFFERENT;
  describe(number, &p, report);
  if (o == REFUSED)
    text_printf(report, "refused\n");
  else
    text_printf(report, "loss %.1e grad %.1e param %.1e\n", r.loss, r.grad, r.param);
  if (o != EQUAL) text_printf(report, "%s", why.s ? why.s : "");
  if (o == DIFFERENT) text_printf(report, "%s", p.text);
  text_free(&why);
  return o;
}
