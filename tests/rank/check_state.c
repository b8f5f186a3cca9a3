/* check_state.c - parameters: pieces of them, their initial values, and moving them
 * between ranks, wholes and files. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/generate/program_builder.h"
#include "tests/generate/handmade_regions.h"
#include "vm/run/run_int.h"
#include "vm/weights/param_gather.h"
#include "vm/weights/weights_load.h"

static Arena *arena;
static weft_error err;
static Plan plan;
static Run *run;

static void setup(void) {
  arena = arena_new(NULL);
  err_clear(&err);
  plan = (Plan){.batch = {.global = 1, .micro = 1, .seq = 8, .rounds = 1},
                .opt = {.lr = {.kind = LR_CONSTANT, .max = 0.5, .min = 0.5},
                        .beta1 = 0.9,
                        .beta2 = 0.5},
                .steps = 4,
                .seed = 1};
  run = NULL;
}

static void teardown(void) {
  run_close(run);
  arena_free(arena);
}

static void has(const char *part) {
  ck_assert_msg(strstr(err.text, part) != NULL, "\"%s\" is not in: %s", part, err.text);
}

/* ---- pieces ---- */

static Place cut_by_tp(int dim) {
  Place p = place_whole();
  if (dim >= 0) p.on[AX_TP] = (int8_t)dim;
  return p;
}

static CompiledParam param(const char *name, int64_t rows, int64_t cols, int cut,
                           uint8_t parts) {
  return (CompiledParam){.name = name,
                         .like = name,
                         .ndim = cols ? 2 : 1,
                         .dim = {rows, cols},
                         .std = 0.02f,
                         .place = cut_by_tp(cut),
                         .parts = {cut == 0 ? parts : 1, cut == 1 ? parts : 1}};
}

/* What rank `r` of `tp` has of it. */
static Piece of_tp(const CompiledParam *p, int tp, int r) {
  Mesh m = stored_mesh(1, 1, 1, tp);
  return stored_whole(&m, p, r);
}

/* Cuts a counted parameter over `tp` ranks and puts the pieces together again. */
static void round_trip(const CompiledParam *p, int tp) {
  int64_t n = param_count(p);
  float global[512], local[512], back[512];
  for (int64_t i = 0; i < n; i++) global[i] = (float)(i + 1), back[i] = -1;
  for (int r = 0; r < tp; r++) {
    Piece piece = of_tp(p, tp, r);
    for (int i = 0; i < LEN(local); i++) local[i] = -2;
    piece_cut(&piece, global, local);
    for (int64_t i = 0; i < piece.count; i++) ck_assert(local[i] >= 0);
    ck_assert(local[piece.count] == -2);
    ck_assert(piece_distance(&piece, DT_F32, local, global) == 0);
    piece_paste(&piece, local, back);
  }
  ck_assert_mem_eq(global, back, (size_t)n * sizeof *global);
}

START_TEST(pieces_cover_the_parameter) {
  const CompiledParam p[] = {
      param("rows", 7, 5, 0, 1),       param("columns", 5, 7, 1, 1),
      param("whole", 5, 7, -1, 1),     param("packed", 12, 3, 0, 3),
      param("packed_in", 3, 12, 1, 2), param("bias", 13, 0, 0, 0)};
  for (int i = 0; i < LEN(p); i++)
    for (int tp = 1; tp <= 9; tp++) round_trip(&p[i], tp);
}
END_TEST

/* (2, 6) cut along columns of two parts over two ranks: rank 1 has the second half of
 * each part, 2 of 3 columns wide with one of padding. */
START_TEST(a_piece_takes_its_slice_of_each_part) {
  CompiledParam p = param("packed", 2, 6, 1, 2);
  const float global[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const float want[2][8] = {{1, 2, 4, 5, 7, 8, 10, 11}, {3, 0, 6, 0, 9, 0, 12, 0}};
  for (int r = 0; r < 2; r++) {
    float local[8];
    Piece piece = of_tp(&p, 2, r);
    ck_assert_int_eq(piece.count, 8);
    piece_cut(&piece, global, local);
    ck_assert_mem_eq(local, want[r], sizeof local);
  }
}
END_TEST

START_TEST(initial_values_do_not_depend_on_tp) {
  CompiledParam p[] = {param("model.w", 12, 10, 0, 1), param("model.w", 12, 10, 1, 1),
                       param("model.w", 12, 10, 0, 3), param("model.w", 12, 10, -1, 1)};
  float whole[120], part[200], back[120];
  Piece all = of_tp(&p[3], 1, 0);
  piece_init(&all, &p[3], 7, whole);
  ck_assert(whole[0] != whole[1] && fabsf(whole[0]) < 0.2f);
  for (int i = 0; i < LEN(p); i++)
    for (int tp = 1; tp <= 8; tp++) {
      memset(back, 0, sizeof back);
      for (int r = 0; r < tp; r++) {
        Piece piece = of_tp(&p[i], tp, r);
        piece_init(&piece, &p[i], 7, part);
        piece_paste(&piece, part, back);
      }
      ck_assert_mem_eq(whole, back, sizeof whole);
    }
  float other[120];
  piece_init(&all, &p[3], 8, other);
  ck_assert(memcmp(whole, other, sizeof whole) != 0);
}
END_TEST

START_TEST(ones_are_padded_with_zeros) {
  CompiledParam p = param("norm", 5, 0, 0, 1);
  p.init = INIT_ONES;
  float local[3];
  Piece piece = of_tp(&p, 2, 1);
  piece_init(&piece, &p, 0, local);
  ck_assert(local[0] == 1 && local[1] == 1 && local[2] == 0);
}
END_TEST

static void open_run(const Compiled *c) {
  RunOptions o = {.threads = 1};
  weft_status st = run_open(&plan, c, &o, &run, &err);
  ck_assert_msg(st == WEFT_OK, "%s", err.text);
  ck_assert_int_eq(run_init(run, &err), WEFT_OK);
}

/* ---- whole parameters of a run ---- */

enum { EMBED = 256, BIAS = 1024, EACH = 128, COPIES = 2048, END = 4096 };

static StoredAt at_offset(uint64_t work, uint64_t master) {
  return (StoredAt){work, master, master + EACH, master + 2 * EACH, master + 3 * EACH};
}

/* pp 2 x tp 2. "embed" (5, 4) is cut along rows and tied: both pp ranks hold it and the
 * first one owns it. "bias" (3) is whole and on pp rank 1. */
static Compiled *two_params(DType dtype) {
  static int both[] = {0, 1}, second[] = {1};
  Build *b = build_new(arena, 2, 2, END);
  Compiled *c = build_done(b);
  uint64_t copy = dtype == DT_F32 ? 0 : COPIES;
  c->dtype = dtype;
  c->param = NEW_N(arena, CompiledParam, 2);
  c->nparam = 2;
  c->param[0] = param("embed", 5, 4, 0, 1);
  c->param[0].npp = 2, c->param[0].pp = both;
  c->param[1] = param("bias", 3, 0, -1, 1);
  c->param[1].npp = 1, c->param[1].pp = second;
  for (int i = 0; i < 2; i++)
    stored_add(arena, &c->prog[i].regions, (Stored){.count = 12, .owner = i == 0}, dtype,
               at_offset(EMBED + copy, EMBED));
  stored_add(arena, &c->prog[1].regions, (Stored){.param = 1, .count = 3, .owner = true},
             dtype, at_offset(BIAS + copy, BIAS));
  return c;
}

START_TEST(parameters_are_gathered_and_spread) {
  float a[20], back[20];
  open_run(two_params(DT_F32));
  for (int k = 0; k < STATE_N; k++) {
    for (int i = 0; i < 20; i++) a[i] = (float)(100 * k + i + 1);
    ck_assert_int_eq(run_set(run, (StateKind)k, 0, a, &err), WEFT_OK);
    ck_assert_int_eq(run_set(run, (StateKind)k, 1, a + 5, &err), WEFT_OK);
  }
  for (int k = 0; k < STATE_N; k++) {
    ck_assert_int_eq(run_get(run, (StateKind)k, 0, back, &err), WEFT_OK);
    for (int i = 0; i < 20; i++) ck_assert(back[i] == (float)(100 * k + i + 1));
    ck_assert_int_eq(run_get(run, (StateKind)k, 1, back, &err), WEFT_OK);
    for (int i = 0; i < 3; i++) ck_assert(back[i] == (float)(100 * k + i + 6));
  }
  /* The copy on the other pp rank, tp rank 1: rows 3 and 4, and a row of padding. */
  const float *copy = (float *)((char *)rank_arena(run->worker[3].r) + EMBED);
  for (int i = 0; i < 12; i++) ck_assert(copy[i] == (i < 8 ? (float)(i + 13) : 0));
}
END_TEST

START_TEST(a_replica_that_differs_is_noticed) {
  float whole[20];
  double apart = -1;
  open_run(two_params(DT_F32));
  ck_assert_int_eq(run_get(run, STATE_PARAM, 0, whole, &err), WEFT_OK);
  ck_assert_int_eq(run_apart(run, STATE_PARAM, 0, whole, &apart, &err), WEFT_OK);
  ck_assert(apart == 0);
  ((float *)((char *)rank_arena(run->worker[2].r) + EMBED))[5] += 3;
  ck_assert_int_eq(run_apart(run, STATE_PARAM, 0, whole, &apart, &err), WEFT_OK);
  ck_assert_double_eq_tol(apart, 3, 1e-6);
}
END_TEST

/* Bits of copies: of the tied weight, which is on both pp ranks; of the bias on both tp
 * ranks; of their states. What is no copy, tp rank 1's rows, is not compared with rank
 * 0's. */
START_TEST(a_bit_of_a_copy_that_flips_is_named) {
  const struct {
    int rank, at, bit;
    const char *says;
  } flips[] = {
      {2, EMBED + 4, 0,
       "rank 2 holds other bits than rank 0, of which it is a copy: embed; 1 "},
      {1, EMBED + 4, 0,
       "rank 3 holds other bits than rank 1, of which it is a copy: embed; 1 "},
      {3, BIAS + 8, 31,
       "rank 3 holds other bits than rank 2, of which it is a copy: bias; 1 "},
      {2, BIAS + 2 * EACH, 9,
       "rank 3 holds other bits than rank 2, of which it is a copy: "
       "first moment of bias; 1 of 3 such"},
  };
  open_run(two_params(DT_F32));
  ck_assert_msg(run_init(run, &err) == WEFT_OK, "%s", err.text);
  for (size_t i = 0; i < LEN(flips); i++) {
    uint32_t *word =
        (uint32_t *)((char *)rank_arena(run->worker[flips[i].rank].r) + flips[i].at);
    ck_assert_msg(run_check_replicas(run, &err) == WEFT_OK, "%s", err.text);
    *word ^= 1u << flips[i].bit;
    ck_assert_int_eq(run_check_replicas(run, &err), WEFT_ERUN);
    has(flips[i].says);
    err = (weft_error){.rank = -1};
    *word ^= 1u << flips[i].bit;
  }
}
END_TEST

/* The compute-type copy is made from the master by rounding to even. */
START_TEST(bf16_copies_follow_the_master) {
  open_run(two_params(DT_BF16));
  const float a[3] = {1.00390625f, 1.01171875f, -2.5f}; /* 1 + 2^-8, 1 + 3 * 2^-8 */
  ck_assert_int_eq(run_set(run, STATE_PARAM, 1, a, &err), WEFT_OK);
  const uint16_t want[3] = {0x3f80, 0x3f82, 0xc020};
  ck_assert_mem_eq((char *)rank_arena(run->worker[2].r) + BIAS + COPIES, want,
                   sizeof want);
}
END_TEST

static void load(const StWrite *t, int n, weft_status want) {
  SafeTensors *s;
  char path[] = "/tmp/weft-exec-XXXXXX";
  close(mkstemp(path));
  ck_assert_msg(st_write(NULL, path, t, n, &err) == WEFT_OK, "%s", err.text);
  ck_assert_msg(st_open(NULL, path, NULL, &s, &err) == WEFT_OK, "%s", err.text);
  unlink(path);
  weft_status st = run_load(run, s, &err);
  st_close(s);
  ck_assert_msg(st == want, "%d: %s", st, err.text);
}

START_TEST(weights_are_loaded) {
  float embed[20], bias[3] = {1, 2, 3}, back[20];
  for (int i = 0; i < 20; i++) embed[i] = (float)i;
  const StWrite t[] = {{"bias", DT_F32, 1, {3}, bias},
                       {"embed", DT_F32, 2, {5, 4}, embed}};
  open_run(two_params(DT_F32));
  ck_assert_int_eq(run_set(run, STATE_OPT1, 1, bias, &err), WEFT_OK);
  load(t, 2, WEFT_OK);
  ck_assert_int_eq(run_get(run, STATE_PARAM, 0, back, &err), WEFT_OK);
  ck_assert_mem_eq(back, embed, sizeof embed);
  ck_assert_int_eq(run_get(run, STATE_PARAM, 1, back, &err), WEFT_OK);
  ck_assert_mem_eq(back, bias, sizeof bias);
  ck_assert_int_eq(run_get(run, STATE_OPT1, 1, back, &err), WEFT_OK);
  ck_assert(back[0] == 0 && back[1] == 0 && back[2] == 0);
}
END_TEST

START_TEST(weights_that_do_not_fit_are_all_named) {
  float embed[20] = {0};
  const StWrite t[] = {{"embed", DT_F32, 2, {4, 5}, embed},
                       {"head", DT_F32, 1, {2}, embed}};
  open_run(two_params(DT_F32));
  load(t, 2, WEFT_EFILE);
  has("embed: shape [4, 5], the model has [5, 4]");
  has("bias: missing");
  has("head: not in the model");
}
END_TEST

START_TEST(weights_with_a_row_too_many_do_not_fit) {
  float embed[24] = {0}, bias[3] = {0};
  const StWrite t[] = {{"bias", DT_F32, 1, {3}, bias},
                       {"embed", DT_F32, 2, {6, 4}, embed}};
  open_run(two_params(DT_F32));
  load(t, 2, WEFT_EFILE);
  has("embed: shape [6, 4], the model has [5, 4]");
}
END_TEST

/* As files of the hub have them: without the base's prefix, with buffers, with the tied
 * embedding a second time, and with a module for a further token. */
START_TEST(weights_of_the_hub) {
  float embed[20], other[20] = {0}, norm[3] = {1, 2, 3}, back[20];
  for (int i = 0; i < 20; i++) embed[i] = (float)i;
  int32_t ids[3] = {1, 2, 3};
  Compiled *c = two_params(DT_F32);
  c->param[0].name = "model.embed_tokens.weight", c->param[1].name = "model.norm.weight";
  open_run(c);
  StWrite t[] = {{"embed_tokens.weight", DT_F32, 2, {5, 4}, embed},
                 {"layers.0.self_attn.rotary_emb.inv_freq", DT_F32, 1, {3}, norm},
                 {"lm_head.weight", DT_F32, 2, {5, 4}, embed},
                 {"norm.weight", DT_F32, 1, {3}, norm},
                 {"model.layers.61.eh_proj.weight", DT_F32, 1, {3}, norm},
                 {"model.layers.61.mlp.up_proj.weight", DT_F32, 1, {3}, norm}};
  load(t, LEN(t), WEFT_OK);
  ck_assert_int_eq(run_get(run, STATE_PARAM, 0, back, &err), WEFT_OK);
  ck_assert_mem_eq(back, embed, sizeof embed);
  t[2].data = other;
  load(t, LEN(t), WEFT_EFILE);
  has("lm_head.weight: differs from model.embed_tokens.weight, which the model's head is "
      "tied to");
  t[2].data = embed, t[3].dtype = DT_I32, t[3].data = ids;
  err_clear(&err);
  load(t, LEN(t), WEFT_EFILE);
  has("model.norm.weight: holds integers (I32)");
}
END_TEST

START_TEST(a_long_list_is_counted) {
  enum { N = 60 };
  float x[1] = {0};
  StWrite t[N];
  for (int i = 0; i < N; i++) {
    const char *name = arena_printf(arena, "a.long.name.for.a.tensor.%d", i);
    t[i] = (StWrite){name, DT_F32, 1, {1}, x};
  }
  open_run(two_params(DT_F32));
  load(t, N, WEFT_EFILE);
  int shown = 0;
  for (const char *s = err.text; (s = strchr(s, '\n')); s++) shown++;
  char more[64];
  snprintf(more, sizeof more, "\n  and %d more", N + 2 - (shown - 1));
  has(more);
}
END_TEST

Suite *state_suite(void) {
  const TTest *const tests[] = {
      pieces_cover_the_parameter,
      a_piece_takes_its_slice_of_each_part,
      initial_values_do_not_depend_on_tp,
      ones_are_padded_with_zeros,
      parameters_are_gathered_and_spread,
      a_replica_that_differs_is_noticed,
      a_bit_of_a_copy_that_flips_is_named,
      bf16_copies_follow_the_master,
      weights_are_loaded,
      weights_that_do_not_fit_are_all_named,
      weights_with_a_row_too_many_do_not_fit,
      weights_of_the_hub,
      a_long_list_is_counted,
  };
  Suite *s = suite_create("state");
  TCase *c = tcase_create("state");
  tcase_add_checked_fixture(c, setup, teardown);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
