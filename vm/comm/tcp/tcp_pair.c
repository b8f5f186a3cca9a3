/* tcp_pair.c - send and receive over the connection of a pair; the two directions are
 * independent. */
#include "tcp_int.h"

static uint64_t bytes_of(const CommOp *op) {
  return op->count * (uint64_t)dtype_size((DType)op->dtype);
}

static bool move_out(TcpEndpoint *p, TcpPair *q) {
  while (q->out.head >= 0) {
    const CommOp *op = &p->handle[q->out.head].op;
    int64_t n = 1;
    while (q->sent < bytes_of(op) && n > 0) {
      n = tcp_push(q->fd, (const char *)op->in + q->sent, bytes_of(op) - q->sent);
      if (n < 0) return false;
      q->sent += (uint64_t)n;
    }
    if (n == 0) return tcp_look_at(p, q->fd, POLLOUT), true;
    q->sent = 0;
    tcp_next(p, &q->out);
  }
  return true;
}

static bool move_in(TcpEndpoint *p, TcpPair *q) {
  while (q->in.head >= 0) {
    const CommOp *op = &p->handle[q->in.head].op;
    int64_t n = 1;
    while (q->got < bytes_of(op) && n > 0) {
      n = tcp_pull(q->fd, (char *)op->out + q->got, bytes_of(op) - q->got);
      if (n < 0) return false;
      q->got += (uint64_t)n;
    }
    if (n == 0) return tcp_look_at(p, q->fd, POLLIN), true;
    q->got = 0;
    tcp_next(p, &q->in);
  }
  return true;
}

/* Copies what a rank sends to itself. */
static void move_over(TcpEndpoint *p, TcpPair *q) {
  while (q->out.head >= 0 && q->in.head >= 0) {
    const CommOp *from = &p->handle[q->out.head].op;
    if (from->count) memcpy(p->handle[q->in.head].op.out, from->in, bytes_of(from));
    tcp_next(p, &q->out);
    tcp_next(p, &q->in);
  }
}

bool tcp_pair_move(TcpEndpoint *p, TcpPair *q, int *lost) {
  *lost = q->rank;
  if (q->rank == p->w->net.rank) return move_over(p, q), true;
  return move_out(p, q) && move_in(p, q);
}
