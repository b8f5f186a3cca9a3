/* check_load.c - weights of files on the ranks of a mesh: every copy that any of them has
 * is what the file says, however parameters are cut and whatever the files' layout; and
 * ranks of one process read them once. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "tests/generate/device_plans.h"
#include "tests/harness/emulated.h"
#include "tests/harness/process.h"
#include "tests/generate/handmade_regions.h"
#include "vm/run/run.h"
#include "vm/weights/ranges.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"

static void need(weft_status st, const weft_error *e, const char *what) {
  ck_assert_msg(st == WEFT_OK, "%s: %s: %s", what, e->file, e->text);
}

/* ---- stretches of pieces ---- */

/* Cut by tp along `cut`, of `parts`. */
static CompiledParam cuboid(int64_t a, int64_t b, int64_t c, int cut, uint8_t parts) {
  CompiledParam p = {.name = "p", .ndim = 3, .dim = {a, b, c}, .parts = {1, 1, 1}};
  p.place = place_whole();
  p.place.on[AX_TP] = (int8_t)cut;
  p.parts[cut] = parts;
  return p;
}

static const struct {
  int64_t dim[3];
  int cut;
  uint8_t parts;
} shapes[] = {{{7, 5, 3}, 0, 1},  {{3, 7, 5}, 1, 1}, {{2, 5, 7}, 2, 1},
              {{6, 2, 3}, 0, 3},  {{3, 8, 2}, 1, 2}, {{3, 2, 12}, 2, 2},
              {{1, 9, 11}, 2, 1}, {{1, 1, 40}, 2, 1}};

/* Number `i` of all pieces that are tried: shapes over tp ranks, whole and cut flat. */
enum { TP_MOST = 7, PIECES = 3 * TP_MOST * 8 };
static Piece piece_number(int i, int rank, CompiledParam *p, int *tp) {
  int s = i / (3 * TP_MOST), flat = i / TP_MOST % 3;
  *tp = i % TP_MOST + 1;
  *p = cuboid(shapes[s].dim[0], shapes[s].dim[1], shapes[s].dim[2], shapes[s].cut,
              shapes[s].parts);
  Mesh m = stored_mesh(1, 1, 1, *tp);
  Piece all = stored_whole(&m, p, rank);
  int64_t from = flat * all.count / 5, n = flat ? all.count / 2 : all.count;
  return piece_part(&all, from, MIN(n, all.count - from));
}

START_TEST(stretches_leave_nothing_out) {
  CompiledParam p;
  int tp = 1;
  for (int r = 0; r < tp; r++) {
    Piece all = piece_number(_i, r, &p, &tp);
    for (int64_t step = 1; step <= param_count(&p) + 1; step = step * 2 + 1) {
      int64_t next = all.at;
      for (int64_t from = 0; from < param_count(&p); from += step) {
        Piece part = piece_within(&all, from, MIN(from + step, param_count(&p)));
        ck_assert_int_eq(part.at, next);
        next += part.count;
        for (int64_t i = 0, n = piece_spans(&part); i < n; i++) {
          Span s = piece_span(&part, i);
          ck_assert(!s.n || (s.global >= from && s.global + s.n <= from + step));
        }
      }
      ck_assert_int_eq(next, all.at + all.count);
    }
  }
}
END_TEST

START_TEST(runs_are_spans) {
  CompiledParam p;
  int tp = 1;
  for (int r = 0; r < tp; r++) {
    Piece all = piece_number(_i, r, &p, &tp);
    int64_t i = 0, spans = piece_spans(&all);
    while (i < spans) {
      SpanRun run = piece_run(&all, i);
      ck_assert(run.count > 0);
      for (int64_t k = 0; k < run.count; k++, i++) {
        Span s = piece_span(&all, i);
        ck_assert_int_eq(s.local, run.first.local + k * run.local);
        ck_assert_int_eq(s.n, run.first.n);
        ck_assert_int_eq(s.padding, run.first.padding);
        ck_assert(!s.n || s.global == run.first.global + k * run.global);
      }
    }
    ck_assert_int_eq(i, spans);
  }
}
END_TEST

/* Rows of many elements, of which two ranks of five have theirs: what neither has is left
 * out if it is much. */
START_TEST(a_cover_is_what_ranks_have) {
  for (int64_t row = 10; row <= 70000; row *= 3) {
    CompiledParam p = cuboid(1, COVER_STRETCH / row, row, 2, 1);
    Mesh m = stored_mesh(1, 1, 1, 5);
    RangeSet c = {.n = 0};
    char *has = calloc(COVER_STRETCH, 1);
    for (int r = 1; r <= 4; r += 3) {
      Piece piece = stored_whole(&m, &p, r);
      ranges_add(&c, &piece);
      for (int64_t i = 0, n = piece_spans(&piece); i < n; i++) {
        Span s = piece_span(&piece, i);
        memset(has + s.global, 1, (size_t)s.n);
      }
    }
    int64_t at = 0;
    for (int i = 0; i < c.n; i++) {
      ck_assert(i == 0 || c.run[i].from > c.run[i - 1].to + COVER_NEAR);
      for (; at < c.run[i].from; at++) ck_assert(!has[at]);
      ck_assert(has[at] && has[c.run[i].to - 1]);
      for (int64_t gap = 0; at < c.run[i].to; at++) {
        gap = has[at] ? 0 : gap + 1;
        ck_assert(gap <= COVER_NEAR);
      }
    }
    for (; at < COVER_STRETCH; at++) ck_assert(!has[at]);
    free(has);
  }
}
END_TEST

/* ---- files ---- */

typedef struct Fixture {
  Job job;
  Run *run;
} Fixture;

static void start(Fixture *f, const char *model, const char *fields, int threads,
                  const DeviceKind *device) {
  char plan[1200];
  int n = snprintf(plan, sizeof plan,
                   "local weft = require 'weft'\n"
                   "return weft.plan { model = weft.model { %s },\n"
                   "  batch = { global = 12, micro = 1, seq = 9 }, %s }\n",
                   model, fields);
  const char *path = scratch_put("plan.lua", plan, (size_t)n);
  *f = (Fixture){0};
  weft_status st = job_load(&f->job, scratch_arena, &(LangOptions){0}, path);
  f->job.device = device;
  if (st == WEFT_OK) st = job_mesh(&f->job, 0);
  if (st == WEFT_OK) st = job_compile(&f->job);
  if (f->job.d.errors) report_first(&f->job.d, &f->job.e);
  need(st, &f->job.e, plan);
  RunOptions o = {.world = world_kind("local", NULL), .threads = threads};
  need(run_open(&f->job.plan, f->job.compiled, &o, &f->run, &f->job.e), &f->job.e,
       "open");
}

static void end(Fixture *f) {
  run_close(f->run);
  job_free(&f->job);
}

/* No two neighbours, rows or parameters have the same elements; in bf16 they are exact.
 */
static float element(DType t, unsigned seed, int param, int64_t i) {
  uint32_t x = ((uint32_t)i * 2654435761u) ^ ((uint32_t)param * 40503u + seed * 977u);
  uint32_t bits = 0x3c000000u + ((x ^ x >> 15) & 0x03ffffffu);
  float out;
  if (t == DT_BF16) bits &= 0xffff0000u;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/* All elements of a parameter, as f32, and below as the file has them. */
static float *values(const Compiled *c, DType t, unsigned seed, int param) {
  int64_t n = param_count(&c->param[param]);
  float *v = malloc((size_t)n * sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = element(t, seed, param, i);
  return v;
}

static char *raw(const Compiled *c, DType t, unsigned seed, int param) {
  int64_t n = param_count(&c->param[param]), size = dtype_size(t);
  float *v = values(c, t, seed, param);
  char *out = arena_alloc(scratch_arena, (size_t)(n * size));
  for (int64_t i = 0; i < n; i++) {
    double wide = (double)v[i];
    const char *from = t == DT_F64    ? (char *)&wide
                       : t == DT_BF16 ? (char *)&v[i] + 2
                                      : (char *)&v[i];
    memcpy(out + i * size, from, (size_t)size);
  }
  free(v);
  return out;
}

/* Tensors of two files, which take turns. */
typedef struct Files {
  StWrite t[2][64];
  int n;
} Files;

static StWrite *add(Files *f, const char *name, DType t, int ndim, const int64_t *dim,
                    const char *data) {
  StWrite *w = &f->t[f->n % 2][f->n / 2];
  ck_assert_int_lt(f->n++, 128);
  *w = (StWrite){.name = name, .dtype = t, .ndim = ndim, .data = data};
  memcpy(w->dim, dim, (size_t)ndim * sizeof *dim);
  return w;
}

typedef enum Layout { PLAIN, FUSED, APART } Layout;

/* "a.q_proj.weight", and the parameters after it, are one tensor: rows of each below
 * those of the one before. False: it is not one of them; true: it was added, or is in
 * another.
 */
static bool add_fused(Files *f, const Compiled *c, DType t, unsigned seed, int param) {
  static const char *const part[2][3] = {{"q_proj", "k_proj", "v_proj"},
                                         {"gate_proj", "up_proj"}};
  static const char *const whole[2] = {"qkv_proj", "gate_up_proj"};
  const char *name = c->param[param].name;
  for (int k = 0; k < 2; k++) {
    for (int i = 1; i < 3; i++)
      if (part[k][i] && strstr(name, part[k][i])) return true;
    const char *at = strstr(name, part[k][0]);
    if (!at) continue;
    int64_t dim[2] = {0, c->param[param].dim[1]}, bytes = 0;
    char *all = arena_alloc(scratch_arena, 1 << 19);
    for (int i = 0; i < 3 && part[k][i]; i++) {
      const char *one = arena_printf(scratch_arena, "%.*s%s%s", (int)(at - name), name,
                                     part[k][i], at + strlen(part[k][0]));
      int p = 0;
      while (strcmp(c->param[p].name, one) != 0) ck_assert_int_lt(++p, c->nparam);
      int64_t n = param_count(&c->param[p]) * dtype_size(t);
      memcpy(all + bytes, raw(c, t, seed, p), (size_t)n);
      bytes += n, dim[0] += c->param[p].dim[0];
    }
    add(f,
        arena_printf(scratch_arena, "%.*s%s%s", (int)(at - name), name, whole[k],
                     at + strlen(part[k][0])),
        t, 2, dim, all);
    return true;
  }
  return false;
}

/* The experts of a parameter, one by one, gate and up apart. */
static bool add_apart(Files *f, const Compiled *c, DType t, unsigned seed, int param) {
  const CompiledParam *p = &c->param[param];
  const char *end = strstr(p->name, "experts.gate_up_proj");
  bool two = end != NULL;
  if (!end) end = strstr(p->name, "experts.down_proj");
  if (!end || p->ndim != 3) return false;
  int64_t dim[2] = {p->dim[1] / (two ? 2 : 1), p->dim[2]};
  const char *data = raw(c, t, seed, param);
  for (int i = 0; i < p->dim[0] * (two ? 2 : 1); i++)
    add(f,
        arena_printf(scratch_arena, "%.*sexperts.%d.%s.weight", (int)(end - p->name),
                     p->name, two ? i / 2 : i,
                     two ? (i % 2 ? "up_proj" : "gate_proj") : "down_proj"),
        t, 2, dim, data + i * dim[0] * dim[1] * dtype_size(t));
  return true;
}

static const char *write_files(const Compiled *c, DType t, Layout layout, unsigned seed) {
  Files *f = arena_alloc(scratch_arena, sizeof *f);
  Text map = {0};
  *f = (Files){.n = 0};
  for (int i = c->nparam - 1; i >= 0; i--) {
    const CompiledParam *p = &c->param[i];
    if (layout == FUSED && add_fused(f, c, t, seed, i)) continue;
    if (layout == APART && add_apart(f, c, t, seed, i)) continue;
    add(f, p->name, t, p->ndim, p->dim, raw(c, t, seed, i));
  }
  text_add(&map, "{\"weight_map\":{");
  for (int k = 0; k < 2; k++) {
    int n = (f->n + 1 - k) / 2;
    const char *path = arena_printf(scratch_arena, "%s.%u", scratch_path("part"), k);
    need(st_write(NULL, path, f->t[k], n, &scratch_error), &scratch_error, path);
    for (int i = 0; i < n; i++)
      text_printf(&map, "%s\"%s\":\"part.%d\"", k + i ? "," : "", f->t[k][i].name, k);
  }
  text_add(&map, "}}");
  const char *index = scratch_put("index.json", map.s, map.n);
  text_free(&map);
  return index;
}

static void load(Fixture *f, const char *path) {
  SafeTensors *s;
  need(st_open(NULL, path, NULL, &s, &f->job.e), &f->job.e, path);
  need(run_load(f->run, s, &f->job.e), &f->job.e, "load");
  st_close(s);
}

/* ---- ranks ---- */

static const char dense[] =
    "'llama', vocab_size = 1031, hidden_size = 48, intermediate_size = 150, "
    "num_hidden_layers = 3, num_attention_heads = 6, num_key_value_heads = 3";
static const char sparse[] =
    "'mixtral', vocab_size = 1031, hidden_size = 48, intermediate_size = 54, "
    "num_hidden_layers = 2, num_attention_heads = 6, num_key_value_heads = 3, "
    "num_local_experts = 6";

/* Each with threads enough for several to a rank, or for one to all of them. */
static const struct Case {
  const char *model, *fields;
  Layout layout;
  int threads;
} cases[] = {
    {dense, "mesh = { tp = 3 }", PLAIN, 1},
    {dense, "mesh = { tp = 3 }, precision = 'bf16'", FUSED, 4},
    {dense, "mesh = { tp = 3, pp = 2, dp = 2 }, strategy = 'fsdp2'", FUSED, 1},
    {dense,
     "mesh = { tp = 3, dp = 2 }, strategy = { 'zero', stage = 2 }, "
     "precision = 'bf16'",
     PLAIN, 1},
    {dense,
     "mesh = { dp = 4 }, strategy = { 'zero', stage = 3, "
     "zero_hpz_partition_size = 2 }",
     FUSED, 4},
    {dense, "mesh = { dp = 3 }, strategy = { 'zero', stage = 1 }, precision = 'f16'",
     PLAIN, 3},
    {sparse, "mesh = { tp = 3, ep = 3 }", APART, 1},
    {sparse,
     "mesh = { tp = 3, dp = 2, ep = 2, etp = 3 }, strategy = 'fsdp2', "
     "precision = 'bf16'",
     APART, 1},
    {sparse, "mesh = { dp = 6, ep = 3, etp = 2 }, strategy = { 'zero', stage = 3 }",
     PLAIN, 2},
};

/* Over other values, so that nothing may be left of those. */
static void check_case(const struct Case *k, DType t, const DeviceKind *device) {
  Fixture f;
  start(&f, k->model, k->fields, k->threads, device);
  const Compiled *c = f.job.compiled;
  for (unsigned seed = 1; seed <= 2; seed++) load(&f, write_files(c, t, k->layout, seed));
  for (int i = 0; i < c->nparam; i++) {
    double apart = -1;
    float *want = values(c, t, 2, i);
    need(run_apart(f.run, STATE_PARAM, i, want, &apart, &f.job.e), &f.job.e, "apart");
    ck_assert_msg(apart == 0, "%s: a rank's is %g apart", c->param[i].name, apart);
    free(want);
  }
  end(&f);
}

START_TEST(every_rank_has_its_own) {
  static const DType types[] = {DT_F32, DT_BF16, DT_F64};
  check_case(&cases[_i / LEN(types)], types[_i % LEN(types)], NULL);
}
END_TEST

/* Whose memory no other thread can write to. */
START_TEST(ranks_of_a_device_have_theirs) {
#ifdef WEFT_EMULATED_CUDA
  check_case(&cases[_i], DT_BF16, device_standin());
#else
  printf(EMULATED_SKIPPED);
#endif
}
END_TEST

/* ---- reads ---- */

/* Bytes that this process has read, if the system counts them. */
static bool bytes_read(uint64_t *out) {
  FILE *f = fopen("/proc/self/io", "r");
  unsigned long long n = 0;
  bool known = f && fscanf(f, "rchar: %llu", &n) == 1;
  if (f) fclose(f);
  *out = n;
  return known;
}

/* Each rank has a third of most rows of o_proj and down_proj. */
START_TEST(files_are_read_once) {
  Fixture f;
  uint64_t before, after, all;
  start(&f, dense, "mesh = { tp = 3 }, precision = 'bf16'", 2, NULL);
  const char *path = write_files(f.job.compiled, DT_BF16, PLAIN, 1);
  SafeTensors *s;
  need(st_open(NULL, path, NULL, &s, &f.job.e), &f.job.e, path);
  bool known = bytes_read(&before);
  need(run_load(f.run, s, &f.job.e), &f.job.e, "load");
  all = st_bytes(s);
  st_close(s);
  end(&f);
  if (!known || !bytes_read(&after)) {
    puts("skipped: the system does not count in /proc/self/io what is read");
    return;
  }
  ck_assert_uint_ge(after - before, all);
  ck_assert_uint_le(after - before, all + 4096);
}
END_TEST

Suite *load_suite(void);
Suite *load_suite(void) {
  Suite *s = suite_create("load");
  TCase *t = tcase_create("load");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, stretches_leave_nothing_out, 0, PIECES);
  tcase_add_loop_test(t, runs_are_spans, 0, PIECES);
  tcase_add_test(t, a_cover_is_what_ranks_have);
  tcase_add_loop_test(t, every_rank_has_its_own, 0, 3 * LEN(cases));
  tcase_add_loop_test(t, ranks_of_a_device_have_theirs, 0, 3);
  tcase_add_test(t, files_are_read_once);
  suite_add_tcase(s, t);
  return s;
}
