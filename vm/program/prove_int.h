/* prove_int.h - the abstract machine of prove(), shared by its files.
 *
 * One representative per pp rank stands for all ranks with other dp, cp, tp
 * coordinates: they run the same program. A *channel* is what orders transfers: one
 * communicator, or one ordered pair of pp ranks. The k-th start on a channel matches
 * the k-th start of every other member; transfers of a channel run in that order. */
#ifndef WEFT_PROVE_INT_H
#define WEFT_PROVE_INT_H

#include "program.h"

/* ---- prove_body.c ---- what one run of a body does, found once per body */

typedef struct Access {
  uint64_t lo, hi;       /* bytes from the slot's base */
  uint16_t slot;
  bool write;
} Access;

/* Two ranges of different slots that a call must not bind to common bytes. */
typedef struct Apart {
  Access a, b;
} Apart;

typedef struct CommUse {
  int comm, in_flight;
} CommUse;

/* `closed`: only kernels and collectives inside the pp rank, each waited for in the body.
 * Such a call is one step of the machine as long as its ranges and handles are free. */
typedef struct BodySum {
  bool closed;
  VEC(Access) access;
  VEC(Apart) apart;
  VEC(CommUse) comm;
  VEC(int32_t) handle;
  int64_t collectives;
} BodySum;

void body_summary(const Compiled *c, const Program *p, const Body *b, Arena *a,
                  BodySum *out);

/* ---- prove.c ---- */

/* An instruction that runs: `pc` in Program.code, and the CALL of main that runs it
 * (`main` == `pc` for instructions of main). */
typedef struct Site {
  uint32_t pc, main;
} Site;

typedef struct Start {
  uint64_t count;
  Site site;
  int32_t rank;          /* pp rank that started first */
  uint8_t coll, red, dtype;
} Start;

typedef struct Channel {
  int comm;              /* or -1: from member[0] to member[1] */
  int nmember;
  const int *member;     /* pp ranks */
  uint32_t *started;     /* per member */
  uint32_t done, top;    /* transfers that ran; starts of the fastest member */
  Start *ring;           /* starts done .. top */
  uint32_t mask;         /* size of the ring - 1 */
} Channel;

typedef struct Pending {
  int32_t channel;       /* -1: the handle is free */
  uint32_t seq;
  Site site;
} Pending;

/* Bytes that a transfer in flight reads or writes. */
typedef struct Busy {
  uint64_t lo, hi;
  int32_t handle;
  bool write;
} Busy;

typedef struct RankState {
  const Program *p;
  BodySum *body;
  Site at;               /* the next instruction */
  uint32_t end;          /* of main, or of the body that is expanded */
  bool ended, queued;
  int32_t block, block_seq;  /* the channel that it waits for, or -1 */
  Pending *handle;
  VEC(Busy) busy;
  int nflight;           /* handles in use */
  int *in_flight;        /* per communicator */
  VEC(int32_t) stream;   /* strict: channels of its collectives, in order */
  int head;              /* of stream */
} RankState;

typedef struct Machine {
  const Compiled *c;
  Arena *a;
  weft_error *e;
  /* The stricter machine runs all collectives of a rank in the order of their starts. */
  bool strict;
  int npp;
  RankState *rank;
  VEC(Channel) channel;
  int32_t *coll_channel; /* [pp][comm] */
  int32_t *pair_channel; /* [source][destination], -1 until used */
  int *ready, nready, first;  /* ranks to run: a ring of npp */
  VEC(int) advance;      /* channels whose head may have become free */
  Proof proof;
} Machine;

static inline const Call *site_call(const Program *p, Site s) {
  return s.pc == s.main ? NULL : &p->call[p->code[s.main].call];
}
static inline int member_index(const Channel *c, int pp) {
  int i = 0;
  while (c->member[i] != pp) i++;
  return i;
}

/* ---- prove_report.c ---- each describes one way to fail and returns WEFT_EPLAN */
weft_status report_blocked(const Machine *m);
weft_status report_mismatch(const Machine *m, const Channel *c, const Start *first,
                            const Start *second);
weft_status report_reuse(const Machine *m, int pp, Site at, const Pending *h);
weft_status report_idle(const Machine *m, int pp, Site at);
weft_status report_unwaited(const Machine *m, int pp, const Pending *h);
weft_status report_overlap(const Machine *m, int pp, Site at, int operand, uint64_t lo,
                           uint64_t hi, const Busy *b);
weft_status report_limit(const Machine *m, int pp, Site at);
weft_status report_inplace(const Machine *m, int pp, Site at);

#endif
