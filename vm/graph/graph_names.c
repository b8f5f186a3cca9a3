/* graph_names.c - what a graph is told in: tags, placements and names. */
#include "graph.h"

static const char *const tag_names[TAG_N] = {
    [TAG_NONE] = "none",         [TAG_BATCH] = "batch", [TAG_SEQ] = "seq",
    [TAG_HIDDEN] = "hidden",     [TAG_HEAD] = "head",   [TAG_KV_HEAD] = "kv_head",
    [TAG_FFN] = "ffn",           [TAG_VOCAB] = "vocab", [TAG_HEAD_DIM] = "head_dim",
    [TAG_POSITION] = "position", [TAG_TOKEN] = "token", [TAG_RAGGED] = "ragged",
    [TAG_EXPERT] = "expert",     [TAG_GROUP] = "group"};

const char *tag_name(DimTag t) { return tag_names[t]; }

int tag_parse(const char *s) {
  for (int i = 0; i < TAG_N; i++)
    if (strcmp(tag_names[i], s) == 0) return i;
  return -1;
}

#define TAG(tag)        (1u << TAG_##tag)
#define TAGS_OF_EXPERTS (TAG(TOKEN) | TAG(EXPERT) | TAG(RAGGED))
static const struct AxisRow {
  const char *name;
  AxisSet factors;
  uint32_t tags;
} axis_row[AX_N] = {
#define SHARD(id, name, factors, tags) {name, factors, tags},
#include "vm/mesh/axes.def"
};

AxisSet ax_mesh(ShardAxis a) { return axis_row[a].factors; }

AxisSet ax_set_mesh(uint32_t axes) {
  AxisSet s = 0;
  for (int x = 0; x < AX_N; x++)
    if (axes >> x & 1) s |= ax_mesh((ShardAxis)x);
  return axes_join(s);
}

bool ax_of_one_factor(ShardAxis a, ShardAxis b) {
  return axes_whole(ax_mesh(a)) == axes_whole(ax_mesh(b));
}

bool ax_expert(ShardAxis a) { return axes_expert(ax_mesh(a)); }

const char *ax_name(ShardAxis a) { return axis_row[a].name; }
bool ax_may_cut(ShardAxis a, DimTag t) { return axis_row[a].tags >> t & 1; }

bool place_eq(Place a, Place b) {
  for (int x = 0; x < AX_N; x++)
    if (a.on[x] != b.on[x]) return false;
  return true;
}

Place place_whole(void) {
  Place p;
  for (int x = 0; x < AX_N; x++) p.on[x] = PL_R;
  return p;
}

AxisSet place_cuts(Place p) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] >= 0) axes |= 1u << x;
  return ax_set_mesh(axes);
}

AxisSet place_partial(Place p) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == PL_P) axes |= 1u << x;
  return ax_set_mesh(axes);
}

AxisSet place_next_cut(Place p, int dim, int *x) {
  uint32_t axes = 0;
  while (*x < AX_N && p.on[*x] != dim) ++*x;
  for (int first = *x; *x < AX_N && p.on[*x] == dim; ++*x) {
    if (!ax_of_one_factor((ShardAxis)first, (ShardAxis)*x)) break;
    axes |= 1u << *x;
  }
  return ax_set_mesh(axes);
}

AxisSet place_dim_cuts(Place p, int dim) {
  uint32_t axes = 0;
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == dim) axes |= 1u << x;
  return ax_set_mesh(axes);
}

bool place_cuts_dim(Place p, int dim) { return place_dim_cuts(p, dim) != 0; }

int64_t place_local(Place p, int dim, int64_t size, const int n[AX_N]) {
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] == dim) size = (size + n[x] - 1) / n[x];
  return size;
}

/* Of the mesh that it speaks of; parts of a factor are named only where they differ. */
const char *place_str(Place p, char buf[PLACE_STR]) {
  char name[64];
  TextBuf t = textbuf(buf, PLACE_STR);
  bool expert = false;
  for (int x = 0; x < AX_N; x++) expert |= ax_expert((ShardAxis)x) && p.on[x] != PL_R;
  for (int x = 0; x < AX_N; x++) {
    ShardAxis a = (ShardAxis)x;
    if (ax_expert(a) != expert) continue;
    if (x && ax_of_one_factor(a, a - 1) && p.on[x] == p.on[x - 1]) continue;
    bool part = x + 1 < AX_N && ax_of_one_factor(a, a + 1) && p.on[x] != p.on[x + 1];
    textbuf_printf(&t, "%s%s:", t.n ? " " : "",
                   part ? axes_name(ax_mesh(a), name) : ax_name(a));
    if (p.on[x] >= 0)
      textbuf_printf(&t, "S(%d)", p.on[x]);
    else
      textbuf_printf(&t, "%s",
                     p.on[x] == PL_R     ? "R"
                     : p.on[x] == PL_P   ? "P"
                     : p.on[x] == PL_OWN ? "own"
                                         : "Pmax");
  }
  return buf;
}
