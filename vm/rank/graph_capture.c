/* graph_capture.c - CUDA graphs: the main part of a step captured once and replayed. The
 * first step is launched op by op, which says best what is wrong with it; the second is
 * captured; all later ones replay it. Where what is launched op by op may keep back what
 * a peer waits for (Comm.crowded), the first is captured, too, and launched once.
 *
 * A replay has the arguments of the captured step, so each launch must have equal
 * arguments in every step: what changes is read from memory that upload fills. This is
 * checked: the first step records a fingerprint of each launch's arguments, and the
 * captured one compares; builds with assertions repeat every later step without enqueuing
 * anything, and compare too. */
#include <stdio.h>

#include "interp.h"

uint32_t capture_fingerprints(const Program *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nmain; i++) {
    const Instr *in = &p->code[i];
    const Body *b = in->code == I_CALL ? &p->body[p->call[in->call].body] : NULL;
    const Instr *first = b ? &p->code[b->first] : in;
    for (uint32_t k = 0; k < (b ? b->n : 1); k++)
      n += first[k].code == I_KERNEL || instr_is[first[k].code] & INSTR_STARTS ? 1 : 0;
  }
  return n;
}

weft_status capture_check(Rank *r, uint64_t given, weft_error *e) {
  GraphCapture *k = capture_of(r);
  const DeviceCapture *d = r->dev->vt->keeper;
  uint64_t print = d->print(r->dev);
  print = hash_bytes(print, &given, sizeof given);
  assert(k->at < k->nprint);
  if (k->stage == CAPTURE_FIRST)
    k->print[k->at] = print;
  else if (k->print[k->at] != print)
    return err_set(
        e, WEFT_EINTERNAL,
        "its launch arguments are not those of the first step, so the step cannot be "
        "replayed as a CUDA graph; cuda_graph = false launches every op in every step");
  k->at++;
  if (!k->captures) return WEFT_OK;
  weft_status st = d->goes_on(r->dev, e);
  k->broken |= st != WEFT_OK;
  return st;
}

/* Runs main and looks at all of it. */
static weft_status main_looking(Rank *r, StepEnd *end, weft_error *e) {
  GraphCapture *k = capture_of(r);
  (void)r->dev->vt->keeper->print(r->dev);
  k->at = 0;
  r->looks = true;
  weft_status st = interp_main(r, false, end, e);
  r->looks = false;
  assert(st != WEFT_OK || k->at == k->nprint);
  return st;
}

/* ---- capturing ---- */

static weft_status capture(Rank *r, StepEnd *end, weft_error *e) {
  GraphCapture *k = capture_of(r);
  const DeviceCapture *d = r->dev->vt->keeper;
  weft_error ends = NO_ERROR;
  k->broken = d->begin(r->dev, e) != WEFT_OK;
  if (k->broken) return e->code;
  k->captures = true;
  weft_status st = main_looking(r, end, e);
  k->captures = false;
  weft_status ended = d->end(r->dev, &k->kept, &ends);
  if (st != WEFT_OK || ended == WEFT_OK) return st;
  k->broken = true;
  *e = ends;
  return ended;
}

/* Nothing of it ran. Where it broke is where the rank is. */
static weft_status cannot_keep(Rank *r, const weft_error *why, StepEnd *end,
                               weft_error *e) {
  GraphCapture *k = capture_of(r);
  const Instr *in = atomic_load(&r->at);
  k->stage = CAPTURE_NEVER;
  snprintf(k->why, sizeof k->why, "%.400s", why->text);
  if (in && in->line && !in->action)
    snprintf(k->why, sizeof k->why, "%.400s (line %d)", why->text, in->line);
  comm_drop(r->comm);
  return interp_main(r, false, end, e);
}

static weft_status capture_step(Rank *r, StepEnd *end, weft_error *e) {
  GraphCapture *k = capture_of(r);
  weft_error why = NO_ERROR;
  capture_free(r); /* of the first step, which has ended */
  weft_status st = capture(r, end, &why);
  if (st == WEFT_OK) {
    k->stage = k->stage == CAPTURE_FIRST ? CAPTURE_NOW : CAPTURE_REPLAY;
    device_replay(r->dev, k->kept);
    return WEFT_OK;
  }
  capture_free(r);
  if (k->broken) return cannot_keep(r, &why, end, e);
  if (e) *e = why;
  return st;
}

/* ---- replaying ---- */

static weft_status look_once_more(Rank *r, weft_error *e) {
  r->dev->dry = true;
  weft_status st = main_looking(r, NULL, e);
  r->dev->dry = false;
  return st;
}

static weft_status replay(Rank *r, StepEnd *end, weft_error *e) {
  if (r->dev->strict) TRY(look_once_more(r, e));
  if (end && !step_updates(end)) return err_set(e, WEFT_EINTR, "interrupted");
  atomic_store(&r->at, NULL); /* only the queues know */
  device_replay(r->dev, capture_of(r)->kept);
  return WEFT_OK;
}

weft_status capture_main(Rank *r, bool check, StepEnd *end, weft_error *e) {
  GraphCapture *k = capture_of(r);
  if (!k || check || k->stage == CAPTURE_NEVER) return interp_main(r, check, end, e);
  if (k->stage == CAPTURE_REPLAY) return replay(r, end, e);
  if (k->stage == CAPTURE_NOW || r->comm->crowded) return capture_step(r, end, e);
  weft_status st = main_looking(r, end, e);
  if (st == WEFT_OK) k->stage = CAPTURE_NOW;
  return st;
}

/* ---- the rank ---- */

void rank_capture(Rank *r) {
  GraphCapture *k = capture_of(r);
  if (k && r->dev->vt->keeper) k->stage = CAPTURE_FIRST;
}

const char *rank_not_captured(Rank *r) {
  GraphCapture *k = capture_of(r);
  if (!k || k->said || !k->why[0]) return NULL;
  k->said = true;
  return k->why;
}

void capture_free(Rank *r) {
  GraphCapture *k = capture_of(r);
  if (k && k->kept) r->dev->vt->keeper->forget(r->dev, k->kept);
  if (k) k->kept = NULL;
}
