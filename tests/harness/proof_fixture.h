/* proof_fixture.h - shared by the suites of the prover: an arena and an error per test,
 * and the result that a handmade program (program_builder.h) must have. */
#ifndef WEFT_TESTS_PROOFS_H
#define WEFT_TESTS_PROOFS_H

#include <check.h>

#include "tests/generate/program_builder.h"

enum { KIB = 1024 };

extern Arena *proof_arena;
extern weft_error proof_error;
extern Proof proof;

/* Fixtures of each test. */
void proofs_setup(void);
void proofs_teardown(void);

/* The proof holds. */
void proof_passes(Build *b);
/* The proof fails, and the message contains every one of these strings. */
void proof_fails(Build *b, const char *const *text);
#define FAILS(b, ...) proof_fails(b, (const char *const[]){__VA_ARGS__, NULL})

/* Adds a body that reads slot 2 and writes slot 3 (one KiB each) with `pairs` all_reduce
 * of slot 1 on communicator 0, each beside an independent kernel. */
int proof_body(Build *b, int pp, const char *name, Phase phase, int pairs);

/* Tests under one name. */
typedef struct ProofCases {
  const char *name;
  const TTest *test[14];
} ProofCases;
/* Makes a suite of `n` of them. */
Suite *proofs_suite(const char *name, const ProofCases *cases, int n);

#endif
