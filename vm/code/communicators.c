/* communicators.c - the table of communicators; see communicators.h. */
#include "communicators.h"

/* The name for messages; data parallelism is "dp" to users, whichever of its two axes has
 * more than one rank. */
static const char *comm_name(const Mesh *m, AxisSet axes, char buf[64]) {
  bool whole = true;
  for (int a = 0; a < AXIS_N; a++)
    if (AXES_DP & AXIS_BIT(a)) whole &= m->size[a] == 1 || axes & AXIS_BIT(a);
  return axes_name(axes & AXES_DP && whole ? axes | AXES_DP : axes, buf);
}

int comm_for(Comms *c, AxisSet axes, const int *pp, int npp) {
  const Mesh *m = c->mesh;
  axes = mesh_axes(m, axes);
  if (npp == 1 || axes == 0) return -1;
  for (int i = 0; i < c->list.n; i++) {
    const CommDesc *d = &c->list.at[i];
    if (d->axes == axes && d->npp == npp &&
        (npp == 0 || memcmp(d->pp, pp, sizeof(int) * (size_t)npp) == 0))
      return i;
  }
  char buf[64];
  const char *name = arena_str(c->arena, npp > 0 ? "tie" : comm_name(m, axes, buf));
  for (int i = 0; i < npp; i++)
    name = arena_printf(c->arena, "%s%s%d%s", name, i ? "," : "(", pp[i],
                        i + 1 < npp ? "" : ")");
  *VEC_PUSH(c->arena, c->list) =
      (CommDesc){.axes = axes, .npp = npp, .name = name, .pp = pp};
  return c->list.n - 1;
}
