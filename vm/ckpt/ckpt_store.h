/* ckpt_store.h - the folder with the checkpoints of a run: lists them, finds the latest,
 * and cleans up after runs that were interrupted. */
#ifndef WEFT_CKPT_STORE_H
#define WEFT_CKPT_STORE_H

#include "rank_file.h"

#define LATEST_NAME  "latest"
#define WEIGHTS_NAME "weights-"
#define STORE_TMP    ".tmp" /* suffix of a folder that is being written */
#define STORE_OLD                                                                        \
  ".old" /* ... of a checkpoint while one of the same step takes its name */
enum { STORE_NAME = 64 }; /* room for a folder's name */

/* A checkpoint. */
typedef struct StoreEntry {
  const char *name; /* "step-00000100" */
  int64_t step, saved_at;
} StoreEntry;
typedef struct StoreList {
  StoreEntry *at; /* most recently saved first */
  int n;
} StoreList;
/* Lists those with a readable manifest; empty if the folder does not exist. */
weft_status store_list(Arena *a, const char *dir, StoreList *out, weft_error *e);
/* Those without one, too, whose step and time are of the folder. */
weft_status store_list_all(Arena *a, const char *dir, StoreList *out, weft_error *e);
/* The time of the last one saved, of those with a readable manifest; 0: there is none. */
weft_status store_last(const Dir *in, int64_t *out, weft_error *e);
/* The time of one that is saved now after one of time `last`. It is later than that, also
 * where the clock has been set back: times are the order of checkpoints. */
int64_t store_time(int64_t last);

/* Opens the newest whole checkpoint of a folder, the last one saved. Calls `skip` for
 * each one that is not whole, and for one that `latest` names and that is gone. *out is
 * NULL if the folder has none at all; WEFT_EFILE if none is whole. */
typedef void (*StoreSkip)(void *ud, const char *name, const weft_error *why);
weft_status store_newest(Arena *a, const char *dir, StoreSkip skip, void *ud, Ckpt **out,
                         weft_error *e);

/* The checkpoint that `path` names: a checkpoint, or a folder of them, whose newest one
 * is taken. WEFT_EFILE if there is none; *none tells that from other errors. */
weft_status store_find(Arena *a, const char *path, const char **out, bool *none,
                       weft_error *e);

/* The folder of a step's checkpoint, or its temporary folder. */
const char *store_path(Arena *a, const char *dir, int64_t step, bool temporary);

/* store_find.c: true if it is the name of a checkpoint, also of one that was making way,
 * or of a temporary folder. */
bool store_is_step(const char *name, bool temporary);
/* The checkpoint that the file `latest` names; NULL if it does not exist. The file is for
 * people and scripts: one that could not be written names an older checkpoint. */
const char *store_latest(Arena *a, const char *dir);

/* ---- writing ---- in an open folder (vm/io/dir.h) */

/* Opens the folder of a run's checkpoints, or creates it. WEFT_EUSAGE if a link below the
 * plan's folder leads to it. */
weft_status store_open(const Checkpointing *c, Dir *out, weft_error *e);
/* False if another run has locked the folder. The lock ends when `in` is closed. */
bool store_lock(const Dir *in);
/* True if the checkpoint is in this folder. */
bool store_holds(const Dir *in, const char *ckpt);
/* Removes temporary folders and files of interrupted runs, if their names and all their
 * contents are weft's. */
void store_clean(const Dir *in);

/* Opens the temporary folder of a step, or creates it. WEFT_EFILE if it has other
 * files. */
weft_status store_make(RankFile *d, const Dir *in, int64_t step, Dir *out, weft_error *e);
/* Removes the temporary folder of a step. */
void store_drop(const Dir *in, int64_t step);
/* The name of the folder with a checkpoint's exported weights. */
const char *store_weights(char out[STORE_NAME], int64_t step);
/* Removes a checkpoint's exported weights, if there are any; renames them first. */
void store_drop_weights(const Dir *in, int64_t step);
/* Commits a checkpoint: checks that every rank's file is there as it was written and that
 * every rank with state in the programs `of` has one; writes the manifest into `from` and
 * renames `from`. */
weft_status store_commit(RankFile *d, const Dir *in, const Dir *from, const Manifest *m,
                         const Compiled *of, weft_error *e);
/* Has `latest` name the checkpoint, which is there whether that succeeds or not. If not,
 * `why` says why, and no file `latest` is left that names an older one. */
void store_point(RankFile *d, const Dir *in, int64_t step, weft_error *why);
/* Removes all but the last `keep` (0: none) whole checkpoints, the latest and that of
 * step `best` (0: none), and the weights beside them; continues after one that cannot be
 * removed. */
weft_status store_prune(const Dir *in, int64_t keep, int64_t best, weft_error *e);

#endif
