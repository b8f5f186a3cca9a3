/* job_costs.c - gives the clock of a job measured times; see job_costs.h. */
#include "job_costs.h"

#include <ctype.h>

#include "bindings/sandbox/sandbox.h"
#include "vm/base/plural.h"
#include "vm/sim/step_cost.h"

const char *calibrations_differ(const CostTable *a, const CostTable *b, Arena *to) {
  const struct {
    const char *what, *x, *y;
  } list[] = {{"device", a->device, b->device},
              {"machine", a->machine, b->machine},
              {"kernels", a->way, b->way},
              {"transfers", a->comm, b->comm},
              {"version of weft", a->version, b->version}};
  for (int i = 0; i < LEN(list); i++)
    if (strcmp(list[i].x, list[i].y) != 0)
      return arena_printf(to, "%s, %s and %s", list[i].what, list[i].x, list[i].y);
  if (a->threads != b->threads)
    return arena_printf(to, "threads of a rank, %d and %d", a->threads, b->threads);
  if (a->cores != b->cores)
    return arena_printf(to, "cores, %d and %d", a->cores, b->cores);
  return NULL;
}

/* What a prediction takes over although it may have changed since. */
static void warn_of_age(Job *j, const CostTable *t, const DeviceKind *kind) {
  char way[DEVICE_WAY];
  weft_error none = NO_ERROR;
  if (strcmp(t->version, weft_version()) != 0)
    diag_warn(&j->d, "calibration", "",
              "the calibration is of weft %s, this is %s: kernels may have changed",
              t->version, weft_version());
  if (kind->way && kind->way(way, &none) == WEFT_OK && strcmp(way, t->way) != 0)
    diag_warn(&j->d, "calibration", "",
              "the calibration is of kernels by %s; here they are by %s", t->way, way);
}

/* Of ranks that share the cores of one machine, as a run of the plan would have them. */
static void warn_of_threads(Job *j, const CostTable *t) {
  int each = MAX(t->cores / MAX(j->mesh.world, 1), 1);
  if (t->cores <= 0 || strcmp(t->comm, "local") != 0 || t->threads == each) return;
  diag_warn(
      &j->d, "calibration", "",
      "the calibration is of ranks of %d thread%s; those of this plan have %d on its "
      "%d core%s, unless weft run is told --threads %d",
      t->threads, plural(t->threads, "s"), each, t->cores, plural(t->cores, "s"),
      t->threads);
}

/* Whether a word of `name` is the first part of the GPU's name: "NVIDIA H100 80GB HBM3"
 * is an h100-sxm, a GB200 no b200. */
static bool names_gpu(const char *name, const char *gpu) {
  size_t n = strcspn(gpu, "-");
  for (const char *s = name; *s; s++)
    if ((s == name || !isalnum((unsigned char)s[-1])) && strncasecmp(s, gpu, n) == 0 &&
        !isalnum((unsigned char)s[n]))
      return true;
  return false;
}

/* Whether the table is of another GPU that the library knows than the plan's. */
static bool other_gpu(const CostTable *t, const char *gpu, Arena *a) {
  int n, known = 0;
  const char *const *files = stdlib_names(a, "clusters", &n);
  bool other = false;
  for (int i = 0; i < n; i++) {
    known += strcmp(files[i], gpu) == 0;
    other |= names_gpu(t->machine, files[i]);
  }
  return known && other && !names_gpu(t->machine, gpu);
}

static bool has_dtype(const CostTable *t, DType dtype) {
  for (int i = 0; i < t->kernel.n; i++)
    if (t->kernel.at[i].work.dtype == dtype) return true;
  return false;
}

weft_status job_costs(Job *j, const char *path, Arena *a, weft_error *e) {
  CostTable *t = NEW(a, CostTable);
  TRY(calibration_read(path, a, t, &j->d, e));
  const DeviceKind *kind = device_kind(t->device, e);
  if (!kind) return WEFT_EUSAGE;
  const char *gpu = j->plan.cluster.gpu;
  if (gpu && (t->cores > 0 || other_gpu(t, gpu, a))) {
    diag_warn(&j->d, "calibration", "cluster",
              "the calibration is of %s, the cluster of %s: nothing of it is used",
              t->machine, gpu);
    return WEFT_OK;
  }
  if (!has_dtype(t, j->plan.dtype))
    diag_warn(&j->d, "calibration", "precision",
              "the calibration has no kernel in %s, the plan's compute type",
              dtype_name(j->plan.dtype));
  warn_of_age(j, t, kind);
  warn_of_threads(j, t);
  j->device = kind;
  j->costs = t;
  return WEFT_OK;
}

void job_costs_machine(Job *j) {
  if (j->costs && !j->plan.cluster.gpu)
    table_cluster(j->costs, j->mesh.world, &j->plan.cluster);
}
