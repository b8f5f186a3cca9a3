/* graph.cpp - graphs that were captured, and how they run when they are launched: in the
 * place that they have in their stream, node by node, in an order that only what each
 * node comes after decides. Which of several goes on is drawn as for streams: nodes of
 * one stream in turns, the streams with ranks that are drawn again now and then; in every
 * other order the first stream of the capture goes on only when no other can, or the
 * others do. As streams, nodes begin in the order of their connection (connections.cpp).
 */
#include "runtime.h"

/* ---- running ---- */

static bool is_ready(const Launched &g, const Launched::Node &n) {
  if (n.task.empty()) return false;
  for (size_t k : n.after)
    if (!g.node[k].task.empty()) return false;
  return true;
}

static bool can(const Launched::Node &n) {
  return !n.task.front().can || n.task.front().can();
}

Launched::Node *graph_next(Runtime &r, Launched &g) {
  Launched::Node *best = nullptr;
  bool late = false, origin_last = r.is.order % 2;
  for (Launched::Node &n : g.node) {
    if (!n.begun && g.waiting[n.connection].front() != &n) continue;
    if (!is_ready(g, n) || !can(n)) continue;
    bool last = (n.lane == g.origin) == origin_last;
    if (best && last > late) continue;
    if (!best || last < late || g.rank[n.lane] > g.rank[best->lane])
      best = &n, late = last;
  }
  return best;
}

void graph_step(Runtime &r, Launched &g, Launched::Node *n) {
  StandinTask t = std::move(n->task.front());
  if (!n->begun) g.waiting[n->connection].pop_front();
  n->begun = true;
  n->task.pop_front();
  if (!r.wrong) t.run();
  g.left -= n->task.empty();
  has_run(r);
  if (r.draw() % 16 == 0)
    for (auto &x : g.rank) x.second = r.draw();
}

bool graph_over(const Launched &g) { return g.left == 0; }

bool graph_elsewhere(const Launched &g) {
  for (const Launched::Node &n : g.node)
    if (is_ready(g, n) && n.task.front().can) return true;
  return false;
}

/* ---- calls ---- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  /* A GPU would say nothing, and its transfers would wait behind computation. */
  if (!(flags & cudaGraphInstantiateFlagUseNodePriority)) return cudaErrorInvalidValue;
  *exec = new CUgraphExec_st{std::make_shared<CUgraph_st>(*graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  return capture_break(s) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  if (capture_break(s)) return cudaErrorStreamCaptureUnsupported;
  std::shared_ptr<Launched> l = std::make_shared<Launched>();
  l->origin = exec->graph->origin;
  for (const GraphNode &n : exec->graph->node) {
    std::vector<StandinTask> task = n.make();
    l->node.push_back({{task.begin(), task.end()}, n.after, n.lane, n.connection});
    l->rank[n.lane] = r.draw();
    l->left++;
  }
  for (Launched::Node &n : l->node)
    if (!n.task.empty()) l->waiting[n.connection].push_back(&n);
  r.launched++;
  r.idle = 0;
  if (l->left) connection_push(r, s, Op{nullptr, nullptr, 0, nullptr, l});
  return r.wrong;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Runtime &r = runtime();
  Guard g(r.lock);
  needs_context(r);
  delete graph;
  return cudaSuccess;
}
