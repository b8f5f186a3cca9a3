/* mesh.c - ranks, coordinates and groups of a resolved mesh. All groups, of one axis or
 * of several, come from the same walk over the strides. */
#include "mesh.h"

#include <stdio.h>

static const char *const axis_names[AXIS_N] = {"pp", "dp_replicate", "dp_shard", "cp",
                                               "tp"};

/* Sets with a name of their own, besides the single axes. */
static const struct {
  const char *name;
  AxisSet set;
} views[] = {
    {"dp", AXES_DP},
    {"dp_cp", AXES_DP_CP},
    {"dp_shard_cp", AXES_DP_SHARD_CP},
    {"world", AXES_ALL},
};

const char *axis_name(Axis a) {
  assert(a >= 0 && a < AXIS_N);
  return axis_names[a];
}

/* ---- sets ---- */

static AxisSet parse_one(const char *name, size_t n) {
  for (int a = 0; a < AXIS_N; a++)
    if (strlen(axis_names[a]) == n && !memcmp(axis_names[a], name, n)) return AXIS_BIT(a);
  for (int v = 0; v < LEN(views); v++)
    if (strlen(views[v].name) == n && !memcmp(views[v].name, name, n))
      return views[v].set;
  return 0;
}

AxisSet axes_parse(const char *name) {
  AxisSet set = 0;
  for (;;) {
    size_t n = strcspn(name, "+");
    AxisSet one = parse_one(name, n);
    if (!one || (set & one)) return 0;
    set |= one;
    if (!name[n]) return set;
    name += n + 1;
  }
}

/* Sets without a name are joined from the axes in it, "dp" standing for its two. */
const char *axes_name(AxisSet s, char buf[64]) {
  for (int a = 0; a < AXIS_N; a++)
    if (s == AXIS_BIT(a)) return axis_names[a];
  for (int v = 0; v < LEN(views); v++)
    if (s == views[v].set) return views[v].name;
  if (!s) return "self";
  int n = 0;
  bool dp = (s & AXES_DP) == AXES_DP;
  for (int a = 0; a < AXIS_N; a++) {
    if (!(s & AXIS_BIT(a)) || (dp && a == AXIS_DP_SHARD)) continue;
    const char *name = dp && a == AXIS_DP_REPLICATE ? "dp" : axis_names[a];
    n += snprintf(buf + n, 64 - (size_t)n, "%s%s", n ? "+" : "", name);
  }
  return buf;
}

/* ---- ranks ---- */

int mesh_coord(const Mesh *m, int rank, Axis a) {
  assert(rank >= 0 && rank < m->world);
  return rank / m->stride[a] % m->size[a];
}

int mesh_rank(const Mesh *m, const int coord[AXIS_N]) {
  int rank = 0;
  for (int a = 0; a < AXIS_N; a++) {
    assert(coord[a] >= 0 && coord[a] < m->size[a]);
    rank += coord[a] * m->stride[a];
  }
  return rank;
}

int mesh_size(const Mesh *m, AxisSet s) {
  int n = 1;
  for (int a = 0; a < AXIS_N; a++)
    if (s & AXIS_BIT(a)) n *= m->size[a];
  return n;
}

int mesh_index(const Mesh *m, AxisSet s, int rank) {
  int index = 0;
  for (int i = 0; i < AXIS_N; i++) {
    int a = m->order[i];
    if (s & AXIS_BIT(a)) index = index * m->size[a] + mesh_coord(m, rank, a);
  }
  return index;
}

int mesh_group(const Mesh *m, AxisSet s, int rank, int *out) {
  int n = mesh_size(m, s), base = rank;
  for (int a = 0; a < AXIS_N; a++)
    if (s & AXIS_BIT(a)) base -= mesh_coord(m, rank, a) * m->stride[a];
  for (int i = 0; i < n; i++) {
    int member = base, rest = i;
    for (int k = AXIS_N - 1; k >= 0; k--) {
      int a = m->order[k];
      if (!(s & AXIS_BIT(a))) continue;
      member += rest % m->size[a] * m->stride[a];
      rest /= m->size[a];
    }
    out[i] = member;
  }
  return n;
}

void mesh_expert_coord(const Mesh *m, int rank, int *ep_shard, int *ep, int *etp) {
  int flat = mesh_index(m, AXES_ALL & ~AXIS_BIT(AXIS_PP), rank);
  *etp = flat % m->etp;
  *ep = flat / m->etp % m->ep;
  *ep_shard = flat / m->etp / m->ep;
}
