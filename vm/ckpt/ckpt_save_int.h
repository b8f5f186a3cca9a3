/* ckpt_save_int.h - what the files of ckpt_save.c share. */
#ifndef WEFT_CKPT_SAVE_INT_H
#define WEFT_CKPT_SAVE_INT_H

#include "ckpt_save.h"

#include <pthread.h>

/* FOLDER: the first process takes the folder of checkpoints, which it could not before.
 */
typedef enum { PHASE_NONE, PHASE_FOLDER, PHASE_FILES, PHASE_MANIFEST } SavePhase;
enum { WHY = 200 };

struct Saver {
  Run *run;
  SaverOptions o;
  const Compiled *c;
  Arena *arena; /* lives as long as the saver */
  RankFile disk;
  Dir dir;     /* the folder of checkpoints; closed while it cannot be opened */
  bool taken;  /* it is this run's: the first process has it, and all know */
  bool shared; /* all processes have found the same one */
  char run_id[CHECKSUM_TEXT];
  StopFlag stop;
  bool settles;  /* all processes have found an error, and end with this save */
  int64_t saved; /* step of the last save that began; -1: none */
  int64_t best;  /* of the best evaluation whose checkpoint was written; 0: none */
  int64_t last;  /* time of the last checkpoint of the folder; -1: not known yet */
  double paused;

  SavePhase phase;
  pthread_t thread;
  bool has_thread;
  _Atomic bool done; /* the thread has finished its phase */
  Manifest m;        /* manifest of the save in progress */
  CkptFile *file;    /* of all ranks */
  Dir into;          /* its temporary folder */
  double begun;
  weft_status st; /* result of the thread */
  weft_error e;
  weft_error latest;  /* ... of its naming the checkpoint in `latest` */
  weft_error weights; /* ... of its export of weights */
  weft_error old;     /* ... of its removal of old checkpoints */
  bool lost;          /* the last save failed: */
  char why[WHY];
};

/* Tells the user, once for all processes. */
void saver_say(const Saver *s, bool warning, const char *fmt, ...) PRINTF(3, 4);

/* ---- saver_begin.c ---- */
/* Takes the folder of checkpoints for this run and makes what all its manifests share. */
weft_status saver_begin(Saver *s, weft_error *e);
/* Takes a folder that could not be opened then. For the first process; in any thread. */
weft_status saver_take_folder(Saver *s, weft_error *e);

#endif
