/* ckpt_store.h - the folder that has the checkpoints of a run: which are there, which is
 * the latest, and what a run that ended early has left behind. */
#ifndef WEFT_CKPT_STORE_H
#define WEFT_CKPT_STORE_H

#include "rank_file.h"

#define LATEST_NAME  "latest"
#define WEIGHTS_NAME "weights-"
#define STORE_TMP    ".tmp" /* behind the name of a folder that is written */
enum { STORE_NAME = 64 };   /* room for the name of a folder in it */

/* A checkpoint. */
typedef struct StoreEntry {
  const char *name; /* "step-00000100" */
  int64_t step, saved_at;
} StoreEntry;
typedef struct StoreList {
  StoreEntry *at; /* the one that was saved last first */
  int n;
} StoreList;
/* Those whose manifest can be read. Nothing if there is no such folder. */
weft_status store_list(Arena *a, const char *dir, StoreList *out, weft_error *e);

/* Opens the newest checkpoint of a folder that is whole: the one that `latest` names, or
 * else the one that was saved last. One that is not is skipped: `skip` is told. *out is
 * NULL if the folder has none at all; WEFT_EFILE if none of them is whole. */
typedef void (*StoreSkip)(void *ud, const char *name, const weft_error *why);
weft_status store_newest(Arena *a, const char *dir, StoreSkip skip, void *ud, Ckpt **out,
                         weft_error *e);

/* The checkpoint that `path` names: itself, or in a folder of them the one that is the
 * latest. WEFT_EFILE if there is none; *none says whether that is all that is wrong. */
weft_status store_find(Arena *a, const char *path, const char **out, bool *none,
                       weft_error *e);

/* The folders of a checkpoint: while it is written, and then. */
const char *store_path(Arena *a, const char *dir, int64_t step, bool temporary);

/* store_find.c: whether it is the name of one, or of one while it is written. */
bool store_is_step(const char *name, bool temporary);
/* The name of the checkpoint that `latest` names, NULL if it is not there. */
const char *store_latest(Arena *a, const char *dir);

/* ---- writing ---- in a folder that is held open (vm/io/dir.h) */

/* The folder of a run's checkpoints, made if it is not there. WEFT_EUSAGE if a link below
 * the plan's folder leads to it. */
weft_status store_open(const Checkpointing *c, Dir *out, weft_error *e);
/* One run writes into a folder: false if another one does. Ends when `in` is closed. */
bool store_lock(const Dir *in);
/* Whether a checkpoint is one of the folder's. */
bool store_holds(const Dir *in, const char *ckpt);
/* Removes what ends of runs have left: temporary folders and files, ours by name, that
 * have nothing else in them. */
void store_clean(const Dir *in);

/* The temporary folder of a step, made if it is not there. WEFT_EFILE if it has something
 * that no checkpoint has. */
weft_status store_make(RankFile *d, const Dir *in, int64_t step, Dir *out, weft_error *e);
/* Removes it. */
void store_drop(const Dir *in, int64_t step);
/* The name of the folder of a checkpoint's weights. */
const char *store_weights(char out[STORE_NAME], int64_t step);
/* Removes the weights of a checkpoint, if there are any: first their name. */
void store_drop_weights(const Dir *in, int64_t step);
/* The manifest goes into the temporary folder `from`, which then becomes the checkpoint,
 * and the latest one: after every rank's file was found there as the rank wrote it, and
 * every rank that has state to write, by the programs `of`, has a file. */
weft_status store_commit(RankFile *d, const Dir *in, const Dir *from, const Manifest *m,
                         const Compiled *of, weft_error *e);
/* Removes all but the last `keep` (0: none) that are whole and the latest, and the
 * weights beside them; goes on after one that cannot be removed. */
weft_status store_prune(const Dir *in, int64_t keep, weft_error *e);

#endif
