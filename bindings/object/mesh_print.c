/* mesh_print.c - views of a mesh: coordinates, groups, and how they are printed. */
#include <stdio.h>
#include <stdlib.h>

#include "format.h"
#include "mesh_object.h"

/* ---- axes and groups ---- */

static int stride_of(const MeshObject *m, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < m->naxis; a++)
    stride *= m->axis[a].size;
  return stride;
}

int mesh_view_coord(const MeshObject *m, int index, int axis) {
  return index / stride_of(m, axis) % m->axis[axis].size;
}

static unsigned one_axis(const MeshObject *m, const char *name) {
  for (int a = 0; a < m->naxis; a++)
    if (strcmp(m->axis[a].name, name) == 0) return 1u << a;
  return 0;
}

/* A name of several axes; all of them must be here. */
static unsigned several_axes(const MeshObject *m, const char *name) {
  AxisSet set = axes_parse(name);
  unsigned bits = 0;
  for (int a = 0; a < AXIS_END; a++) {
    if (!(set & AXIS_BIT(a))) continue;
    unsigned bit = one_axis(m, axis_name((Axis)a));
    if (!bit) return 0;
    bits |= bit;
  }
  return bits;
}

unsigned mesh_view_axes(const MeshObject *m, const char *name) {
  unsigned bits = one_axis(m, name);
  if (bits) return bits;
  if (strcmp(name, "world") == 0) return (1u << m->naxis) - 1;
  if ((bits = several_axes(m, name))) return bits;
  const char *plus = strchr(name, '+');
  char first[64];
  if (!plus || (size_t)(plus - name) >= sizeof first) return 0;
  snprintf(first, sizeof first, "%.*s", (int)(plus - name), name);
  unsigned left = mesh_view_axes(m, first), right = mesh_view_axes(m, plus + 1);
  return left && right && !(left & right) ? left | right : 0;
}

int mesh_view_group(const MeshObject *m, unsigned axes, int index, int *out) {
  int n = 1, base = index;
  for (int a = 0; a < m->naxis; a++) {
    if (!(axes & 1u << a)) continue;
    n *= m->axis[a].size;
    base -= mesh_view_coord(m, index, a) * stride_of(m, a);
  }
  for (int i = 0; i < n; i++) {
    int at = base, rest = i;
    for (int a = m->naxis - 1; a >= 0; a--) {
      if (!(axes & 1u << a)) continue;
      at += rest % m->axis[a].size * stride_of(m, a);
      rest /= m->axis[a].size;
    }
    out[i] = m->rank[at];
  }
  return n;
}

static int compare_ranks(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

int mesh_count_nodes(int *rank, int n, int gpus) {
  int nodes = n > 0;
  qsort(rank, (size_t)n, sizeof *rank, compare_ranks);
  for (int i = 1; i < n; i++)
    nodes += rank[i] / gpus != rank[i - 1] / gpus;
  return nodes;
}

const char *mesh_view_name(const MeshObject *m, int axis) {
  const char *name = m->axis[axis].name;
  bool dp = m->mesh.size[AXIS_DP_REPLICATE] == 1 && strcmp(name, "dp_shard") == 0;
  return dp ? "dp" : name;
}

/* ---- printing ---- */

enum { GRID = 64, ROW = 16 };

static void print_head(const MeshObject *m, Text *out) {
  bool any = false;
  int nodes = 0, last = -1; /* ranks are looked at in order */
  text_add(out, "mesh");
  for (int a = 0; a < m->naxis; a++)
    if (m->axis[a].size > 1) {
      text_printf(out, " %s=%d", mesh_view_name(m, a), m->axis[a].size);
      any = true;
    }
  if (!any) text_add(out, " of one rank");
  for (int r = 0; r < m->mesh.world; r++)
    if (m->index[r] >= 0 && r / m->gpus != last) last = r / m->gpus, nodes++;
  text_printf(out, ": %d rank%s on %d node%s of %d", m->n, m->n > 1 ? "s" : "", nodes,
              nodes > 1 ? "s" : "", m->gpus);
  if (any) text_add(out, "; slowest axis first");
  text_add(out, "\n");
}

/* The axes of size above 1 in front of the last one label the rows. */
static int last_axis(const MeshObject *m) {
  int last = 0;
  for (int a = 0; a < m->naxis; a++)
    if (m->axis[a].size > 1) last = a;
  return last;
}

static int label_width(const MeshObject *m, int last) {
  int width = 0;
  for (int a = 0; a < last; a++)
    if (m->axis[a].size > 1) width += (int)strlen(mesh_view_name(m, a)) + 5;
  return width;
}

static void print_labels(const MeshObject *m, int last, int first, Text *out) {
  for (int a = 0; a < last; a++)
    if (m->axis[a].size > 1)
      text_printf(out, "%s %-3d ", mesh_view_name(m, a), mesh_view_coord(m, first, a));
}

static int node_of(const MeshObject *m, int index) {
  return m->rank[index] / m->gpus;
}

/* The nodes of a row of cells, at the right. */
static void print_nodes(const MeshObject *m, int first, int n, Text *out) {
  int low = node_of(m, first), high = low;
  for (int i = first; i < first + n; i++) {
    low = MIN(low, node_of(m, i));
    high = MAX(high, node_of(m, i));
  }
  if (low == high)
    text_printf(out, " |  node %d\n", low);
  else
    text_printf(out, " |  nodes %d to %d\n", low, high);
}

static void print_cells(const MeshObject *m, int first, int n, Text *out) {
  for (int i = first; i < first + n; i++) {
    bool border = i == first || node_of(m, i) != node_of(m, i - 1);
    text_printf(out, "%s%4d", border ? " |" : "  ", m->rank[i]);
  }
  print_nodes(m, first, n, out);
}

/* A line where every cell of a row is on another node than the cell above. */
static bool rule_above(const MeshObject *m, int first, int columns) {
  if (first < columns) return false;
  for (int i = first; i < first + columns; i++)
    if (node_of(m, i) == node_of(m, i - columns)) return false;
  return true;
}

static void print_columns(const MeshObject *m, int last, int width, int row, Text *out) {
  text_printf(out, "  %*s", width, mesh_view_name(m, last));
  for (int i = 0; i < row; i++)
    text_printf(out, "%6d", i);
  text_add(out, "\n");
}

static void print_rule(int width, int row, Text *out) {
  text_printf(out, "  %*s |", width, "");
  for (int i = 0; i < row; i++)
    text_add(out, "------");
  text_add(out, "\n");
}

/* Rows that are narrower than a node are grouped by lines. */
static void print_grid(const MeshObject *m, Text *out) {
  int last = last_axis(m), columns = m->naxis ? m->axis[last].size : 1;
  int width = label_width(m, last), row = MIN(columns, ROW);
  width = MAX(width, columns > 1 ? (int)strlen(mesh_view_name(m, last)) : 0);
  if (columns > 1) print_columns(m, last, width, row, out);
  for (int first = 0; first < m->n; first += columns) {
    if (columns < m->gpus && rule_above(m, first, columns)) print_rule(width, row, out);
    for (int at = 0; at < columns; at += row) {
      size_t begin = out->n;
      text_add(out, "  ");
      if (at == 0) print_labels(m, last, first, out);
      text_printf(out, "%*s", (int)MAX(width + 2 - (int)(out->n - begin), 0), "");
      print_cells(m, first + at, MIN(row, columns - at), out);
    }
  }
}

/* The first group of each axis stands for all. `group` has room for the largest. */
static void print_axes(const MeshObject *m, int *group, Text *out) {
  text_printf(out, "  %-14s %6s %8s %6s  ranks of the first group\n", "axis", "size",
              "stride", "nodes");
  for (int a = 0; a < m->naxis; a++) {
    if (m->axis[a].size == 1) continue;
    int n = mesh_view_group(m, 1u << a, 0, group);
    int stride = group[1] - group[0], nodes = mesh_count_nodes(group, n, m->gpus);
    text_printf(out, "  %-14s %6d %8d %6d  ", mesh_view_name(m, a), n, stride, nodes);
    mesh_view_group(m, 1u << a, 0, group);
    format_ranks(group, n, 8, out);
    text_add(out, "\n");
  }
}

/* What the dense mesh does not show of the experts: nothing, unless they have sizes of
 * their own. */
static void print_experts(const MeshObject *m, Text *out) {
  const int *size = m->mesh.size;
  bool own = size[AXIS_EP] > 1 || size[AXIS_ETP] != size[AXIS_TP];
  if (!own || m->n < m->mesh.world || mesh_view_axes(m, axis_name(AXIS_EP))) return;
  text_add(out, "  experts:");
  for (int a = AXIS_N; a < AXIS_END; a++)
    text_printf(out, " %s=%d", axis_name((Axis)a), size[a]);
  text_add(out, ", the ranks of each pp in mesh order; mesh.expert shows them\n");
}

void mesh_print(const MeshObject *m, int *group, Text *out) {
  print_head(m, out);
  print_experts(m, out);
  if (m->n <= GRID)
    print_grid(m, out);
  else
    print_axes(m, group, out);
}
