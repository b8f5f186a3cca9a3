/* megatron_files.c - see megatron_files.h. */
#include "megatron_files.h"

#include <check.h>
#include <stdlib.h>

#include "tests/harness/scratch.h"
#include "vm/io/token_mask.h"

static const int widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};

static void add(Text *t, const void *p, size_t n) { text_addn(t, p, n); }

static void put(const char *name, const char *end, Text *t) {
  scratch_put(arena_printf(scratch_arena, "%s%s", name, end), t->n ? t->s : "", t->n);
  text_free(t);
}

static void put_index(const char *name, const MegatronFile *m) {
  Text t = {0};
  uint64_t head[] = {1, (uint64_t)m->nlengths,
                     (uint64_t)(m->documents ? m->ndocuments : m->nlengths) + 1};
  unsigned char type = (unsigned char)m->type;
  int64_t at = 0;
  add(&t, "MMIDIDX\0", 9);
  add(&t, &head[0], 8);
  add(&t, &type, 1);
  add(&t, &head[1], 16);
  add(&t, m->lengths, (size_t)m->nlengths * sizeof *m->lengths);
  for (int i = 0; i < m->nlengths; at += m->lengths[i++] * widths[m->type])
    add(&t, &at, sizeof at);
  at = 0;
  for (int i = 0; i < (int)head[2]; i++) {
    add(&t, &at, sizeof at);
    at += m->documents && i < m->ndocuments ? m->documents[i] : 1;
  }
  put(name, ".idx", &t);
}

void megatron_put_ids(const char *name, const MegatronFile *m, const int32_t *ids) {
  Text t = {0};
  int n = 0;
  for (int i = 0; i < m->nlengths; i++) n += m->lengths[i];
  for (int i = 0; i < n; i++) {
    int64_t id = ids[i];
    add(&t, &id, (size_t)widths[m->type]);
  }
  put(name, ".bin", &t);
  put_index(name, m);
}

void megatron_put(const char *name, const MegatronFile *m) {
  int n = 0;
  for (int i = 0; i < m->nlengths; i++) n += m->lengths[i];
  int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
  for (int i = 0; i < n; i++) ids[i] = m->first + i;
  megatron_put_ids(name, m, ids);
  free(ids);
}

void mask_put(const char *name, const uint8_t *learnt, int64_t n) {
  const char *path = scratch_path(arena_printf(scratch_arena, "%s.bin", name));
  const char *mask = scratch_path(arena_printf(scratch_arena, "%s.mask", name));
  FileOut bin;
  TokenMaskOut *m;
  char *ids;
  size_t nids;
  ck_assert_int_eq(file_read(NULL, path, FILE_OWN_MAX, &ids, &nids, NULL), WEFT_OK);
  ck_assert_int_eq(file_create(NULL, path, 0, &bin, NULL), WEFT_OK);
  ck_assert_int_eq(file_put(&bin, 0, ids, nids, NULL), WEFT_OK);
  ck_assert_int_eq(token_mask_create(NULL, NULL, mask, false, &m, NULL), WEFT_OK);
  ck_assert_int_eq(token_mask_add(m, learnt, (size_t)n, NULL), WEFT_OK);
  ck_assert_int_eq(token_mask_finish(m, &bin, NULL), WEFT_OK);
  ck_assert_int_eq(file_finish(&bin, NULL), WEFT_OK);
  mem_free(NULL, ids, nids + 1);
}
