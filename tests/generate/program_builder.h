/* program_builder.h - writes small programs by hand, for tests of what reads programs.
 *
 *   Build *b = build_new(arena, 2, 1, 4096);
 *   build_send(b, 0, 1, 0, f32_at(0, 64, 16), "F0");
 *   build_wait(b, 0, 0);
 *   const Compiled *c = build_done(b);
 *
 * Instructions go to main of the pp rank, or to the body that build_body opened. */
#ifndef PROG_BUILD_H
#define PROG_BUILD_H

#include "vm/program/program.h"

typedef struct Build Build;

/* pp and tp ranks; `arena_bytes` per rank. Scalars are at offset 0, unit 0 is "none". */
Build *build_new(Arena *a, int pp, int tp, uint64_t arena_bytes);
Compiled *build_done(Build *b);

/* `n` f32 elements at `off` of a slot. */
Operand f32_at(int slot, uint64_t off, int64_t n);
Operand typed_at(DType t, int slot, uint64_t off, int64_t n);

/* Adds a communicator to all programs; npp 0: the whole group over `axes`. */
int build_comm(Build *b, const char *name, AxisSet axes, int in_flight, const int *pp,
               int npp);
/* Adds a unit and the offsets of its parameters, which its calls bind; build_bind sets
 * others for later calls. */
int build_unit(Build *b, int pp, const char *name, const uint64_t *bind, int n);
void build_bind(Build *b, int pp, int unit, const Bind *bind, int n);
int build_body(Build *b, int pp, const char *name, Phase phase, int nslot);
void build_main(Build *b, int pp);   /* closes the open body */
void build_line(Build *b, int line); /* of the instructions that follow */

Instr *build_call(Build *b, int pp, int body, int unit, int mb, const char *what,
                  const uint64_t *dyn, int ndyn);
/* One input, one result. */
Instr *build_kernel(Build *b, int pp, int op, Operand in, Operand out);
/* `nin` inputs, then `nout` results; the caller may set attr and acc at once. */
Instr *build_op(Build *b, int pp, int op, const Operand *o, int nin, int nout,
                const char *what);
Instr *build_coll(Build *b, int pp, int comm, CollKind coll, int handle, Operand in,
                  Operand out, const char *what);
/* Counted rows (all_to_all_v): place, counts sent, counts received, place. */
Instr *build_rows(Build *b, int pp, int comm, int handle, const Operand o[4],
                  const char *what);
Instr *build_send(Build *b, int pp, int peer, int handle, Operand o, const char *what);
Instr *build_recv(Build *b, int pp, int peer, int handle, Operand o, const char *what);
Instr *build_gather(Build *b, int pp, int unit, int comm, int handle, Operand shard,
                    Operand copy);
Instr *build_free(Build *b, int pp, int unit, Operand copy);
Instr *build_scatter(Build *b, int pp, int unit, int comm, int handle, Operand sum,
                     Operand shard);
Instr *build_wait(Build *b, int pp, int handle);

#endif
