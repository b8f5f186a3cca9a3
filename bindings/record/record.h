/* record.h - progress of a run: a line on the terminal, JSON lines (--log), TensorBoard
 * events
 * (--tensorboard). Each step becomes one Record, which all three writers take. */
#ifndef WEFT_RECORD_H
#define WEFT_RECORD_H

#include "bindings/api/job.h"
#include "vm/io/file.h"

/* What a run is, before its first step. The caller fills all but what says otherwise. */
typedef struct RunHead {
  const Job *job;   /* compiled */
  const char *plan; /* the path that the user gave */
  const char *comm, *data;
  const char *way;      /* run_way, or NULL */
  uint64_t plan_hash;   /* job_hash */
  int64_t end;          /* the step that is not taken any more */
  const char *resumed;  /* the checkpoint that this run goes on from, or NULL */
  int64_t resumed_step; /* then: its first step here */
  char id[20];          /* record_open gives it: the number of the run */
} RunHead;

/* A step and what follows from it. */
typedef struct Record {
  StepResult step;
  int64_t end;     /* as in RunHead */
  uint64_t memory; /* bytes of the worst rank's arena */
  double tokens_per_s;
  double flops_per_s; /* of the model, see model_flops; 0: not known */
  double share;       /* of the devices' peak; 0: that is not known */
  double left_s;      /* until the end of the run; < 0: not known yet */
} Record;

/* Floating-point operations of a step on all ranks, as the compiler counts them, without
 * those that recompute repeats: what the model needs, however it is kept in memory. */
double model_flops(const Compiled *c);
/* Those that all devices could do in a second by the figures of the plan's cluster; 0 if
 * it has none, or if the devices are not those that they are about. */
double device_peak(const Plan *p, const Compiled *c);

/* ---- line.c ---- texts of one line, without its end */
void line_of_step(const Record *r, Text *out);
void line_of_evaluation(const Record *r, Text *out);
void line_of_skipped(const Record *r, Text *out);
/* Short: on a terminal it is written over and over. */
void line_of_progress(const Record *r, Text *out);

/* ---- log.c ---- one JSON object a line, all with the id of their run */
weft_status log_open(const char *path, bool append, FileEnd *out, weft_error *e);
weft_status log_head(const FileEnd *to, const RunHead *h, weft_error *e);
weft_status log_warning(const FileEnd *to, const RunHead *h, const char *text,
                        weft_error *e);
weft_status log_record(const FileEnd *to, const RunHead *h, const Record *r,
                       weft_error *e);

/* ---- events.c ---- */
typedef struct Events {
  Dir folder;
  FileEnd file; /* closed: there is none */
} Events;
#define EVENTS_NONE ((Events){.folder = DIR_CLOSED, .file = {.fd = -1}})
/* Makes the folder. WEFT_EUSAGE if another run is in it and this one is not to be added.
 */
weft_status events_ready(const char *folder, bool append, Events *out, weft_error *e);
/* A new file in it. */
weft_status events_open(Events *ev, const RunHead *h, weft_error *e);
weft_status events_record(Events *ev, const Record *r, weft_error *e);
void events_close(Events *ev);
/* A value of a step, as one record of an event file, added to `out` (tests). */
void events_scalar(Text *out, double time, int64_t step, const char *tag, double value);
/* The record that an event file begins with. */
void events_version(Text *out, double time);

/* ---- record.c ---- */
typedef struct RecordOptions {
  const char *log, *events; /* a file, a folder, or NULL */
  bool append;              /* they may have other runs in them */
  bool lines, progress;     /* on stdout; on stderr, written over */
} RecordOptions;

typedef struct Recorder {
  bool open; /* else nothing is told: there is another process for that */
  RecordOptions o;
  RunHead head;
  Events events;
  FileEnd log; /* closed: none */
  double flops, peak;
  uint64_t memory;
  double since;         /* when the first step here had ended */
  int64_t done;         /* steps after it */
  double last_progress; /* when; 0: nothing stands on the terminal */
} Recorder;

/* Before anything that takes long: says at once what cannot be written. What is not known
 * yet of the head may be filled in until record_begin. After an error, and of a zeroed
 * struct, record_close may be called. */
weft_status record_open(Recorder *rec, const RecordOptions *o, const RunHead *head,
                        weft_error *e);
/* The head of the run; `memory` as in Record. */
weft_status record_begin(Recorder *rec, uint64_t memory, weft_error *e);
weft_status record_step(Recorder *rec, const StepResult *r, weft_error *e);
/* In the log: what the user was told. */
weft_status record_warning(Recorder *rec, const char *text, weft_error *e);
/* Gives the terminal's line free for something else. */
void record_clear(Recorder *rec);
void record_close(Recorder *rec);

#endif
