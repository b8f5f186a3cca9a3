/* sheet_cost.h - times by the data sheet of a cluster: kernels at a share of the roofline
 * that is usual for their class, collectives at one of their links. */
#ifndef WEFT_SHEET_COST_H
#define WEFT_SHEET_COST_H

#include "kernel_work.h"
#include "vm/plan/cluster_figures.h"

/* What stacks reach, and what they add. */
typedef struct SheetRates {
#define RATE(name, usual, worse, better, doc) double name;
#include "sheet_rate.def"
} SheetRates;
typedef enum { RATES_USUAL, RATES_WORSE, RATES_BETTER, RATES_N } RatesOf;
SheetRates sheet_rates(RatesOf which);
SheetRates sheet_roofline(void);

/* What computes attention: kernels written for the GPU, those of FlashAttention 2 or 1,
 * which have the instructions of an A100, or products with stored scores between them. */
typedef enum {
  ATTENTION_FUSED,
  ATTENTION_FLASH_2,
  ATTENTION_FLASH_1,
  ATTENTION_SCORES
} AttentionKind;
/* "fused", "flash2", "flash1", "scores"; -1: none of these. */
int sheet_attention_kind(const char *name);
void sheet_attention(SheetRates *r, AttentionKind kind);

double sheet_kernel(const Cluster *k, const SheetRates *r, const KernelWork *w);

/* A collective, or a transfer between two ranks, over a link. */
typedef struct MoveWork {
  CollKind kind;
  LinkKind link;
  Link over; /* of the group: members, bandwidth of all its cards, latency */
  double bytes;
} MoveWork;
double sheet_move(const SheetRates *r, const MoveWork *w);
/* The part of that time in which the link is full; the rest is latency. */
double sheet_move_full(const SheetRates *r, const MoveWork *w);

#endif
