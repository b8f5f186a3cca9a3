/* proof_fixture.c - handmade programs that the prover passes or refuses. */
#include "proof_fixture.h"

#include <stdio.h>
#include <stdlib.h>

Arena *proof_arena;
weft_error proof_error;
Proof proof;

void proofs_setup(void) {
  proof_arena = arena_new(NULL);
  err_clear(&proof_error);
  proof = (Proof){0};
}

void proofs_teardown(void) { arena_free(proof_arena); }

void proof_passes(Build *b) {
  weft_status st = prove(build_done(b), &proof, &proof_error);
  ck_assert_msg(st == WEFT_OK, "%d: %s", st, proof_error.text);
}

void proof_fails(Build *b, const char *const *text) {
  const weft_error *e = &proof_error;
  ck_assert_int_eq(prove(build_done(b), &proof, &proof_error), WEFT_EPLAN);
  if (getenv("WEFT_TEST_SHOW")) fprintf(stderr, "%d: %s\n", e->line, e->text);
  for (; *text; text++)
    ck_assert_msg(strstr(e->text, *text) != NULL, "\"%s\" is not in: %s", *text, e->text);
}

int proof_body(Build *b, int pp, const char *name, Phase phase, int pairs) {
  int body = build_body(b, pp, name, phase, 4);
  build_kernel(b, pp, OP_scale, f32_at(2, 0, 256), f32_at(1, 0, 256));
  for (int i = 0; i < pairs; i++) {
    Operand part = f32_at(1, (uint64_t)(i % 4) * KIB, 256);
    build_coll(b, pp, 0, COLL_ALL_REDUCE, 8, part, part, "layers.0.mlp");
    build_kernel(b, pp, OP_scale, f32_at(2, 0, 256), f32_at(1, 8 * KIB, 256));
    build_wait(b, pp, 8);
  }
  build_kernel(b, pp, OP_scale, f32_at(1, 0, 256), f32_at(3, 0, 256));
  build_main(b, pp);
  return body;
}

Suite *proofs_suite(const char *name, const ProofCases *cases, int n) {
  Suite *s = suite_create(name);
  for (int i = 0; i < n; i++) {
    TCase *c = tcase_create(cases[i].name);
    tcase_add_checked_fixture(c, proofs_setup, proofs_teardown);
    tcase_set_timeout(c, 60); /* the large pipeline under a sanitizer */
    for (int j = 0; j < LEN(cases[i].test) && cases[i].test[j]; j++)
      tcase_add_test(c, cases[i].test[j]);
    suite_add_tcase(s, c);
  }
  return s;
}
