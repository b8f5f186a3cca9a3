/* calibration_write.c - a cost table as a file of Lua; see calibration.h. */
#include "calibration.h"

#include "vm/io/file.h"

/* A string of Lua; what may not stand in one becomes a space. */
static void add_string(Text *out, const char *s) {
  text_add(out, "\"");
  for (; s && *s; s++) {
    bool quoted = *s == '"' || *s == '\\';
    bool plain = (unsigned char)*s >= ' ' && *s != 127;
    text_printf(out, quoted ? "\\%c" : "%c", plain ? *s : ' ');
  }
  text_add(out, "\"");
}

static void add_field(Text *out, const char *name, const char *s) {
  text_printf(out, "%s = ", name);
  add_string(out, s);
  text_add(out, ", ");
}

static void add_machine(const CostTable *t, Text *out) {
  text_add(out, "machine { ");
  add_field(out, "device", t->device);
  add_field(out, "way", t->way);
  add_field(out, "name", t->machine);
  add_field(out, "comm", t->comm);
  text_add(out, "\n  ");
  add_field(out, "version", t->version);
  add_field(out, "date", t->date);
  text_printf(out, "threads = %d, cores = %d, ranks = %d,\n", t->threads, t->cores,
              t->ranks);
  text_printf(out, "  f32 = %.4g, bf16 = %.4g, bandwidth = %.4g }\n", t->f32, t->bf16,
              t->bandwidth);
}

static void add_size(Text *out, const char *name, double v) {
  if (v != 0) text_printf(out, "%s = %.17g, ", name, v);
}

static void add_kernel(const KernelRow *r, Text *out) {
  const KernelWork *w = &r->work;
  text_printf(out, "kernel { \"%s\", \"%s\", ", op_info[r->op].name,
              dtype_name(w->dtype));
  add_string(out, r->shape);
  text_printf(out, ", class = \"%s\", ", work_name[w->kind]);
  add_size(out, "m", w->m);
  add_size(out, "n", w->n);
  add_size(out, "k", w->k);
  add_size(out, "heads", w->heads);
  add_size(out, "flops", w->flops);
  add_size(out, "bytes", w->bytes);
  add_size(out, "between", w->between);
  add_size(out, "added", w->added);
  add_size(out, "fp8", w->fp8);
  text_printf(out, "ns = %.1f }\n", r->seconds * 1e9);
}

void calibration_text(const CostTable *t, Text *out) {
  text_add(out, "-- Times of kernels and collectives, measured by weft calibrate; see "
                "docs/planning.md.\n");
  add_machine(t, out);
  for (int i = 0; i < t->kernel.n; i++) add_kernel(&t->kernel.at[i], out);
  for (int i = 0; i < t->move.n; i++) {
    const MoveRow *r = &t->move.at[i];
    text_printf(out, "move { \"%s\", \"%s\", ranks = %d, bytes = %.17g, ns = %.1f }\n",
                coll_info[r->kind].name, dtype_name(r->dtype), r->ranks, r->bytes,
                r->seconds * 1e9);
  }
}

weft_status calibration_write(const CostTable *t, const char *path, weft_error *e) {
  Text out = {0};
  calibration_text(t, &out);
  return file_write_text(NULL, path, &out, e);
}
