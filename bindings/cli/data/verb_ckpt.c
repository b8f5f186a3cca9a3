/* verb_ckpt.c - weft ckpt: lists, verifies and compares checkpoints. */
#include "ckpt_verbs.h"

#include <time.h>
#include <sys/stat.h>

#include "bindings/object/format.h"
#include "vm/ckpt/ckpt_compare.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/base/terminal.h"
#include "vm/base/plural.h"

/* What a part has: options of plans, those of exported weights, and --from. */
enum { OF_PLAN = 1, OF_WEIGHTS = 2, OF_SOURCE = 4 };

static const struct Part {
  const char *name, *args;
  int least, most; /* number of arguments */
  int options;
  int (*run)(Cli *cli, Arena *arena, const char *const *at);
} parts[] = {{"ls", "DIR", 1, 1, 0, ckpt_ls},
             {"verify", "DIR", 1, 1, 0, ckpt_verify_files},
             {"diff", "CKPT CKPT", 2, 2, 0, ckpt_diff},
             {"convert", "PLAN_A PLAN_B CKPT OUT", 4, 4, OF_PLAN, ckpt_convert_plan},
             {"export", "PLAN CKPT DIR", 3, 3, OF_PLAN | OF_WEIGHTS, ckpt_export},
             {"merge", "PLAN CKPT DIR", 3, 3, OF_PLAN | OF_WEIGHTS, ckpt_merge},
             {"plan", "PLAN [CKPT]", 1, 2, OF_PLAN | OF_SOURCE, ckpt_plan}};

int ckpt_end(Cli *cli, Arena *arena, weft_status st, const weft_error *e,
             void (*result)(Json *out, void *ud), void *ud) {
  Job j = {.arena = arena, .d = {.arena = arena}, .e = *e};
  return code_of_signal(cli, st, job_end(&j, cli, st, result, ud));
}

static weft_status wrong_part(const char *name, weft_error *e) {
  const char *names[LEN(parts)];
  Text list = {0};
  for (int i = 0; i < LEN(parts); i++) {
    names[i] = parts[i].name;
    text_printf(&list, "%s%s", i ? ", " : "", parts[i].name);
  }
  const char *near = str_nearest(name, names, LEN(parts));
  if (near)
    err_set(e, WEFT_EUSAGE, "weft ckpt has no \"%s\" (did you mean \"%s\"?)", name, near);
  else
    err_set(e, WEFT_EUSAGE, "weft ckpt has no \"%s\"; there are %s", name, list.s);
  text_free(&list);
  return WEFT_EUSAGE;
}

static weft_status check_options(const Cli *cli, const struct Part *p, weft_error *e) {
  static const char plans[] = "ckpt convert, export, merge and plan, which read plans";
  static const char weights[] = "ckpt export and merge";
  const Belongs all[] = {
      {!(p->options & OF_PLAN) && cli->nset, "--set", plans},
      {!(p->options & OF_PLAN) && cli->ndefine, "-D", plans},
      {!(p->options & OF_PLAN) && cli->ndata, "--data", plans},
      {!(p->options & OF_PLAN) && cli->memory > 0, "--memory", plans},
      {!(p->options & OF_WEIGHTS) && cli->dtype, "--dtype", weights},
      {!(p->options & OF_WEIGHTS) && cli->shard_size, "--shard-size", weights},
      {!(p->options & OF_SOURCE) && cli->from, "--from", "ckpt plan"}};
  return options_belong(all, LEN(all), e);
}

int verb_ckpt(Cli *cli, Arena *arena) {
  weft_error e = NO_ERROR;
  const struct Part *p = NULL;
  for (int i = 0; i < LEN(parts); i++)
    if (str_eq(parts[i].name, cli->arg[0])) p = &parts[i];
  int n = cli->narg - 1;
  bool fits = p && n >= p->least && n <= p->most;
  if (fits && check_options(cli, p, &e) == WEFT_OK)
    return p->run(cli, arena, cli->arg + 1);
  if (p && !fits)
    err_set(&e, WEFT_EUSAGE, "weft ckpt %s takes %s, got %d argument%s", p->name, p->args,
            n, plural(n, "s"));
  else if (!p)
    wrong_part(cli->arg[0], &e);
  return ckpt_end(cli, arena, WEFT_EUSAGE, &e, NULL, NULL);
}

/* ---- ls ---- */

typedef struct Listed {
  const char *name;
  bool latest;
  Manifest m;
  uint64_t bytes;
  const char *lacks; /* a file that is not there, or is of another size; NULL: none */
} Listed;

typedef struct Listing {
  Listed *at;
  int n;
} Listing;

/* The first file of a manifest that is not what it says, as far as its size tells; NULL:
 * none. */
static const char *lacking(Arena *a, const char *path, const Manifest *m) {
  struct stat is;
  for (int f = 0; f < m->nfile; f++) {
    const CkptFile *file = &m->file[f];
    if (!file->bytes) continue;
    if (stat(arena_printf(a, "%s/%s", path, file->name), &is) != 0 ||
        (uint64_t)is.st_size != file->bytes)
      return file->name;
  }
  return NULL;
}

/* One without a readable manifest is none, and a warning says so. */
static weft_status read_list(Arena *a, const char *dir, Listing *out, weft_error *e) {
  StoreList list;
  const char *latest;
  bool none;
  TRY(store_find(a, dir, &latest, &none, e));
  TRY(store_list_all(a, dir, &list, e));
  out->at = NEW_N(a, Listed, list.n + 1);
  for (int i = list.n; i-- > 0;) {
    Listed *l = &out->at[out->n];
    weft_error why = NO_ERROR;
    const char *path = arena_printf(a, "%s/%s", dir, list.at[i].name);
    l->name = list.at[i].name;
    l->latest = str_eq(path, latest);
    const char *manifest = arena_printf(a, "%s/" MANIFEST_NAME, path);
    weft_status st = manifest_read(a, manifest, &l->m, &why);
    if (st == WEFT_ENOMEM) return err_file(e, st, dir, 0, "%s", why.text);
    for (int f = 0; f < l->m.nfile && st == WEFT_OK; f++) l->bytes += l->m.file[f].bytes;
    if (st == WEFT_OK) l->lacks = lacking(a, path, &l->m);
    out->n += st == WEFT_OK;
    if (st != WEFT_OK) report_error("warning: %s: %s", why.file, why.text);
  }
  return WEFT_OK;
}

static const char *when(int64_t saved_at, char buf[32]) {
  time_t s = (time_t)(saved_at / 1000000000);
  struct tm utc;
  strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&s, &utc));
  return buf;
}

static void print_list(const Listing *l) {
  char bytes[32], time_text[32];
  for (int i = 0; i < l->n; i++) {
    const Listed *x = &l->at[i];
    printf("%s  %s  %s  %d file%s  %s  %s%s%s%s\n", SHOWN(x->name),
           when(x->m.saved_at, time_text), format_bytes((double)x->bytes, bytes),
           x->m.nfile, plural(x->m.nfile, "s"), SHOWN(x->m.mesh), SHOWN(x->m.name),
           x->latest ? "  latest" : "", x->lacks ? "  incomplete: " : "",
           x->lacks ? SHOWN(x->lacks) : "");
  }
}

static void list_json(Json *out, void *ud) {
  const Listing *l = ud;
  char time_text[32];
  json_open(out, "checkpoints", '[');
  for (int i = 0; i < l->n; i++) {
    const Listed *x = &l->at[i];
    json_open(out, NULL, '{');
    json_int(out, "bytes", (int64_t)x->bytes);
    json_bool(out, "complete", !x->lacks);
    json_int(out, "files", x->m.nfile);
    json_bool(out, "latest", x->latest);
    json_str(out, "mesh", x->m.mesh);
    json_str(out, "name", x->name);
    json_str(out, "plan", x->m.name);
    json_str(out, "saved_at", when(x->m.saved_at, time_text));
    json_int(out, "step", x->m.step);
    json_close(out, '}');
  }
  json_close(out, ']');
}

int ckpt_ls(Cli *cli, Arena *arena, const char *const *at) {
  weft_error e = NO_ERROR;
  Listing l = {0};
  weft_status st = read_list(arena, at[0], &l, &e);
  if (st == WEFT_OK && !cli->json) print_list(&l);
  return ckpt_end(cli, arena, st, &e, list_json, &l);
}

/* ---- verify ---- */

typedef struct Checked {
  const char *path;
  int files, tensors;
  uint64_t bytes;
} Checked;

static weft_status check_one(Checked *c, const StopFlag *stop, weft_error *e) {
  Ckpt *k;
  TRY(ckpt_open(c->path, &k, e));
  c->files = k->m.nfile, c->tensors = ckpt_kinds(k->m.optimizer) * k->m.nparam;
  weft_status st = ckpt_verify(k, stop, &c->bytes, e);
  ckpt_close(k);
  return st;
}

static void checked_json(Json *out, void *ud) {
  const Checked *c = ud;
  json_int(out, "bytes", (int64_t)c->bytes);
  json_int(out, "tensors", c->tensors);
}

/* Verifies a checkpoint, or all checkpoints of a folder. Each is checked, whatever the
 * others are; the first error is the result, unless a signal ends it. */
int ckpt_verify_files(Cli *cli, Arena *arena, const char *const *at) {
  weft_error e = NO_ERROR;
  StoreList list = {0};
  Checked sum = {0};
  const char *one;
  bool none;
  weft_status st = store_find(arena, at[0], &one, &none, &e);
  bool itself = st == WEFT_OK && one == at[0];
  if (st == WEFT_OK && !itself) st = store_list_all(arena, at[0], &list, &e);
  bool goes_on = st != WEFT_EUSAGE && !none;
  for (int i = itself ? 0 : list.n - 1; goes_on && i >= 0; i--) {
    Checked c = {.path =
                     itself ? one : arena_printf(arena, "%s/%s", at[0], list.at[i].name)};
    char bytes[32];
    weft_error why = NO_ERROR;
    weft_status was = check_one(&c, cli->stop, &why);
    sum.bytes += c.bytes, sum.tensors += c.tensors;
    goes_on = was != WEFT_EINTR;
    if (was == WEFT_EINTR || (was != WEFT_OK && st == WEFT_OK))
      st = was, e = why;
    else if (was != WEFT_OK)
      fprintf(stderr, "%s: error: %s\n", why.file, why.text);
    if (was == WEFT_OK && !cli->json)
      printf("%s: complete, %d tensor%s in %d file%s, %s\n", SHOWN(c.path), c.tensors,
             plural(c.tensors, "s"), c.files, plural(c.files, "s"),
             format_bytes((double)c.bytes, bytes));
  }
  return ckpt_end(cli, arena, st, &e, checked_json, &sum);
}

/* ---- diff ---- */

typedef struct Diff {
  bool prints;
  int tensors, differ, missing;
  double most_abs, most_rel;
} Diff;

static void diff_row(void *ud, const CompareRow *r) {
  Diff *d = ud;
  d->tensors++;
  d->differ += r->is == TENSOR_DIFFERS || r->is == TENSOR_SHAPE;
  d->missing += r->is == TENSOR_ONE || r->is == TENSOR_OTHER;
  d->most_abs = MAX(d->most_abs, r->most_abs);
  d->most_rel = MAX(d->most_rel, r->most_rel);
  if (!d->prints || r->is == TENSOR_SAME) return;
  printf("%s/%s: ", r->kind, SHOWN(r->name));
  if (r->is == TENSOR_DIFFERS)
    printf("%lld of %lld elements differ, by at most %.3g (relative %.3g)\n",
           (long long)r->differ, (long long)r->elements, r->most_abs, r->most_rel);
  else
    puts(r->is == TENSOR_SHAPE ? "has other shapes"
         : r->is == TENSOR_ONE ? "only in the first one"
                               : "only in the second one");
}

static void diff_json(Json *out, void *ud) {
  const Diff *d = ud;
  json_int(out, "differ", d->differ);
  json_num(out, "largest_absolute", d->most_abs);
  json_num(out, "largest_relative", d->most_rel);
  json_int(out, "missing", d->missing);
  json_int(out, "tensors", d->tensors);
}

static weft_status open_found(Arena *a, const char *at, Ckpt **out, weft_error *e) {
  const char *path;
  bool none;
  TRY(store_find(a, at, &path, &none, e));
  return ckpt_open(path, out, e);
}

/* The exit code is 1 if the checkpoints differ. */
int ckpt_diff(Cli *cli, Arena *arena, const char *const *at) {
  weft_error e = NO_ERROR;
  Ckpt *a = NULL, *b = NULL;
  Diff d = {.prints = !cli->json};
  weft_status st = open_found(arena, at[0], &a, &e);
  if (st == WEFT_OK) st = open_found(arena, at[1], &b, &e);
  if (st == WEFT_OK) st = ckpt_compare(a, b, diff_row, &d, cli->stop, &e);
  ckpt_close(a);
  ckpt_close(b);
  if (st == WEFT_OK && d.prints)
    printf("%d tensor%s, %d differ%s, %d %s in one of them only\n", d.tensors,
           plural(d.tensors, "s"), d.differ, d.differ == 1 ? "s" : "", d.missing,
           d.missing == 1 ? "is" : "are");
  int code = ckpt_end(cli, arena, st, &e, diff_json, &d);
  return st == WEFT_OK && (d.differ || d.missing) ? 1 : code;
}
