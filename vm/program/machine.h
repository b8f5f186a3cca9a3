/* machine.h - the abstract machine: the programs of all pp ranks together.
 *
 * A rank has one compute queue, which is its place in main, and queues of transfers. A
 * *channel* is what orders transfers: one communicator, or one ordered pair of pp ranks.
 * The k-th start on a channel matches the k-th start of every other member; transfers of
 * a channel run in that order, each as soon as all members have started it. A start never
 * blocks, a WAIT blocks the compute queue until its transfer has run.
 *
 * One representative per pp rank stands for all ranks with other dp, cp, tp coordinates:
 * they run the same program.
 *
 * Readings of the one walk: that it ends is the proof, with what every instruction
 * touches; what it starts is the traffic; with costs it says when everything happens. */
#ifndef WEFT_MACHINE_H
#define WEFT_MACHINE_H

#include "program.h"
#include "walk.h"

/* ---- machine_body.c ---- what one run of a body does, found once per body */

typedef struct Access {
  uint64_t lo, hi; /* bytes from the slot's base */
  uint16_t slot;
  bool write;
} Access;

/* Two ranges of different slots that a call must not bind to common bytes. */
typedef struct Apart {
  Access a, b;
} Apart;

/* What it does on one communicator. */
typedef struct CommUse {
  int comm, in_flight;
  Flow flow[COLL_PAIRS];
} CommUse;

/* A wait of a body for what was started at `pc`, with nothing else around. */
typedef struct BodyWait {
  uint32_t pc;
  int64_t ticks;
} BodyWait;

/* `closed`: only kernels and collectives inside the pp rank, each waited for in the body.
 * Such a call is one step of the machine as long as its ranges and handles are free. */
typedef struct BodySum {
  bool closed;
  VEC(Access) access;
  VEC(Apart) apart;
  VEC(CommUse) comm;
  VEC(int32_t) handle;
  int64_t collectives;
  int64_t runs;        /* closed calls of it in this walk */
  int64_t busy, ticks; /* of its kernels; from begin to end, with nothing else around */
  VEC(BodyWait) wait;
  bool link[LINK_KINDS]; /* which its collectives use */
} BodySum;

struct Machine;
void body_summary(const struct Machine *m, int pp, const Body *b, BodySum *out);

/* ---- machine.c ---- */

/* An instruction that runs: `pc` in Program.code, and the CALL of main that runs it
 * (`main` == `pc` for instructions of main). */
typedef struct Site {
  uint32_t pc, main;
} Site;

typedef struct Start {
  uint64_t count;
  int64_t ready, cost; /* when the last member started it; the most of any */
  Site site;
  int32_t rank; /* pp rank that started first */
  uint8_t coll, red, dtype;
  LinkLoad load;
  int16_t by;
} Start;

/* The share of a direction of a link of a rank, or of the spine; see shared_links.c. */
typedef struct Demand {
  int port;
  double share;
} Demand;

typedef struct Channel {
  int comm; /* or -1: from member[0] to member[1] */
  int nmember;
  const int *member;       /* pp ranks */
  uint32_t *started;       /* per member */
  uint32_t done, top;      /* transfers that ran; starts of the fastest member */
  Start *ring;             /* starts done .. top */
  uint32_t mask;           /* size of the ring - 1 */
  VEC(int64_t) begin, end; /* with costs: of each transfer that ran */
  bool moving;             /* the next one runs: shared_links.c */
  Demand *demand;          /* room for what that takes */
} Channel;

typedef struct Pending {
  int32_t channel; /* -1: the handle is free */
  uint32_t seq;
  Site site;
} Pending;

/* Bytes in use from `since` on: by a transfer until its handle was waited for, or (handle
 * FOOTPRINT) by a gathered copy until it is freed. */
enum { FOOTPRINT = -1 };
typedef struct Busy {
  uint64_t lo, hi;
  int32_t handle;
  bool write;
  Site since;
} Busy;

/* Parameters of a unit that were gathered and not yet freed. */
typedef struct Copy {
  uint64_t lo, hi;
  uint32_t unit;
  int32_t handle; /* FOOTPRINT once the GATHER was waited for */
  Site since;
} Copy;

typedef struct RankState {
  const Program *p;
  BodySum *body;
  Site at;            /* the next instruction */
  uint32_t end;       /* of main, or of the body that is expanded */
  uint32_t block_seq; /* what it waits for on the channel that it needs */
  Pending *handle;
  VEC(Busy) busy;
  uint64_t lo, hi; /* what is busy lies between these */
  VEC(Copy) copy;
  bool gathers;        /* some call binds a gathered copy */
  int nflight;         /* handles in use */
  int *in_flight;      /* per communicator */
  VEC(int32_t) stream; /* in_order: channels of its collectives */
  int head;            /* of stream: the next to run */
  int64_t free;        /* when the last one of the stream ended */
  int64_t busy_ticks;  /* of its compute queue */
  int64_t called;      /* when the call began that is expanded */
  const Instr *ran; /* of main: it is done with the compute queue, and nobody was told */
  int64_t ran_from;
  int on_link[LINK_KINDS]; /* transfers of it that use a link, started and not at an end
                            */
  double beside;           /* of all that run: see LinkLoad */
  double kernels;          /* share of them in what the compute queue does */
  int64_t shared_ticks;    /* see RankTime */
} RankState;

typedef struct Moving {
  int channel, ndemand;
  bool fixed;         /* while speeds are found: this one's is */
  double left, speed; /* ticks that it takes alone; per tick */
  int64_t since, end; /* left was true; if nothing changes */
} Moving;

typedef struct Machine {
  const Compiled *c;
  Arena *a;
  weft_error *e;
  const RunCosts *costs; /* or NULL: nothing takes time */
  /* The stricter backend: the collectives of a rank run in the order of their starts. */
  bool in_order;
  int npp;
  Walk walk; /* what a rank needs is a channel */
  RankState *rank;
  VEC(Channel) channel;
  int32_t *coll_channel; /* [pp][comm] */
  int32_t *pair_channel; /* [source][destination], -1 until used */
  VEC(int) advance;      /* channels whose head may have become free */
  Flow *flow;            /* as in Compiled; of what is not in closed bodies */
  VEC(Moving) moving;    /* with loads: transfers that run */
  double *room, *want;   /* of ports: what is left, what those want that still grow */
  int *taken, ntaken;    /* the ports that these take */
  double *beside;        /* of ranks: see LinkLoad.beside; while it is found */
  int64_t horizon;       /* until which ranks run before others have to */
  double crowd;          /* everything takes so many times as long: see RunCosts.cores */
  Proof proof;
} Machine;

/* Whether transfers share links. */
static inline bool machine_shares(const Machine *m) { return m->costs && m->costs->load; }

static inline const Call *site_call(const Program *p, Site s) {
  return s.pc == s.main ? NULL : &p->call[p->code[s.main].call];
}
static inline int member_index(const Channel *c, int pp) {
  int i = 0;
  while (c->member[i] != pp) i++;
  return i;
}

/* Prepares a walk over the programs of `c`. */
void machine_begin(Machine *m, const Compiled *c, const RunCosts *costs, bool in_order,
                   Arena *a, weft_error *e);
/* Runs all ranks as far as they go. An error is one of a single rank, or of two that do
 * not match; ranks that block each other are left to the caller: walk_left(). */
weft_status machine_run(Machine *m);
/* Communicators between pp ranks: without them the two backends are the same. */
bool machine_spans(const Compiled *c);

/* Runs a rank until it blocks or ends, or its clock is after the horizon. */
weft_status machine_run_rank(Machine *m, int pp);

/* ---- machine_channels.c ---- */

void channels_begin(Machine *m);
/* The channel of what an instruction starts. */
int channel_of(Machine *m, int pp, const Instr *in);
/* A member starts transfer k: the first to do so writes down what the others have to
 * match. */
weft_status channel_enter(Machine *m, Channel *c, uint32_t k, const Start *s);
/* The head of a channel has run: those that wait for it go on. */
void machine_done(Machine *m, int channel);
/* Starts what has become free on these channels. */
void machine_advance(Machine *m, int channel);

/* ---- shared_links.c ---- transfers that share links, in the order of time */

/* The head of a channel begins to move now. */
void rates_begin(Machine *m, int channel);
/* The compute queue of a rank, which stood still, works from now on (`pp`), or a rank
 * stands still from now on (-1). */
void rates_cores(Machine *m, int pp, int64_t now);
weft_status rates_run(Machine *m);

/* ---- machine_bytes.c ---- what may touch which bytes, and when */

/* The instruction does what it does to memory now. */
weft_status bytes_touch(Machine *m, int pp, const Instr *in, Site at);
/* The same; and from now on the ranges of its transfer are in use. */
weft_status bytes_occupy(Machine *m, int pp, const Instr *in, Site at);
void bytes_release(RankState *r, int32_t handle);
weft_status bytes_free(Machine *m, int pp, const Instr *in, Site at);
/* No gathered copy is left at the end of main. */
weft_status bytes_end(Machine *m, int pp);
/* True if a call can be one step: nothing that it uses is in use. */
bool bytes_clean(const RankState *r, const Call *call, const BodySum *s);

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
/* `copy` is what there is instead, or NULL. */
weft_status report_not_gathered(const Machine *m, int pp, Site at, uint32_t unit,
                                const Copy *copy);
weft_status report_not_freed(const Machine *m, int pp, const Copy *copy);

#endif
