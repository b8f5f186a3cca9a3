/* standin.h - what tests tell the stand-in CUDA runtime. */
#ifndef WEFT_TESTS_STANDIN_H
#define WEFT_TESTS_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The machine that the runtime shows, and the order in which it runs what is queued. In a
 * program of its own the variable WEFT_STANDIN has them: "order=7 driver=12040". */
enum { CUDNN_GRADIENTS = 10 };
typedef struct Standin {
  uint64_t order;       /* another number, another legal order */
  int driver;           /* 13000: as new as the runtime; 0: there is none */
  int gpus, capability; /* 1, 90 */
  size_t memory;        /* bytes of the device */
  size_t held;          /* of these, by other processes */
  int sms;              /* multiprocessors: 132 */
  /* NCCL: its version, 22809; communicators of this process that are never made (1), or
   * the operation of each, counted from 1, that fails, or never ends; 0: none. */
  int nccl, nccl_init, nccl_error, nccl_hang;
  /* NCCL has windows, as it does from 2.27 on where GPUs reach each other: 1. 0: memory
   * of ncclMemAlloc is any memory, and a window is never given. */
  int nccl_windows;
  /* cuDNN: bytes that its plans need beyond what they do; the n-th one that is run from
   * now on is refused; 0: none. */
  int cudnn_work, cudnn_fails;
  int capture_fails; /* the n-th thing that is captured from now on breaks it; 0: none */
  int flip; /* the n-th copy to memory of the host alone changes a bit in its middle; 0:
               none */
  int algorithms; /* that cuBLASLt proposes, of those of lt_algorithm: 1 */
  /* Connections that streams share (connections.cpp), whatever the environment says; 0:
   * as it says. */
  int connections;
  /* What a stream holds, so many things: a launch on a full one waits. 0: no end. */
  int depth;
  int runtime; /* the toolkit's version, 13000; it has code for 8, 9 and 10, and PTX */
  bool no_ptx; /* but PTX */
  bool idle;   /* kernels and products take their turns and compute nothing */
  /* cuBLASLt proposes no algorithm (1), or refuses to run those that it has proposed (2);
   * 0: neither. */
  int lt_refuses;
  int lt_slow;  /* its products take so many times as long as lt_algorithm says; 0: 1 */
  int fp8_bits; /* that sums of fp8 keep, as those of Hopper's tensor cores; 0: all */
  int cudnn;    /* its version: 91900; 0: it is not there */
  /* The n-th thing that runs reads outside of its memory: it and all that is queued do
   * nothing from then on, and calls say so; 0: none. */
  int fault;
  /* The last row is wrong of the n-th tensor that a plan of cuDNN writes, or, from
   * CUDNN_GRADIENTS on, one of gradients; 0: none. */
  int cudnn_wrong;
  int wgmma_wrong; /* the last row of each product of a warpgroup is the first's */
} Standin;
extern const Standin standin_usual;
/* Before the first call of the runtime, or when all of its queues are empty. */
void standin_set(const Standin *s);
/* What ran so far, of all queues; what was queued to run by calls, a graph as one. */
uint64_t standin_ran(void);
uint64_t standin_launched(void);
/* What cuBLASLt proposes, in this order: how long each takes, and at which call it is
 * refused, if it is; all give the same numbers. */
enum { LT_ALGORITHMS = 5 };
typedef struct LtAlgorithm {
  double ms;
  bool refused, fails; /* when it is proposed; when it is run */
} LtAlgorithm;
extern const LtAlgorithm lt_algorithm[LT_ALGORITHMS];
/* Products that this one computed so far. */
uint64_t standin_products(int algorithm);
/* Uses of kernels and algorithms that were not loaded before: each made its call wait. */
uint64_t standin_loads(void);
/* Calls of cudaMemGetInfo while this process had memory of the device. */
uint64_t standin_asked_late(void);
/* Queues what ends when *until is true, as if another process had to come first. */
void standin_hold(void *stream, const bool *until);
/* Graphs that were launched and have not ended. */
int standin_graphs(void);
/* As it was set, or as WEFT_STANDIN has it. */
const Standin *standin_is(void);
/* Whether a library's launch fails by itself or by what was before it: Standin.fault. */
bool standin_fails(void *stream);

#ifdef __cplusplus
}

#include <functional>
#include <vector>
struct CUstream_st;
/* `run`, which can go on when `can` says so: it waits for other processes. */
struct StandinTask {
  std::function<bool()> can;
  std::function<void()> run;
};
typedef std::function<std::vector<StandinTask>()> StandinMake;
/* Queues what `make` gives: now, or, in a capture, each time that its graph is launched.
 */
void standin_queue(CUstream_st *s, StandinMake make);
/* This thread calls for that GPU meanwhile, whatever it has chosen. */
struct StandinGpu {
  int was;
  explicit StandinGpu(int gpu);
  ~StandinGpu();
};
/* The lock of the runtime, for what its calls and its queues share. */
struct StandinLock {
  StandinLock();
  ~StandinLock();
};
#endif

#endif
