/* mesh_methods.h - what the files of mesh objects share. */
#ifndef WEFT_MESH_METHODS_H
#define WEFT_MESH_METHODS_H

#include <lauxlib.h>

#include "mesh_object.h"

extern const luaL_Reg mesh_methods[];

/* Pushes a view of n ranks of the same mesh; axes, then ranks, then the index follow. */
MeshObject *mesh_view_new(lua_State *L, const MeshObject *of, int n);
void mesh_view_axis(MeshObject *m, const char *name, int size);
void mesh_view_index(MeshObject *m);
/* Pushes the expert mesh of a whole one; raises for a part of one. */
const MeshObject *mesh_push_expert(lua_State *L, const MeshObject *of);
/* Pushes a list of ranks that prints itself, with the number of nodes. */
void mesh_push_ranks(lua_State *L, const int *rank, int n, int gpus);

/* ---- mesh_methods.c ---- */
MeshObject *mesh_self(lua_State *L);
/* Room for n numbers, until the function returns. */
int *mesh_scratch(lua_State *L, int n);
/* Raises: this mesh has no such axis. */
int mesh_unknown_axis(lua_State *L, const MeshObject *m, const char *name);
/* The axes that the text at `arg` names; raises. */
unsigned mesh_axes_arg(lua_State *L, const MeshObject *m, int arg);
/* dp_replicate and dp_shard, where they are two axes. */
unsigned mesh_split_dp(const MeshObject *m);
/* The coordinate on several axes as one number. */
int mesh_flat_coord(const MeshObject *m, unsigned axes, int index);
/* Field `name` of the table at 2 as a coordinate below `size`, -1 if it is not there. */
int mesh_coord_field(lua_State *L, const char *name, int size);
/* Every key of the table at 2 names an axis or one of the other fields of a coordinate.
 */
void mesh_check_keys(lua_State *L, const MeshObject *m);

/* ---- mesh_views.c ---- */
int mesh_flatten(lua_State *L);
int mesh_slice(lua_State *L);

#endif
