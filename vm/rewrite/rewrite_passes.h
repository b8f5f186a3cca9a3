/* rewrite_passes.h - the passes of this room that are one function or two, in the order
 * in which vm/compile/graph_passes.c calls them. "Reported" is in `d`. */
#ifndef WEFT_REWRITE_PASSES_H
#define WEFT_REWRITE_PASSES_H

#include "vm/shard/shard.h"

/* requires a finished forward graph that is a fork; establishes an adapter beside each
 * linear that the plan targets, and freezes all other parameters. False if a pattern
 * matches nothing or a weight cannot be adapted (reported). */
bool adapters(Graph *g, const Plan *plan, Diags *d);

/* requires adapters; establishes the op nf4, which makes frozen weights of 4 bits, before
 * the linears of layers. False: that is impossible (reported). */
bool quantized_base(Graph *g, const Plan *plan, Diags *d);

/* requires a finished forward graph; sets Param.frozen and Param.group by the patterns of
 * the plan. False if one matches nothing, two groups want a parameter, or nothing is left
 * that learns (reported). */
bool trainable(Graph *g, const Plan *plan, Diags *d);

/* requires a finished logical graph of one token (T = 1), before any pass; gives
 * attention a cache of `context` positions, indexed by the input IN_POSITIONS, and makes
 * the logits the result instead of the loss. It is an error if the loss is not the cross
 * entropy of logits. */
bool decode_graph(Graph *g, int64_t context, Diags *d);

/* requires a finished forward graph; marks the linear whose logits the loss is of as
 * recomputed, so that the backward has a product of its own. */
void chunked_loss_marks(Graph *g);

/* requires a finished forward graph; establishes grad, forward_ops and phases: adds the
 * backward ops, tags every op F, I or W, and removes ops that the loss does not depend
 * on. Ops and parameters without a gradient are errors in `d`. */
weft_status autodiff(Graph *g, Diags *d);
/* For a model that is not trained, instead of autodiff: keeps what the result depends on,
 * all in phase F. */
void forward_alone(Graph *g);

/* requires a sharded graph; removes sums, pieces and collectives of the backward whose
 * results no op reads and that are no gradients of parameters of `logical`. */
void drop_unread(const Graph *logical, Graph *g);

/* requires a sharded graph of a schedule that splits I and W; moves cheap weight
 * gradients from W to I. */
void split_wgrads(const Graph *logical, Sharded *s);

/* requires a sharded graph, after recompute; replaces some ops by fused ones, which pass
 * over memory once: every tensor that is read is still computed in the same unit. A fused
 * op that computes gradients of weights along with those of inputs is in I. */
void fuse_ops(Graph *g);

/* requires a sharded graph with fused ropes (fuse_ops()); replaces products of the same
 * rows (q, k and v before their ropes; gate and up), their gradients and the ops that
 * read them by one wider product and ops that read columns in place, where that adds no
 * pass over memory, and establishes in sh->joined the weights that must be adjacent in
 * memory for that. */
void fuse_projections(const CompileInput *in, Sharded *sh);

/* requires a sharded graph, after recompute and fuse_ops; replaces the linear of
 * chunked_loss_marks, cross entropy and their gradients by ops that compute pieces of the
 * rows, so that the logits of all rows never exist. False after an error, which names
 * what is in the way. */
bool chunked_loss(const Plan *plan, Graph *g, Diags *d);

#endif
