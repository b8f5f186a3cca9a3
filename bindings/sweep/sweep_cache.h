/* sweep_cache.h - results of passes by the fields they depend on, shared by the threads
 * of a sweep. Each is made once, in an arena of its own, and never changed. */
#ifndef WEFT_SWEEP_CACHE_H
#define WEFT_SWEEP_CACHE_H

#include <pthread.h>

#include "vm/base/diag.h"

typedef struct CacheEntry {
  struct CacheEntry *next;
  uint64_t hash;
  char *key;
  size_t n;
  bool ready;
  int id; /* counted from 0, in the order in which they were asked for */
  Arena *arena;
  void *value;
  weft_status st; /* why there is no value: EPLAN with diagnostics */
  Diags d;
  weft_error e;
} CacheEntry;

enum { CACHE_BUCKETS = 4096 };
typedef struct Cache {
  pthread_mutex_t lock;
  pthread_cond_t made;
  CacheEntry *bucket[CACHE_BUCKETS];
  int n;
} Cache;

void cache_init(Cache *c);
void cache_free(Cache *c);
/* The entry for a key; make(ud, entry) fills a new one, on this thread, and may run out
 * of `n` temporary arenas, too. Others that ask for it meanwhile wait. NULL: out of
 * memory. */
CacheEntry *cache_get(Cache *c, const void *key, size_t size,
                      void (*make)(void *ud, CacheEntry *x), void *ud,
                      Arena *const temporary[], int n);
/* An entry that is in no table, a thread's own: filled anew, with its arena reset, unless
 * it has this key already. */
void cache_renew(CacheEntry *x, const void *key, size_t size,
                 void (*make)(void *ud, CacheEntry *x), void *ud,
                 Arena *const temporary[], int n);

#endif
