/* events.c - event files of TensorBoard.
 *
 * A file is a list of records: u64 length, u32 checksum of it, the bytes, u32 checksum of
 * them; a checksum is the CRC-32C, rotated and shifted. A record is an Event of protocol
 * buffers: wall_time = 1 (double), step = 2 (varint), file_version = 3 (string), summary
 * = 5, which is a list of values = 1 with tag = 1 (string) and simple_value = 2 (float),
 * session_log = 7 with status = 1 (varint). All numbers are little-endian. */
#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* ---- records ---- */

static uint32_t crc32c(const void *p, size_t n) {
  uint32_t c = ~0u;
  for (const uint8_t *b = p; n--; b++) {
    c ^= *b;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (0x82f63b78u & -(c & 1));
  }
  return ~c;
}

/* Masks a checksum, as TensorFlow does, so that data that contain checksums are safe to
 * checksum again. */
static uint32_t masked(uint32_t c) { return (c >> 15 | c << 17) + 0xa282ead8u; }

static void add_little(Text *t, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) {
    char c = (char)(v >> 8 * i);
    text_addn(t, &c, 1);
  }
}

/* Appends `body` as a record and frees it. */
static void add_record(Text *out, Text *body) {
  Text length = {.alloc = body->alloc};
  add_little(&length, body->n, 8);
  if (body->oom || length.oom) {
    out->oom = true;
  } else {
    text_addn(out, length.s, length.n);
    add_little(out, masked(crc32c(length.s, length.n)), 4);
    text_addn(out, body->s, body->n);
    add_little(out, masked(crc32c(body->s, body->n)), 4);
  }
  text_free(&length);
  text_free(body);
}

/* ---- protocol buffers ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void add_varint(Text *t, uint64_t v) {
  for (; v >= 0x80; v >>= 7) add_little(t, (v & 0x7f) | 0x80, 1);
  add_little(t, v, 1);
}

static void add_key(Text *t, int field, int wire) {
  add_varint(t, (uint64_t)(field << 3 | wire));
}

static void add_double(Text *t, int field, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  add_key(t, field, WIRE_64);
  add_little(t, bits, 8);
}

static void add_float(Text *t, int field, float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  add_key(t, field, WIRE_32);
  add_little(t, bits, 4);
}

static void add_bytes(Text *t, int field, const void *p, size_t n) {
  add_key(t, field, WIRE_BYTES);
  add_varint(t, n);
  text_addn(t, p, n);
}

/* Appends a message as a field and frees it. */
static void add_message(Text *t, int field, Text *m) {
  if (m->oom)
    t->oom = true;
  else
    add_bytes(t, field, m->s, m->n);
  text_free(m);
}

enum {
  EVENT_TIME = 1,
  EVENT_STEP = 2,
  EVENT_VERSION = 3,
  EVENT_SUMMARY = 5,
  EVENT_SESSION = 7,
  SESSION_STATUS = 1,
  SUMMARY_VALUE = 1,
  VALUE_TAG = 1,
  VALUE_NUMBER = 2
};

void events_version(Text *out, double time) {
  static const char version[] = "brain.Event:2";
  Text event = {.alloc = out->alloc};
  add_double(&event, EVENT_TIME, time);
  add_bytes(&event, EVENT_VERSION, version, sizeof version - 1);
  add_record(out, &event);
}

void events_restart(Text *out, double time, int64_t step) {
  enum { START = 1 };
  Text event = {.alloc = out->alloc}, session = event;
  add_key(&session, SESSION_STATUS, WIRE_VARINT);
  add_varint(&session, START);
  add_double(&event, EVENT_TIME, time);
  add_key(&event, EVENT_STEP, WIRE_VARINT);
  add_varint(&event, (uint64_t)step);
  add_message(&event, EVENT_SESSION, &session);
  add_record(out, &event);
}

void events_scalar(Text *out, double time, int64_t step, const char *tag, double value) {
  Text event = {.alloc = out->alloc}, summary = event, number = event;
  add_bytes(&number, VALUE_TAG, tag, strlen(tag));
  add_float(&number, VALUE_NUMBER, (float)value);
  add_message(&summary, SUMMARY_VALUE, &number);
  add_double(&event, EVENT_TIME, time);
  add_key(&event, EVENT_STEP, WIRE_VARINT);
  add_varint(&event, (uint64_t)step);
  add_message(&event, EVENT_SUMMARY, &summary);
  add_record(out, &event);
}

/* ---- files ---- */

static double in_seconds(struct timespec t) {
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double wall_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return in_seconds(t);
}

static bool is_of_others(void *ud, const char *name) {
  bool *found = ud;
  *found |= strstr(name, ".tfevents.") != NULL;
  return !*found;
}

static weft_status look_for_others(const Dir *folder, weft_error *e) {
  bool found = false;
  TRY(dir_each(folder, is_of_others, &found, e));
  if (!found) return WEFT_OK;
  return err_file(e, WEFT_EUSAGE, folder->path, 0,
                  "has event files of another run, whose curves these would be added to; "
                  "give --tensorboard another folder, or --append");
}

weft_status events_ready(const char *folder, bool append, Events *out, weft_error *e) {
  TRY(dir_open(folder, 0755, &out->folder, e));
  if (!dir_writable(&out->folder))
    return dir_fails(&out->folder, NULL, "cannot be written", errno, e);
  return append ? WEFT_OK : look_for_others(&out->folder, e);
}

weft_status events_open(Events *ev, const RunHead *h, weft_error *e) {
  char host[128] = "", name[256];
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  gethostname(host, sizeof host - 1);
  /* Readers take files in the order of their names. */
  snprintf(name, sizeof name, "events.out.tfevents.%010lld.%09ld.%.64s.%s",
           (long long)now.tv_sec, (long)now.tv_nsec, host, h->id);
  TRY(file_extend(&ev->folder, name, 0644, true, &ev->file, e));
  Text t = {0};
  events_version(&t, in_seconds(now));
  if (h->resumed) events_restart(&t, in_seconds(now), h->resumed_step);
  return file_add_text(&ev->file, &t, e);
}

weft_status events_record(Events *ev, const Record *r, weft_error *e) {
  const StepResult *s = &r->step;
  const struct {
    const char *tag;
    double value;
    bool known;
  } scalar[] = {{"eval/loss", s->eval_loss, s->eval_tokens > 0},
                {"train/loss", s->loss, true},
                {"train/grad_norm", s->grad_norm, !s->skipped},
                {"train/lr", s->lr, true},
                {"train/loss_scale", s->loss_scale, s->loss_scale > 0},
                {"experts/max", s->expert_max, s->expert_max > 0},
                {"experts/mean", s->expert_mean, s->expert_max > 0},
                {"experts/imbalance", s->expert_max / s->expert_mean, s->expert_max > 0},
                {"experts/dropped", (double)s->dropped, s->expert_max > 0},
                {"speed/tokens_per_s", r->tokens_per_s, true},
                {"speed/step_ms", s->ms, true},
                {"speed/tflops_per_s", r->flops_per_s / 1e12, r->flops_per_s > 0},
                {"speed/share_of_peak", r->share, r->share > 0}};
  double now = wall_time();
  Text t = {0};
  for (int i = 0; i < LEN(scalar); i++)
    if (scalar[i].known) events_scalar(&t, now, s->step, scalar[i].tag, scalar[i].value);
  return file_add_text(&ev->file, &t, e);
}

void events_close(Events *ev) {
  file_end(&ev->file);
  dir_close(&ev->folder);
}
