/* sweep_cache.c - a concurrent memo table; see sweep_cache.h. */
#include "sweep_cache.h"

#include <stdlib.h>

void cache_init(Cache *c) {
  memset(c, 0, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->made, NULL);
}

static void free_entry(CacheEntry *x) {
  arena_free(x->arena);
  free(x->key);
  free(x);
}

void cache_free(Cache *c) {
  for (int i = 0; i < CACHE_BUCKETS; i++)
    for (CacheEntry *x = c->bucket[i], *next; x; x = next) {
      next = x->next;
      free_entry(x);
    }
  pthread_cond_destroy(&c->made);
  pthread_mutex_destroy(&c->lock);
}

static CacheEntry *new_entry(uint64_t hash, const void *key, size_t n) {
  CacheEntry *x = calloc(1, sizeof *x);
  if (!x) return NULL;
  *x = (CacheEntry){.hash = hash, .n = n, .key = malloc(n + 1), .arena = arena_new(NULL)};
  x->d.arena = x->arena;
  if (!x->key || !x->arena) {
    free_entry(x);
    return NULL;
  }
  memcpy(x->key, key, n);
  return x;
}

typedef struct Making {
  CacheEntry *x;
  void (*make)(void *ud, CacheEntry *x);
  void *ud;
  Arena *const *temporary;
  int n;
} Making;

/* However it ends, the entry becomes ready: others wait for it. */
static void run_guarded(void *ud) {
  Making *m = ud;
  if (!m->n)
    m->make(m->ud, m->x);
  else if (m->n--, !arena_try(*m->temporary++, run_guarded, m))
    m->x->st = err_set(&m->x->e, WEFT_ENOMEM, "out of memory in a sweep");
}

static void fill(CacheEntry *x, void (*make)(void *ud, CacheEntry *x), void *ud,
                 Arena *const temporary[], int n) {
  Making m = {x, make, ud, temporary, n};
  if (!arena_try(x->arena, run_guarded, &m))
    x->st = err_set(&x->e, WEFT_ENOMEM, "out of memory in a sweep");
}

void cache_renew(CacheEntry *x, const void *key, size_t size,
                 void (*make)(void *ud, CacheEntry *x), void *ud,
                 Arena *const temporary[], int n) {
  if (x->ready && x->n == size && memcmp(x->key, key, size) == 0) return;
  char *own = realloc(x->key, size + 1);
  if (!own) free(x->key);
  arena_reset(x->arena);
  *x = (CacheEntry){.arena = x->arena, .d = {.arena = x->arena}, .key = own, .n = size};
  if (own) memcpy(own, key, size);
  fill(x, make, ud, temporary, n);
  x->ready = own != NULL;
}

CacheEntry *cache_get(Cache *c, const void *key, size_t size,
                      void (*make)(void *ud, CacheEntry *x), void *ud,
                      Arena *const temporary[], int n) {
  uint64_t hash = hash_bytes(0, key, size);
  CacheEntry **slot = &c->bucket[hash % CACHE_BUCKETS], *x;
  pthread_mutex_lock(&c->lock);
  for (x = *slot; x; x = x->next)
    if (x->hash == hash && x->n == size && memcmp(x->key, key, size) == 0) break;
  if (x) {
    while (!x->ready) pthread_cond_wait(&c->made, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return x;
  }
  if ((x = new_entry(hash, key, size))) {
    x->id = c->n++;
    x->next = *slot;
    *slot = x;
  }
  pthread_mutex_unlock(&c->lock);
  if (!x) return NULL;
  fill(x, make, ud, temporary, n);
  pthread_mutex_lock(&c->lock);
  x->ready = true;
  pthread_cond_broadcast(&c->made);
  pthread_mutex_unlock(&c->lock);
  return x;
}
