/* handle.h - the weft_mesh of weft.h, for those who make one. */
#ifndef WEFT_MESH_HANDLE_H
#define WEFT_MESH_HANDLE_H

#include "mesh.h"

struct weft_mesh {
  Mesh mesh;
  weft_alloc alloc;
};

#endif
