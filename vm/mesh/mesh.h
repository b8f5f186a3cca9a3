/* mesh.h - named axes over ranks, coordinates and groups.
 *
 * axes.def lists the axes. The dense mesh is the product of the factors there, tp fastest
 * unless `order` says otherwise. The expert mesh is (pp, ep_shard, ep, etp) over the same
 * ranks: inside a pp coordinate the other factors, flattened in mesh order, are split
 * again, etp fastest. */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "vm/base/diag.h"

#define AXIS_BIT(a) (1u << (a))
typedef enum {
#define FACTOR(id, name, keeps) AXIS_##id,
#include "axes.def"
  AXIS_N, /* factors of the dense mesh */
  AXIS_DENSE_END = AXIS_N - 1,
#define EXPERT(id, name) AXIS_##id,
#include "axes.def"
  AXIS_END, /* axes that users know */
  AXIS_KNOWN_END = AXIS_END - 1,
#define PART(id, name, of) AXIS_##id,
#include "axes.def"
  AXIS_ALL_END
} Axis;

/* Sets of axes; a flattened view ("dp", "dp_cp") is such a set. Of axes of the expert
 * mesh only pp may be in a set with axes of the dense one. */
typedef uint32_t AxisSet;
enum {
#define VIEW(id, name, factors) AXES_##id = (factors),
#include "axes.def"
};

/* What the user wrote; 0 means "not given". */
typedef struct MeshSpec {
  int64_t world, tp, pp, cp, ep, etp, dp, dp_replicate;
  const char *order[AXIS_N + 1]; /* names, slowest first, NULL-terminated; or empty */
} MeshSpec;

typedef struct Mesh {
  int world;
  int size[AXIS_ALL_END];
  int stride[AXIS_N]; /* ranks between neighbours on the axis */
  int order[AXIS_N];  /* Axis values, slowest first */
} Mesh;

/* Fills `m` from `spec`. `world` is the launcher's or the cluster's size, or 0: then
 * spec->world, else the product with dp (default 1). Adds one diagnostic for
 * every rule that is broken (paths "mesh.tp", ...); true if none was. */
bool mesh_resolve(const MeshSpec *spec, int64_t world, Mesh *m, Diags *d);
/* NULL if tp divides `size`, which is that of `what` ("model.intermediate_size"); else
 * what is wrong with mesh.tp. */
const char *mesh_tp_divides(Arena *a, int tp, const char *what, int64_t size);
/* Cuts tp in two for a model: `copies` neighbours have the same key-value heads. */
void mesh_split_tp(Mesh *m, int copies);
/* Cuts cp in two for attention: so many neighbours exchange heads. */
void mesh_split_cp(Mesh *m, int heads);
/* Cuts dp_shard in two for a strategy: groups of so many neighbours, with all ranks of cp
 * that they have; or 1: there are none. */
void mesh_split_dp(Mesh *m, int group);
/* "1, 2 or 4": what may divide n; in the middle of a long list, "...". */
const char *mesh_divisors(Arena *a, int64_t n);
/* The sizes of the dense mesh `m` as one would write them; order and experts stay. */
void mesh_write_sizes(const Mesh *m, MeshSpec *spec);

/* Ranks of a machine where nothing says how many there are. */
enum { GPUS_OF_A_NODE = 8 };

const char *axis_name(Axis a); /* "pp", "dp_replicate", ... */
/* The names of all axes and views; NULL-terminated. */
const char *const *axes_names(void);
/* Number i of the dense axes in the order of their names, and in the order in which one
 * makes a mesh smaller. */
Axis axis_by_name(int i);
Axis axis_to_shrink(int i);
/* "tp", "dp", "dp_cp", "ep", "world", "dp_shard+tp"; 0 if not a known view. */
AxisSet axes_parse(const char *name);
/* The shortest known name of a set; buffer for sets that have none ("dp_shard+tp"). */
const char *axes_name(AxisSet s, char buf[64]);
/* Whether a set has nothing but axes of one of the two meshes. */
bool axes_one_mesh(AxisSet s);
/* Whether a set has axes that only the expert mesh has. */
bool axes_expert(AxisSet s);
/* The set with every factor that has parts as its parts, and with all parts of a factor
 * as that factor. Sets are kept joined. */
AxisSet axes_split(AxisSet s);
AxisSet axes_join(AxisSet s);
/* The factors that the set has at least a part of. */
AxisSet axes_whole(AxisSet s);
/* All other axes of the mesh that the set is of. */
AxisSet axes_rest(AxisSet s);

/* Ranks between neighbours on an axis or a part of one; on one of the expert mesh,
 * between the first two. */
int mesh_stride(const Mesh *m, Axis a);
/* The set without axes of one rank; equal for equal groups. */
AxisSet mesh_axes(const Mesh *m, AxisSet s);
int mesh_coord(const Mesh *m, int rank, Axis a);
int mesh_rank(const Mesh *m, const int coord[AXIS_N]);
/* Product of the sizes of the axes in the set. */
int mesh_size(const Mesh *m, AxisSet s);
/* Index of `rank` within its group over `s`, in mesh order. */
int mesh_index(const Mesh *m, AxisSet s, int rank);
/* The members of rank's group over `s`, in mesh order; returns their number.
 * `out` holds mesh_size(m, s) ranks. */
int mesh_group(const Mesh *m, AxisSet s, int rank, int *out);

#endif
