/* local_pair.c - send and receive between virtual ranks.
 *
 * Each ordered pair of ranks has one FIFO of unmatched operations. The side that starts
 * second takes the oldest and copies straight from the sender's buffer to the receiver's.
 * The handles are the nodes of the list. */
#include "local_int.h"

#include <stdio.h>

/* The oldest counterpart; or NULL, and `r` has been queued. */
static LocalRec *meet(Endpoint *box, Fifo *q, LocalRec *r) {
  pthread_mutex_lock(&box->lock);
  LocalRec *other = q->head;
  if (other && other->op.coll != r->op.coll) {
    q->head = other->next;
  } else {
    other = NULL;
    r->next = NULL;
    if (q->head)
      q->tail->next = r;
    else
      q->head = r;
    q->tail = r;
  }
  pthread_mutex_unlock(&box->lock);
  return other;
}

static weft_status mismatch(LocalWorld *w, const LocalRec *s, const LocalRec *r,
                            weft_error *e) {
  char why[256];
  snprintf(why, sizeof why,
           "rank %d sends %llu %s to rank %d, which expects %llu %s: the programs differ",
           s->owner->rank, (unsigned long long)s->op.count,
           dtype_name((DType)s->op.dtype), r->owner->rank,
           (unsigned long long)r->op.count, dtype_name((DType)r->op.dtype));
  local_leave(w);
  local_end(w, -1, WEFT_EINTERNAL, why);
  return local_gave_up(w, e);
}

weft_status local_transfer(Endpoint *p, LocalRec *r, weft_error *e) {
  LocalWorld *w = p->world;
  bool send = r->op.coll == COLL_SEND;
  if (r->op.peer < 0 || r->op.peer >= w->size)
    return err_set(e, WEFT_EINTERNAL, "rank %d: peer %d of a %s is not in 0..%d", p->rank,
                   r->op.peer, coll_info[r->op.coll].name, w->size - 1);
  if (!local_enter(w)) return local_gave_up(w, e);
  Endpoint *box = &w->end[send ? r->op.peer : p->rank];
  Fifo *q = &box->from[send ? p->rank : r->op.peer];
  LocalRec *other = meet(box, q, r);
  if (other) {
    LocalRec *from = send ? r : other, *to = send ? other : r;
    if (from->op.count != to->op.count || from->op.dtype != to->op.dtype)
      return mismatch(w, from, to, e);
    size_t n = from->op.count * (size_t)dtype_size((DType)from->op.dtype);
    if (device_apart(p->device))
      local_device_copy(p, from, to);
    else if (n && to->op.out != from->op.in)
      memcpy(to->op.out, from->op.in, n);
    Endpoint *peer = other->owner;
    atomic_store(&r->done, true);
    atomic_store(&other->done, true); /* its owner may reuse the handle now */
    local_wake(peer);
  }
  local_leave(w);
  return WEFT_OK;
}
