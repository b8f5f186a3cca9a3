/* check_ckpt_read.c - pieces of any cut out of pieces of any other, by themselves; and
 * boxes of a made-up file whose sizes no integer holds. */
#include <check.h>
#include <stdio.h>

#include "tests/harness/scratch.h"
#include "tests/generate/handmade_regions.h"
#include "vm/ckpt/rank_file.h"

#define must(call)                                                                       \
  do {                                                                                   \
    err_clear(&scratch_error);                                                           \
    ck_assert_msg((call) == WEFT_OK, "%s: %s", #call, scratch_error.text);               \
  } while (0)

/* ---- cuts ---- */

enum { ROWS = 12, WIDTH = 2, MOST = 4 };

/* (12, 2): along its rows over tp, each of so many equal parts by itself. */
static CompiledParam cut_in(int parts) {
  CompiledParam p = {
      .name = "w", .ndim = 2, .dim = {ROWS, WIDTH}, .place = place_whole()};
  p.place.on[AX_TP] = 0;
  p.parts[0] = (uint8_t)parts;
  return p;
}

/* The pieces of `tp` ranks in one file. */
static void put_pieces(Ckpt *c, int parts, int tp, const float *whole) {
  CompiledParam p = cut_in(parts);
  Mesh m = stored_mesh(1, 1, 1, tp);
  float *data = NEW_N(scratch_arena, float, MOST *(ROWS + MOST) * WIDTH);
  static const char *const name = "w.bin";
  uint64_t at = 0;
  c->piece = NEW_N(scratch_arena, CkptPiece, tp);
  c->npiece = tp;
  for (int r = 0; r < tp; r++) {
    CkptPiece *x = &c->piece[r];
    *x = (CkptPiece){.dtype = DT_F32, .piece = stored_whole(&m, &p, r), .at = at};
    float *local = data + at / sizeof *data;
    piece_cut(&x->piece, whole, local);
    x->bytes = (uint64_t)x->piece.count * sizeof *local;
    uint64_t *hash = NEW(scratch_arena, uint64_t);
    *hash = checksum(local, x->bytes);
    x->block = hash;
    at += x->bytes;
  }
  const char *path = scratch_put(name, data, at);
  c->file = NEW(scratch_arena, File);
  must(file_open(arena_str(scratch_arena, path), c->file, &scratch_error));
  c->first = NEW_N(scratch_arena, int, CKPT_KINDS_MAX + 1);
  for (int k = 1; k <= CKPT_KINDS_MAX; k++) c->first[k] = tp;
}

static void read_pieces(const Ckpt *c, int parts, int tp, const float *whole) {
  CompiledParam p = cut_in(parts);
  Mesh m = stored_mesh(1, 1, 1, tp);
  CkptRead r;
  must(ckpt_read_begin(c, &r, &scratch_error));
  for (int rank = 0; rank < tp; rank++) {
    float got[ROWS * WIDTH + 64] = {0}, want[ROWS * WIDTH + 64] = {0};
    Piece x = stored_whole(&m, &p, rank);
    piece_cut(&x, whole, want);
    must(ckpt_read(&r, 0, 0, &x, got, &scratch_error));
    ck_assert_mem_eq(got, want, sizeof *got * (size_t)x.count);
  }
  ckpt_read_end(&r);
}

/* Where what was written has other parts than what is wanted the places of two slices in
 * their parts say nothing about each other. */
START_TEST(pieces_of_other_parts) {
  static const int parts[] = {1, 2, 3, 6};
  static const CkptParam param = {.name = "w", .ndim = 2, .dim = {ROWS, WIDTH}};
  float whole[ROWS * WIDTH];
  for (int i = 0; i < LEN(whole); i++) whole[i] = (float)(i + 1);
  for (int a = 0; a < LEN(parts); a++)
    for (int tp = 1; tp <= MOST; tp++) {
      Ckpt c = {.dir = scratch_dir, .m = {.param = &param, .nparam = 1}};
      put_pieces(&c, parts[a], tp, whole);
      for (int b = 0; b < LEN(parts); b++)
        for (int wanted = 1; wanted <= MOST; wanted++)
          read_pieces(&c, parts[b], wanted, whole);
      file_close(c.file);
    }
}
END_TEST

/* ---- several blocks ---- */

enum { LONG = CKPT_BLOCK / sizeof(float) * 5 / 2 };

/* A tensor of two and a half blocks, whole in one file. */
static Ckpt long_tensor(Piece *whole, float *data) {
  static const CkptParam param = {.name = "w", .ndim = 1, .dim = {LONG}};
  CompiledParam p = {.name = "w", .ndim = 1, .dim = {LONG}, .place = place_whole()};
  Mesh m = stored_mesh(1, 1, 1, 1);
  Ckpt c = {.dir = scratch_dir, .m = {.param = &param, .nparam = 1}, .npiece = 1};
  uint64_t *hash = NEW_N(scratch_arena, uint64_t, 3);
  for (int i = 0; i < LONG; i++) data[i] = (float)i;
  *whole = stored_whole(&m, &p, 0);
  c.piece = NEW(scratch_arena, CkptPiece);
  *c.piece = (CkptPiece){.dtype = DT_F32, .piece = *whole, .bytes = LONG * sizeof *data};
  c.piece->block = hash;
  for (uint64_t k = 0; k < 3; k++)
    hash[k] = checksum(data + k * (CKPT_BLOCK / sizeof *data),
                       MIN(CKPT_BLOCK, c.piece->bytes - k * CKPT_BLOCK));
  const char *path = scratch_put("w.bin", data, c.piece->bytes);
  c.file = NEW(scratch_arena, File);
  must(file_open(arena_str(scratch_arena, path), c.file, &scratch_error));
  c.first = NEW_N(scratch_arena, int, CKPT_KINDS_MAX + 1);
  for (int k = 1; k <= CKPT_KINDS_MAX; k++) c.first[k] = 1;
  return c;
}

/* Parts that begin and end in, before and after a border of two blocks. */
START_TEST(pieces_of_several_blocks) {
  enum { EACH = CKPT_BLOCK / sizeof(float) };
  static const int64_t border[] = {0,        1,        EACH - 1, EACH,
                                   EACH + 1, 2 * EACH, LONG - 1, LONG};
  float *data = NEW_N(scratch_arena, float, LONG);
  float *got = NEW_N(scratch_arena, float, LONG + 1);
  Piece whole;
  CkptRead r;
  Ckpt c = long_tensor(&whole, data);
  must(ckpt_read_begin(&c, &r, &scratch_error));
  for (int a = 0; a < LEN(border); a++)
    for (int b = a + 1; b < LEN(border); b++) {
      int64_t n = border[b] - border[a];
      got[n] = -1;
      must(ckpt_read_part(&r, 0, 0, border[a], n, got, &scratch_error));
      ck_assert_mem_eq(got, data + border[a], sizeof *got * (size_t)n);
      ck_assert(got[n] == -1);
    }
  ckpt_read_end(&r);
  file_close(c.file);
}
END_TEST

/* Every block is verified, each against its own checksum. */
START_TEST(every_block_is_verified) {
  static const char *const said[] = {"0 to 1048575", "1048576 to 2097151",
                                     "2097152 to 2621439"};
  float *data = NEW_N(scratch_arena, float, LONG);
  Piece whole;
  uint64_t bytes = 0;
  Ckpt c = long_tensor(&whole, data);
  must(ckpt_verify(&c, NULL, &bytes, &scratch_error));
  ck_assert_uint_eq(bytes, c.piece->bytes);
  for (int k = 0; k < LEN(said); k++) {
    uint64_t *hash = (uint64_t *)c.piece->block;
    hash[k] ^= 1;
    scratch_check_error(
        ckpt_verify(&c, NULL, &bytes, &scratch_error), WEFT_EFILE, c.file->path,
        arena_printf(scratch_arena,
                     "tensor \"param/w\" is damaged: its bytes %s do not match their "
                     "checksum",
                     said[k]));
    hash[k] ^= 1;
  }
  file_close(c.file);
}
END_TEST

/* ---- boxes ---- */

/* What reading a file says whose only tensor has this box. */
static weft_status box_read(const CkptParam *param, const char *box) {
  static const float data[4] = {1, 2, 3, 4};
  CkptFile said = {.name = "made.safetensors"};
  char hash[CHECKSUM_TEXT], text[512];
  snprintf(text, sizeof text, "{\"box\": [%s], \"from\": 0, \"blocks\": [\"%s\"]}", box,
           checksum_text(checksum(data, sizeof data), hash));
  StMeta meta[] = {{"id", "0123456789abcdef"}, {"param/w", text}};
  StWrite tensor = {.name = "param/w", .dtype = DT_F32, .ndim = 1, .dim = {4}};
  StContent content = {.tensor = &tensor, .n = 1, .meta = meta, .nmeta = LEN(meta)};
  Ckpt c = {.arena = scratch_arena, .dir = scratch_dir};
  c.m = (Manifest){.id = "0123456789abcdef", .param = param, .nparam = 1};
  c.m.file = &said, c.m.nfile = 1;
  c.file = NEW(scratch_arena, File);
  names_add(scratch_arena, &c.names, "w", 0);
  StOut *out;
  File f;
  const char *path = scratch_path(said.name);
  must(st_create(NULL, NULL, path, &content, &out, &scratch_error));
  must(st_put(out, 0, 0, data, sizeof data, &scratch_error));
  must(st_finish(out, &scratch_error));
  must(file_open(path, &f, &scratch_error));
  said.bytes = f.size;
  must(shard_header(&f, &said.header, &scratch_error));
  file_close(&f);
  CkptPieces list = {0};
  err_clear(&scratch_error);
  weft_status st = shard_read(&c, 0, &list, &scratch_error);
  file_close(c.file);
  return st;
}

/* parts x size and parts x slice go around 2^64 and come to what they should be. */
START_TEST(boxes_that_no_integer_holds) {
  static const CkptParam small = {.name = "w", .ndim = 1, .dim = {4}};
  static const CkptParam large = {.name = "w", .ndim = 1, .dim = {(int64_t)1 << 40}};
  static const char *const wrong[] = {
      "[1099511627776, 16777217, 0, 16777217, 1]", /* 2^40 x (2^24 + 1) = 2^64 + 2^40 */
      "[1099511627776, 1, 0, 16777217, 1]", "[1099511627776, 1, 0, 1099511627776, 1]",
      "[1, 1099511627776, 0, 2, 3]", "[1, 1099511627776, 1099511627775, 2, 2]"};
  ck_assert_msg(box_read(&small, "[1, 4, 0, 4, 4]") == WEFT_OK, "%s", scratch_error.text);
  ck_assert_msg(box_read(&large, "[1, 1099511627776, 0, 4, 4]") == WEFT_OK, "%s",
                scratch_error.text);
  for (int i = 0; i < LEN(wrong); i++) {
    ck_assert_int_eq(box_read(&large, wrong[i]), WEFT_EFILE);
    ck_assert_msg(strstr(scratch_error.text, "is not within the shape of its parameter"),
                  "%s: %s", wrong[i], scratch_error.text);
  }
}
END_TEST

Suite *ckpt_read_suite(void);
Suite *ckpt_read_suite(void) {
  Suite *s = suite_create("ckpt_read");
  TCase *c = tcase_create("pieces");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_test(c, pieces_of_other_parts);
  tcase_add_test(c, pieces_of_several_blocks);
  tcase_add_test(c, every_block_is_verified);
  tcase_add_test(c, boxes_that_no_integer_holds);
  suite_add_tcase(s, c);
  return s;
}
