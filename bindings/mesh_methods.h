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
/* Pushes a list of ranks that prints itself, with the number of nodes. */
void mesh_push_ranks(lua_State *L, const int *rank, int n, int gpus);

#endif
