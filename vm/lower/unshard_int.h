/* unshard_int.h - state of the pass of unshard.c, whose first part is residencies.c. */
#ifndef WEFT_UNSHARD_INT_H
#define WEFT_UNSHARD_INT_H

#include "unshard.h"

typedef struct Residency {
  int32_t bucket;
  int64_t from; /* the calls that read gathered parameters are numbered: the GATHER starts
                   with this one, */
  int64_t use;  /* and this one is the first that reads the copy */
  int32_t last; /* the last step that reads it */
} Residency;

typedef struct BucketState {
  bool by_schedule;  /* the schedule has UNSHARD for it */
  bool keep;         /* reshard_after_forward = false: one residency for the whole step */
  int32_t residency; /* its last planned residency; while placing, the last that has
                   begun; -1: none */
  int64_t used;      /* number of the last call that reads it */
  int32_t written;   /* the last step that writes its gradients */
  int32_t reduces;   /* REDUCE_GRADs that are still to come */
  bool at_reduce;    /* the schedule has REDUCE_GRAD for it */
  uint64_t open;     /* chunks for which the schedule has unsharded it, one bit each */
  int32_t copy;      /* buffer of the unsharded parameters, -1: they are sharded */
  int32_t handle;    /* of a GATHER that is not waited for yet, -1 */
  int32_t sum;       /* buffer of the unsharded gradients, -1 */
  int32_t final;     /* its last residency */
  int32_t part;      /* buffer of the group's shard between residencies, -1 */
  bool begun;        /* a SCATTER of this step has started */
} BucketState;

/* A SCATTER that is not waited for yet. */
typedef struct Scattering {
  int32_t bucket, buffer, handle, step;
  bool first;
} Scattering;

typedef struct Placed {
  int32_t at; /* goes before this event of the main list */
  Event e;
} Placed;

typedef struct Unshard {
  const Strategy *how;
  const UnshardedList *h;
  MainList *t;
  Arena *a;
  bool pipelined;
  BucketState *block;
  VEC(Residency) residency; /* residencies, in the order of their starts */
  /* number of the call at which the current forward or backward part began */
  int64_t turn;
  bool backward; /* whether the current part is a backward */
  int next;      /* the next residency to be gathered */
  int64_t calls; /* number of calls that read gathered parameters so far */
  VEC(Scattering) scattering;
  int done; /* number of entries of `scattering` that were waited for */
  VEC(int) free_handle;
  VEC(Placed) placed;
  Event unwanted;
  int32_t begun; /* position of the last buffer that began */
  const Step *now;
} Unshard;

static inline const BucketUse *unshard_uses(const Unshard *u, const Step *s, int *n) {
  *n = u->h->first[s->of + 1] - u->h->first[s->of];
  return &u->h->use[u->h->first[s->of]];
}

/* Whether the call reads gathered parameters of the bucket. */
static inline bool unshard_reads(const Unshard *u, const Step *s, const BucketUse *x) {
  return x->reads >> s->phase & 1 && u->h->at[x->bucket].bytes[FULL_PARAM];
}

static inline bool unshard_writes(const Unshard *u, const Step *s, const BucketUse *x) {
  return x->writes >> s->phase & 1 && u->h->at[x->bucket].bytes[FULL_GRAD];
}

/* ---- residencies.c ---- */
/* requires the steps of a main list; establishes `block` and `residency`. */
void residencies(Unshard *u);

#endif
