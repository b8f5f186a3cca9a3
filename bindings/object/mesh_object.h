/* mesh_object.h - meshes as Lua objects: a mesh, its expert mesh, or a part of one. */
#ifndef WEFT_MESH_OBJECT_H
#define WEFT_MESH_OBJECT_H

#include <lua.h>

#include "vm/mesh/mesh.h"

/* Plain data: ranks in the order of their coordinates, and back. */
typedef struct MeshObject {
  Mesh mesh; /* the whole one, for its expert mesh and the names of its axes */
  int gpus;  /* ranks of a node */
  int n;     /* ranks here */
  int naxis;
  struct {
    char name[64];
    int size;
  } axis[AXIS_END]; /* slowest first */
  int *rank;          /* [n], inside the userdata */
  int *index;         /* [mesh.world]: where a rank is, -1: not here */
} MeshObject;

/* weft.mesh { ... } */
int mesh_object_make(lua_State *L);
/* Pushes the object of a resolved mesh. */
void mesh_object_push(lua_State *L, const Mesh *m, int gpus);
/* The object at idx, or NULL. */
MeshObject *mesh_object_test(lua_State *L, int idx);

/* ---- mesh_print.c ---- */
/* A small grid with the borders of nodes, a table of axes for more than 64 ranks. `group`
 * has room for m->n ranks. */
void mesh_print(const MeshObject *m, int *group, Text *out);
/* The axes of a view that `name` stands for, a bit each: an axis, a sum "dp_shard+tp" or
 * one of the names of mesh.h such as "dp"; 0: there is no such axis. */
unsigned mesh_view_axes(const MeshObject *m, const char *name);
/* The members of the group of the rank at `index` along these axes, in mesh order, into
 * out[]; returns their number. */
int mesh_view_group(const MeshObject *m, unsigned axes, int index, int *out);
/* Sorts the ranks; returns how many nodes they are on. */
int mesh_count_nodes(int *rank, int n, int gpus);
/* The axis as it is printed: dp_shard is dp where it is all of it. */
const char *mesh_view_name(const MeshObject *m, int axis);
int mesh_view_coord(const MeshObject *m, int index, int axis);

#endif
