/* doctor_machine.c - finds GPUs, driver and library versions, NUMA nodes, networks and
 * the links between GPUs. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "bindings/cli/cli.h"
#include "doctor.h"

/* Libraries for GPUs and the functions that return their versions, as a result or through
 * a pointer. */
static const struct {
  const char *name, *file, *ask, *package;
  bool pointer;
} libraries[DOCTOR_LIBRARIES] = {
    {"CUDA driver", "libcuda.so.1", "cuDriverGetVersion", "the NVIDIA driver", true},
    {"CUDA runtime", "libcudart.so.13", "cudaRuntimeGetVersion", "CUDA toolkit 13", true},
    {"NCCL", "libnccl.so.2", "ncclGetVersion", "libnccl2", true},
    {"cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion", "CUDA toolkit 13", false},
    {"cuDNN", "libcudnn.so.9", "cudnnGetVersion", "cuDNN 9", false},
};

static int64_t version_of(int i) {
  void *so = dlopen(libraries[i].file, RTLD_LAZY | RTLD_LOCAL);
  void *f = so ? dlsym(so, libraries[i].ask) : NULL;
  int v = 0;
  if (!f) return 0;
  if (!libraries[i].pointer) return (int64_t)((size_t(*)(void))f)();
  return ((int (*)(int *))f)(&v) == 0 ? v : 0;
}

/* The first line of a file, "" if there is none. */
static void first_line(const char *path, char *to, size_t size) {
  FILE *f = fopen(path, "r");
  to[0] = 0;
  if (f && fgets(to, (int)size, f)) to[strcspn(to, "\n")] = 0;
  if (f) fclose(f);
}

/* Lists the names in a folder that begin with `wanted`. */
static int list(const char *folder, const char *wanted, Text *out) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (e->d_name[0] == '.' || strcmp(e->d_name, "lo") == 0) continue;
    if (strncmp(e->d_name, wanted, strlen(wanted)) != 0) continue;
    if (out) text_printf(out, "%s%s", n ? ", " : "", e->d_name);
    n++;
  }
  if (d) closedir(d);
  return n;
}

/* The output of nvidia-smi; empty without that program. */
static void run_smi(const char *arguments, Text *out) {
  char command[256], chunk[1024];
  snprintf(command, sizeof command, "nvidia-smi %s 2>/dev/null", arguments);
  FILE *f = popen(command, "r");
  for (size_t n; f && (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
    text_addn(out, chunk, n);
  if (f && pclose(f) != 0) out->n = 0;
  if (out->s) out->s[out->n] = 0;
}

void doctor_machine(DoctorMachine *m) {
  char path[64];
  first_line("/proc/driver/nvidia/version", m->driver, sizeof m->driver);
  m->gpus = list("/proc/driver/nvidia/gpus", "", NULL);
  m->numa = MAX(list("/sys/devices/system/node", "node", NULL), 1);
  for (int i = 0; i < MIN(m->numa, DOCTOR_NODES); i++) {
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", i);
    first_line(path, m->cpus[i], sizeof m->cpus[i]);
  }
  list("/sys/class/net", "", &m->networks);
  list("/sys/class/infiniband", "", &m->infiniband);
  for (int i = 0; i < DOCTOR_LIBRARIES; i++) m->version[i] = version_of(i);
  if (m->gpus == 0) return;
  run_smi("--query-gpu=index,name,memory.total,pci.bus_id --format=csv,noheader",
          &m->list);
  run_smi("topo -m", &m->topology);
}

void doctor_machine_free(DoctorMachine *m) {
  text_free(&m->networks);
  text_free(&m->infiniband);
  text_free(&m->list);
  text_free(&m->topology);
}

static void print_lines(const char *key, const Text *t) {
  for (const char *s = t->s; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
    printf("  %-8s %.*s\n", key, (int)strcspn(s, "\n"), s);
}

void doctor_machine_print(const DoctorMachine *m) {
  for (int i = 0; i < MIN(m->numa, DOCTOR_NODES); i++)
    printf("  node %-3d cores %s\n", i, m->cpus[i][0] ? m->cpus[i] : "?");
  printf("  network  %s\n", m->networks.n ? m->networks.s : "none but this machine");
  if (m->infiniband.n) printf("  network  InfiniBand: %s\n", m->infiniband.s);
  if (m->gpus == 0) {
    printf("  missing  GPUs: %s\n",
           m->driver[0] ? "the driver sees none" : "there is no NVIDIA driver");
  } else {
    printf("  driver   %s\n", m->driver);
    print_lines("gpu", &m->list);
  }
  for (int i = 0; i < DOCTOR_LIBRARIES; i++)
    if (m->version[i])
      printf("  found    %s %lld\n", libraries[i].name, (long long)m->version[i]);
    else
      printf("  missing  %s (for GPUs): install %s\n", libraries[i].name,
             libraries[i].package);
  if (m->topology.n) print_lines("topology", &m->topology);
}

void doctor_machine_json(const DoctorMachine *m, Json *out) {
  json_open(out, "gpu_libraries", '{');
  for (int i = 0; i < DOCTOR_LIBRARIES; i++)
    if (m->version[i])
      json_int(out, libraries[i].name, m->version[i]);
    else
      json_none(out, libraries[i].name);
  json_close(out, '}');
  json_int(out, "gpus", m->gpus);
}
