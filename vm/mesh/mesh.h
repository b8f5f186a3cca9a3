/* mesh.h - named axes over ranks, coordinates and groups.
 *
 * The dense mesh is (pp, dp_replicate, dp_shard, cp, tp), tp fastest unless
 * `order` says otherwise. The expert mesh is (pp, ep_shard, ep, etp) over the same
 * ranks: inside a pp coordinate the dense axes other than pp are flattened in mesh
 * order, etp fastest. */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "vm/base/diag.h"

typedef enum { AXIS_PP, AXIS_DP_REPLICATE, AXIS_DP_SHARD, AXIS_CP, AXIS_TP, AXIS_N } Axis;

/* Sets of axes; a flattened view ("dp", "dp_cp") is such a set. */
typedef uint32_t AxisSet;
#define AXIS_BIT(a) (1u << (a))
#define AXES_DP (AXIS_BIT(AXIS_DP_REPLICATE) | AXIS_BIT(AXIS_DP_SHARD))
#define AXES_DP_CP (AXES_DP | AXIS_BIT(AXIS_CP))
#define AXES_DP_SHARD_CP (AXIS_BIT(AXIS_DP_SHARD) | AXIS_BIT(AXIS_CP))
#define AXES_ALL ((1u << AXIS_N) - 1)

/* What the user wrote; 0 means "not given". */
typedef struct MeshSpec {
  int64_t world, tp, pp, cp, ep, etp, dp, dp_replicate;
  const char *order[AXIS_N + 1];   /* names, slowest first, NULL-terminated; or empty */
} MeshSpec;

typedef struct Mesh {
  int world;
  int size[AXIS_N];
  int stride[AXIS_N];              /* ranks between neighbours on the axis */
  int order[AXIS_N];               /* Axis values, slowest first */
  int ep, etp, ep_shard;           /* 1, tp, dp*cp*tp / (ep*etp) */
} Mesh;

/* Fills `m` from `spec`. `world` is the launcher's or the cluster's size, or 0:
 * then spec->world, else the product with dp (default 1). Adds one diagnostic for
 * every rule that is broken (paths "mesh.tp", ...); true if none was. */
bool mesh_resolve(const MeshSpec *spec, int64_t world, Mesh *m, Diags *d);

const char *axis_name(Axis a);                    /* "pp", "dp_replicate", ... */
/* "tp", "dp", "dp_cp", "dp_shard_cp", "world", ... ; 0 if not a known view. */
AxisSet axes_parse(const char *name);
/* The shortest known name of a set; buffer for sets that have none ("dp_shard+tp"). */
const char *axes_name(AxisSet s, char buf[64]);

int mesh_coord(const Mesh *m, int rank, Axis a);
int mesh_rank(const Mesh *m, const int coord[AXIS_N]);
/* Product of the sizes of the axes in the set. */
int mesh_size(const Mesh *m, AxisSet s);
/* Index of `rank` within its group over `s`, in mesh order. */
int mesh_index(const Mesh *m, AxisSet s, int rank);
/* The members of rank's group over `s`, in mesh order; returns their number.
 * `out` holds mesh_size(m, s) ranks. */
int mesh_group(const Mesh *m, AxisSet s, int rank, int *out);

/* Expert mesh coordinates of a rank: ep_shard, ep, etp. */
void mesh_expert_coord(const Mesh *m, int rank, int *ep_shard, int *ep, int *etp);

#endif
