/* saver_begin.c - what a run that saves does before its first checkpoint: the folder is
 * opened, locked and cleaned, must not have checkpoints of another run, and the parts of
 * the manifest that do not change are made. */
#include "ckpt_save_int.h"

#include "vm/weights/shared_folder.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* The folder must not have checkpoints of a run that this one does not resume, whole or
 * not: a step of the same number would take their place. */
static weft_status check_empty(Arena *a, void *ud, weft_error *e) {
  const Saver *s = ud;
  const char *dir = s->o.plan->checkpoint.dir;
  StoreList all, list;
  TRY(store_list_all(a, dir, &all, e));
  if (!all.n || (s->o.from && store_holds(&s->dir, s->o.from->dir))) return WEFT_OK;
  TRY(store_list(a, dir, &list, e));
  if (!list.n)
    return err_file(e, WEFT_EUSAGE, dir, 0,
                    "has %s, which is no checkpoint that can be read (weft ckpt verify "
                    "says why): --set checkpoint.dir=DIR writes to another folder",
                    all.at[0].name);
  return err_file(e, WEFT_EUSAGE, dir, 0,
                  "has checkpoints already, the last one of step %lld: --resume auto "
                  "resumes from it, --set checkpoint.dir=DIR writes to another folder",
                  (long long)list.at[0].step);
}

/* Makes the open folder that of this run; closes it if it is another's. */
static weft_status own_folder(Saver *s, weft_error *e) {
  weft_status st;
  if (store_lock(&s->dir)) {
    store_clean(&s->dir);
    st = arena_scoped(NULL, check_empty, s, e);
  } else {
    st = err_file(e, WEFT_EUSAGE, s->o.plan->checkpoint.dir, 0,
                  "another run writes its checkpoints there");
  }
  if (st != WEFT_OK) dir_close(&s->dir);
  return st;
}

weft_status saver_take_folder(Saver *s, weft_error *e) {
  TRY(store_open(&s->o.plan->checkpoint, &s->dir, e));
  return own_folder(s, e);
}

/* Each process holds the folder open. A folder that cannot be written is no error yet,
 * but a link that may not be followed is. */
static weft_status open_folder(Saver *s, weft_error *e) {
  weft_error why = NO_ERROR;
  weft_status st = store_open(&s->o.plan->checkpoint, &s->dir, &why);
  if (st == WEFT_OK && !dir_writable(&s->dir))
    st = dir_fails(&s->dir, NULL, "cannot be written", errno, &why);
  if (st == WEFT_EUSAGE) return err_file(e, st, why.file, 0, "%s", why.text);
  if (st != WEFT_OK)
    saver_say(s, true, "checkpoints cannot be written: %s: %s", why.file, why.text);
  return WEFT_OK;
}

/* Done by the first process only. */
static weft_status take_folder(Saver *s, weft_error *e) {
  TRY(open_folder(s, e));
  return s->dir.fd < 0 ? WEFT_OK : own_folder(s, e);
}

/* Fills in the strings and lists that all manifests of the run share. */
static void make_manifest(Saver *s) {
  const Compiled *c = s->c;
  const SaverOptions *o = &s->o;
  char hash[CHECKSUM_TEXT];
  CkptParam *p = NEW_N(s->arena, CkptParam, c->nparam);
  for (int i = 0; i < c->nparam; i++) {
    p[i] = (CkptParam){.name = c->param[i].name,
                       .ndim = c->param[i].ndim,
                       .frozen = c->param[i].frozen,
                       .matrix = c->param[i].matrix,
                       .factors = c->param[i].factors};
    memcpy(p[i].dim, c->param[i].dim, sizeof p[i].dim);
  }
  s->file = NEW_N(s->arena, CkptFile, c->mesh.world);
  checksum_text(checksum(o->plan_text, strlen(o->plan_text)), hash);
  s->m = (Manifest){.seed = (int64_t)o->plan->seed,
                    .weft = weft_version(),
                    .name = o->plan->name,
                    .optimizer = c->optimizer,
                    .mesh = o->mesh,
                    .world = c->mesh.world,
                    .plan = o->plan_text,
                    .plan_hash = arena_str(s->arena, hash),
                    .fact = o->fact,
                    .nfact = o->nfact,
                    .param = p,
                    .nparam = c->nparam,
                    .file = s->file,
                    .nfile = c->mesh.world};
}

weft_status saver_begin(Saver *s, weft_error *e) {
  struct timespec now;
  uint64_t id[3] = {(uint64_t)getpid()};
  char stem[STORE_NAME];
  make_manifest(s);
  clock_gettime(CLOCK_REALTIME, &now);
  id[1] = (uint64_t)now.tv_sec, id[2] = (uint64_t)now.tv_nsec;
  checksum_text(checksum(id, sizeof id), s->run_id);
  bool first = run_rank(s->run) == 0;
  TRY(run_agree(s->run, first ? take_folder(s, e) : WEFT_OK, e));
  s->taken = s->dir.fd >= 0;
  TRY(run_from_first(s->run, &s->taken, sizeof s->taken, e));
  TRY(run_from_first(s->run, s->run_id, sizeof s->run_id, e));
  TRY(run_agree(s->run, first ? WEFT_OK : open_folder(s, e), e));
  /* What is left of it after a kill, store_clean removes. */
  return run_shares_folder(s->run, &s->dir, store_weights(stem, 0),
                           s->o.plan->checkpoint.dir, &s->shared, e);
}
