/* manifest.c - see manifest.h. The checksum detects damage; everything else is checked
 * because the content may be forged. */
#include "manifest.h"

#include <math.h>
#include <stdio.h>

#include "vm/base/json.h"
#include "vm/io/json_text.h"

static const char seal[] = ",\n  \"checksum\": \"", after_seal[] = "\"\n}\n";
enum { SEAL = sizeof seal - 1 + CHECKSUM_TEXT - 1 + sizeof after_seal - 1 };
enum { MANIFEST_MAX = 256 << 20, TEXT_SHOWN = 60 };

/* ---- writing ---- */

static void write_params(Json *j, const Manifest *m) {
  json_open(j, "parameters", '{');
  for (int i = 0; i < m->nparam; i++)
    json_ints(j, m->param[i].name, m->param[i].dim, m->param[i].ndim);
  json_close(j, '}');
}

/* Lists of names of parameters that have less than all states: the member of the
 * manifest, and that of CkptParam. */
static const struct ParamList {
  const char *name;
  size_t at;
} param_lists[] = {{"frozen", offsetof(CkptParam, frozen)},
                   {"matrices", offsetof(CkptParam, matrix)}};

static bool *listed(const struct ParamList *l, const CkptParam *p) {
  return (bool *)((char *)p + l->at);
}

/* The member is there if it has names. */
static void write_list(Json *j, const Manifest *m, const struct ParamList *l) {
  int n = 0;
  for (int i = 0; i < m->nparam; i++) {
    if (!*listed(l, &m->param[i])) continue;
    if (n++ == 0) json_open(j, l->name, '[');
    json_str(j, NULL, m->param[i].name);
  }
  if (n) json_close(j, ']');
}

/* Elements of the averages of rows and columns of parameters, or of each expert. */
static void write_factors(Json *j, const Manifest *m) {
  int n = 0;
  for (int i = 0; i < m->nparam; i++) {
    if (!m->param[i].factors) continue;
    if (n++ == 0) json_open(j, "factors", '{');
    json_int(j, m->param[i].name, m->param[i].factors);
  }
  if (n) json_close(j, '}');
}

static void write_files(Json *j, const Manifest *m) {
  char hash[CHECKSUM_TEXT];
  json_open(j, "files", '[');
  for (int i = 0; i < m->nfile; i++) {
    if (!m->file[i].bytes) continue;
    json_open(j, NULL, '{');
    json_int(j, "bytes", (int64_t)m->file[i].bytes);
    json_str(j, "header", checksum_text(m->file[i].header, hash));
    json_str(j, "name", m->file[i].name);
    json_close(j, '}');
  }
  json_close(j, ']');
}

static void write_scale(Json *j, const Scaler *s) {
  json_open(j, "loss_scale", '{');
  json_int(j, "good", s->good);
  json_bool(j, "on", s->on);
  json_int(j, "patience", s->patience);
  json_num(j, "scale", s->scale);
  json_int(j, "skipped", s->skipped);
  json_close(j, '}');
}

/* Nothing before the first evaluation. */
static void write_best(Json *j, const BestEval *b) {
  if (!b->step) return;
  json_open(j, "best", '{');
  json_num(j, "bar", b->bar);
  json_num(j, "loss", b->loss);
  json_int(j, "since", b->since);
  json_int(j, "step", b->step);
  json_close(j, '}');
}

void manifest_write(const Manifest *m, Text *out) {
  char hash[CHECKSUM_TEXT];
  Json j = {.out = out, .pretty = true};
  json_open(&j, NULL, '{');
  write_best(&j, &m->best);
  json_open(&j, "facts", '{');
  for (int i = 0; i < m->nfact; i++) json_str(&j, m->fact[i].what, m->fact[i].value);
  json_close(&j, '}');
  write_factors(&j, m);
  write_files(&j, m);
  json_str(&j, "id", m->id);
  write_scale(&j, &m->scaler);
  json_num(&j, "lr", m->lr);
  json_str(&j, "mesh", m->mesh);
  json_str(&j, "name", m->name);
  json_str(&j, "optimizer", optimizer_info[m->optimizer].name);
  write_params(&j, m);
  for (int k = 0; k < LEN(param_lists); k++) write_list(&j, m, &param_lists[k]);
  json_str(&j, "plan", m->plan);
  json_str(&j, "plan_hash", m->plan_hash);
  json_int(&j, "samples", m->samples);
  json_int(&j, "saved_at", m->saved_at);
  json_int(&j, "seed", m->seed);
  json_int(&j, "step", m->step);
  json_int(&j, "version", CKPT_VERSION);
  json_str(&j, "weft", m->weft);
  json_int(&j, "world", m->world);
  uint64_t h = checksum(out->s, out->n);
  text_printf(out, "%s%s%s", seal, checksum_text(h, hash), after_seal);
}

/* ---- reading ---- */

typedef struct Reader {
  Arena *arena;
  const char *path;
  const json_t *doc;
  weft_error *e;
} Reader;

#define FAIL(r, ...) return err_file((r)->e, WEFT_EFILE, (r)->path, 0, __VA_ARGS__)

static weft_status get_text(const Reader *r, const char *key, const char **out) {
  const char *s = json_string_value(json_object_get(r->doc, key));
  if (!s) FAIL(r, "has no string \"%s\"", key);
  *out = arena_str(r->arena, s);
  return WEFT_OK;
}

static weft_status get_int(const Reader *r, const json_t *in, const char *key, int64_t lo,
                           int64_t hi, int64_t *out) {
  const json_t *v = json_object_get(in, key);
  *out = json_is_integer(v) ? json_integer_value(v) : lo - 1;
  if (*out < lo || *out > hi)
    FAIL(r, "\"%s\" is not an integer from %lld to %lld", key, (long long)lo,
         (long long)hi);
  return WEFT_OK;
}

static weft_status get_number(const Reader *r, const json_t *in, const char *key,
                              double *out) {
  const json_t *v = json_object_get(in, key);
  *out = json_is_number(v) ? json_number_value(v) : -1;
  if (!(*out >= 0) || isinf(*out)) FAIL(r, "\"%s\" is not a number of at least 0", key);
  return WEFT_OK;
}

static weft_status get_hash(const Reader *r, const char *key, const json_t *in,
                            uint64_t *out) {
  const char *s = json_string_value(json_object_get(in, key));
  if (!s || !checksum_parse(s, out)) FAIL(r, "\"%s\" is not a checksum", key);
  return WEFT_OK;
}

/* Checkpoints of before there were others are AdamW's. */
static weft_status get_optimizer(const Reader *r, int *out) {
  const char *name = "adamw";
  if (json_object_get(r->doc, "optimizer")) TRY(get_text(r, "optimizer", &name));
  *out = optimizer_parse(name);
  if (*out < 0)
    FAIL(r, "has states of the optimizer \"%.60s\", which is not known", name);
  return WEFT_OK;
}

/* A plain file name, so that a manifest cannot lead out of its folder. */
static bool plain_name(const char *s, size_t most) {
  size_t n = s ? strlen(s) : 0;
  const char *end = ".safetensors";
  size_t m = strlen(end);
  return n > m && n < most && *s != '.' && !strchr(s, '/') && str_eq(s + n - m, end);
}

static weft_status read_file(const Reader *r, const json_t *row, CkptFile *f) {
  const char *name = json_string_value(json_object_get(row, "name"));
  int64_t bytes;
  if (!plain_name(name, sizeof f->name))
    FAIL(r, "\"%.*s\" is not the name of a file of a checkpoint", TEXT_SHOWN,
         name ? name : "");
  snprintf(f->name, sizeof f->name, "%s", name);
  TRY(get_int(r, row, "bytes", 1, INT64_MAX, &bytes));
  f->bytes = (uint64_t)bytes;
  return get_hash(r, "header", row, &f->header);
}

static weft_status read_files(const Reader *r, Manifest *m) {
  const json_t *list = json_object_get(r->doc, "files");
  Names seen = {0};
  m->nfile = (int)json_array_size(list);
  if (!m->nfile) FAIL(r, "lists no files");
  CkptFile *f = NEW_N(r->arena, CkptFile, m->nfile);
  m->file = f;
  for (int i = 0; i < m->nfile; i++) {
    TRY(read_file(r, json_array_get(list, (size_t)i), &f[i]));
    if (names_find(&seen, f[i].name) >= 0) FAIL(r, "lists the file %s twice", f[i].name);
    names_add(r->arena, &seen, f[i].name, i);
  }
  return WEFT_OK;
}

static weft_status read_param(const Reader *r, const json_t *dims, CkptParam *p) {
  int64_t all = 1;
  p->ndim = (int)MIN(json_array_size(dims), (size_t)MAX_DIM + 1);
  bool ok = json_is_array(dims) && p->ndim > 0 && p->ndim <= MAX_DIM && *p->name;
  for (int d = 0; d < p->ndim && ok; d++) {
    const json_t *n = json_array_get(dims, (size_t)d);
    p->dim[d] = json_is_integer(n) ? json_integer_value(n) : 0;
    ok = p->dim[d] > 0 && !__builtin_mul_overflow(all, p->dim[d], &all) &&
         all <= INT64_MAX / 16;
  }
  if (!ok) FAIL(r, "the parameter \"%.*s\" has no shape", TEXT_SHOWN, p->name);
  return WEFT_OK;
}

/* Names of parameters, each once. */
static weft_status read_list(const Reader *r, CkptParam *p, int n,
                             const struct ParamList *l) {
  const json_t *list = json_object_get(r->doc, l->name), *name;
  size_t k;
  Names names = {0};
  for (int i = 0; i < n; i++) names_add(r->arena, &names, p[i].name, i);
  json_array_foreach(list, k, name) {
    const char *s = json_string_value(name);
    int at = s ? names_find(&names, s) : -1;
    if (at < 0 || *listed(l, &p[at]))
      FAIL(r, "lists \"%.*s\" in %s, which is no parameter or listed twice", TEXT_SHOWN,
           s ? s : "", l->name);
    *listed(l, &p[at]) = true;
  }
  return WEFT_OK;
}

static weft_status read_factors(const Reader *r, CkptParam *p, int n) {
  json_t *list = json_object_get(r->doc, "factors"), *count;
  const char *name;
  Names names = {0};
  for (int i = 0; i < n; i++) names_add(r->arena, &names, p[i].name, i);
  json_object_foreach(list, name, count) {
    int at = names_find(&names, name);
    int64_t most = at < 0 ? 0 : INT64_MAX / 16;
    for (int d = 0; at >= 0 && d < p[at].ndim - 2; d++) most /= p[at].dim[d];
    if (at < 0 || p[at].ndim < 2 || !json_is_integer(count) ||
        json_integer_value(count) < 1 || json_integer_value(count) > most)
      FAIL(r, "says of \"%.*s\" in factors what cannot be", TEXT_SHOWN, name);
    p[at].factors = json_integer_value(count);
  }
  return WEFT_OK;
}

static weft_status read_params(const Reader *r, Manifest *m) {
  json_t *list = json_object_get(r->doc, "parameters"), *dims;
  const char *name;
  int i = 0;
  m->nparam = (int)json_object_size(list);
  if (!m->nparam) FAIL(r, "has no parameters");
  CkptParam *p = NEW_N(r->arena, CkptParam, m->nparam);
  m->param = p;
  json_object_foreach(list, name, dims) {
    p[i].name = arena_str(r->arena, name);
    TRY(read_param(r, dims, &p[i++]));
  }
  for (int k = 0; k < LEN(param_lists); k++)
    TRY(read_list(r, p, m->nparam, &param_lists[k]));
  return read_factors(r, p, m->nparam);
}

static weft_status read_facts(const Reader *r, Manifest *m) {
  json_t *list = json_object_get(r->doc, "facts"), *value;
  const char *what;
  if (!json_is_object(list)) FAIL(r, "has no object \"facts\"");
  RunFact *f = NEW_N(r->arena, RunFact, json_object_size(list) + 1);
  m->fact = f;
  json_object_foreach(list, what, value) {
    if (!json_is_string(value))
      FAIL(r, "the fact \"%.*s\" is not a string", TEXT_SHOWN, what);
    f[m->nfact++] = (RunFact){.what = arena_str(r->arena, what),
                              .value = arena_str(r->arena, json_string_value(value))};
  }
  return WEFT_OK;
}

static weft_status read_scale(const Reader *r, Scaler *s) {
  const json_t *in = json_object_get(r->doc, "loss_scale");
  s->on = json_is_true(json_object_get(in, "on"));
  TRY(get_int(r, in, "good", 0, INT64_MAX, &s->good));
  TRY(get_int(r, in, "patience", INT32_MIN, INT64_MAX, &s->patience));
  TRY(get_int(r, in, "skipped", 0, INT64_MAX, &s->skipped));
  TRY(get_number(r, in, "scale", &s->scale));
  if (!(s->scale > 0)) FAIL(r, "\"scale\" is not above 0");
  return WEFT_OK;
}

static weft_status get_loss(const Reader *r, const json_t *in, const char *key,
                            double *out) {
  const json_t *v = json_object_get(in, key);
  *out = json_is_number(v) ? json_number_value(v) : INFINITY;
  if (!isfinite(*out)) FAIL(r, "\"%s\" is not a finite number", key);
  return WEFT_OK;
}

static weft_status read_best(const Reader *r, BestEval *b) {
  const json_t *in = json_object_get(r->doc, "best");
  if (!in) return WEFT_OK;
  TRY(get_int(r, in, "step", 1, INT64_MAX / 2, &b->step));
  TRY(get_int(r, in, "since", 0, INT64_MAX / 2, &b->since));
  TRY(get_loss(r, in, "loss", &b->loss));
  return get_loss(r, in, "bar", &b->bar);
}

static weft_status read_members(const Reader *r, Manifest *m) {
  int64_t version, world;
  uint64_t id;
  TRY(get_int(r, r->doc, "version", 0, INT32_MAX, &version));
  if (version != CKPT_VERSION) /* it may be intact: use no older checkpoint instead */
    return err_file(r->e, WEFT_EUSAGE, r->path, 0,
                    "is of version %lld; this weft reads version %d", (long long)version,
                    CKPT_VERSION);
  TRY(get_hash(r, "id", r->doc, &id));
  checksum_text(id, m->id);
  TRY(get_int(r, r->doc, "step", 0, INT64_MAX / 2, &m->step));
  TRY(get_int(r, r->doc, "saved_at", 0, INT64_MAX, &m->saved_at));
  TRY(get_int(r, r->doc, "samples", 0, INT64_MAX, &m->samples));
  TRY(get_int(r, r->doc, "seed", 0, INT64_MAX, &m->seed));
  TRY(get_int(r, r->doc, "world", 1, INT32_MAX, &world));
  m->world = (int)world;
  TRY(get_number(r, r->doc, "lr", &m->lr));
  TRY(get_text(r, "weft", &m->weft));
  TRY(get_text(r, "name", &m->name));
  TRY(get_text(r, "mesh", &m->mesh));
  TRY(get_text(r, "plan", &m->plan));
  TRY(get_text(r, "plan_hash", &m->plan_hash));
  TRY(get_optimizer(r, &m->optimizer));
  TRY(read_scale(r, &m->scaler));
  TRY(read_best(r, &m->best));
  TRY(read_facts(r, m));
  TRY(read_params(r, m));
  return read_files(r, m);
}

static weft_status check_seal(const Reader *r, const char *s, size_t n) {
  uint64_t said;
  char digits[CHECKSUM_TEXT] = "";
  const char *at = n > SEAL ? s + n - SEAL : NULL;
  bool sealed = at && memcmp(at, seal, sizeof seal - 1) == 0;
  if (sealed) memcpy(digits, at + sizeof seal - 1, CHECKSUM_TEXT - 1);
  if (!sealed || !checksum_parse(digits, &said) ||
      !str_eq(at + sizeof seal - 1 + CHECKSUM_TEXT - 1, after_seal))
    FAIL(r, "does not end with a checksum: it is damaged, or no checkpoint manifest");
  if (checksum(s, n - SEAL) != said) FAIL(r, "is damaged: its checksum does not match");
  return WEFT_OK;
}

typedef struct Members {
  Reader r;
  Manifest *m;
  weft_status st;
} Members;

static void read_job(void *ud) {
  Members *m = ud;
  m->st = read_members(&m->r, m->m);
}

weft_status manifest_read(Arena *a, const char *path, Manifest *out, weft_error *e) {
  char *text;
  size_t n;
  Members m = {.r = {.arena = a, .path = path, .e = e}, .m = out};
  *out = (Manifest){0};
  TRY(file_read(NULL, path, MANIFEST_MAX, &text, &n, e));
  weft_status st = check_seal(&m.r, text, n);
  json_t *doc = st == WEFT_OK ? json_text(path, "", text, n, e) : NULL;
  mem_free(NULL, text, n + 1);
  TRY(st);
  if (!doc) return WEFT_EFILE;
  m.r.doc = doc;
  bool memory = arena_try(a, read_job, &m);
  json_decref(doc);
  return memory ? m.st : err_file(e, WEFT_ENOMEM, path, 0, "out of memory");
}

const char *manifest_fact(const Manifest *m, const char *what) {
  for (int i = 0; i < m->nfact; i++)
    if (str_eq(m->fact[i].what, what)) return m->fact[i].value;
  return NULL;
}
