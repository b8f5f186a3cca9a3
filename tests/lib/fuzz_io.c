/* fuzz_io.c - see fuzz_io.h. */
#include "fuzz_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "vm/ckpt/ckpt.h"
#include "bindings/api/job.h"
#include "vm/base/rng.h"
#include "vm/text/tokenizer.h"

enum { BYTES_MAX = 1 << 16, SLOW_S = 5 };

typedef struct Case {
  const char *folder;
  Rng rng;
  uint64_t drawn;
  unsigned char s[BYTES_MAX];
  size_t n;
} Case;

static uint32_t below(Case *c, uint32_t n) {
  return (uint32_t)((uint64_t)rng_u32(&c->rng, c->drawn++) * n >> 32);
}

static const char *path_of(const Case *c, const char *name, char out[512]) {
  snprintf(out, 512, "%s/%s", c->folder, name);
  return out;
}

static bool put(const Case *c, const char *name, const void *s, size_t n) {
  char path[512];
  FILE *f = fopen(path_of(c, name, path), "wb");
  bool ok = f && fwrite(s, 1, n, f) == n;
  return f && fclose(f) == 0 && ok;
}

/* ---- whole files ---- */

static void add(Case *c, const void *s, size_t n) {
  n = MIN(n, (size_t)BYTES_MAX - c->n);
  memcpy(c->s + c->n, s, n);
  c->n += n;
}

static void add_text(Case *c, const char *s) {
  add(c, s, strlen(s));
}

static void make_weights(Case *c) {
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],"
      "\"data_offsets\":[0,32]},"
      "\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[32,36]},"
      "\"lm_head.bias\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[36,44]}}";
  uint64_t n = sizeof header - 1;
  static const char data[44];
  add(c, &n, sizeof n);
  add(c, header, n);
  add(c, data, sizeof data);
}

static void make_index(Case *c) {
  Case shard = {.folder = c->folder};
  make_weights(&shard);
  put(c, "m-1.safetensors", shard.s, shard.n);
  add_text(c, "{\"metadata\":{\"total_size\":44},\"weight_map\":{"
              "\"model.embed_tokens.weight\":\"m-1.safetensors\","
              "\"model.norm.weight\":\"m-1.safetensors\","
              "\"lm_head.bias\":\"m-1.safetensors\"}}");
}

static void make_config(Case *c) {
  static const char plan[] = "local weft = require 'weft'\n"
                             "return weft.plan { model = weft.hf '.',\n"
                             "  batch = { global = 1, seq = 4 } }\n";
  put(c, "plan.lua", plan, sizeof plan - 1);
  add_text(c, "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_hidden_layers\":2,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":64,"
              "\"intermediate_size\":48,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
              "\"rope_scaling\":null,\"tie_word_embeddings\":false,\"head_dim\":8,"
              "\"id2label\":{\"0\":\"A\"},\"architectures\":[\"LlamaForCausalLM\"]}");
}

static void make_tokens(Case *c) {
  static const int32_t forms[][4] = {
      {20240520, 1, 40, 0}, {20240801, 7, 40, 0}, {278895051, 1, 40, 4}, {0, 0, 0, 0}};
  uint32_t form = below(c, LEN(forms));
  int32_t header[256] = {0};
  uint16_t ids[80];
  memcpy(header, forms[form], sizeof forms[form]);
  for (int i = 0; i < LEN(ids); i++)
    ids[i] = (uint16_t)(i % 50);
  if (header[0]) add(c, header, sizeof header);
  add(c, ids, form == 0 ? 80 : sizeof ids);
}

static void make_token_index(Case *c) {
  static const int32_t lengths[] = {5, 0, 9, 6};
  int64_t begin[] = {0, 10, 10, 28}, first[] = {0, 1, 2, 3, 4}, counts[] = {4, 5};
  unsigned char head[18] = "MMIDIDX\0\0\1";
  uint16_t ids[20];
  for (int i = 0; i < LEN(ids); i++)
    ids[i] = (uint16_t)i;
  put(c, "m.bin", ids, sizeof ids);
  head[17] = 8;
  add(c, head, sizeof head);
  add(c, counts, sizeof counts);
  add(c, lengths, sizeof lengths);
  add(c, begin, sizeof begin);
  add(c, first, sizeof first);
}

static void make_tokenizer(Case *c) {
  add_text(c, "{\"truncation\":null,\"added_tokens\":[{\"id\":5,\"content\":\"<s>\","
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

/* ---- changes ---- */

static const char manifest_end[] = ",\n  \"checksum\": \"0123456789abcdef\"\n}\n";

static void make_manifest(Case *c) {
  add_text(
      c, "{\n  \"facts\": {\"plan.batch.seq\": \"8\"},\n"
         "  \"files\": [{\"bytes\": 9, \"header\": \"0123456789abcdef\", "
         "\"name\": \"rank-00000.safetensors\"}],\n"
         "  \"id\": \"0123456789abcdef\",\n  \"loss_scale\": {\"good\": 0, \"on\": true, "
         "\"patience\": 1, \"scale\": 65536.0, \"skipped\": 0},\n  \"lr\": 0.5,\n"
         "  \"mesh\": \"tp=2\",\n  \"name\": \"n\",\n"
         "  \"parameters\": {\"a\": [4], \"b\": [2, 3]},\n  \"plan\": \"\",\n"
         "  \"plan_hash\": \"\",\n  \"samples\": 0,\n  \"saved_at\": 5,\n"
         "  \"seed\": 1,\n  \"step\": 3,\n  \"version\": 1,\n  \"weft\": \"0\",\n"
         "  \"world\": 2");
  add_text(c, manifest_end);
}

/* What was changed is looked at only under its checksum. */
static void repair_seal(Case *c) {
  size_t end = sizeof manifest_end - 1, digits = strcspn(manifest_end, "0");
  char hash[HASH_TEXT];
  if (c->n <= end) return;
  char *at = (char *)c->s + c->n - end;
  memcpy(at, manifest_end, end);
  memcpy(at + digits, hash_text(ckpt_hash(c->s, c->n - end), hash), HASH_TEXT - 1);
}

static void cut(Case *c, size_t at, size_t n) {
  n = MIN(n, c->n - at);
  memmove(c->s + at, c->s + at + n, c->n - at - n);
  c->n -= n;
}

static void insert(Case *c, size_t at, const void *s, size_t n) {
  n = MIN(n, (size_t)BYTES_MAX - c->n);
  memmove(c->s + at + n, c->s + at, c->n - at);
  memcpy(c->s + at, s, n);
  c->n += n;
}

/* Replaces a run of digits, if there is one after `at`. */
static void change_number(Case *c, size_t at) {
  static const char *const numbers[] = {"0",
                                        "-1",
                                        "1",
                                        "2147483648",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551615",
                                        "1e308",
                                        "1e999",
                                        "0.5",
                                        "4294967296",
                                        "null",
                                        "[]",
                                        "\"\""};
  while (at < c->n && (c->s[at] < '0' || c->s[at] > '9'))
    at++;
  size_t end = at;
  while (end < c->n && c->s[end] >= '0' && c->s[end] <= '9')
    end++;
  const char *s = numbers[below(c, LEN(numbers))];
  cut(c, at, end - at);
  insert(c, at, s, strlen(s));
}

static void change(Case *c) {
  static const char *const bits[] = {
      "{",           "}",    "[",       "]",        ",",    ":",
      "\"",          "\\",   "\\u0000", "\\ud800",  "\xff", "\xef\xbb\xbf",
      "null",        "true", "{\"a\":", "[[[[[[[[", "../",  "/dev/zero",
      "__metadata__"};
  size_t at = below(c, (uint32_t)c->n + 1);
  char block[256];
  switch (below(c, 8)) {
  case 0:
    if (at < c->n) c->s[at] ^= (unsigned char)(1u << below(c, 8));
    break;
  case 1:
    if (at < c->n) c->s[at] = (unsigned char)below(c, 256);
    break;
  case 2:
    cut(c, at, 1 + below(c, 16));
    break;
  case 3:
    c->n = at;
    break;
  case 4: {
    const char *s = bits[below(c, LEN(bits))];
    insert(c, at, s, strlen(s));
    break;
  }
  case 5: {
    size_t n = MIN(sizeof block, c->n - at), times = 1 + below(c, 40);
    memcpy(block, c->s + at, n);
    while (times--)
      insert(c, at, block, n);
    break;
  }
  default:
    change_number(c, at);
    break;
  }
}

/* A header that was changed is looked into only if its length is right. */
static void repair_length(Case *c) {
  uint64_t n = c->n;
  if (c->n < 8) return;
  for (size_t i = 8; i < c->n; i++)
    if (c->s[i] == '}') n = i - 7;
  memcpy(c->s, &n, sizeof n);
}

/* ---- reading ---- */

typedef weft_status (*Read)(const Case *c, weft_error *e);

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

static weft_status read_weights(const Case *c, weft_error *e) {
  Folders in = {.plan = c->folder};
  SafeTensors *s;
  TRY(st_open(NULL, c->folder, &in, &s, e));
  weft_status st = read_all(s, e);
  st_close(s);
  return st;
}

/* What is right is written again, as an export does. */
static weft_status write_config(Job *j) {
  Text out = {0};
  bool known;
  weft_status st = lang_hf_config(j->lp, DT_BF16, &out, &known, &j->e);
  text_free(&out);
  return st;
}

static weft_status read_config(const Case *c, weft_error *e) {
  char path[512];
  Arena *a = arena_new(NULL);
  Job j;
  weft_status st = job_load(&j, a, &(LangOptions){0}, path_of(c, "plan.lua", path));
  if (st == WEFT_OK) st = write_config(&j);
  if (st == WEFT_EPLAN && j.d.errors)
    report_first(&j.d, e);
  else
    *e = j.e;
  job_free(&j);
  arena_free(a);
  return st;
}

static weft_status read_tokens(const Case *c, weft_error *e) {
  int32_t t[3], l[3];
  uint64_t seen;
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   .dir = c->folder,
                   .files = (const char *[]){"t.bin"},
                   .nfiles = 1,
                   .width = c->n % 3 == 2 ? 4 : 0};
  TRY(data_open(NULL, &spec, 3, 64, 1, &d, e));
  weft_status st = data_look(d, &seen, e);
  for (int i = 0; i < 20 && st == WEFT_OK; i++)
    st = data_sample(d, i, t, l, e);
  data_close(d);
  return st;
}

static weft_status read_manifest(const Case *c, weft_error *e) {
  char path[512];
  Manifest m;
  Arena *a = arena_new(NULL);
  weft_status st = manifest_read(a, path_of(c, MANIFEST_NAME, path), &m, e);
  arena_free(a);
  if (st != WEFT_OK) return st;
  Ckpt *k;
  st = ckpt_open(c->folder, &k, e); /* its files are not there */
  return st == WEFT_OK ? WEFT_EINTERNAL : st;
}

/* With whole documents, which ask the index for all of them. */
static weft_status read_token_index(const Case *c, weft_error *e) {
  int32_t t[8], l[8];
  Data *d;
  DataSpec spec = {.kind = DATA_TOKENS,
                   .dir = c->folder,
                   .files = (const char *[]){"m"},
                   .nfiles = 1,
                   .packed = {.on = true, .size = 8, .too_long = TOO_LONG_SPLIT}};
  TRY(data_open(NULL, &spec, 8, 64, 1, &d, e));
  weft_status st = WEFT_OK;
  for (int i = 0; i < 10 && st == WEFT_OK; i++)
    st = data_sample(d, i, t, l, e);
  data_close(d);
  return st;
}

static weft_status read_tokenizer(const Case *c, weft_error *e) {
  static const char text[] = "ab a<s>'s  b\n";
  Tokenizer *t;
  TokenIds ids = {0};
  Text back = {0};
  TRY(tokenizer_open(NULL, c->folder, &t, e));
  weft_status st = WEFT_OK;
  for (size_t n = 0; n < sizeof text && st == WEFT_OK; n++)
    st = tokenizer_encode(t, text, n, true, &ids, e);
  if (st == WEFT_OK) st = tokenizer_decode(t, ids.at, ids.n, true, &back, e);
  text_free(&back);
  token_ids_free(&ids);
  tokenizer_close(t);
  return st;
}

static const struct {
  const char *file;
  void (*make)(Case *c);
  Read read;
} targets[] = {
    {"model.safetensors", make_weights, read_weights},
    {"model.safetensors.index.json", make_index, read_weights},
    {"config.json", make_config, read_config},
    {"t.bin", make_tokens, read_tokens},
    {"m.idx", make_token_index, read_token_index},
    {"tokenizer.json", make_tokenizer, read_tokenizer},
    {MANIFEST_NAME, make_manifest, read_manifest},
};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool fuzz_io_case(const char *folder, uint64_t seed, uint64_t number, Text *report) {
  char name[32], path[512];
  weft_error e;
  err_clear(&e);
  snprintf(name, sizeof name, "fuzz.io.%llu", (unsigned long long)number);
  Case *c = calloc(1, sizeof *c);
  *c = (Case){.folder = folder, .rng = rng_make(seed, name)};
  uint32_t k = below(c, LEN(targets));
  targets[k].make(c);
  for (uint32_t i = below(c, 6); i > 0; i--)
    change(c);
  if (k == 0 && below(c, 4)) repair_length(c);
  if (targets[k].make == make_manifest && below(c, 8)) repair_seal(c);
  bool ok = put(c, targets[k].file, c->s, c->n);
  double begin = seconds();
  weft_status st = ok ? targets[k].read(c, &e) : WEFT_EFILE;
  double took = seconds() - begin;
  ok = ok && (st == WEFT_OK || st == WEFT_EFILE || st == WEFT_EPLAN || st == WEFT_ELIMIT);
  if (!ok || (st != WEFT_OK && !e.text[0]) || took > SLOW_S)
    text_printf(report, "seed %llu, number %llu: %s: status %d after %.1f s: %s\n",
                (unsigned long long)seed, (unsigned long long)number, targets[k].file,
                (int)st, took, e.text);
  unlink(path_of(c, targets[k].file, path));
  free(c);
  return !report->n;
}

int fuzz_io(int argc, char **argv) {
  double limit = argc > 0 ? atof(argv[0]) : 60, begin = seconds();
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL), n = 0;
  char folder[] = "/tmp/weft-fuzz-XXXXXX";
  Text report = {0};
  if (limit <= 0 || !mkdtemp(folder)) {
    fprintf(stderr, "usage: --fuzz-io SECONDS [seed]\n");
    return EXIT_FAILURE;
  }
  printf("seed %llu, files in %s\n", (unsigned long long)seed, folder);
  fflush(stdout);
  for (; seconds() - begin < limit && !report.n; n++)
    fuzz_io_case(folder, seed, n, &report);
  printf("%llu files: %s\n", (unsigned long long)n,
         report.n ? report.s : "nothing found");
  bool found = report.n > 0;
  text_free(&report);
  return found ? EXIT_FAILURE : EXIT_SUCCESS;
}
