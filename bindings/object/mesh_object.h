/* mesh_object.h - meshes as Lua objects. */
#ifndef WEFT_MESH_OBJECT_H
#define WEFT_MESH_OBJECT_H

#include <lua.h>

#include "vm/mesh/mesh.h"

/* Provides the table of axes to the library; must be called first. */
void mesh_object_open(lua_State *L);
/* weft.mesh { ... } */
int mesh_object_make(lua_State *L);
/* Pushes the object of a resolved mesh; `gpus`: ranks of a node. */
void mesh_object_push(lua_State *L, const Mesh *m, int gpus);

#endif
