/* doctor.c - weft doctor: what this machine can run, its GEMM rate, what is missing. */
#include "bindings/cli/cli.h"
#include "doctor.h"
#include "machine_table.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/levels.h"
#include "vm/base/module.h"
#include "vm/base/plural.h"

/* Modules that are opened when needed: what weft uses them for, and their Debian
 * packages. */
static const struct {
  const char *name, *module, *use, *package;
} parts[] = {
    {"oneDNN", "weft_gemm_dnnl.so", "fast products, bf16 units", "libdnnl-dev"},
    {"OpenBLAS", "weft_gemm_blas.so", "fast products without oneDNN", "libopenblas-dev"},
    {"MPI", "weft_mpi.so", "ranks on several machines", "libopenmpi-dev openmpi-bin"},
    {"tokenizers", "weft_text.so", "text to tokens", "libonig-dev libutf8proc-dev"},
    {"libedit", "weft_edit.so", "a prompt with a history", "libedit-dev"},
};
enum { PARTS = LEN(parts), VERSION_TEXT = 96 };

typedef struct Rate {
  double flops;
  const char *backend;
  bool widened; /* bf16 products are computed through f32 blocks */
} Rate;

typedef struct Doctor {
  char cpu[128], levels[128], wait[64];
  int cores;
  double memory;
  CpuLevel level;
  char version[PARTS][VERSION_TEXT]; /* "": not installed */
  Rate f32, bf16;
  DoctorMachine machine;
  const CalibrationAge *age; /* of --calibration, or NULL */
} Doctor;

static int count_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void find_wait(char *text, size_t size) {
  const char *spins = getenv("GOMP_SPINCOUNT"), *policy = getenv("OMP_WAIT_POLICY");
  if (spins)
    snprintf(text, size, "GOMP_SPINCOUNT=%s", spins);
  else
    snprintf(text, size, "OMP_WAIT_POLICY=%s", policy ? policy : "(default)");
}

/* The version of the MPI library, which can be asked before MPI_Init. */
static void describe_mpi(void *module, char *text) {
  enum { LONGEST = 8192 }; /* the longest string of any MPI */
  int (*ask)(char *, int *) =
      (int (*)(char *, int *))dlsym(module, "MPI_Get_library_version");
  char all[LONGEST] = "MPI";
  int n = 0;
  if (ask) ask(all, &n);
  snprintf(text, VERSION_TEXT, "%.*s", (int)strcspn(all, ",\n"), all);
}

static void find_parts(Doctor *d) {
  gemm_has("onednn", d->version[0], VERSION_TEXT);
  gemm_has("openblas", d->version[1], VERSION_TEXT);
  for (int i = 2; i < PARTS; i++) {
    char path[4096];
    module_find(parts[i].module, path, sizeof path);
    void *m = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!m) continue;
    snprintf(d->version[i], VERSION_TEXT, "%s", parts[i].name);
    if (strcmp(parts[i].name, "MPI") == 0) describe_mpi(m, d->version[i]);
    dlclose(m);
  }
}

/* The best rate within a third of a second. */
static Rate measure(Arena *arena, DType type, int threads) {
  enum { SIDE = 1024 };
  size_t bytes = SIDE * SIDE * (type == DT_F32 ? 4 : 2);
  GemmShape s = {SIDE, SIDE, SIDE, .in = type, .out = type};
  Gemm g;
  char *p = arena_alloc(arena, 3 * bytes), *work = arena_alloc(arena, gemm_work(&s));
  memset(p, 0x3c, 2 * bytes); /* small normal numbers */
  gemm_init(&g, &s, threads);
  double begin = 0, best = 0;
  for (int i = 0; i < 2 || now_s() - begin < 0.33; i++) {
    double start = now_s();
    gemm_run(&g, p, p + bytes, p + 2 * bytes, false, work);
    if (i == 0) begin = now_s();
    double flops = 2.0 * SIDE * SIDE * SIDE / (now_s() - start);
    if (i > 0) best = MAX(best, flops);
  }
  Rate r = {best, gemm_backend(&g), g.widens};
  gemm_end(&g);
  return r;
}

static weft_status examine(Doctor *d, Arena *arena, weft_error *e) {
  TRY(cpu_level(&d->level, e));
  TextBuf levels = textbuf(d->levels, sizeof d->levels);
  for (int i = 0; i <= (int)cpu_best(); i++)
    if (cpu_set_of((CpuLevel)i))
      textbuf_printf(&levels, "%s%s", *d->levels ? ", " : "",
                     cpu_level_name((CpuLevel)i));
  machine_cpu(d->cpu, sizeof d->cpu);
  find_wait(d->wait, sizeof d->wait);
  d->cores = count_cores();
  d->memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  find_parts(d);
  doctor_machine(&d->machine);
  d->f32 = measure(arena, DT_F32, d->cores);
  d->bf16 = measure(arena, DT_BF16, d->cores);
  return WEFT_OK;
}

static void print_rate(const char *type, const Rate *r) {
  printf("  %-8s %.1f GFLOP/s on all cores, %s%s\n", type, r->flops / 1e9, r->backend,
         r->widened ? " through f32 blocks: this CPU has no bf16 units" : "");
}

/* What is not built may only not have been asked for: ./dev run builds what it runs. */
static void print_missing(int i) {
  char path[4096];
  printf("  missing  %s (%s): ", parts[i].name, parts[i].use);
  if (module_find(parts[i].module, path, sizeof path))
    printf("%s is there and cannot be opened: install the libraries of %s\n",
           parts[i].module, parts[i].package);
  else
    printf("this build has no %s; ./dev build makes it where %s %s installed\n",
           parts[i].module, parts[i].package,
           strchr(parts[i].package, ' ') ? "are" : "is");
}

static void print_text_of(const Doctor *d) {
  char memory[32];
  printf("weft %s\n", weft_version());
  printf("  cpu      %s, %d core%s, %s\n", d->cpu, d->cores, plural(d->cores, "s"),
         format_bytes(d->memory, memory));
  printf("  level    %s of %s; kernels for %s\n", cpu_level_name(d->level), d->levels,
         cpu_set_of(d->level)->name);
  printf("  threads  wait by %s\n", d->wait);
  print_rate("f32", &d->f32);
  print_rate("bf16", &d->bf16);
  for (int i = 0; i < PARTS; i++)
    if (d->version[i][0])
      printf("  found    %s\n", d->version[i]);
    else
      print_missing(i);
  doctor_machine_print(&d->machine);
}

static void json_rate(Json *out, const char *key, const Rate *r) {
  json_open(out, key, '{');
  json_str(out, "backend", r->backend);
  json_num(out, "flops", r->flops);
  json_bool(out, "widened", r->widened);
  json_close(out, '}');
}

static void json_result(Json *out, void *ud) {
  const Doctor *d = ud;
  json_rate(out, "bf16", &d->bf16);
  if (d->age) calibration_age_json(d->age, out);
  json_int(out, "cores", d->cores);
  json_str(out, "cpu", d->cpu);
  json_rate(out, "f32", &d->f32);
  doctor_machine_json(&d->machine, out);
  json_str(out, "kernels", cpu_set_of(d->level)->name);
  json_str(out, "level", cpu_level_name(d->level));
  json_int(out, "memory_bytes", (int64_t)d->memory);
  json_open(out, "parts", '{');
  for (int i = 0; i < PARTS; i++)
    json_str(out, parts[i].name, d->version[i][0] ? d->version[i] : NULL);
  json_close(out, '}');
  json_str(out, "threads", d->wait);
}

int verb_doctor(Cli *cli, Arena *arena) {
  Job j = {.arena = arena, .d = {.arena = arena}};
  Doctor d = {0};
  CalibrationAge age;
  weft_status st = examine(&d, arena, &j.e);
  if (st == WEFT_OK && cli->calibration) {
    st = calibration_age(cli, cli->calibration, arena, &j.d, &age, &j.e);
    d.age = &age;
  }
  if (st == WEFT_OK && !cli->json) print_text_of(&d);
  if (st == WEFT_OK && !cli->json && d.age) calibration_age_print(d.age);
  int code = job_end(&j, cli, st, json_result, &d);
  doctor_machine_free(&d.machine);
  return code;
}
