/* mesh.h - named axes over ranks, coordinates and groups.
 *
 * axes.def lists the axes. The dense mesh is the product of its factors, tp fastest
 * unless `order` says otherwise. The expert mesh is (pp, ep_shard, ep, etp) over the same
 * ranks: the other factors inside a pp coordinate, flattened in mesh order, are split
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
  AXIS_END, /* axes that users can name */
  AXIS_KNOWN_END = AXIS_END - 1,
#define PART(id, name, of) AXIS_##id,
#include "axes.def"
  AXIS_ALL_END
} Axis;

/* Sets of axes; a flattened view ("dp", "dp_cp") is such a set. A set has axes of one
 * mesh only; pp is in both. */
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
/* NULL if tp divides `size`, the value of `what` ("model.intermediate_size"); else the
 * message for mesh.tp. */
const char *mesh_tp_divides(Arena *a, int tp, const char *what, int64_t size);
/* Splits tp for a model: `copies` neighbouring ranks share the same key-value heads. */
void mesh_split_tp(Mesh *m, int copies);
/* Splits cp for attention: this many neighbouring ranks exchange heads (Ulysses). */
void mesh_split_cp(Mesh *m, int heads);
/* Splits dp_shard for a strategy: groups of this many neighbours, each with all its cp
 * ranks; 1: no groups. */
void mesh_split_dp(Mesh *m, int group);
/* "1, 2 or 4": the divisors of n; the middle of a long list is "...". */
const char *mesh_divisors(Arena *a, int64_t n);
/* The sizes of the dense mesh `m` as a user would write them; order and experts are
 * kept. */
void mesh_write_sizes(const Mesh *m, MeshSpec *spec);

/* Ranks per machine if unknown. */
enum { GPUS_OF_A_NODE = 8 };

const char *axis_name(Axis a); /* "pp", "dp_replicate", ... */
/* The names of all axes and views; NULL-terminated. */
const char *const *axes_names(void);
/* The i-th dense axis by name; and in the order in which a mesh is shrunk. */
Axis axis_by_name(int i);
Axis axis_to_shrink(int i);
/* "tp", "dp", "dp_cp", "ep", "world", "dp_shard+tp"; 0 if unknown. */
AxisSet axes_parse(const char *name);
/* The shortest known name of a set; `buf` is for sets without one ("dp_shard+tp"). */
const char *axes_name(AxisSet s, char buf[64]);
/* True if all axes of a set are of one of the two meshes. */
bool axes_one_mesh(AxisSet s);
/* True if a set has axes of the expert mesh only. */
bool axes_expert(AxisSet s);
/* The set with each factor that is split replaced by its parts; and with all parts of a
 * factor replaced by the factor. Sets are stored joined. */
AxisSet axes_split(AxisSet s);
AxisSet axes_join(AxisSet s);
/* The factors of which the set has at least a part. */
AxisSet axes_whole(AxisSet s);
/* All other axes of the set's mesh. */
AxisSet axes_rest(AxisSet s);

/* Distance in ranks between neighbours on an axis or a part of one; for the expert mesh,
 * between the first two. */
int mesh_stride(const Mesh *m, Axis a);
/* The set without axes of size 1, so that equal groups have equal sets. */
AxisSet mesh_axes(const Mesh *m, AxisSet s);
int mesh_coord(const Mesh *m, int rank, Axis a);
/* "pp=2 dp=2 tp=2"; axes of size 1 are left out. */
const char *mesh_text(const Mesh *m, char buf[96]);
/* WEFT_EUSAGE unless the mesh has this rank. */
weft_status mesh_check_rank(const Mesh *m, int64_t rank, weft_error *e);
/* Product of the sizes of the axes in the set. */
int mesh_size(const Mesh *m, AxisSet s);
/* Index of `rank` within its group over `s`, in mesh order. */
int mesh_index(const Mesh *m, AxisSet s, int rank);
/* The members of rank's group over `s`, in mesh order; returns their number.
 * `out` holds mesh_size(m, s) ranks. */
int mesh_group(const Mesh *m, AxisSet s, int rank, int *out);

#endif
