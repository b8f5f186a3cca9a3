/* prove_report.c - why a proof failed, in words: which instructions of which pp ranks,
 * with handle, peer or communicator, the operation's name and its plan line. Runs once,
 * at the end of a failed proof, so it may search programs from the start. */
#include "machine.h"

enum { ROOM = sizeof((weft_error *)0)->text - 160 }; /* left for "and n more" */

#define ULL(x) ((unsigned long long)(x))

static const char *comm_of(const Machine *m, int comm) {
  return m->c->prog->comm[comm].name;
}

static void add_bytes(Text *t, uint64_t count, int dtype) {
  text_printf(t, "%llu bytes of %s", ULL(count * (uint64_t)dtype_size((DType)dtype)),
              dtype_name((DType)dtype));
}

/* "SEND to pp rank 1, 64 bytes of f32, handle 0, "F0", plan line 12" */
static void add_instr(Text *t, const Machine *m, int pp, const Instr *in) {
  const Program *p = m->rank[pp].p;
  const Operand *o = &p->operand[in->operand];
  switch ((InstrCode)in->code) {
  case I_KERNEL: text_add(t, op_info[in->op].name); break;
  case I_SEND: text_printf(t, "SEND to pp rank %d, ", in->peer); break;
  case I_RECV: text_printf(t, "RECV from pp rank %d, ", in->peer); break;
  case I_GATHER:
  case I_SCATTER:
  case I_FREE:
    text_printf(t, "%s of %s", instr_name[in->code], p->unit[in->unit]);
    if (in->code != I_FREE) text_printf(t, " on %s, ", comm_of(m, in->comm));
    break;
  case I_COLL:
    text_printf(t, "%s on %s, ", coll_info[in->coll].name, comm_of(m, in->comm));
    break;
  default: text_add(t, instr_name[in->code]); break;
  }
  if (instr_is[in->code] & INSTR_STARTS) {
    add_bytes(t, operand_count(o), o->dtype);
    text_printf(t, ", handle %d", in->handle);
  }
  if (*p->what[in->what]) text_printf(t, ", \"%s\"", p->what[in->what]);
  if (in->line && !in->action) text_printf(t, ", line %d", in->line);
}

/* "step 3 (F of microbatch 1, line 12), ": the schedule's action that it belongs to. */
static void add_action(Text *t, const Machine *m, int pp, const Instr *in) {
  const Schedule *s = &m->c->schedule;
  char buf[ACTION_NAME];
  if (!in->action) return;
  const Action *a = &s->list[pp][in->action - 1];
  text_printf(t, "step %d (%s", in->action - 1, action_name(s, pp, a, buf));
  if (a->line) text_printf(t, ", line %d", a->line);
  text_add(t, "), ");
}

/* "pp rank 0 step 3 (F of microbatch 2), main[7] calling layer:F (layers.3, microbatch 2)
 * at [5] ..." */
static void add_site(Text *t, const Machine *m, int pp, Site s) {
  const Program *p = m->rank[pp].p;
  text_printf(t, "pp rank %d ", pp);
  add_action(t, m, pp, &p->code[s.main]);
  text_printf(t, "main[%u] ", s.main);
  const Call *call = site_call(p, s);
  if (call) {
    const Body *b = &p->body[call->body];
    text_printf(t, "calling %s (%s, microbatch %d) at [%u] ", b->name,
                p->unit[call->unit], call->mb, s.pc - b->first);
  }
  const Instr *in = &p->code[s.pc];
  const Pending *h = in->code == I_WAIT ? &m->rank[pp].handle[in->handle] : NULL;
  if (h && h->channel >= 0) {
    text_printf(t, "WAIT for main[%u] ", h->site.main);
    in = &p->code[h->site.pc];
  }
  add_instr(t, m, pp, in);
}

static weft_status finish(const Machine *m, Text *t, int pp, Site s) {
  weft_status st = t->oom || !t->s ? err_set(m->e, WEFT_ENOMEM, "out of memory")
                                   : err_file(m->e, WEFT_EPLAN, NULL,
                                              m->rank[pp].p->code[s.pc].line, "%s", t->s);
  text_free(t);
  return st;
}

/* ---- one rank ---- */

weft_status report_reuse(const Machine *m, int pp, Site at, const Pending *h) {
  Text t = {0};
  add_site(&t, m, pp, at);
  text_add(&t, " reuses a handle that is in flight since ");
  add_site(&t, m, pp, h->site);
  return finish(m, &t, pp, at);
}

weft_status report_idle(const Machine *m, int pp, Site at) {
  Text t = {0};
  add_site(&t, m, pp, at);
  text_printf(&t, " waits for handle %d, but nothing was started with it",
              m->rank[pp].p->code[at.pc].handle);
  return finish(m, &t, pp, at);
}

weft_status report_unwaited(const Machine *m, int pp, const Pending *h) {
  Text t = {0};
  add_site(&t, m, pp, h->site);
  text_add(&t, " is never waited for: it is in flight at the end of main");
  return finish(m, &t, pp, h->site);
}

weft_status report_overlap(const Machine *m, int pp, Site at, int operand, uint64_t lo,
                           uint64_t hi, const Busy *b) {
  Text t = {0};
  const Instr *in = &m->rank[pp].p->code[at.pc];
  add_site(&t, m, pp, at);
  const char *verb = operand >= in->nin ? "writes" : "reads";
  if (in->code == I_FREE) verb = "frees";
  const char *held = b->handle != FOOTPRINT ? b->write ? "written" : "read" : "kept";
  text_printf(&t, " %s bytes %llu..%llu of the arena, while bytes %llu..%llu are %s by ",
              verb, ULL(lo), ULL(hi), ULL(b->lo), ULL(b->hi), held);
  add_site(&t, m, pp, b->since);
  text_add(&t, b->handle != FOOTPRINT ? ", which nothing waited for yet"
                                      : ", whose copy is not freed yet");
  return finish(m, &t, pp, at);
}

weft_status report_not_gathered(const Machine *m, int pp, Site at, uint32_t unit,
                                const Copy *copy) {
  Text t = {0};
  const Program *p = m->rank[pp].p;
  add_site(&t, m, pp, at);
  text_printf(&t, " %s the gathered copy of %s, but ",
              p->code[at.pc].code == I_FREE ? "is to free" : "uses", p->unit[unit]);
  if (!copy) {
    text_add(&t, "there is none: nothing gathered it, or it was freed");
    return finish(m, &t, pp, at);
  }
  if (copy->unit == unit && copy->handle != FOOTPRINT)
    text_add(&t, "nothing waited yet for ");
  else
    text_printf(&t, "what is there is that of %s in bytes %llu..%llu, by ",
                p->unit[copy->unit], ULL(copy->lo), ULL(copy->hi));
  add_site(&t, m, pp, copy->since);
  return finish(m, &t, pp, at);
}

weft_status report_not_freed(const Machine *m, int pp, const Copy *copy) {
  Text t = {0};
  add_site(&t, m, pp, copy->since);
  text_printf(&t,
              ": this copy of %s is never freed; it would be out of date in the next "
              "step",
              m->rank[pp].p->unit[copy->unit]);
  return finish(m, &t, pp, copy->since);
}

weft_status report_inplace(const Machine *m, int pp, Site at) {
  Text t = {0};
  add_site(&t, m, pp, at);
  text_add(&t, " writes its result over its input, which is allowed only for the whole "
               "of an all_reduce or for the rank's shard within the whole tensor");
  return finish(m, &t, pp, at);
}

weft_status report_limit(const Machine *m, int pp, Site at) {
  Text t = {0};
  const CommDesc *d = &m->rank[pp].p->comm[m->rank[pp].p->code[at.pc].comm];
  add_site(&t, m, pp, at);
  text_printf(&t,
              " has %d transfers of %s in flight, but the communicator is made for %d",
              m->rank[pp].in_flight[d - m->rank[pp].p->comm], d->name, d->in_flight);
  return finish(m, &t, pp, at);
}

/* ---- two ranks ---- */

static void add_kind(Text *t, const Channel *c, const Start *s) {
  if (c->comm >= 0) text_printf(t, "%s ", coll_info[s->coll].name);
  if (s->red == RED_MAX) text_add(t, "(max) ");
  if (c->comm >= 0) text_add(t, "of ");
  add_bytes(t, s->count, s->dtype);
}

weft_status report_mismatch(const Machine *m, const Channel *c, const Start *first,
                            const Start *second) {
  Text t = {0};
  uint32_t k = c->started[member_index(c, second->rank)];
  if (c->comm >= 0)
    text_printf(&t, "collective %u on %s differs: ", k, comm_of(m, c->comm));
  else
    text_printf(&t, "transfer %u from pp rank %d to pp rank %d differs: ", k,
                c->member[0], c->member[1]);
  add_kind(&t, c, first);
  text_add(&t, " in ");
  add_site(&t, m, first->rank, first->site);
  text_add(&t, "; ");
  add_kind(&t, c, second);
  text_add(&t, " in ");
  add_site(&t, m, second->rank, second->site);
  return finish(m, &t, second->rank, second->site);
}

/* ---- ranks that block each other ---- */

static bool uses(const Machine *m, int pp, const Instr *in, const Channel *c) {
  if (instr_is[in->code] & INSTR_COLL) return c->comm == in->comm;
  if (c->comm >= 0) return false;
  return (in->code == I_SEND && c->member[0] == pp && c->member[1] == in->peer) ||
         (in->code == I_RECV && c->member[1] == pp && c->member[0] == in->peer);
}

/* Start number `k` of pp rank `pp` on the channel. Returns the number of starts that
 * there are if it ends before, else k + 1. */
static uint32_t find_start(const Machine *m, int pp, const Channel *c, uint32_t k,
                           Site *s) {
  const Program *p = m->rank[pp].p;
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Body *b =
        p->code[i].code == I_CALL ? &p->body[p->call[p->code[i].call].body] : NULL;
    uint32_t first = b ? b->first : i, end = b ? b->first + b->n : i + 1;
    for (uint32_t j = first; j < end; j++) {
      if (!uses(m, pp, &p->code[j], c)) continue;
      *s = (Site){j, i};
      if (n++ == k) return n;
    }
  }
  return n;
}

/* What does not move: the compute queue of a rank, or on the stricter machine the
 * stream of its collectives. */
typedef struct Node {
  int pp;
  bool stream;
} Node;

/* What a node needs: transfer `seq` of `channel`. */
static void needs(const Machine *m, Node n, const Channel **c, uint32_t *seq) {
  const RankState *r = &m->rank[n.pp];
  int ch = n.stream ? r->stream.at[r->head] : (int)m->walk.rank[n.pp].need;
  *c = &m->channel.at[ch];
  *seq = n.stream ? (*c)->done : r->block_seq;
}

/* The node that keeps `n` from moving. */
static Node blocker(const Machine *m, Node n) {
  const Channel *c;
  uint32_t seq;
  needs(m, n, &c, &seq);
  if (m->in_order && c->comm >= 0 && !n.stream) return (Node){n.pp, true};
  for (int i = 0; i < c->nmember; i++)
    if (c->started[i] <= seq) return (Node){c->member[i], false};
  for (int i = 0; i < c->nmember; i++) {
    const RankState *r = &m->rank[c->member[i]];
    if (&m->channel.at[r->stream.at[r->head]] != c) return (Node){c->member[i], true};
  }
  return n;
}

/* The start of transfer `seq` of a channel, which waits in the rank's queue. */
static Site pending_site(const Machine *m, int pp, const Channel *c, uint32_t seq) {
  const RankState *r = &m->rank[pp];
  int i = 0;
  while (r->handle[i].channel != c - m->channel.at || r->handle[i].seq != seq) i++;
  return r->handle[i].site;
}

static void add_node(Text *t, const Machine *m, Node n) {
  const Channel *c;
  uint32_t seq;
  needs(m, n, &c, &seq);
  Node next = blocker(m, n);
  text_add(t, "\n  ");
  if (n.stream) text_add(t, "next collective of ");
  add_site(t, m, n.pp, n.stream ? pending_site(m, n.pp, c, seq) : m->rank[n.pp].at);
  Site s;
  if (next.pp == n.pp) {
    text_add(t, " waits for the collectives of this rank");
    return;
  }
  find_start(m, next.pp, c, seq, &s);
  text_add(t, " needs ");
  add_site(t, m, next.pp, s);
  if (next.stream) text_add(t, ", which comes after");
}

/* A rank waits for a start that its peer's program does not contain. */
static weft_status report_missing(const Machine *m, int pp, int peer, const Channel *c,
                                  uint32_t have, uint32_t seq) {
  Text t = {0};
  add_site(&t, m, pp, m->rank[pp].at);
  text_printf(&t,
              " never ends: it is number %u on this channel, but pp rank %d has only %u",
              seq + 1, peer, have);
  if (c->comm >= 0)
    text_printf(&t, " collectives on %s", comm_of(m, c->comm));
  else
    text_printf(&t, " %s pp rank %d", peer == c->member[0] ? "SENDs to" : "RECVs from",
                pp);
  return finish(m, &t, pp, m->rank[pp].at);
}

static void add_others(Text *t, const Machine *m, const bool *listed) {
  int left = 0;
  for (int i = 0; i < m->npp; i++) {
    if (listed[i] || m->walk.rank[i].ended) continue;
    if (t->n < ROOM)
      add_node(t, m, (Node){i, false});
    else
      left++;
  }
  if (left) text_printf(t, "\n  and %d more pp ranks wait", left);
}

static bool same_node(Node a, Node b) { return a.pp == b.pp && a.stream == b.stream; }

/* Nodes as numbers, in the order of pp ranks. */
static int next_node(const void *ud, int of) {
  Node n = blocker(ud, (Node){of / 2, of % 2});
  return 2 * n.pp + n.stream;
}

/* Follows the waits from rank to rank until they close a cycle, then names the members of
 * the cycle first and the ranks that only wait for it after them. */
static weft_status report_cycle(const Machine *m, int pp) {
  Text t = {0};
  bool *listed = NEW_N(m->a, bool, m->npp);
  int lowest = walk_circle(2 * m->npp, 2 * pp, next_node, m);
  Node first = {lowest / 2, lowest % 2}, n = first;
  text_add(&t, m->in_order ? "deadlock if the collectives of a rank run in one order, as "
                             "where communicators share a GPU (NCCL):"
                           : "deadlock, these instructions block each other:");
  int left = 0;
  do {
    if (t.n < ROOM)
      add_node(&t, m, n);
    else
      left++;
    listed[n.pp] = true;
    n = blocker(m, n);
  } while (!same_node(n, first));
  if (left) text_printf(&t, "\n  and %d more in this cycle", left);
  add_others(&t, m, listed);
  return finish(m, &t, first.pp, m->rank[first.pp].at);
}

weft_status report_blocked(const Machine *m) {
  for (int i = 0; i < m->npp && !m->in_order; i++) {
    if (m->walk.rank[i].ended) continue;
    const Channel *c = &m->channel.at[m->walk.rank[i].need];
    uint32_t seq = m->rank[i].block_seq;
    for (int j = 0; j < c->nmember; j++) {
      Site s;
      uint32_t have =
          c->started[j] > seq ? seq + 1 : find_start(m, c->member[j], c, seq, &s);
      if (have <= seq) return report_missing(m, i, c->member[j], c, have, seq);
    }
  }
  return report_cycle(m, walk_left(&m->walk));
}
