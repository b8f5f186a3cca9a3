/* shard_attention.c - placement rules of attention and of what is around it: rope, and
 * heads that are split and joined. Heads are independent; a head needs the whole
 * sequence. */
#include "shard_rules.h"

#include "vm/graph/rules.h"

bool shard_rope(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0);
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, shard_rows_of(x, 2));
  shard_yield(s, op, 0, x);
  return x.on[AX_TP] != 2 || shard_whole_heads(s, op, 0, s->g->op.at[op].attr.head_dim);
}

/* The parts of a head are on the rank of the head. */
bool shard_split_heads(Shard *s, Oid op) {
  int last = shard_last_dim(s, op, 0);
  Place x = shard_settled(s, op, 0);
  shard_need(s, op, 0, x);
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, x);
  return x.on[AX_TP] != last ||
         shard_whole_heads(s, op, 0, s->g->op.at[op].attr.head_dim);
}

/* What all heads share is whole where heads are sharded. */
bool shard_join_heads(Shard *s, Oid op) {
  const OpAttr *a = &s->g->op.at[op].attr;
  int last = shard_last_dim(s, op, 0), rest = a->head_dim - a->head_part;
  Place x = shard_settled(s, op, 0);
  bool shared = shard_tensor(s, op, 1)->dim[last].size == rest;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, shared ? shard_rows_of(x, last) : x);
  shard_yield(s, op, 0, x);
  if (x.on[AX_TP] != last) return true;
  return shard_whole_heads(s, op, 0, a->head_part) &&
         (shared || shard_whole_heads(s, op, 1, rest));
}

/* Whether q, k and v are sharded alike, between heads. */
static bool whole_heads(Shard *s, Oid op) {
  const OpAttr *a = &s->g->op.at[op].attr;
  int size[] = {a->head_dim, a->head_dim, attr_value_dim(a)};
  bool ok = shard_same_parts(s, op, 0, 2, 1, 2) && shard_same_parts(s, op, 0, 2, 2, 2);
  for (int i = 0; i < 3 && ok; i++) ok = shard_whole_heads(s, op, i, size[i]);
  return ok;
}

/* Over cp each rank has its own queries and either all keys (all-gather), one piece of
 * keys after the other (ring), or all tokens of some heads (all-to-all). */
static Place keys_of(const Shard *s, Place *q) {
  if (s->n[AX_CP_HEADS] > 1) q->on[AX_CP_HEADS] = 2;
  Place k = *q;
  if (s->plan->cp.comm == CP_ALLGATHER) k.on[AX_CP] = k.on[AX_CP_HEADS] = PL_R;
  return k;
}

/* Every rank has the sinks of all heads, and reads those of its own. */
static bool whole_sinks(Shard *s, Oid op, int i) {
  Place p;
  if (!shard_param(s, op, i, ROLE_SINKS, 0, &p)) return false;
  shard_need(s, op, i, p);
  return true;
}

/* Heads have sinks, and drop, by their numbers. */
static Place query_heads(const Shard *s, Oid op, bool numbered) {
  Place q = shard_settled(s, op, 0);
  if (q.on[AX_TP] != 2) q.on[AX_TP] = PL_R;
  return numbered ? shard_one_run(s, s->g->op.at[op].in[0], q) : q;
}

/* Attention: heads are independent; a head needs the whole sequence. */
bool shard_attention(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  int sinks = attention_sinks_operand(s->g, o);
  bool drops = o->attr.rate > 0, packed = o->nin - drops - (sinks >= 0) > 3;
  Place q = query_heads(s, op, drops || sinks >= 0);
  Place k = keys_of(s, &q);
  shard_need(s, op, 0, q);
  for (int i = 1; i < 3; i++) shard_need(s, op, i, k);
  Place starts = shard_rows_of(q, 2);
  if (shard_cut_documents(s)) starts.on[AX_CP] = starts.on[AX_CP_HEADS] = PL_R;
  if (packed) shard_need(s, op, 3, starts);
  if (sinks >= 0 && !whole_sinks(s, op, sinks)) return false;
  if (drops) shard_need(s, op, o->nin - 1, shard_rows_of(q, 2));
  shard_yield(s, op, 0, q);
  shard_yield(s, op, 1, q);
  if (!packed && shard_cut_documents(s)) {
    diag_error(s->d, "missing-rule", "packed",
               "mesh.cp shards each document by itself, but the model's attention is not "
               "told where documents begin")
        ->suggestion = "give it g:doc_starts(), or cp = { balance = \"none\" }";
    return false;
  }
  if (s->n[AX_CP] > 1 && k.on[AX_CP] == 1) s->expand[op] = shard_ring;
  if (q.on[AX_CP_HEADS] == 2 && !shard_cp_heads(s, op)) return false;
  return q.on[AX_TP] != 2 || whole_heads(s, op);
}

/* Attention with one query, for decoding; the key-value cache is sharded as k and v are.
 */
bool shard_attention_step(Shard *s, Oid op) {
  bool sinks = s->g->op.at[op].nin > 4;
  Place q = query_heads(s, op, sinks);
  for (int i = 0; i < 3; i++) shard_need(s, op, i, q);
  shard_need(s, op, 3, shard_rows_of(q, 2));
  if (sinks && !whole_sinks(s, op, 4)) return false;
  for (int i = 0; i < 3; i++) shard_yield(s, op, i, q);
  return q.on[AX_TP] != 2 || whole_heads(s, op);
}
