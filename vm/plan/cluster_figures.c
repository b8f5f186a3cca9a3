/* cluster_figures.c - what a prediction needs of the plan's machines; see
 * cluster_figures.h. */
#include "cluster_figures.h"

double cluster_rate(const Cluster *k, DType t) {
  if (t == DT_F32) return k->f32;
  return t == DT_F16 && k->f16 > 0 ? k->f16 : k->bf16;
}

static const char *rate_field(DType t) {
  return t == DT_F32   ? "cluster.gpu.f32"
         : t == DT_F16 ? "cluster.gpu.f16"
                       : "cluster.gpu.bf16";
}

const char *cluster_lacks(const Plan *p, const Mesh *m) {
  const Cluster *k = &p->cluster;
  if (!k->gpu) return "cluster";
  unsigned used = links_used(m, k);
  bool nvlink = used & 1u << LINK_NVLINK, network = used & 1u << LINK_NETWORK;
  bool host =
      used & 1u << LINK_HOST || p->strategy.offload_state || p->strategy.offload_params;
  const struct {
    bool needed;
    double figure;
    const char *field;
  } list[] = {
      {true, cluster_rate(k, p->dtype), rate_field(p->dtype)},
      {p->fp8.recipe != RECIPE_NONE, k->fp8, "cluster.gpu.fp8"},
      {true, k->hbm_bandwidth, "cluster.gpu.bandwidth"},
      {nvlink, k->nvlink_bandwidth, "cluster.gpu.nvlink"},
      {nvlink, k->nvlink_latency, "cluster.gpu.nvlink_latency"},
      {host, k->host_bandwidth, "cluster.gpu.host"},
      {network, k->network_bandwidth, "cluster.network.per_gpu"},
      {network, k->network_latency, "cluster.network.latency"},
  };
  for (int i = 0; i < LEN(list); i++)
    if (list[i].needed && !(list[i].figure > 0)) return list[i].field;
  return NULL;
}
