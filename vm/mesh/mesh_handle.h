/* mesh_handle.h - how the bindings create the weft_mesh of weft.h. */
#ifndef WEFT_MESH_HANDLE_H
#define WEFT_MESH_HANDLE_H

#include "mesh.h"

struct weft_mesh {
  Mesh mesh;
  weft_alloc alloc;
};

/* WEFT_EUSAGE if a required pointer is NULL. */
static inline weft_status need(const void *p, const char *what, weft_error *err) {
  return p ? WEFT_OK : err_set(err, WEFT_EUSAGE, "%s is missing: NULL was given", what);
}

#endif
