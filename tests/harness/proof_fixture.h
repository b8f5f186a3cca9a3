/* proof_fixture.h - what the suites of the prover share: an arena and an error for each
 * test, and what a program by hand (program_builder.h) must come to. */
#ifndef WEFT_TESTS_PROOFS_H
#define WEFT_TESTS_PROOFS_H

#include <check.h>

#include "tests/generate/program_builder.h"

enum { KIB = 1024 };

extern Arena *proof_arena;
extern weft_error proof_error;
extern Proof proof;

/* Of each test. */
void proofs_setup(void);
void proofs_teardown(void);

/* The proof holds. */
void proof_passes(Build *b);
/* The proof fails, and the message has every one of the texts. */
void proof_fails(Build *b, const char *const *text);
#define FAILS(b, ...) proof_fails(b, (const char *const[]){__VA_ARGS__, NULL})

/* One body that reads slot 2 and writes slot 3 (one KiB each) with `pairs` all_reduce of
 * slot 1 on communicator 0, each beside a kernel that does not touch them. */
int proof_body(Build *b, int pp, const char *name, Phase phase, int pairs);

/* Some tests under one name. */
typedef struct ProofCases {
  const char *name;
  const TTest *test[14];
} ProofCases;
/* `n` of them as a suite. */
Suite *proofs_suite(const char *name, const ProofCases *cases, int n);

#endif
