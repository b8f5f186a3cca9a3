/* sheet_cost.c - the roofline of a GPU with shares that stacks reach; see sheet_cost.h.
 */
#include "sheet_cost.h"

#include <math.h>

SheetRates sheet_rates(RatesOf which) {
#define RATE(name, usual, worse, better, doc)                                            \
  .name = which == RATES_WORSE ? worse : which == RATES_BETTER ? better : usual,
  return (SheetRates){
#include "sheet_rate.def"
  };
}

SheetRates sheet_roofline(void) {
  return (SheetRates){.grouped = 1,
                      .attention = 1,
                      .attention_dx = 1,
                      .memory = 1,
                      .nvlink = 1,
                      .network = 1,
                      .host = 1};
}

static const char *const attention_kinds[] = {[ATTENTION_FUSED] = "fused",
                                              [ATTENTION_FLASH_2] = "flash2",
                                              [ATTENTION_FLASH_1] = "flash1",
                                              [ATTENTION_SCORES] = "scores"};

int sheet_attention_kind(const char *name) {
  return str_index(name, attention_kinds, LEN(attention_kinds));
}

void sheet_attention(SheetRates *r, AttentionKind kind) {
  r->scores = kind == ATTENTION_SCORES;
  r->mma = kind == ATTENTION_FLASH_2 || kind == ATTENTION_FLASH_1;
  if (kind != ATTENTION_FLASH_1) return;
  r->attention = r->attention_1;
  r->attention_dx = r->attention_1_dx;
}

/* ---- kernels ---- */

/* The share of its best that a size leaves. */
static double ramp(double size, double half) {
  return size > 0 ? size / (size + half) : 1;
}

/* Products whose result has fewer tiles than there are multiprocessors leave some idle,
 * unless what is summed over is long enough to be cut, too. */
static double busy_share(const Cluster *k, const SheetRates *r, double m, double n,
                         double depth) {
  enum { CUT = 2048 };
  if (!(r->tile > 0 && k->sms > 0)) return 1;
  double tiles = ceil(m / r->tile) * ceil(n / r->tile) * MAX(floor(depth / CUT), 1);
  return MIN(tiles / (double)k->sms, 1);
}

/* flop/s of products that are large. */
static double best_rate(const Cluster *k, const SheetRates *r, DType t) {
  enum { USUAL = 80 }; /* percent */
  double peak = cluster_rate(k, t);
  if (r->products == 0) return peak;
  return r->products * (t != DT_F32 && k->reached > 0 ? k->reached : peak * USUAL / 100);
}

/* Half of a product's time goes to its result where it sums over so few elements: the
 * rate's figure is for results of 2 bytes, which is about what memory takes for them (of
 * an A100, 2 bytes at 1.67 TB/s are 153 elements at 256 Tflop/s). A gradient in f32 that
 * is added to is read and written: four times as much. */
static double depth_of_half(const SheetRates *r, const KernelWork *w) {
  enum { USUAL_RESULT = 2 };
  return r->product_depth * MAX(w->cell / USUAL_RESULT, 1);
}

/* Operands in fp8 reach the share of their peak that those in bf16 do. */
static double operand_rate(const Cluster *k, const SheetRates *r, const KernelWork *w) {
  if (!w->fp8 || !(k->fp8 > 0 && k->bf16 > 0)) return best_rate(k, r, w->dtype);
  return best_rate(k, r, DT_BF16) / k->bf16 * k->fp8;
}

static double product_rate(const Cluster *k, const SheetRates *r, const KernelWork *w,
                           double rows, double together) {
  return operand_rate(k, r, w) * ramp(w->k, depth_of_half(r, w)) *
         ramp(w->n, r->product_edge) * ramp(rows, r->product_edge) *
         busy_share(k, r, rows, w->n * together, w->k);
}

/* ---- attention ---- */

/* The rates of attention are those of heads of this size. */
enum { USUAL_HEAD = 128 };

/* Passes over stored scores: written by the first product, softmax with its mask,
 * dropout, the second product; and as much again for each gradient, with both operands.
 */
enum { PASSES = 6, PASSES_DX = 9, BYTES_OF_A_SCORE = 2 };

static double stored_scores(const Cluster *k, const SheetRates *r, const KernelWork *w,
                            bool back) {
  double scores = w->heads * w->m * w->n;
  double products = (back ? 8 : 4) * scores * w->k;
  double moved = (back ? PASSES_DX : PASSES) * BYTES_OF_A_SCORE * scores;
  return products / (best_rate(k, r, w->dtype) * ramp(w->k, r->product_depth)) +
         moved / (k->hbm_bandwidth * r->memory);
}

static double attention_seconds(const Cluster *k, const SheetRates *r,
                                const KernelWork *w) {
  bool back = w->kind == WORK_ATTENTION_DX;
  if (r->scores > 0) return stored_scores(k, r, w, back);
  double share = (back ? r->attention_dx : r->attention) *
                 ramp(w->n, r->attention_depth) * ramp(w->k, r->attention_head) /
                 ramp(USUAL_HEAD, r->attention_head);
  if (r->mma > 0 && k->mma > 0) share *= k->mma;
  return w->flops / (cluster_rate(k, w->dtype) * share);
}

static double arithmetic_seconds(const Cluster *k, const SheetRates *r,
                                 const KernelWork *w) {
  switch (w->kind) {
  case WORK_PRODUCT: return w->flops / product_rate(k, r, w, w->m, 1);
  case WORK_GROUPED: {
    double n = MAX(w->heads, 1);
    return w->flops / (r->grouped * product_rate(k, r, w, w->m / n, n));
  }
  case WORK_ATTENTION:
  case WORK_ATTENTION_DX: return attention_seconds(k, r, w);
  default: return 0;
  }
}

double sheet_kernel(const Cluster *k, const SheetRates *r, const KernelWork *w) {
  double bandwidth = k->hbm_bandwidth * r->memory;
  return MAX(arithmetic_seconds(k, r, w), (w->bytes + w->added) / bandwidth) +
         w->between / bandwidth + (1 + w->launches) * r->launch;
}

/* ---- collectives ---- */

static double link_share(const SheetRates *r, LinkKind k) {
  return k == LINK_NVLINK ? r->nvlink : k == LINK_HOST ? r->host : r->network;
}

/* At the data sheet: bytes that pass the link of a member, over its bandwidth. */
static double passes(const MoveWork *w) {
  const Link *l = &w->over;
  double around = w->bytes * (l->n - 1) / l->n / l->bandwidth;
  switch (w->kind) {
  case COLL_SEND:
  case COLL_RECV:
  case COLL_SHIFT: return w->bytes / l->next;
  case COLL_ALL_TO_ALL:
  case COLL_ALL_TO_ALL_V: return link_exchanged(l, w->bytes) / l->own;
  case COLL_ALL_REDUCE: return 2 * around;
  default: return around;
  }
}

/* Steps that follow each other: rings have one for each other member, trees, which small
 * messages take, two for each doubling. */
static double steps(const MoveWork *w) {
  double both = w->kind == COLL_ALL_REDUCE ? 2 : 1;
  if (w->kind == COLL_SEND || w->kind == COLL_RECV || w->kind == COLL_SHIFT) return 1;
  return both * link_steps(w->over.n);
}

double sheet_move_full(const SheetRates *r, const MoveWork *w) {
  if (w->over.n < 2) return 0;
  return passes(w) / link_share(r, w->link);
}

double sheet_move(const SheetRates *r, const MoveWork *w) {
  if (w->over.n < 2) return 0;
  return sheet_move_full(r, w) + steps(w) * w->over.latency + r->start;
}
