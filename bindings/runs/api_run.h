/* api_run.h - the run handle of weft.h. */
#ifndef WEFT_API_RUN_H
#define WEFT_API_RUN_H

#include "bindings/api/api.h"
#include "export_folder.h"
#include "vm/ckpt/ckpt_save.h"
#include "vm/session/session.h"

struct weft_run {
  weft_alloc alloc;
  weft_plan *plan;
  const Compiled *c; /* compiled when the run was opened */
  Mesh mesh;         /* as then: a plan may be compiled again while its runs go on */
  Graph *graph;
  Session s;       /* its data are opened by the first step */
  bool filled;     /* parameters and states have values: of init, load or a checkpoint */
  bool own_tokens; /* the host has given a step its tokens */
  int64_t skipped; /* the last step, if it was skipped, else -1 */

  /* ---- api_keep.c ---- */
  Arena *kept;          /* of all below; NULL: there is nothing yet */
  Ckpt *from;           /* the checkpoint that the run has resumed from, or NULL */
  Saver *saver;         /* opened by the first save */
  ExportFolder weights; /* beside checkpoints, if the plan wants it */
  const RunFact *fact;  /* of the checkpoints of this run */
  int nfact;
  bool told_own; /* they say that the tokens were the host's */
  char *plan_text;
  size_t plan_bytes;
  Text notes; /* warnings of the last call */
};

/* Opens the plan's data, which were not open. */
weft_status api_run_data(weft_run *r, weft_error *e);
/* Opens them where the plan has epochs: only then are its steps known. */
weft_status api_run_length(weft_run *r, weft_error *e);
/* Fills parameters and states from where the session says. */
weft_status api_run_fill(weft_run *r, weft_error *e);
/* WEFT_EUSAGE while they are whatever was in memory. */
weft_status api_run_filled(const weft_run *r, weft_error *err);
/* WEFT_ERUN if a step or an evaluation has failed: the run cannot begin anew. */
weft_status api_run_lives(const weft_run *r, weft_error *err);
/* Adds a line to the notes; NULL: nothing. */
void api_note(weft_run *r, const char *text);
/* Begins anew: what follows is no longer of the checkpoint that it resumed from. */
void api_keep_forget(weft_run *r);
/* Frees what api_keep.c has made. */
void api_keep_end(weft_run *r);

#endif
