/* load.c - a model of 135 M parameters from files of bf16 onto the ranks of a mesh,
 * beside `cat` of the same files; both warm, and cold after the files were dropped from
 * memory. They take turns; each has the time of its best one, and the last column is the
 * median of what turns next to each other say, as the machine may have others to serve.
 */
#include "bench.h"
#include "vm/weights/weights_load.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TURNS = 15, SHARDS = 3 };

static char folder[] = "/tmp/weft-bench-XXXXXX";

static void stop(const weft_error *e) {
  fprintf(stderr, "%s: %s\n", e->file, e->text);
  exit(1);
}

static const char *shard_path(int shard, char buf[64]) {
  snprintf(buf, 64, "%s/model-%d.safetensors", folder, shard);
  return buf;
}

/* Every third parameter into one of three files. */
static void write_shard(const Compiled *c, int shard) {
  weft_error e = {0};
  StOut *out;
  char path[64];
  int n = 0;
  StWrite *t = calloc((size_t)c->nparam, sizeof *t);
  uint16_t *some = calloc(1 << 16, sizeof *some);
  for (int i = 0; i < 1 << 16; i++) some[i] = (uint16_t)(0x3c00 + i % 977);
  for (int i = shard; i < c->nparam; i += SHARDS, n++) {
    t[n] =
        (StWrite){.name = c->param[i].name, .dtype = DT_BF16, .ndim = c->param[i].ndim};
    memcpy(t[n].dim, c->param[i].dim, sizeof c->param[i].dim);
  }
  if (st_create(NULL, NULL, shard_path(shard, path), &(StContent){.tensor = t, .n = n},
                &out, &e) != WEFT_OK)
    stop(&e);
  for (int i = 0; i < n; i++) {
    int64_t bytes = param_count(&c->param[shard + i * SHARDS]) * 2, most = 1 << 17;
    for (int64_t at = 0; at < bytes; at += most)
      if (st_put(out, i, (uint64_t)at, some, (size_t)MIN(most, bytes - at), &e) !=
          WEFT_OK)
        stop(&e);
  }
  if (st_finish(out, &e) != WEFT_OK) stop(&e);
  free(some);
  free(t);
}

static const char *index_path(char buf[64]) {
  snprintf(buf, 64, "%s/model.safetensors.index.json", folder);
  return buf;
}

static void write_index(const Compiled *c) {
  char path[64];
  FILE *f = fopen(index_path(path), "w");
  if (!f) exit(1);
  fprintf(f, "{\"weight_map\":{");
  for (int i = 0; i < c->nparam; i++)
    fprintf(f, "%s\"%s\":\"model-%d.safetensors\"", i ? "," : "", c->param[i].name,
            i % SHARDS);
  fprintf(f, "}}");
  fclose(f);
}

static void forget(void) {
  char path[64];
  for (int i = 0; i < SHARDS; i++) {
    int fd = open(shard_path(i, path), O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

static double cat(void) {
  char command[64];
  snprintf(command, sizeof command, "cat %s/*.safetensors >/dev/null", folder);
  double start = bench_now();
  if (system(command) != 0) exit(1);
  return bench_now() - start;
}

/* Into a run that was just opened. */
static double load(const Job *j, double *opened, uint64_t *bytes) {
  weft_error e = {0};
  SafeTensors *s;
  Run *run;
  RunOptions o = {0};
  double start = bench_now();
  if (run_open(&j->plan, j->compiled, &o, &run, &e) != WEFT_OK) stop(&e);
  *opened = bench_now() - start;
  start = bench_now();
  if (st_open(NULL, folder, NULL, &s, &e) != WEFT_OK) stop(&e);
  if (run_load(run, s, &e) != WEFT_OK) stop(&e);
  double ms = bench_now() - start;
  *bytes = st_bytes(s);
  st_close(s);
  run_close(run);
  return ms;
}

/* What others do on the machine only adds to a time. */
static double least(const double *v) {
  double best = v[0];
  for (int i = 1; i < TURNS; i++) best = MIN(best, v[i]);
  return best;
}

static void row(const char *name, const Job *j, bool cold) {
  double theirs[TURNS], ours[TURNS], opened[TURNS], ratio[TURNS];
  uint64_t bytes = 0;
  for (int i = 0; i < TURNS; i++) {
    if (cold) forget();
    theirs[i] = cat();
    if (cold) forget();
    ours[i] = load(j, &opened[i], &bytes);
    ratio[i] = 100 * theirs[i] / ours[i];
  }
  double a = least(theirs), b = least(ours);
  double mb = (double)bytes / 1e6;
  printf("%-16s %8.0f %10.1f %10.1f %10.1f %10.2f %10.2f %8.0f%%\n", name, mb,
         least(opened), a, b, mb / a, mb / b, bench_median(ratio, TURNS));
}

static void mesh(const char *name, const char *const *set, int n) {
  Job j;
  char buf[64];
  bench_open(&j, "tests/bench/smollm_135m.lua", set, n);
  snprintf(buf, sizeof buf, "%s warm", name);
  row(buf, &j, false);
  snprintf(buf, sizeof buf, "%s cold", name);
  row(buf, &j, true);
  bench_close(&j);
}

void bench_load(void) {
  Job j;
  char path[64];
  if (!mkdtemp(folder)) exit(1);
  bench_open(&j, "tests/bench/smollm_135m.lua", NULL, 0);
  for (int i = 0; i < SHARDS; i++) write_shard(j.compiled, i);
  write_index(j.compiled);
  bench_close(&j);
  printf("%-16s %8s %10s %10s %10s %10s %10s %9s\n", "", "MB", "open ms", "cat ms",
         "load ms", "cat GB/s", "load GB/s", "to cat");
  mesh("tp=3", (const char *[]){"mesh={tp=3}"}, 1);
  mesh("tp=3 bf16", (const char *[]){"mesh={tp=3}", "precision=bf16"}, 2);
  mesh("one rank", (const char *[]){"mesh={tp=1}"}, 1);
  mesh("fsdp2 of 2", (const char *[]){"mesh={dp=2}", "strategy=fsdp2"}, 2);
  for (int i = 0; i < SHARDS; i++) unlink(shard_path(i, path));
  unlink(index_path(path));
  rmdir(folder);
}
