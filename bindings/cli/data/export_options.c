/* export_options.c - --dtype and --shard-size of what is written as a Hugging Face
 * folder. */
#include "export_options.h"

#include <stdlib.h>

/* "5GB", "800MB", "2e9": powers of ten, as in Hugging Face's max_shard_size. */
static weft_status read_size(const char *text, uint64_t *out, weft_error *e) {
  static const struct {
    const char *unit;
    double bytes;
  } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  char *end;
  double n = strtod(text, &end);
  for (int i = 0; i < LEN(units) && end != text; i++)
    if (str_ieq(end, units[i].unit) && n * units[i].bytes >= 1 &&
        n * units[i].bytes < 1e18) {
      *out = (uint64_t)(n * units[i].bytes);
      return WEFT_OK;
    }
  return err_set(e, WEFT_EUSAGE, "--shard-size takes a size as 5GB or 800MB, got \"%s\"",
                 text);
}

static weft_status read_dtype(const char *text, DType *out, weft_error *e) {
  static const struct {
    const char *name;
    DType dtype;
  } types[] = {{"f32", DT_F32}, {"bf16", DT_BF16}, {"f16", DT_F16}};
  for (int i = 0; i < LEN(types); i++)
    if (str_eq(text, types[i].name)) {
      *out = types[i].dtype;
      return WEFT_OK;
    }
  return err_set(e, WEFT_EUSAGE, "--dtype is f32, bf16 or f16, got \"%s\"", text);
}

weft_status export_options(const Cli *cli, bool merged, ExportHow *out, weft_error *e) {
  *out = (ExportHow){.dtype = DT_ACT, .merged = merged};
  if (cli->shard_size) TRY(read_size(cli->shard_size, &out->shard_bytes, e));
  return cli->dtype ? read_dtype(cli->dtype, &out->dtype, e) : WEFT_OK;
}
