/* weights_match.c - which tensor of a file holds which parameter.
 *
 * Files of the hub differ in details: a base model's names lack the prefix of the model
 * with a head, old files hold buffers that are computed, some repeat a tied embedding as
 * the head, and some have modules for multi-token prediction, with copies of the
 * embedding and of the head. */
#include "weights_match.h"

#include "adapter_files.h"
#include "module_names.h"
#include "vm/graph/packed_modules.h"
#include "vm/graph/second_model.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- names ---- */

static const char *const bases[] = {"model.", "transformer.", "backbone."};
static const char head[] = WEIGHTS_HEAD;

/* A name as the files of its own model have it, without the prefix of a second model. */
static const char *own_name(const char *name) {
  return name + second_prefix(name, strlen(name));
}

/* A tensor of this name, or of that which the model without a head gives it. */
static const SafeTensor *find_exactly(const SafeTensors *s, const char *name) {
  const SafeTensor *t = st_find(s, name);
  const char *own = own_name(name);
  char other[512];
  for (int i = 0; i < LEN(bases) && !t; i++) {
    size_t n = strlen(bases[i]);
    if (strncmp(own, bases[i], n) != 0) continue;
    snprintf(other, sizeof other, "%.*s%s", (int)(own - name), name, own + n);
    t = st_find(s, other);
  }
  return t;
}

/* What files of Mixtral call its module of experts. */
static const char ours[] = ".mlp.", theirs[] = ".block_sparse_moe.";

static const SafeTensor *find_name(const SafeTensors *s, const char *name) {
  const SafeTensor *t = find_exactly(s, name);
  const char *at = strstr(name, ours);
  char other[512];
  if (t || !at) return t;
  snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, theirs,
           at + strlen(ours));
  return find_exactly(s, other);
}

CompiledParam weights_as_model(const CompiledParam *p) {
  CompiledParam w = *p;
  if (p->quant == QUANT_CODES) w.dim[1] *= 2;
  w.quant = QUANT_NONE;
  return w;
}

static const CompiledParam *param_named(const Compiled *c, const char *name) {
  for (int i = 0; i < c->nparam; i++)
    if (str_eq(c->param[i].name, name)) return &c->param[i];
  return NULL;
}

/* Rows of all parts of a module, one of which is the parameter, and the elements before
 * it. */
static void count_packed(const Compiled *c, const CompiledParam *p,
                         const PackedName *found, int64_t *rows, int64_t *first) {
  char name[PACKED_NAME];
  *rows = *first = 0;
  for (int k = 0; k < PACKED_PARTS && found->of->part[k]; k++) {
    packed_rename(p->name, found, found->of->part[k], name);
    const CompiledParam *q = param_named(c, name);
    if (k < found->part && q) *first += param_weights(q);
    if (q) *rows += q->dim[0];
  }
}

bool weights_packed(const Compiled *c, const char *const *modules, int param,
                    char name[512], int64_t *rows, int64_t *first) {
  const CompiledParam *p = &c->param[param];
  PackedName found;
  if (!modules || !packed_find(p->name, modules, &found)) return false;
  packed_rename(p->name, &found, found.of->whole, name);
  count_packed(c, p, &found, rows, first);
  return true;
}

/* The tensor of a module that the parameter is a part of. Its rows must be those of all
 * parts. */
static WeightSource find_packed(const Compiled *c, const SafeTensors *s,
                                const CompiledParam *p) {
  WeightSource from = {.rows = 0, .pieces = 1};
  PackedName found;
  char name[PACKED_NAME];
  if (!packed_find(p->name, NULL, &found)) return from;
  packed_rename(p->name, &found, found.of->whole, name);
  from.t = find_name(s, name);
  if (from.t) count_packed(c, p, &found, &from.rows, &from.first);
  return from;
}

/* ---- experts ---- all of a layer are one parameter; files have them one by one, and
 * gate and up apart */

static const struct Stacked {
  const char *whole;   /* how the name of the parameter ends */
  const char *part[3]; /* modules of each expert, rows of the first above the second */
} stacked[] = {
    {".experts.gate_up_proj", {"gate_proj", "up_proj"}},
    {".experts.gate_up_proj", {"w1", "w3"}},
    {".experts.up_proj", {"up_proj"}},
    {".experts.down_proj", {"down_proj"}},
    {".experts.down_proj", {"w2"}},
};

static int parts_of(const struct Stacked *k) {
  int n = 0;
  while (k->part[n]) n++;
  return n;
}

/* "a.experts.gate_up_proj", piece 5 -> "a.experts.2.up_proj.weight" */
static const SafeTensor *find_piece(const SafeTensors *s, const CompiledParam *p,
                                    const struct Stacked *k, int i, char name[512]) {
  int n = parts_of(k), base = (int)(strlen(p->name) - strlen(k->whole));
  snprintf(name, 512, "%.*s.experts.%d.%s.weight", base, p->name, i / n, k->part[i % n]);
  return find_name(s, name);
}

/* How the file has the experts of a parameter, by the first of them; NULL: it has not. */
static const struct Stacked *stacked_as(const SafeTensors *s, const CompiledParam *p) {
  char name[512];
  for (int i = 0; i < LEN(stacked); i++)
    if (p->ndim == 3 && str_ends(p->name, stacked[i].whole) &&
        find_piece(s, p, &stacked[i], 0, name))
      return &stacked[i];
  return NULL;
}

/* A copy of the model begins at the tensors of the model itself. */
static const CompiledParam *named_in_files(const Compiled *c, int param) {
  const CompiledParam *p = &c->param[param], *of = NULL;
  size_t n = strlen(REFERENCE_PREFIX);
  if (strncmp(p->name, REFERENCE_PREFIX, n) == 0) of = param_named(c, p->name + n);
  return of ? of : p;
}

const SafeTensor *weights_piece(const Compiled *c, const SafeTensors *s, int param, int i,
                                char name[512]) {
  char own[512];
  const CompiledParam *p = named_in_files(c, param);
  return find_piece(s, p, stacked_as(s, p), i, name ? name : own);
}

static WeightSource in_pieces(const SafeTensors *s, const CompiledParam *p) {
  char name[512];
  const struct Stacked *k = stacked_as(s, p);
  if (!k) return (WeightSource){.pieces = 1};
  int n = parts_of(k);
  return (WeightSource){.t = find_piece(s, p, k, 0, name),
                        .rows = p->dim[1] / n,
                        .pieces = (int)p->dim[0] * n};
}

/* By the names of modules in memory, or by those of files: classes of other versions had
 * these. */
static const SafeTensor *find_adapter(const Compiled *c, const SafeTensors *s,
                                      const char *name) {
  char files[512], memory[512], other[512];
  const SafeTensor *t = st_find(s, name);
  if (t || !c->modules.n || !adapter_by_files(c, name, files)) return t;
  module_to_memory(&c->modules, files, memory);
  const char *const either[] = {files, memory};
  for (int i = 0; i < LEN(either) && !t; i++) {
    TextBuf b = textbuf(other, sizeof other);
    textbuf_printf(&b, ADAPTER_PREFIX "%s", either[i]);
    t = st_find(s, other);
  }
  return t;
}

/* What PEFT's folder has, as it calls it. */
static WeightSource in_adapter(const Compiled *c, const SafeTensors *s, int param) {
  char name[512];
  int64_t rows, first;
  if (adapter_packed(c, param, name, &rows, &first))
    return (WeightSource){
        .t = find_adapter(c, s, name), .rows = rows, .first = first, .pieces = 1};
  adapter_tensor(c, param, name);
  rows = adapter_shape(&c->param[param]).dim[0];
  return (WeightSource){.t = find_adapter(c, s, name), .rows = rows, .pieces = 1};
}

/* Whether there is an adapter among them: then it has all parts of those of the program.
 */
static bool has_adapter(const SafeTensors *s) {
  for (int i = 0; i < st_count(s); i++)
    if (strncmp(st_at(s, i)->name, ADAPTER_PREFIX, strlen(ADAPTER_PREFIX)) == 0)
      return true;
  return false;
}

static bool of_teacher(const char *name) {
  return strncmp(name, TEACHER_PREFIX, strlen(TEACHER_PREFIX)) == 0;
}

/* Files may be of the model, of a teacher, or of both. */
static bool has_those(const SafeTensors *s, bool teacher) {
  for (int i = 0; i < st_count(s); i++)
    if (of_teacher(st_at(s, i)->name) == teacher) return true;
  return false;
}

bool weights_initial(const Compiled *c, const SafeTensors *s, int param) {
  const CompiledParam *p = &c->param[param];
  if (p->adapter) return !has_adapter(s);
  return !has_those(s, of_teacher(p->name));
}

WeightSource weights_source(const Compiled *c, const SafeTensors *s, int param) {
  const CompiledParam *p = named_in_files(c, param);
  if (p->adapter || (p->saved && has_adapter(s))) return in_adapter(c, s, param);
  WeightSource from = {.t = find_name(s, p->name), .rows = p->dim[0], .pieces = 1};
  if (!from.t && p->ndim == 3) from = in_pieces(s, p);
  return from.t ? from : find_packed(c, s, p);
}

const Buffer *weights_buffer(const Compiled *c, const char *name) {
  for (int i = 0; i < c->nbuffer; i++)
    if (str_eq(c->buffer[i].name, name)) return &c->buffer[i];
  return NULL;
}

/* Masks and frequencies, which follow from the configuration. */
static bool is_buffer(const char *name) {
  static const char *const buffers[] = {".rotary_emb.inv_freq", ".attn.bias",
                                        ".attn.masked_bias"};
  for (int i = 0; i < LEN(buffers); i++)
    if (str_ends(name, buffers[i])) return true;
  return false;
}

/* The projection that a layer of this tensor has if it is a module that predicts a
 * further token, which are numbered on from the layers; returns how long the layer's name
 * is, 0: it is of no layer. */
static int projection_of(const char *name, char projection[64]) {
  static const char layers[] = "model.layers.";
  const char *own = own_name(name);
  if (strncmp(own, layers, sizeof layers - 1) != 0) return 0;
  size_t before = (size_t)(own - name) + sizeof layers - 1;
  int n = (int)(before + strcspn(name + before, "."));
  snprintf(projection, 64, "%.*s.eh_proj.weight", n, name);
  return n;
}

/* Whether it is of a module that predicts a further token, and that the model does not
 * have; files of Nemotron have all of these as "mtp". */
static bool is_further_token(const Compiled *c, const SafeTensors *s, const char *name) {
  char projection[64];
  if (strncmp(own_name(name), "mtp.", 4) == 0) return !param_named(c, name);
  return projection_of(name, projection) && st_find(s, projection) &&
         !param_named(c, projection);
}

int weights_copied(const Compiled *c, const char *name) {
  char projection[64];
  int n = projection_of(name, projection);
  if (!n || !param_named(c, projection)) return -1;
  bool of_head = str_eq(name + n, WEIGHTS_HEAD_COPY);
  if (!of_head && !str_eq(name + n, WEIGHTS_EMBEDDING_COPY)) return -1;
  const CompiledParam *p = of_head ? param_named(c, head) : NULL;
  if (!p) p = param_named(c, "model.embed_tokens.weight"); /* a head may be tied to it */
  return p ? (int)(p - c->param) : -1;
}

/* Whether a parameter or tensor of this name is the embedding of tokens. */
static bool is_embedding(const char *name) {
  static const char *const ends[] = {"embed_tokens.weight", "wte.weight",
                                     ".embeddings.weight"};
  for (int i = 0; i < LEN(ends); i++)
    if (str_ends(name, ends[i])) return true;
  return false;
}

bool weights_of_tokens(const char *name) {
  return is_embedding(name) || str_ends(name, head) || str_ends(name, "lm_head.bias");
}

int weights_tied(const Compiled *c, const char *name) {
  int at = -1;
  size_t prefix = second_prefix(name, strlen(name));
  if (strcmp(name + prefix, head) != 0) return -1;
  for (int i = 0; i < c->nparam; i++) {
    const char *other = c->param[i].name;
    if (strcmp(other, name) == 0) return -1;
    if (second_prefix(other, strlen(other)) != prefix ||
        strncmp(other, name, prefix) != 0)
      continue;
    if (is_embedding(other)) at = i;
  }
  return at;
}

int weights_of_base(const Compiled *c, const char *name) {
  static const char layer[] = ".base_layer";
  char own[512];
  if (!adapter_by_files(c, name, own)) return -1;
  char *at = strstr(own, layer), *end = at ? at + strlen(layer) : NULL;
  if (at) memmove(at, end, strlen(end) + 1);
  const CompiledParam *p = param_named(c, own);
  if (!p) return weights_tied(c, own);
  return p->adapter || p->saved || p->ndim != 2 ? -1 : (int)(p - c->param);
}

/* ---- tensors that are no parameter's own ---- */

/* Whether a tensor is one of the pieces of a parameter of experts; those of other layers
 * are not looked for. */
static bool is_piece(const Compiled *c, const SafeTensors *s, int param,
                     const SafeTensor *t) {
  const CompiledParam *p = &c->param[param];
  const char *at = strstr(p->name, ours);
  if (p->ndim != 3 || (at && strncmp(p->name, t->name, (size_t)(at - p->name)) != 0))
    return false;
  WeightSource from = in_pieces(s, p);
  for (int i = 0; from.t && i < from.pieces; i++)
    if (weights_piece(c, s, param, i, NULL) == t) return true;
  return false;
}

/* Whether it is the base's of a parameter that an adapter's folder has, too. */
static bool is_saved(const Compiled *c, const SafeTensors *s, const SafeTensor *t) {
  for (int i = 0; i < c->nparam; i++)
    if (c->param[i].saved &&
        (find_name(s, c->param[i].name) == t || is_piece(c, s, i, t)))
      return true;
  return false;
}

bool weights_passed_over(const Compiled *c, const SafeTensors *s, const SafeTensor *t) {
  return is_buffer(t->name) || weights_buffer(c, t->name) ||
         is_further_token(c, s, t->name) || is_saved(c, s, t);
}
