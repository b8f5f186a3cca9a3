/* record.h - progress of a run: a line on the terminal, JSON lines (--log), TensorBoard
 * events (--tensorboard). Each step is one Record, which all three writers take. */
#ifndef WEFT_RECORD_H
#define WEFT_RECORD_H

#include "bindings/api/job.h"
#include "vm/base/json.h"
#include "vm/io/file.h"

/* A run before its first step. The caller fills all members except those noted. */
typedef struct RunHead {
  const Job *job;   /* compiled */
  const char *plan; /* path of the plan, as the user gave it */
  const char *comm, *data;
  const Data *of, *val;  /* the data, for the names of their streams */
  const char *way;       /* how steps are launched (run_way), or NULL */
  const char *kernels;   /* how they came to the device (run_kernels), or NULL */
  const char *arena;     /* how NCCL has it (run_arena), or NULL */
  const char *attention; /* who computes it, if the device has a choice, or NULL */
  uint64_t plan_hash;    /* job_hash */
  int64_t end;           /* the run ends before this step */
  const char *resumed;   /* the checkpoint that this run resumes from, or NULL */
  int64_t resumed_step;  /* the first step after it */
  char id[20];           /* run id, set by record_open */
} RunHead;

/* A step with derived figures. */
typedef struct Record {
  StepResult step;
  int64_t end;     /* as in RunHead */
  uint64_t memory; /* arena bytes of the worst rank */
  double tokens_per_s;
  double flops_per_s; /* see model_flops; 0: unknown */
  double share;       /* of the devices' peak; 0: unknown */
  double left_s;      /* seconds until the end of the run; < 0: unknown */
} Record;

/* Floating-point operations of a step on all ranks, without recomputed ones: what the
 * model needs however it is kept in memory. */
double model_flops(const Compiled *c);
/* Peak operations per second of all devices, by the plan's cluster; 0 without a cluster,
 * or if the run is on other devices. */
double device_peak(const Plan *p, const Compiled *c);

/* ---- line.c ---- Lines without a newline. */
void line_of_step(const Record *r, Text *out);
void line_of_evaluation(const Record *r, Text *out);
void line_of_skipped(const Record *r, Text *out);
/* A short line that is overwritten on a terminal. */
void line_of_progress(const Record *r, Text *out);

/* ---- sources.c ---- Losses of the streams of a blend, those that have labels. */
void sources_json(Json *out, const char *key, const Data *of, const SourceLoss *s, int n);
/* A line each: the mean loss and how many labels that is of. */
void sources_text(const Data *of, const SourceLoss *s, int n, Text *out);
/* Sums over the last steps of a run: between one and two tenths of them. */
typedef struct SourceSums {
  SourceLoss now[SOURCES_MOST], before[SOURCES_MOST];
  int64_t steps, steps_before; /* in each of them */
} SourceSums;
void sources_add(SourceSums *sums, const StepResult *r, int64_t tenth);
/* Of both; returns how many steps these are. */
int64_t sources_last(const SourceSums *sums, SourceLoss out[SOURCES_MOST]);

/* ---- log.c ---- One JSON object per line, each with the id of its run. */
weft_status log_open(const char *path, bool append, FileEnd *out, weft_error *e);
/* So that the next line begins one: cuts off what a run that was killed, or a full disk,
 * has left of the last line, and ends a last line that is none of a log. */
weft_status log_mend(const FileEnd *to, weft_error *e);
weft_status log_head(const FileEnd *to, const RunHead *h, weft_error *e);
/* `event`: "warning", "stopped", and how the run has ended: "done", "interrupted",
 * "failed". */
weft_status log_note(const FileEnd *to, const RunHead *h, const char *event,
                     const char *text, weft_error *e);
weft_status log_record(const FileEnd *to, const RunHead *h, const Record *r,
                       weft_error *e);

/* ---- events.c ---- */
typedef struct Events {
  Dir folder;
  FileEnd file; /* closed: no event file */
} Events;
#define EVENTS_NONE ((Events){.folder = DIR_CLOSED, .file = {.fd = -1}})
/* Creates the folder. WEFT_EUSAGE if it has events of another run, unless `append`. */
weft_status events_ready(const char *folder, bool append, Events *out, weft_error *e);
/* Opens a new event file in it. */
weft_status events_open(Events *ev, const RunHead *h, weft_error *e);
weft_status events_record(Events *ev, const Record *r, weft_error *e);
void events_close(Events *ev);
/* Appends a value of a step as one record of an event file; for tests. */
void events_scalar(Text *out, double time, int64_t step, const char *tag, double value);
/* Appends the record that an event file begins with. */
void events_version(Text *out, double time);
/* Appends the record by which readers leave out what earlier files have of steps from
 * `step` on: the run was resumed before it. */
void events_restart(Text *out, double time, int64_t step);

/* ---- record.c ---- */
typedef struct RecordOptions {
  const char *log, *events; /* a file, a folder; or NULL */
  bool append;              /* files may have other runs in them */
  bool lines, progress;     /* lines on stdout; progress on stderr, overwritten */
  void (*warn)(void *ud,
               const char *text); /* of a file that cannot be written any more */
  void *ud;
} RecordOptions;

typedef struct Recorder {
  bool open; /* else another process reports */
  RecordOptions o;
  RunHead head;
  Events events;
  FileEnd log;  /* closed: no log */
  bool begun;   /* it has the head of this run */
  Text early;   /* warnings before that, each with its end */
  int64_t lost; /* lines of it since the last one that could be written */
  bool unread;  /* the standard output takes no more lines */
  double flops, peak;
  uint64_t memory;
  double since;         /* time when the first step of this run had ended */
  int64_t done;         /* steps after that one */
  double last_progress; /* time; 0: no progress line is shown */
} Recorder;

/* Called before anything that takes long: fails if a file cannot be written. Members of
 * the head that are not known yet may be filled in until record_begin. record_close may
 * be called after an error and for a zeroed struct. */
weft_status record_open(Recorder *rec, const RecordOptions *o, const RunHead *head,
                        weft_error *e);
/* Writes the head of the run; `memory` as in Record. */
weft_status record_begin(Recorder *rec, uint64_t memory, weft_error *e);
/* A run does not end because its log or the standard output cannot be written, as where a
 * disk is full or nobody reads a pipe: lines are lost until they can be again, and an
 * event file ends. A warning says so. */
void record_step(Recorder *rec, const StepResult *r);
/* Writes a text to the log, as in log_note: behind the head of the run, before which
 * there may be warnings alone. */
void record_note(Recorder *rec, const char *event, const char *text);
/* The last line of the log of a run that has begun: how it has ended, and for an error
 * its text. */
void record_end(Recorder *rec, weft_status st, const weft_error *e);
/* Clears the progress line, before something else is printed. */
void record_clear(Recorder *rec);
void record_close(Recorder *rec);

#endif
