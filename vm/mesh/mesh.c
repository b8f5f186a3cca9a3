/* mesh.c - ranks, coordinates and groups of a resolved mesh.
 *
 * A rank is its pp coordinate, then its index in the other factors in mesh order. So each
 * axis of either mesh is a size and a stride, a set of axes is a list of those, and all
 * groups come from one walk over such a list. */
#include "mesh.h"

static const char *const axis_names[AXIS_ALL_END] = {
#define FACTOR(id, name, keeps) [AXIS_##id] = name,
#define EXPERT(id, name)        [AXIS_##id] = name,
#define PART(id, name, of)      [AXIS_##id] = name,
#include "axes.def"
};

/* Named sets, besides the single axes. */
static const struct View {
  const char *name;
  AxisSet set;
} views[] = {
#define VIEW(id, name, factors) {name, AXES_##id},
#include "axes.def"
};

/* The factor that each part belongs to. */
static const Axis part_of[AXIS_ALL_END] = {
#define PART(id, name, of) [AXIS_##id] = AXIS_##of,
#include "axes.def"
};

const char *axis_name(Axis a) {
  assert(a >= 0 && a < AXIS_ALL_END);
  return axis_names[a];
}

const char *const *axes_names(void) {
  static const char *const all[] = {
#define FACTOR(id, name, keeps) name,
#define EXPERT(id, name)        name,
#define VIEW(id, name, factors) name,
#include "axes.def"
      NULL};
  return all;
}

Axis axis_by_name(int i) {
  for (int a = 0; a < AXIS_N; a++) {
    int before = 0;
    for (int k = 0; k < AXIS_N; k++) before += strcmp(axis_names[k], axis_names[a]) < 0;
    if (before == i) return (Axis)a;
  }
  return AXIS_N;
}

Axis axis_to_shrink(int i) {
  static const int keeps[AXIS_N] = {
#define FACTOR(id, name, keeps) [AXIS_##id] = keeps,
#include "axes.def"
  };
  for (int a = 0; a < AXIS_N; a++)
    if (keeps[a] == i) return (Axis)a;
  return AXIS_N;
}

/* ---- sets ---- */

static bool same_name(const char *known, const char *name, size_t n) {
  return strlen(known) == n && memcmp(known, name, n) == 0;
}

static AxisSet parse_one(const char *name, size_t n) {
  for (int a = 0; a < AXIS_END; a++)
    if (same_name(axis_names[a], name, n)) return AXIS_BIT(a);
  for (int v = 0; v < LEN(views); v++)
    if (same_name(views[v].name, name, n)) return views[v].set;
  return 0;
}

enum { AXES_EXPERT = (AXIS_BIT(AXIS_END) - 1) & ~(AXIS_BIT(AXIS_N) - 1) };

bool axes_expert(AxisSet s) { return (s & AXES_EXPERT) != 0; }

static AxisSet parts_of(Axis factor) {
  AxisSet parts = 0;
  for (int a = AXIS_END; a < AXIS_ALL_END; a++)
    if (part_of[a] == factor) parts |= AXIS_BIT(a);
  return parts;
}

AxisSet axes_split(AxisSet s) {
  for (int a = 0; a < AXIS_N; a++)
    if (s & AXIS_BIT(a) && parts_of((Axis)a)) s = (s & ~AXIS_BIT(a)) | parts_of((Axis)a);
  return s;
}

AxisSet axes_join(AxisSet s) {
  for (int a = 0; a < AXIS_N; a++) {
    AxisSet parts = parts_of((Axis)a);
    if (parts && (s & parts) == parts) s = (s & ~parts) | AXIS_BIT(a);
  }
  return s;
}

AxisSet axes_whole(AxisSet s) {
  for (int a = 0; a < AXIS_N; a++)
    if (s & parts_of((Axis)a)) s = (s & ~parts_of((Axis)a)) | AXIS_BIT(a);
  return s;
}

AxisSet axes_rest(AxisSet s) {
  AxisSet all = axes_expert(s) ? AXES_EXPERT | AXIS_BIT(AXIS_PP) : (AxisSet)AXES_ALL;
  return axes_join(axes_split(all) & ~axes_split(s));
}

bool axes_one_mesh(AxisSet s) {
  AxisSet dense = axes_whole(s) & AXES_ALL & ~AXIS_BIT(AXIS_PP);
  return s < AXIS_BIT(AXIS_ALL_END) && (!axes_expert(s) || !dense);
}

AxisSet axes_parse(const char *name) {
  AxisSet set = 0;
  for (;;) {
    size_t n = strcspn(name, "+");
    AxisSet one = parse_one(name, n);
    if (!one || (set & one) || !axes_one_mesh(set | one)) return 0;
    set |= one;
    if (!name[n]) return set;
    name += n + 1;
  }
}

/* Other sets are named by their axes, with "dp" for its two. */
const char *axes_name(AxisSet s, char buf[64]) {
  for (int a = 0; a < AXIS_ALL_END; a++)
    if (s == AXIS_BIT(a)) return axis_names[a];
  for (int v = 0; v < LEN(views); v++)
    if (s == views[v].set) return views[v].name;
  if (!s) return "self";
  TextBuf t = textbuf(buf, 64);
  AxisSet said = 0, dp = (s & AXES_DP) == AXES_DP ? AXES_DP : 0;
  for (int a = 0; a < AXIS_ALL_END; a++) {
    if (!(s & ~said & AXIS_BIT(a))) continue;
    bool both = dp & AXIS_BIT(a);
    textbuf_printf(&t, "%s%s", t.n ? "+" : "", both ? "dp" : axis_names[a]);
    said |= both ? dp : AXIS_BIT(a);
  }
  return buf;
}

/* ---- places ---- */

typedef struct Factor {
  int size, stride; /* ranks between neighbours */
} Factor;

static int row_length(const Mesh *m) { return m->world / m->size[AXIS_PP]; }

static int place_of(const Mesh *m, int rank) {
  int place = mesh_coord(m, rank, AXIS_PP);
  for (int i = 0; i < AXIS_N; i++) {
    int a = m->order[i];
    if (a != AXIS_PP) place = place * m->size[a] + mesh_coord(m, rank, (Axis)a);
  }
  return place;
}

static int rank_at(const Mesh *m, int place) {
  int rank = 0;
  for (int i = AXIS_N - 1; i >= 0; i--) {
    int a = m->order[i];
    if (a == AXIS_PP) continue;
    rank += place % m->size[a] * m->stride[a];
    place /= m->size[a];
  }
  return rank + place * m->stride[AXIS_PP];
}

/* The distance between neighbours on a part, in units of the factor's stride. */
static int part_stride(const Mesh *m, int part) {
  int stride = 1;
  for (int a = part + 1; a < AXIS_ALL_END; a++)
    if (part_of[a] == part_of[part]) stride *= m->size[a];
  return stride;
}

static Factor factor(const Mesh *m, int axis) {
  if (axis >= AXIS_END)
    return (Factor){m->size[axis],
                    part_stride(m, axis) * factor(m, part_of[axis]).stride};
  Factor f = {m->size[axis], 1};
  if (axis == AXIS_PP) f.stride = row_length(m);
  if (axis >= AXIS_N)
    for (int a = axis + 1; a < AXIS_END; a++) f.stride *= m->size[a];
  else if (axis != AXIS_PP)
    for (int i = AXIS_N - 1; m->order[i] != axis; i--)
      f.stride *= m->order[i] == AXIS_PP ? 1 : m->size[m->order[i]];
  return f;
}

/* The factors of a set, slowest first; returns their number. */
static int factors(const Mesh *m, AxisSet s, Factor out[AXIS_ALL_END]) {
  int n = 0;
  assert(axes_one_mesh(s));
  s = axes_split(s);
  if (axes_expert(s) && s & AXIS_BIT(AXIS_PP)) out[n++] = factor(m, AXIS_PP);
  for (int i = 0; i < AXIS_N && !axes_expert(s); i++)
    for (int a = 0; a < AXIS_ALL_END; a++)
      if (s & axes_split(AXIS_BIT(m->order[i])) & AXIS_BIT(a)) out[n++] = factor(m, a);
  for (int a = AXIS_N; a < AXIS_END; a++)
    if (s & AXIS_BIT(a)) out[n++] = factor(m, a);
  return n;
}

void mesh_split_tp(Mesh *m, int copies) {
  assert(m->size[AXIS_TP] % copies == 0);
  m->size[AXIS_TP_KV] = m->size[AXIS_TP] / copies;
  m->size[AXIS_TP_REP] = copies;
}

void mesh_split_cp(Mesh *m, int heads) {
  assert(m->size[AXIS_CP] % heads == 0);
  m->size[AXIS_CP_RING] = m->size[AXIS_CP] / heads;
  m->size[AXIS_CP_HEADS] = heads;
}

void mesh_split_dp(Mesh *m, int group) {
  int inner = group > 1 ? group / m->size[AXIS_CP] : 1;
  assert(m->size[AXIS_DP_SHARD] % inner == 0);
  m->size[AXIS_DP_OUTER] = m->size[AXIS_DP_SHARD] / inner;
  m->size[AXIS_DP_INNER] = inner;
}

AxisSet mesh_axes(const Mesh *m, AxisSet s) {
  AxisSet one = 0;
  for (int a = 0; a < AXIS_ALL_END; a++)
    if (m->size[a] == 1) one |= AXIS_BIT(a);
  s = axes_split(s) & ~one;
  for (int a = 0; a < AXIS_N; a++)
    if (s & parts_of((Axis)a)) s |= parts_of((Axis)a) & one;
  return axes_join(s);
}

/* ---- ranks ---- */

int mesh_stride(const Mesh *m, Axis a) {
  if (a >= AXIS_N && a < AXIS_END)
    return m->size[a] > 1 ? rank_at(m, factor(m, a).stride) : 1;
  return a < AXIS_N ? m->stride[a] : m->stride[part_of[a]] * part_stride(m, a);
}

int mesh_coord(const Mesh *m, int rank, Axis a) {
  assert(rank >= 0 && rank < m->world);
  if (a < AXIS_N) return rank / m->stride[a] % m->size[a];
  Factor f = factor(m, a);
  return place_of(m, rank) / f.stride % f.size;
}

weft_status mesh_check_rank(const Mesh *m, int64_t rank, weft_error *e) {
  if (rank >= 0 && rank < m->world) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "there is no rank %lld: the mesh has %d, counted from 0",
                 (long long)rank, m->world);
}

int mesh_size(const Mesh *m, AxisSet s) {
  int n = 1;
  for (int a = 0; a < AXIS_ALL_END; a++)
    if (s & AXIS_BIT(a)) n *= m->size[a];
  return n;
}

int mesh_index(const Mesh *m, AxisSet s, int rank) {
  Factor f[AXIS_ALL_END];
  int n = factors(m, s, f), index = 0, place = place_of(m, rank);
  for (int i = 0; i < n; i++) index = index * f[i].size + place / f[i].stride % f[i].size;
  return index;
}

int mesh_group(const Mesh *m, AxisSet s, int rank, int *out) {
  Factor f[AXIS_ALL_END];
  int nf = factors(m, s, f), n = mesh_size(m, s), base = place_of(m, rank);
  for (int k = 0; k < nf; k++) base -= base / f[k].stride % f[k].size * f[k].stride;
  for (int i = 0; i < n; i++) {
    int place = base, rest = i;
    for (int k = nf - 1; k >= 0; k--) {
      place += rest % f[k].size * f[k].stride;
      rest /= f[k].size;
    }
    out[i] = rank_at(m, place);
  }
  return n;
}

/* ---- text ---- */

const char *mesh_text(const Mesh *m, char buf[96]) {
  TextBuf t = textbuf(buf, 96);
  int dp = mesh_size(m, AXES_DP);
  for (int i = 0; i < AXIS_N; i++) {
    Axis a = (Axis)m->order[i];
    bool split = m->size[AXIS_DP_REPLICATE] > 1 && m->size[AXIS_DP_SHARD] > 1;
    const char *name = axis_name(a);
    int size = m->size[a];
    if (a == AXIS_DP_REPLICATE && !split) continue;
    if (a == AXIS_DP_SHARD && !split) name = "dp", size = dp;
    if (size == 1) continue;
    textbuf_printf(&t, "%s%s=%d", t.n ? " " : "", name, size);
  }
  for (Axis a = AXIS_EP; a <= AXIS_ETP && m->size[AXIS_EP] > 1; a++)
    textbuf_printf(&t, " %s=%d", axis_name(a), m->size[a]);
  if (!t.n) textbuf_printf(&t, "one rank");
  return buf;
}
