/* world_options.c - the backend's options of a run: what the caller gave, and the plan's
 * settings for the backend that carries its data. */
#include "run_int.h"

WorldOptions run_world_options(const Run *r, WorldSetting setting[RUN_SETTINGS]) {
  const NcclPlan *p = &r->plan->nccl;
  WorldOptions o = r->settings;
  o.arena = p->arena == NCCL_ARENA_NCCL        ? ARENA_LIBRARY
            : p->arena == NCCL_ARENA_SYMMETRIC ? ARENA_SYMMETRIC
                                               : ARENA_DEVICE;
  o.group_ctas = p->group_ctas;
  o.pair_ctas = p->pair_ctas;
  o.setting = setting;
#define PUT(key, variable)                                                               \
  if (p->key) setting[o.nsetting++] = (WorldSetting){variable, p->key};
#define INTEGER(key, variable, lo, hi, doc) PUT(key, variable)
#define SWITCH(key, variable, doc)          PUT(key, variable)
#define WORD(key, variable, words, doc)     PUT(key, variable)
#define WORDS(key, variable, doc)           PUT(key, variable)
#include "vm/plan/nccl.def"
  return o;
}
