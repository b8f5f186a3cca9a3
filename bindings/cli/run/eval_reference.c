/* eval_reference.c - weft eval --reference: writes the losses that a preference loss
 * reads of a reference. The model of the plan is evaluated as a run begins with it, under
 * the plan's own mesh, and each row of a step is a source whose loss is told apart. */
#include "eval.h"
#include "vm/io/reference/reference_file.h"
#include "vm/base/plural.h"

typedef struct Writing {
  Evaluation *v;
  ReferenceOut out;
  bool writes;              /* this process does */
  double *loss;             /* of the rows of a step */
  int32_t *tokens, *labels; /* of one row */
} Writing;

static weft_status check(Evaluation *v) {
  Job *j = &v->job;
  const Cli *cli = v->cli;
  if (j->plan.loss.second != SECOND_FILE)
    return err_set(&j->e, WEFT_EUSAGE,
                   "--reference writes the file that the plan's loss reads, and the plan "
                   "names none: loss = { \"dpo\", reference_file = \"FILE\" }");
  if (cli->ckpt || cli->weights || cli->batches > 0)
    return err_set(&j->e, WEFT_EUSAGE,
                   "--reference is of the model as the plan begins, and of all its data: "
                   "leave out --ckpt, --weights and --batches");
  v->written = job_reference_path(j, true);
  if (v->written) return WEFT_OK;
  return err_set(
      &j->e, WEFT_EPLAN,
      "loss.reference_file = \"%s\": --reference writes below the plan's folder",
      j->plan.loss.file);
}

/* The plan without its loss, with data in the order of the files. */
static void evaluate_rows(Job *j) {
  j->plan.loss = (LossPlan){0};
  j->plan.data.shuffle = false;
  j->tells_rows = true;
}

static bool is_made_up(const DataSpec *d) { return d->kind == DATA_SYNTHETIC; }

static weft_status open_data(Evaluation *v) {
  Job *j = &v->job;
  Session *s = &v->session;
  const DataSpec *d = &j->plan.data;
  if (is_made_up(d))
    return err_set(&j->e, WEFT_EPLAN,
                   "data: of tokens that are made up losses of a reference are, too, and "
                   "no file is read");
  TRY(job_data(j, NULL, &s->data));
  v->rows[0] = data_windows(s->data);
  if (!data_has_val(d) || (d->val && is_made_up(d->val))) return WEFT_OK;
  TRY(job_val(j, NULL, &s->val));
  v->rows[1] = data_windows(s->val);
  return WEFT_OK;
}

static weft_status put_rows(Writing *w, const Data *d, int64_t first, int64_t n,
                            weft_error *e) {
  for (int64_t i = 0; i < n && w->writes; i++) {
    TRY(data_sample(d, first + i, w->tokens, w->labels, e));
    TRY(reference_put(&w->out, (float)w->loss[i], w->tokens, w->labels, e));
  }
  return WEFT_OK;
}

static weft_status write_data(Writing *w, const Data *d, int which) {
  Evaluation *v = w->v;
  Job *j = &v->job;
  int64_t step = j->plan.batch.global, all = v->rows[which];
  double sum = 0;
  for (int64_t at = 0; at < all; at += step) {
    int64_t n = MIN(step, all - at);
    TRY(run_row_losses(v->session.run, d, at, n, w->loss, &j->e));
    TRY(put_rows(w, d, at, n, &j->e));
    for (int64_t i = 0; i < n; i++) sum += w->loss[i];
  }
  v->mean[which] = all ? sum / (double)all : 0;
  return WEFT_OK;
}

static weft_status write_file(Writing *w, uint64_t model) {
  Evaluation *v = w->v;
  Job *j = &v->job;
  const Data *data[2] = {v->session.data, v->session.val};
  ReferenceHead head = {
      .model = model, .seq = j->plan.batch.seq, .n = {v->rows[0], v->rows[1]}};
  w->writes = run_rank(v->session.run) == 0;
  w->loss = NEW_N(j->arena, double, j->plan.batch.global);
  w->tokens = NEW_N(j->arena, int32_t, head.seq);
  w->labels = NEW_N(j->arena, int32_t, head.seq);
  if (w->writes) TRY(reference_create(v->written, &head, &w->out, &j->e));
  weft_status st = WEFT_OK;
  for (int i = 0; i < 2 && st == WEFT_OK; i++)
    if (data[i]) st = write_data(w, data[i], i);
  if (w->writes && st == WEFT_OK) return reference_finish(&w->out, &j->e);
  if (w->writes) reference_drop(&w->out);
  return st;
}

weft_status eval_reference(Evaluation *v) {
  Job *j = &v->job;
  Writing w = {.v = v};
  uint64_t model;
  TRY(check(v));
  evaluate_rows(j);
  TRY(job_compile(j));
  TRY(job_tokenizer(j));
  TRY(open_data(v));
  TRY(job_reference_model(j, &model, &j->e));
  TRY(job_weights(j, NULL, &v->session.weights, &j->e));
  TRY(eval_open_run(v));
  TRY(write_file(&w, model));
  if (!is_rank0(v->cli) || v->cli->json) return WEFT_OK;
  printf("%s: %lld sequence%s, mean loss %.4f", v->written, (long long)v->rows[0],
         plural(v->rows[0], "s"), v->mean[0]);
  if (v->rows[1])
    printf("; %lld for validation, %.4f", (long long)v->rows[1], v->mean[1]);
  printf("\n");
  return WEFT_OK;
}

void eval_reference_json(Json *out, void *ud) {
  const Evaluation *v = ud;
  json_str(out, "file", v->written);
  json_num(out, "mean_loss", v->mean[0]);
  json_int(out, "sequences", v->rows[0]);
  if (v->rows[1])
    json_num(out, "val_mean_loss", v->mean[1]);
  else
    json_none(out, "val_mean_loss");
  json_int(out, "val_sequences", v->rows[1]);
}
