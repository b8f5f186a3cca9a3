/* store.h - the folder that has the checkpoints of a run: which are there, which is the
 * latest, and what a run that ended early has left behind. */
#ifndef WEFT_CKPT_STORE_H
#define WEFT_CKPT_STORE_H

#include "shard.h"

#define LATEST_NAME "latest"
#define WEIGHTS_NAME "weights-"

/* A checkpoint whose manifest can be read. */
typedef struct StoreEntry {
  const char *name; /* "step-00000100" */
  int64_t step, saved_at;
} StoreEntry;
typedef struct StoreList {
  StoreEntry *at; /* the one that was saved last first */
  int n;
} StoreList;
/* Nothing if there is no such folder. */
weft_status store_list(Arena *a, const char *dir, StoreList *out, weft_error *e);

/* The checkpoint that `path` names: itself, or in a folder of them the one that is the
 * latest. WEFT_EFILE if there is none; *none says whether that is all that is wrong. */
weft_status store_find(Arena *a, const char *path, const char **out, bool *none,
                       weft_error *e);

/* The folders of a checkpoint: while it is written, and then. */
const char *store_path(Arena *a, const char *dir, int64_t step, bool temporary);
/* Makes a folder and those above it. */
weft_status store_make(Disk *d, const char *dir, weft_error *e);
/* Removes what ends of runs have left: temporary folders and files, ours by name. */
void store_clean(const char *dir);
/* Removes a temporary folder. */
void store_drop(const char *path);
/* Removes the weights of a checkpoint, if there are any: first their name. */
void store_drop_weights(const char *dir, int64_t step);
/* The manifest goes into the temporary folder, which then becomes the checkpoint, and the
 * latest one. */
weft_status store_commit(Disk *d, const char *dir, const Manifest *m, weft_error *e);
/* Removes all but the last `keep` (0: none) and the latest, and the weights beside them. */
weft_status store_prune(const char *dir, int64_t keep, weft_error *e);

/* Whether a checkpoint is one of the folder's. */
bool store_holds(const char *dir, const char *ckpt);
/* One run writes into a folder: returns a descriptor that holds it, -1 if another one has
 * it or it cannot be opened; `*taken` tells which. */
int store_lock(const char *dir, bool *taken);
void store_unlock(int lock);

#endif
