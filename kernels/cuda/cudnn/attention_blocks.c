/* attention_blocks.c - see attention_blocks.h. Pieces are those of vm/graph/sequence.h:
 * rank r of n has run r of n, or runs r and 2n-1-r of 2n (mirror). */
#include "attention_blocks.h"

int attention_pieces(const KernelArgs *a) { return a->attr->n > 1 ? a->attr->n : 1; }

/* All keys are here: those up to the last query of each run. */
static int of_gathered(const KernelArgs *a, int index, AttentionBlock b[]) {
  int n = attention_pieces(a), runs = a->attr->mirror ? 2 : 1;
  int64_t run = a->in[0].dim[1] / runs;
  int upto[BLOCKS_MOST] = {index + 1, 2 * n - index};
  for (int i = 0; i < runs; i++)
    b[i] = (AttentionBlock){i * run, run, 0, upto[i] * run, true};
  return runs;
}

/* The keys of another rank: of one before this one all queries see the first run, and of
 * one behind it the second run of queries sees all. Without mirror the former see all
 * keys, and nobody the latter. */
static int of_step(const KernelArgs *a, int index, AttentionBlock b[]) {
  int n = attention_pieces(a), from = (index - a->attr->step + n) % n;
  int64_t rows = a->in[0].dim[1], half = a->attr->mirror ? rows / 2 : rows;
  if (from < index)
    b[0] = (AttentionBlock){0, rows, 0, half, false};
  else
    b[0] = (AttentionBlock){half, rows - half, 0, rows, false};
  return b[0].queries > 0;
}

/* A rank's own keys ascend as its queries do. */
int attention_blocks(int op, const KernelArgs *a, int index, AttentionBlock b[]) {
  int64_t rows = a->in[0].dim[1];
  if (attention_goes_on(op, a)) return of_step(a, index, b);
  if (attention_pieces(a) > 1 && !attention_is_part(op)) return of_gathered(a, index, b);
  b[0] = (AttentionBlock){0, rows, 0, rows, true};
  return 1;
}
