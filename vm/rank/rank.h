/* rank.h - one loaded rank: its program prepared on a device, its steps, the pieces of
 * parameters and state that it holds. */
#ifndef WEFT_RANK_H
#define WEFT_RANK_H

#include "vm/comm/comm.h"
#include "vm/plan/optimizer.h"
#include "vm/storage/piece.h"
#include "step_end.h"

/* ---- one rank: rank_load.c, interp.c ---- */
typedef struct Rank Rank;
/* Allocates the arena and what rank_footprint says, and prepares the kernels;
 * program_check() has passed before. */
weft_status rank_new(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                     Rank **out, weft_error *e);
/* The same rank with the other program c->eval, in the arenas and with the staging of
 * `under`, which is freed after it. */
weft_status rank_new_over(const Compiled *c, Rank *under, Rank **out, weft_error *e);
void rank_free(Rank *r);
/* What this rank connects to: its groups in the order of Program.comm (of one member,
 * too), and the ranks that it sends to or receives from. */
CommNeeds rank_needs(const Rank *r);
void rank_connect(Rank *r, Comm *c);
/* Releases the steps that the device has kept, for which the end of the communicator
 * waits. That end comes between this and rank_free: the arena may be registered with it.
 */
void rank_disconnect(Rank *r);
/* One step, in three phases: upload takes the inputs and scalars of the host to their
 * places, main runs the program, download brings the scalars back. Nothing of the host is
 * in main, so a device can capture it once and replay it, see rank_capture. With `check`,
 * which is no step to capture, looks at every kernel result and ends with WEFT_ERUN
 * naming rank and op at the first value that is not finite. `end` (NULL: nothing) is of
 * all ranks of the process: WEFT_EINTR where it says so. */
weft_status rank_step(Rank *r, bool check, StepEnd *end, weft_error *e);
/* From now on its steps are kept, if the device can (graph_capture.c). */
void rank_capture(Rank *r);
/* Once, if that could not be: why. Else NULL. */
const char *rank_not_captured(Rank *r);
void *rank_arena(Rank *r);
/* Writes what its steps do from now on into `t`, see trace.h. */
struct Tracer;
void rank_trace(Rank *r, struct Tracer *t);
/* What upload takes and download brings, to be filled before a step: the scalars up to
 * SC_CLIP, and the inputs that the rank reads (NULL: it does not). */
double *rank_scalars(Rank *r);
int32_t *rank_input(Rank *r, InputKind k);
static inline size_t staged_bytes(const Compiled *c) {
  return (size_t)c->microbatches * (size_t)c->micro * (size_t)c->tokens * sizeof(int32_t);
}
/* Bytes of the host that a rank of this pp rank holds besides its arena. */
typedef struct RankFootprint {
  uint64_t tables, staging, states;
} RankFootprint;
RankFootprint rank_footprint(const Compiled *c, int pp);
/* After a step with `check` failed: the instruction whose result is not finite and what
 * it gave ("nan", "inf"); NULL if the step failed in another way. */
const Instr *rank_bad(const Rank *r, const char **gave);
/* "op linear of layers.3.mlp.up_proj", "all_reduce(tp) of ...", "send to rank 2 of F" */
void instr_describe(const Compiled *c, int rank, const Instr *in, char *buf, size_t n);
void rank_describe(const Rank *r, const Instr *in, char *buf, size_t n);

/* Where a rank is; may be read by other threads at any time. */
typedef enum { RANK_IDLE, RANK_BUSY, RANK_WAITS } RankState;
typedef struct RankAt {
  RankState state;
  uint64_t ticks;     /* grows with every instruction */
  const Instr *instr; /* when it waits: the transfer that it waits for, */
  uint64_t nth;       /* which its communicator has counted so (pairs: all) */
} RankAt;
RankAt rank_at(const Rank *r);

/* ---- parameters and their state: rank_state.c ---- */
typedef enum { STATE_PARAM, STATE_GRAD, STATE_OPT1, STATE_OPT2, STATE_N } StateKind;
/* State k of the optimizer, from 0 on. */
static inline StateKind state_opt(int k) { return (StateKind)(STATE_OPT1 + k); }
/* What is kept of a parameter from one step to the next, so many kinds: from 0 on the
 * parameter itself and the states of the optimizer. */
static inline int kept_kinds(const Compiled *c) {
  return 1 + optimizer_info[c->optimizer].states;
}
static inline StateKind kept_kind(int i) { return i ? state_opt(i - 1) : STATE_PARAM; }
/* Elements of what is kept of a whole parameter. */
static inline int64_t kept_count(const Compiled *c, StateKind k, int param) {
  const CompiledParam *p = &c->param[param];
  return k >= STATE_OPT1 ? param_state_count(p) : param_count(p);
}

/* Initial values of a piece by (seed, name, global index). */
/* The same of elements [from, from + n) of the whole parameter. */
void param_init(const CompiledParam *cp, uint64_t seed, int64_t from, int64_t n,
                float *to);
void piece_init(const Piece *p, const CompiledParam *cp, uint64_t seed, float *local);

/* What a rank holds of a state of a parameter: the piece that is read first, then, for
 * STATE_PARAM, that of the copy that ops read where it is another. Returns their number,
 * 0 if the parameter is on other pp ranks, or nobody keeps this state of it. */
int state_pieces(const Compiled *c, int rank, StateKind k, int param, Piece out[2]);
/* A piece as f32. */
void rank_read(Rank *r, const Piece *p, float *local);
void rank_write(Rank *r, const Piece *p, const float *local);
/* Where a piece lies, if that is memory that the host can write; NULL if not, or if it is
 * of another size. */
float *rank_floats(Rank *r, const Piece *p);
uint16_t *rank_halves(Rank *r, const Piece *p);
/* As it is stored; as checkpoints have it, see region_saved. */
void rank_read_raw(Rank *r, const Piece *p, void *to);
void rank_read_saved(Rank *r, const Piece *p, void *to);
/* Zeros in all that a step reads before it writes it: in all regions but those of
 * gradients, paddings too. `block` has room for n elements. */
void rank_clear(Rank *r, float *block, int64_t n);
/* Elements of the buffer through which the pieces of parameters pass. */
int64_t rank_block(const Compiled *c);

#endif
