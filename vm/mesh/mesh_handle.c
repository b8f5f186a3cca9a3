/* mesh_handle.c - the meshes of weft.h: axes by name, on top of mesh.h. */
#include "mesh_handle.h"

static bool has_rank(const weft_mesh *m, int rank) {
  return m && rank >= 0 && rank < m->mesh.world;
}

/* ---- making one ---- */

static weft_status report(const Diags *d, weft_error *e) {
  char text[sizeof e->text];
  TextBuf t = textbuf(text, sizeof text);
  for (int i = 0; i < d->list.n; i++) {
    const Diag *g = &d->list.at[i];
    textbuf_printf(&t, "%s%s: %s", i ? "\n  " : "", g->path, g->summary);
  }
  return err_set(e, WEFT_EPLAN, "%s", text);
}

typedef struct MakeMesh {
  weft_mesh_spec spec;
  Mesh mesh;
} MakeMesh;

static weft_status resolve(Arena *a, void *ud, weft_error *e) {
  MakeMesh *k = ud;
  const weft_mesh_spec *s = &k->spec;
  Diags d = {.arena = a};
  MeshSpec spec = {.world = s->world,
                   .tp = s->tp,
                   .pp = s->pp,
                   .cp = s->cp,
                   .ep = s->ep,
                   .etp = s->etp,
                   .dp = s->dp,
                   .dp_replicate = s->dp_replicate};
  for (int i = 0; s->order && s->order[i]; i++) {
    if (i == AXIS_N)
      return err_set(e, WEFT_EPLAN, "mesh.order: more than %d axes", AXIS_N);
    spec.order[i] = s->order[i];
  }
  return mesh_resolve(&spec, 0, &k->mesh, &d) ? WEFT_OK : report(&d, e);
}

weft_status weft_mesh_new(const weft_mesh_spec *spec, weft_mesh **out, weft_error *err) {
  MakeMesh k = {0};
  err_clear(err);
  TRY(need(out, "the output argument for the mesh", err));
  *out = NULL;
  TRY(struct_read(&k.spec, sizeof k.spec, spec, "weft_mesh_spec", err));
  TRY(arena_scoped(k.spec.alloc, resolve, &k, err));
  weft_mesh *m = mem_new(k.spec.alloc, sizeof *m);
  if (!m) return err_set(err, WEFT_ENOMEM, "out of memory");
  m->mesh = k.mesh;
  if (k.spec.alloc) m->alloc = *k.spec.alloc;
  *out = m;
  return WEFT_OK;
}

void weft_mesh_free(weft_mesh *m) {
  if (!m) return;
  weft_alloc alloc = m->alloc;
  mem_free(&alloc, m, sizeof *m);
}

/* ---- queries ---- */

int weft_mesh_world(const weft_mesh *m) { return m ? m->mesh.world : 0; }

int weft_mesh_size(const weft_mesh *m, const char *axis) {
  AxisSet set = m && axis ? axes_parse(axis) : 0;
  return set ? mesh_size(&m->mesh, set) : 0;
}

int weft_mesh_coord(const weft_mesh *m, const char *axis, int rank) {
  AxisSet set = has_rank(m, rank) && axis ? axes_parse(axis) : 0;
  return set ? mesh_index(&m->mesh, set, rank) : -1;
}

int weft_mesh_group(const weft_mesh *m, const char *axis, int rank, int *ranks,
                    int room) {
  AxisSet set = has_rank(m, rank) && axis ? axes_parse(axis) : 0, rest = axes_rest(set);
  if (!set) return 0;
  if (!ranks) room = 0;
  int n = mesh_size(&m->mesh, set);
  if (n <= room) return mesh_group(&m->mesh, set, rank, ranks);
  /* Too many for the buffer: it holds the ranks with the lowest indices. */
  for (int r = 0; r < m->mesh.world; r++) {
    int at = mesh_index(&m->mesh, set, r);
    if (at < room && mesh_index(&m->mesh, rest, r) == mesh_index(&m->mesh, rest, rank))
      ranks[at] = r;
  }
  return n;
}
