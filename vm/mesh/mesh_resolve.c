/* mesh_resolve.c - from the sizes that a user wrote to a Mesh, or to one diagnostic per
 * broken rule. A size that is itself wrong becomes unknown (-1) and rules that need it
 * are skipped, so no message is a consequence of another. */
#include "mesh.h"
#include "vm/base/multiples.h"

enum { UNKNOWN = -1 };

typedef struct Sizes {
  int64_t world, tp, pp, cp, ep, etp, dp, rep; /* UNKNOWN where wrong */
  int64_t model;                               /* tp * pp * cp */
  bool world_open, dp_given, etp_given;
} Sizes;

/* UNKNOWN if a factor is; INT64_MAX if the product does not fit. */
static int64_t product(int64_t a, int64_t b) {
  int64_t r;
  if (a == UNKNOWN || b == UNKNOWN) return UNKNOWN;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static int64_t lcm(int64_t a, int64_t b) { return product(a / gcd(a, b), b); }

const char *mesh_divisors(Arena *a, int64_t n) {
  enum { SHOWN = 12 };
  const char *s = "1";
  int shown = 1;
  for (int64_t d = 2; d <= n / 2 && d <= 65536; d++) {
    if (n % d) continue;
    if (++shown == SHOWN) {
      s = arena_printf(a, "%s, ...", s);
      break;
    }
    s = arena_printf(a, "%s, %lld", s, (long long)d);
  }
  return n > 1 ? arena_printf(a, "%s or %lld", s, (long long)n) : s;
}

/* The divisors of n on both sides of v, which does not divide it. */
static const char *nearest_divisors(Arena *a, int64_t n, int64_t v) {
  int64_t below = 1, above = n;
  if (v > n) return arena_printf(a, "the largest that does is %lld", (long long)n);
  for (int64_t i = 1; i <= n / i; i++) {
    int64_t pair[] = {i, n / i};
    for (int k = 0; n % i == 0 && k < 2; k++) {
      if (pair[k] < v)
        below = MAX(below, pair[k]);
      else
        above = MIN(above, pair[k]);
    }
  }
  return arena_printf(a, "the nearest that do are %lld and %lld", (long long)below,
                      (long long)above);
}

/* ---- single sizes ---- */

static int64_t size_of(Diags *d, const char *name, int64_t v, int64_t none) {
  if (v == 0) return none;
  if (v >= 1 && v <= INT32_MAX) return v;
  const char *path = arena_printf(d->arena, "mesh.%s", name);
  if (v < 1)
    diag_error(d, "range", path, "must be at least 1, is %lld", (long long)v);
  else
    diag_error(d, "range", path, "%lld is more than the %d ranks that a mesh can have",
               (long long)v, INT32_MAX);
  return UNKNOWN;
}

static void world_size(Diags *d, const MeshSpec *spec, int64_t world, Sizes *s) {
  s->world = size_of(d, "world", spec->world, 0);
  if (world > 0 && s->world > 0 && s->world != world)
    diag_error(d, "world", "mesh.world", "%lld rank%s stated, but there are %lld",
               (long long)s->world, s->world == 1 ? " is" : "s are", (long long)world)
        ->suggestion = "leave world out: it is known without";
  if (s->world == 0 && world > 0) s->world = size_of(d, "world", world, 0);
  s->world_open = s->world == 0;
}

static void read_sizes(Diags *d, const MeshSpec *spec, int64_t world, Sizes *s) {
  world_size(d, spec, world, s);
  s->tp = size_of(d, "tp", spec->tp, 1);
  s->pp = size_of(d, "pp", spec->pp, 1);
  s->cp = size_of(d, "cp", spec->cp, 1);
  s->ep = size_of(d, "ep", spec->ep, 1);
  s->etp = size_of(d, "etp", spec->etp, s->tp);
  s->dp = size_of(d, "dp", spec->dp, 0);
  s->rep = size_of(d, "dp_replicate", spec->dp_replicate, 1);
  s->dp_given = s->dp != 0;
  s->etp_given = spec->etp != 0;
}

/* ---- rules ---- */

/* The one size for which tp * pp * cp does not divide the world, or "mesh". */
static const char *blame(const Sizes *s) {
  static const char *const path[] = {"mesh.tp", "mesh.pp", "mesh.cp"};
  int64_t size[] = {s->tp, s->pp, s->cp};
  int alone = -1, cuts = -1, nalone = 0, ncuts = 0;
  for (int i = 0; i < LEN(size); i++) {
    if (size[i] > 1) cuts = i, ncuts++;
    if (s->world % size[i]) alone = i, nalone++;
  }
  if (nalone == 1) return path[alone];
  return ncuts == 1 ? path[cuts] : "mesh";
}

/* `n`, or UNKNOWN with a diagnostic if that is more ranks than a mesh can have. */
static int64_t limit(Diags *d, const char *what, int64_t n) {
  if (n <= INT32_MAX) return n;
  diag_error(d, "range", "mesh", "%s is more than the %d ranks that a mesh can have",
             what, INT32_MAX);
  return UNKNOWN;
}

/* Without a world size, dp is the least that satisfies the other rules. */
static void least_dp(Diags *d, Sizes *s) {
  int64_t experts = product(s->ep, s->etp), inner = product(s->cp, s->tp);
  if (!s->dp_given && experts > 0 && inner > 0 && s->rep > 0)
    s->dp = lcm(s->rep, experts / gcd(experts, inner));
  else if (!s->dp_given)
    s->dp = UNKNOWN;
  s->world = limit(d, "tp * pp * cp * dp", product(s->model, s->dp));
  if (s->dp > INT32_MAX) s->dp = UNKNOWN;
}

static void infer_dp(Diags *d, Sizes *s) {
  long long model = s->model, world = s->world, dp = s->dp;
  if (world < 0 || model < 0) {
    if (!s->dp_given) s->dp = UNKNOWN;
  } else if (world % model) {
    Diag *e =
        diag_error(d, "divisibility", blame(s),
                   "tp * pp * cp = %lld does not divide world = %lld", model, world);
    e->suggestion = nearest_divisors(d->arena, world, model);
    if (!s->dp_given) s->dp = UNKNOWN;
  } else if (!s->dp_given) {
    s->dp = world / model;
  } else if (dp > 0 && dp != world / model) {
    Diag *e = diag_error(d, "world", "mesh.dp",
                         "dp = %lld, but world / (tp * pp * cp) = %lld / %lld = %lld", dp,
                         world, model, world / model);
    e->suggestion = arena_printf(d->arena, "leave dp out or make it %lld", world / model);
  }
}

static void check_replicate(Diags *d, const Sizes *s) {
  if (s->dp < 0 || s->rep < 0 || s->dp % s->rep == 0) return;
  Diag *e = diag_error(d, "divisibility", "mesh.dp_replicate",
                       "dp_replicate = %lld does not divide dp = %lld", (long long)s->rep,
                       (long long)s->dp);
  e->suggestion = arena_printf(d->arena, "%s would", mesh_divisors(d->arena, s->dp));
}

/* The message names the fields that the user wrote: without etp, tp cancels on both
 * sides. Too many ranks are reported elsewhere. */
static void check_experts(Diags *d, const Sizes *s) {
  int64_t dp_cp = product(s->dp, s->cp), all = product(dp_cp, s->tp);
  int64_t experts = product(s->ep, s->etp);
  if (MAX(dp_cp, all) > INT32_MAX) return;
  if (!s->etp_given) {
    if (dp_cp < 0 || s->ep < 0 || dp_cp % s->ep == 0) return;
    Diag *e = diag_error(d, "divisibility", "mesh.ep",
                         "ep = %lld does not divide dp * cp = %lld", (long long)s->ep,
                         (long long)dp_cp);
    e->suggestion = arena_printf(d->arena, "%s would; or set etp, which defaults to tp",
                                 mesh_divisors(d->arena, dp_cp));
    return;
  }
  if (all < 0 || experts < 0 || all % experts == 0) return;
  Diag *e = diag_error(d, "divisibility", s->ep > 1 ? "mesh.ep" : "mesh.etp",
                       "ep * etp = %lld does not divide dp * cp * tp = %lld",
                       (long long)experts, (long long)all);
  e->suggestion = nearest_divisors(d->arena, all, experts);
}

/* ---- order ---- */

/* Names that an order may contain: the dense axes, and "dp" for its two. */
static const char *const order_names[] = {
#define FACTOR(id, name, keeps) name,
#include "axes.def"
    "dp"};

static AxisSet axes_of_order(const char *name) {
  for (int i = 0; i < LEN(order_names); i++)
    if (str_eq(name, order_names[i])) return axes_parse(name);
  return 0;
}

/* "pp, cp and tp" of the dense axes in the set. */
static const char *list_axes(Arena *arena, AxisSet set, const char *last) {
  const char *list = NULL;
  for (int a = 0; a < AXIS_N; a++) {
    if (!(set & AXIS_BIT(a))) continue;
    const char *sep = set >> a == 1 ? last : ", ";
    list = list ? arena_printf(arena, "%s%s%s", list, sep, axis_name((Axis)a))
                : axis_name((Axis)a);
  }
  return list;
}

/* Returns the axes that the user probably meant, which then do not count as missing. */
static AxisSet unknown_axis(Diags *d, const char *name) {
  const char *all = list_axes(d->arena, AXES_ALL, " and ");
  if (axes_expert(axes_parse(name))) {
    diag_error(d, "order", "mesh.order",
               "\"%s\" is an axis of the expert mesh, whose order follows from this one",
               name)
        ->suggestion = arena_printf(d->arena, "name %s", all);
    return 0;
  }
  const char *near = str_nearest(name, order_names, LEN(order_names));
  diag_error(d, "order", "mesh.order", "unknown axis \"%s\"", name)->suggestion =
      near ? arena_printf(d->arena, "did you mean \"%s\"?", near)
           : arena_printf(d->arena, "the axes are %s", all);
  return near ? axes_parse(near) : 0;
}

/* "dp" means dp_replicate, dp_shard. Every axis must be named, even of size 1: the order
 * then holds for all sizes. */
static void read_order(Diags *d, const char *const name[AXIS_N + 1], int order[AXIS_N]) {
  AxisSet seen = 0, meant = 0;
  int n = 0;
  for (int a = 0; a < AXIS_N; a++) order[a] = a;
  if (!name[0]) return;
  for (int i = 0; i < AXIS_N + 1 && name[i]; i++) {
    AxisSet set = axes_of_order(name[i]);
    if (!set) meant |= unknown_axis(d, name[i]);
    if (seen & set)
      diag_error(d, "order", "mesh.order", "axis \"%s\" is named twice", name[i])
          ->suggestion = "every axis once, slowest first";
    for (int a = 0; a < AXIS_N; a++)
      if (set & ~seen & AXIS_BIT(a)) order[n++] = a;
    seen |= set;
  }
  const char *list = list_axes(d->arena, AXES_ALL & ~(seen | meant), ", ");
  if (list)
    diag_error(d, "order", "mesh.order", "does not name %s", list)->suggestion =
        arena_printf(d->arena, "every axis once, slowest first: %s",
                     list_axes(d->arena, AXES_ALL, ", "));
}

/* ---- resolve ---- */

static void fill(const Sizes *s, Mesh *m) {
  m->world = (int)s->world;
  m->size[AXIS_PP] = (int)s->pp;
  m->size[AXIS_DP_REPLICATE] = (int)s->rep;
  m->size[AXIS_DP_SHARD] = (int)(s->dp / s->rep);
  m->size[AXIS_CP] = (int)s->cp;
  m->size[AXIS_TP] = (int)s->tp;
  m->size[AXIS_EP] = (int)s->ep;
  m->size[AXIS_ETP] = (int)s->etp;
  m->size[AXIS_EP_SHARD] = (int)(s->dp * s->cp * s->tp / (s->ep * s->etp));
  mesh_split_tp(m, 1);
  mesh_split_cp(m, 1);
  mesh_split_dp(m, 1);
  int stride = 1;
  for (int i = AXIS_N - 1; i >= 0; i--) {
    m->stride[m->order[i]] = stride;
    stride *= m->size[m->order[i]];
  }
  assert(stride == m->world);
}

bool mesh_resolve(const MeshSpec *spec, int64_t world, Mesh *m, Diags *d) {
  Sizes s = {0};
  int before = d->errors;
  *m = (Mesh){0};
  read_sizes(d, spec, world, &s);
  s.model = limit(d, "tp * pp * cp", product(product(s.tp, s.pp), s.cp));
  if (s.world_open)
    least_dp(d, &s);
  else
    infer_dp(d, &s);
  check_replicate(d, &s);
  check_experts(d, &s);
  read_order(d, spec->order, m->order);
  if (d->errors > before) {
    *m = (Mesh){0};
    return false;
  }
  fill(&s, m);
  return true;
}

void mesh_write_sizes(const Mesh *m, MeshSpec *spec) {
  spec->world = mesh_size(m, AXES_ALL);
  spec->tp = m->size[AXIS_TP];
  spec->pp = m->size[AXIS_PP];
  spec->cp = m->size[AXIS_CP];
  spec->dp_replicate = m->size[AXIS_DP_REPLICATE];
  spec->dp = mesh_size(m, AXES_DP);
}

const char *mesh_tp_divides(Arena *a, int tp, const char *what, int64_t size) {
  if (size % tp == 0) return NULL;
  return arena_printf(a, "%d does not divide %s = %lld", tp, what, (long long)size);
}
