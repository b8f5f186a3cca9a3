/* broken_files.c - see broken_files.h. */
#include "broken_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "bindings/model/model.h"
#include "vm/ckpt/rank_file.h"
#include "vm/text/tokenizer.h"

enum { SLOW_S = 5 };

static const char *path_of(const FuzzFile *f, const char *name, char out[512]) {
  snprintf(out, 512, "%s/%s", f->folder, name);
  return out;
}

static bool put(const FuzzFile *f, const char *name, const void *s, size_t n) {
  char path[512];
  FILE *out = fopen(path_of(f, name, path), "wb");
  bool ok = out && fwrite(s, 1, n, out) == n;
  return out && fclose(out) == 0 && ok;
}

/* ---- whole files ---- */

static void add(FuzzFile *f, const void *s, size_t n) {
  n = MIN(n, (size_t)FUZZ_BYTES - f->n);
  memcpy(f->s + f->n, s, n);
  f->n += n;
}

static void add_text(FuzzFile *f, const char *s) { add(f, s, strlen(s)); }

static void make_weights(FuzzFile *f, int form) {
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],"
      "\"data_offsets\":[0,32]},"
      "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[32,36]},"
      "\"lm_head.bias\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[36,44]}}";
  uint64_t n = sizeof header - 1;
  static const char data[44];
  add(f, &n, sizeof n);
  add(f, header, n);
  add(f, data, sizeof data);
}

static void make_index(FuzzFile *f, int form) {
  FuzzFile shard = {.folder = f->folder};
  make_weights(&shard, 0);
  put(f, "m-1.safetensors", shard.s, shard.n);
  add_text(f, "{\"metadata\":{\"total_size\":44},\"weight_map\":{"
              "\"model.embed_tokens.weight\":\"m-1.safetensors\","
              "\"model.norm.weight\":\"m-1.safetensors\","
              "\"lm_head.bias\":\"m-1.safetensors\"}}");
}

static void make_config(FuzzFile *f, int form) {
  static const char plan[] = "local weft = require 'weft'\n"
                             "return weft.plan { model = weft.hf '.',\n"
                             "  batch = { global = 1, seq = 4 } }\n";
  put(f, "plan.lua", plan, sizeof plan - 1);
  add_text(f, "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_hidden_layers\":2,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":64,"
              "\"intermediate_size\":48,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
              "\"rope_scaling\":null,\"tie_word_embeddings\":false,\"head_dim\":8,"
              "\"id2label\":{\"0\":\"A\"},\"architectures\":[\"LlamaForCausalLM\"]}");
}

static void make_tokens(FuzzFile *f, int form) {
  static const int32_t forms[][4] = {
      {20240520, 1, 40, 0}, {20240801, 7, 40, 0}, {278895051, 1, 40, 4}, {0, 0, 0, 0}};
  int32_t header[256] = {0};
  uint16_t ids[80];
  memcpy(header, forms[form], sizeof forms[form]);
  for (int i = 0; i < LEN(ids); i++) ids[i] = (uint16_t)(i % 50);
  if (header[0]) add(f, header, sizeof header);
  add(f, ids, form == 0 ? 80 : sizeof ids);
}

static void make_token_index(FuzzFile *f, int form) {
  static const int32_t lengths[] = {5, 0, 9, 6};
  int64_t begin[] = {0, 10, 10, 28}, first[] = {0, 1, 2, 3, 4}, counts[] = {4, 5};
  unsigned char head[18] = "MMIDIDX\0\0\1";
  uint16_t ids[20];
  for (int i = 0; i < LEN(ids); i++) ids[i] = (uint16_t)i;
  put(f, "m.bin", ids, sizeof ids);
  head[17] = 8;
  add(f, head, sizeof head);
  add(f, counts, sizeof counts);
  add(f, lengths, sizeof lengths);
  add(f, begin, sizeof begin);
  add(f, first, sizeof first);
}

static void make_tokenizer(FuzzFile *f, int form) {
  add_text(f, "{\"truncation\":null,\"added_tokens\":[{\"id\":5,\"content\":\"<s>\","
              "\"lstrip\":false,\"normalized\":false,\"special\":true}],"
              "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
              "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
              "\"Regex\":\"'s| ?\\\\p{L}+|\\\\s+(?!\\\\S)\"},\"behavior\":\"Isolated\","
              "\"invert\":false},{\"type\":\"Digits\",\"individual_digits\":true},{"
              "\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}]},"
              "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
              "\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],"
              "\"special_tokens\":{\"<s>\":{\"ids\":[5]}}},\"model\":{\"type\":"
              "\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
              "\"\\u0120\":3,\"\\u0120a\":4},\"merges\":[\"a b\",[\"\\u0120\",\"a\"]]}}");
}

static const char manifest_end[] = ",\n  \"checksum\": \"0123456789abcdef\"\n}\n";

static void make_manifest(FuzzFile *f, int form) {
  add_text(
      f, "{\n  \"facts\": {\"plan.batch.seq\": \"8\"},\n"
         "  \"files\": [{\"bytes\": 9, \"header\": \"0123456789abcdef\", "
         "\"name\": \"rank-00000.safetensors\"}],\n"
         "  \"id\": \"0123456789abcdef\",\n  \"loss_scale\": {\"good\": 0, \"on\": true, "
         "\"patience\": 1, \"scale\": 65536.0, \"skipped\": 0},\n  \"lr\": 0.5,\n"
         "  \"mesh\": \"tp=2\",\n  \"name\": \"n\",\n"
         "  \"parameters\": {\"a\": [4], \"b\": [2, 3]},\n  \"plan\": \"\",\n"
         "  \"plan_hash\": \"\",\n  \"samples\": 0,\n  \"saved_at\": 5,\n"
         "  \"seed\": 1,\n  \"step\": 3,\n  \"version\": 1,\n  \"weft\": \"0\",\n"
         "  \"world\": 2");
  add_text(f, manifest_end);
}

/* Content is checked only after its checksum, so that is fixed. */
static void repair_seal(FuzzFile *f) {
  size_t end = sizeof manifest_end - 1, digits = strcspn(manifest_end, "0");
  char hash[CHECKSUM_TEXT];
  if (f->n <= end) return;
  char *at = (char *)f->s + f->n - end;
  memcpy(at, manifest_end, end);
  memcpy(at + digits, checksum_text(checksum(f->s, f->n - end), hash), CHECKSUM_TEXT - 1);
}

/* ---- a checkpoint of two files ---- */

static const CkptParam shard_params[] = {{.name = "a", .ndim = 1, .dim = {4}},
                                         {.name = "b", .ndim = 2, .dim = {2, 3}}};
static const char shard_id[] = "0123456789abcdef";

/* A piece of "a", cut flat, or of the rows of "b": the first or the second half. */
static void add_piece(Text *t, const char *kind, int half, const float *data) {
  static const char *const boxes[] = {"[[1,4,0,4,4]]", "[[1,2,%d,1,1],[1,3,0,3,3]]"};
  char hash[CHECKSUM_TEXT], box[64];
  for (int p = 0; p < LEN(shard_params); p++) {
    snprintf(box, sizeof box, boxes[p], half);
    text_printf(t, ",\"%s/%s\":\"{\\\"blocks\\\":[\\\"%s\\\"],\\\"box\\\":%s,", kind,
                shard_params[p].name,
                checksum_text(checksum(p ? data + 2 : data, p ? 12 : 8), hash), box);
    text_printf(t, "\\\"from\\\":%d}\"", p ? 0 : 2 * half);
  }
}

static void make_half(FuzzFile *f, int half) {
  static const float data[CKPT_KINDS_MAX * 5] = {1, 2, 3, 4, 5, 6, 7};
  Text t = {0};
  text_printf(&t, "{\"__metadata__\":{\"id\":\"%s\"", shard_id);
  for (int k = 0; k < ckpt_kinds(OPTIMIZER_ADAMW); k++)
    add_piece(&t, ckpt_kind_name(OPTIMIZER_ADAMW, k), half, data + 5 * k);
  text_add(&t, "}");
  for (int k = 0; k < ckpt_kinds(OPTIMIZER_ADAMW); k++)
    for (int p = 0; p < LEN(shard_params); p++) {
      int at = 20 * k + 8 * p;
      text_printf(&t, ",\"%s/%s\":{\"dtype\":\"F32\",\"shape\":%s,",
                  ckpt_kind_name(OPTIMIZER_ADAMW, k), shard_params[p].name,
                  p ? "[1,3]" : "[2]");
      text_printf(&t, "\"data_offsets\":[%d,%d]}", at, at + (p ? 12 : 8));
    }
  text_add(&t, "}");
  uint64_t n = t.n;
  add(f, &n, sizeof n);
  add(f, t.s, t.n);
  add(f, data, sizeof data);
  text_free(&t);
}

static void make_shard(FuzzFile *f, int form) {
  FuzzFile other = {.folder = f->folder};
  make_half(&other, 1);
  put(&other, "rank-00001.safetensors", other.s, other.n);
  make_half(f, 0);
}

/* A manifest that matches the files. */
static weft_status write_manifest(const FuzzFile *f, weft_error *e) {
  CkptFile file[2] = {{"rank-00000.safetensors", 0, 0}, {"rank-00001.safetensors", 0, 0}};
  Manifest m = {.weft = "", .name = "", .mesh = "", .plan = "", .plan_hash = ""};
  char path[512];
  Text out = {0};
  for (int i = 0; i < LEN(file); i++) {
    File in;
    TRY(file_open(path_of(f, file[i].name, path), &in, e));
    file[i].bytes = in.size;
    weft_status st = shard_header(&in, &file[i].header, e);
    file_close(&in);
    TRY(st);
  }
  memcpy(m.id, shard_id, sizeof m.id);
  m.scaler.scale = 1;
  m.world = m.nfile = LEN(file);
  m.file = file;
  m.param = shard_params;
  m.nparam = LEN(shard_params);
  manifest_write(&m, &out);
  put(f, MANIFEST_NAME, out.s, out.n);
  text_free(&out);
  return WEFT_OK;
}

/* A header is parsed only if its length is right, so that is fixed. */
static void repair_length(FuzzFile *f) {
  uint64_t n = f->n;
  if (f->n < 8) return;
  for (size_t i = 8; i < f->n; i++)
    if (f->s[i] == '}') n = i - 7;
  memcpy(f->s, &n, sizeof n);
}

/* ---- reading ---- */

static weft_status read_all(SafeTensors *s, weft_error *e) {
  for (int i = 0; i < st_count(s); i++) {
    const SafeTensor *t = st_at(s, i);
    float *out = malloc(t->bytes * sizeof *out + 1);
    weft_status st = out ? st_read_f32(t, out, e) : WEFT_OK;
    free(out);
    TRY(st);
  }
  return WEFT_OK;
}

static weft_status read_weights(const FuzzFile *f, weft_error *e) {
  Folders in = {.plan = f->folder};
  SafeTensors *s;
  TRY(st_open(NULL, f->folder, &in, &s, e));
  weft_status st = read_all(s, e);
  st_close(s);
  return st;
}

/* Writes valid content again, as an export does. */
static weft_status write_config(Job *j) {
  Text out = {0};
  bool known;
  weft_status st = lang_hf_config(j->lp, NULL, DT_BF16, &out, &known, &j->e);
  text_free(&out);
  return st;
}

static weft_status read_config(const FuzzFile *f, weft_error *e) {
  char path[512];
  Arena *a = arena_new(NULL);
  Job j;
  weft_status st = job_load(&j, a, &(LangOptions){0}, path_of(f, "plan.lua", path));
  if (st == WEFT_OK) st = write_config(&j);
  if (st == WEFT_EPLAN && j.d.errors)
    report_first(&j.d, e);
  else
    *e = j.e;
  job_free(&j);
  arena_free(a);
  return st;
}

static weft_status read_tokens(const FuzzFile *f, weft_error *e) {
  int32_t t[3], l[3];
  uint64_t seen;
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   .dir = f->folder,
                   .files = (const char *[]){"t.bin"},
                   .nfiles = 1,
                   .width = f->n % 3 == 2 ? 4 : 0};
  TRY(data_open(NULL, &spec, 3, 64, 1, &d, e));
  weft_status st = data_look(d, &seen, e);
  for (int i = 0; i < 20 && st == WEFT_OK; i++) st = data_sample(d, i, t, l, e);
  data_close(d);
  return st;
}

static weft_status read_manifest(const FuzzFile *f, weft_error *e) {
  char path[512];
  Manifest m;
  Arena *a = arena_new(NULL);
  weft_status st = manifest_read(a, path_of(f, MANIFEST_NAME, path), &m, e);
  arena_free(a);
  if (st != WEFT_OK) return st;
  Ckpt *k;
  st = ckpt_open(f->folder, &k, e); /* the checkpoint's files are missing */
  return st == WEFT_OK ? WEFT_EINTERNAL : st;
}

/* Packs whole documents, which reads all of the index. */
static weft_status read_token_index(const FuzzFile *f, weft_error *e) {
  int32_t t[8], l[8];
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   .dir = f->folder,
                   .files = (const char *[]){"m"},
                   .nfiles = 1,
                   .packed = {.on = true, .size = 8, .too_long = TOO_LONG_SPLIT}};
  TRY(data_open(NULL, &spec, 8, 64, 1, &d, e));
  weft_status st = WEFT_OK;
  for (int i = 0; i < 10 && st == WEFT_OK; i++) st = data_sample(d, i, t, l, e);
  data_close(d);
  return st;
}

static weft_status read_tokenizer(const FuzzFile *f, weft_error *e) {
  static const char text[] = "ab a<s>'s  b\n";
  Tokenizer *t;
  TokenIds ids = {0};
  Text back = {0};
  TRY(tokenizer_open(NULL, f->folder, &t, e));
  weft_status st = WEFT_OK;
  for (size_t n = 0; n < sizeof text && st == WEFT_OK; n++)
    st = tokenizer_encode(t, text, n, true, &ids, e);
  if (st == WEFT_OK) st = tokenizer_decode(t, ids.at, ids.n, true, &back, e);
  text_free(&back);
  token_ids_free(&ids);
  tokenizer_close(t);
  return st;
}

static weft_status read_pieces(const Ckpt *k, weft_error *e) {
  CkptRead r;
  float all[6];
  TRY(ckpt_read_begin(k, &r, e));
  weft_status st = WEFT_OK;
  for (int i = 0; i < ckpt_kinds(k->m.optimizer) && st == WEFT_OK; i++)
    for (int p = 0; p < LEN(shard_params) && st == WEFT_OK; p++)
      st = ckpt_read_part(&r, i, p, 1, p ? 5 : 3, all, e);
  ckpt_read_end(&r);
  return st;
}

static weft_status read_shard(const FuzzFile *f, weft_error *e) {
  Ckpt *k;
  TRY(write_manifest(f, e));
  TRY(ckpt_open(f->folder, &k, e));
  weft_status st = read_pieces(k, e);
  ckpt_close(k);
  return st;
}

/* ---- the list ---- */

static const FuzzTarget targets[] = {
    {"safetensors", "model.safetensors", 1, make_weights, repair_length, read_weights},
    {"index", "model.safetensors.index.json", 1, make_index, NULL, read_weights},
    {"config", "config.json", 1, make_config, NULL, read_config},
    {"tokens", "t.bin", FUZZ_FORMS, make_tokens, NULL, read_tokens},
    {"idx", "m.idx", 1, make_token_index, NULL, read_token_index},
    {"tokenizer", "tokenizer.json", 1, make_tokenizer, NULL, read_tokenizer},
    {"manifest", MANIFEST_NAME, 1, make_manifest, repair_seal, read_manifest},
    {"shard", "rank-00000.safetensors", 1, make_shard, repair_length, read_shard},
};

const FuzzTarget *fuzz_target(int i) { return i < LEN(targets) ? &targets[i] : NULL; }

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may use the machine */
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void fuzz_read(const FuzzTarget *t, const FuzzFile *f, Text *report) {
  char path[512];
  weft_error e;
  err_clear(&e);
  bool ok = put(f, t->file, f->s, f->n);
  double begin = seconds();
  weft_status st = ok ? t->read(f, &e) : WEFT_EFILE;
  double took = seconds() - begin;
  ok = ok && (st == WEFT_OK || st == WEFT_EFILE || st == WEFT_EPLAN || st == WEFT_ELIMIT);
  if (!ok || (st != WEFT_OK && !e.text[0]) || took > SLOW_S)
    text_printf(report, "%s: status %d after %.1f s: %s\n", t->file, (int)st, took,
                e.text);
  unlink(path_of(f, t->file, path));
}
