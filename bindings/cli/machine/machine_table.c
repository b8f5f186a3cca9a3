/* machine_table.c - see machine_table.h. */
#include "machine_table.h"

#include <math.h>
#include <time.h>

#include "bindings/calibration/job_costs.h"
#include "vm/base/plural.h"

void machine_cpu(char *text, size_t size) {
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "r");
  snprintf(text, size, "unknown CPU");
  while (f && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (f) fclose(f);
}

/* The name of the first GPU, by nvidia-smi. */
static void machine_gpu(char *text, size_t size) {
  FILE *f = popen("nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null", "r");
  char line[256] = "";
  bool found = f && fgets(line, sizeof line, f);
  while (f && fgets((char[256]){0}, 256, f)) {
  }
  if (f) found &= pclose(f) == 0;
  snprintf(text, size, "%.*s", found ? (int)strcspn(line, "\n") : 0, line);
  if (!*text) snprintf(text, size, "unknown GPU");
}

void machine_table(const DeviceKind *kind, int threads, Arena *a, CostTable *out) {
  char way[DEVICE_WAY] = "", name[128], date[32];
  weft_error none = NO_ERROR;
  time_t now = time(NULL);
  struct tm day;
  if (kind->way) (void)kind->way(way, &none);
  (kind->host ? machine_cpu : machine_gpu)(name, sizeof name);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
  *out = (CostTable){.device = kind->name,
                     .way = arena_str(a, way),
                     .machine = arena_str(a, name),
                     .comm = "local",
                     .version = weft_version(),
                     .date = arena_str(a, date),
                     .threads = threads,
                     .cores = kind->host ? bench_cores() : 0};
}

weft_status machine_rates(const Bench *b, CostTable *t, weft_error *e) {
  TRY(time_product(b, DT_F32, &t->f32, e));
  TRY(time_product(b, DT_BF16, &t->bf16, e));
  return time_copy(b, &t->bandwidth, e);
}

/* ---- how it has aged ---- */

static int days_since(const char *date) {
  const double day = 86400;
  struct tm then = {0};
  const char *end = strptime(date, "%Y-%m-%d", &then);
  if (!end || *end) return -1;
  return (int)fmax(0, floor(difftime(time(NULL), timegm(&then)) / day));
}

weft_status calibration_age(const Cli *cli, const char *path, Arena *a, Diags *d,
                            CalibrationAge *out, weft_error *e) {
  const double each = 0.3; /* seconds of samples for a rate */
  *out = (CalibrationAge){.path = path};
  TRY(calibration_read(path, a, &out->then, d, e));
  const DeviceKind *kind = device_kind(out->then.device, e);
  if (!kind) return WEFT_EUSAGE;
  machine_table(kind, out->then.threads, a, &out->now);
  out->now.comm = out->then.comm;
  out->days = days_since(out->then.date);
  out->differs = calibrations_differ(&out->then, &out->now, a);
  if (out->differs) return WEFT_OK;
  Bench b = {.seconds = each, .stop = cli->stop};
  TRY(bench_open(&b, kind, out->then.threads, MAX(out->then.ranks, 1), e));
  return machine_rates(&b, &out->now, e);
}

/* ---- what is said ---- */

typedef struct Aged {
  const char *what, *unit;
  double then, now;
} Aged;
enum { RATES = 3 };

static void rates_of(const CalibrationAge *x, Aged out[RATES]) {
  const CostTable *a = &x->then, *b = &x->now;
  out[0] = (Aged){"f32", "GFLOP/s", a->f32, b->f32};
  out[1] = (Aged){"bf16", "GFLOP/s", a->bf16, b->bf16};
  out[2] = (Aged){"copies", "GB/s", a->bandwidth, b->bandwidth};
}

/* A tenth is what a busy machine does to a rate of this kind. */
static bool has_aged(const Aged *r) { return fabs(r->now / r->then - 1) > 0.1; }

void calibration_age_print(const CalibrationAge *x) {
  Aged r[RATES];
  int aged = 0;
  printf("%s: of %s, ", x->path, x->then.date);
  if (x->days >= 0) printf("%d day%s old, ", x->days, plural(x->days, "s"));
  printf("%d kernel%s and %d transfer%s\n", x->then.kernel.n,
         plural(x->then.kernel.n, "s"), x->then.move.n, plural(x->then.move.n, "s"));
  if (x->differs) {
    printf(
        "  it is not of this machine as it is now (%s, then and now): calibrate again\n",
        x->differs);
    return;
  }
  rates_of(x, r);
  for (int i = 0; i < RATES; i++) {
    printf("  %-8s %.4g %s then, %.4g now: %.2f of it\n", r[i].what, r[i].then / 1e9,
           r[i].unit, r[i].now / 1e9, r[i].now / r[i].then);
    aged += has_aged(&r[i]);
  }
  printf("  %s\n",
         aged ? "more than a tenth apart: calibrate again, unless the machine is "
                "busy now"
              : "all within a tenth: it holds");
}

void calibration_age_json(const CalibrationAge *x, Json *out) {
  Aged r[RATES];
  rates_of(x, r);
  json_open(out, "calibration", '{');
  json_str(out, "date", x->then.date);
  if (x->days >= 0)
    json_int(out, "days", x->days);
  else
    json_none(out, "days");
  json_str(out, "differs", x->differs);
  json_open(out, "rates", '{');
  for (int i = 0; i < RATES && !x->differs; i++) {
    json_open(out, r[i].what, '{');
    json_num(out, "now", r[i].now);
    json_num(out, "then", r[i].then);
    json_close(out, '}');
  }
  json_close(out, '}');
  json_close(out, '}');
}
