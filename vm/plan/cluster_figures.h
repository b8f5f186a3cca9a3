/* cluster_figures.h - which figures of a cluster predictions need, and which it lacks. */
#ifndef WEFT_CLUSTER_FIGURES_H
#define WEFT_CLUSTER_FIGURES_H

#include "link_speed.h"

/* Peak of matrix products in a compute type; 0: not known. */
double cluster_rate(const Cluster *k, DType t);
/* The field of the first figure without which a step of the plan on this mesh has no
 * time, "cluster.gpu.bandwidth", or "cluster" if the plan names no GPU; NULL: none is
 * missing. */
const char *cluster_lacks(const Plan *p, const Mesh *m);

#endif
