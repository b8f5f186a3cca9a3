/* connections.cpp - what streams of a GPU share, and what makes them wait for each other
 * although no event says so.
 *
 * Streams reach the GPU by CUDA_DEVICE_MAX_CONNECTIONS connections, 8 if it is not set
 * and 32 at most. What is queued on streams of one connection begins in the order in
 * which it was queued: a kernel that is behind an operation of NCCL that waits for a peer
 * keeps back all that comes after it on the connection. A stream gets one of the
 * connections that the fewest streams have, by chance.
 *
 * A kernel is loaded when it is first used, unless it was asked for its attributes
 * before; the call waits for all that the GPU runs, as loading may do (CUDA C++
 * Programming Guide, lazy loading). */
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "runtime.h"

namespace {

int connections(const Runtime &r) {
  enum { UNSET = 8, MOST = 32 };
  const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  int n = r.is.connections ? r.is.connections : text ? atoi(text) : UNSET;
  return std::min(std::max(n, 1), (int)MOST);
}

} // namespace

void connection_choose(Runtime &r, CUstream_st *s) {
  std::vector<int> has((size_t)connections(r), 0), least;
  for (const CUstream_st *x : r.stream)
    if ((size_t)x->connection < has.size()) has[(size_t)x->connection]++;
  int fewest = *std::min_element(has.begin(), has.end());
  for (size_t i = 0; i < has.size(); i++)
    if (has[i] == fewest) least.push_back((int)i);
  s->connection = least[r.draw() % least.size()];
}

void connections_apart(const Runtime &r) {
  std::vector<int> has((size_t)connections(r), 0);
  int own = 0, most = 0;
  for (const CUstream_st *s : r.stream)
    if (s->own && (size_t)s->connection < has.size())
      own++, most = std::max(most, ++has[(size_t)s->connection]);
  if (most < 2 || own > (int)has.size()) return;
  fprintf(stderr, "standin: two of %d streams share one of %d connections\n", own,
          (int)has.size());
  abort();
}

void connection_push(Runtime &r, CUstream_st *s, Op op) {
  op.turn = ++r.turns;
  r.connection[s->connection].push_back(op.turn);
  s->queue.push_back(std::move(op));
}

bool connection_lets(const Runtime &r, const CUstream_st *s) {
  uint64_t turn = s->queue.front().turn;
  return !turn || r.connection.at(s->connection).front() == turn;
}

void connection_begins(Runtime &r, const CUstream_st *s, const Op &op) {
  if (op.turn) r.connection[s->connection].pop_front();
}

void standin_first_use(const void *code) {
  Runtime &r = runtime();
  Guard g(r.lock);
  if (!r.loaded.insert(code).second) return;
  r.loads++;
  if (!capture_forbids(r)) drain_all(r);
}

void standin_loaded(const void *code) {
  Runtime &r = runtime();
  Guard g(r.lock);
  if (r.loaded.insert(code).second) drain_all(r);
}

uint64_t standin_loads(void) {
  Runtime &r = runtime();
  Guard g(r.lock);
  return r.loads;
}
