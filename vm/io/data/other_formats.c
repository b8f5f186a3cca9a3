/* other_formats.c - what a file is that is given as ids of tokens or as text and is
 * neither: by its first bytes, and of text by its name, too. Trained on, such a file
 * gives losses like any other. */
#include <ctype.h>

#include "vm/base/terminal.h"
#include "vm/io/source.h"

/* First bytes of other formats. */
static const struct {
  const char *bytes;
  int n;
  const char *what;
} marks[] = {
    {"\x93NUMPY", 6, "a NumPy array (.npy): write its ids alone, array.tofile(...)"},
    {"PK\x03\x04", 4, "a zip archive (.npz, .pt)"},
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", 8, "a file of torch.save"},
    {"MMIDIDX", 7, "the index of Megatron's token files (.idx)"},
    {"WEFTMASK", 8, "a mask of tokens (.mask): name its .bin alone"},
    {"WEFTREFL", 8, "losses of a reference, as weft eval --reference writes them"},
    {"\x1f\x8b", 2, "compressed with gzip"},
    {"\x28\xb5\x2f\xfd", 4, "compressed with zstd"},
    {"\3757zXZ", 5, "compressed with xz"},
    {"BZh9", 4, "compressed with bzip2"},
    {"PAR1", 4, "a Parquet table"},
    {"ARROW1", 6, "an Arrow table"},
    {"GGUF", 4, "a model of llama.cpp (.gguf)"},
    {"\x89HDF", 4, "an HDF5 file"},
    {"%PDF-", 5, "a PDF file"},
};

/* The header of a safetensors file: its length in 8 bytes, and JSON. */
static bool is_safetensors(const File *f, const char *head, size_t n) {
  uint64_t length;
  if (n < 10) return false;
  memcpy(&length, head, sizeof length);
  return length >= 2 && length <= f->size - 8 && head[8] == '{' && head[9] == '"';
}

const char *other_format(const File *f, const char *head, size_t n, int least) {
  for (int i = 0; i < LEN(marks); i++)
    if (n >= (size_t)marks[i].n && marks[i].n >= least &&
        memcmp(head, marks[i].bytes, (size_t)marks[i].n) == 0)
      return marks[i].what;
  return is_safetensors(f, head, n) ? "a safetensors file, which has weights" : NULL;
}

/* ---- text ---- */

/* Whether a file has one of these endings, in any case. */
static bool ends_with(const char *path, const char *const *ends, int n) {
  for (int i = 0; i < n; i++) {
    size_t all = strlen(path), k = strlen(ends[i]), same = 0;
    if (all < k) continue;
    while (same < k && tolower((unsigned char)path[all - k + same]) == ends[i][same])
      same++;
    if (same == k) return true;
  }
  return false;
}

bool is_named_rows(const char *path) {
  static const char *const ends[] = {".jsonl", ".ndjson", ".json"};
  return ends_with(path, ends, LEN(ends));
}

/* Control characters but those that texts have. */
static bool is_control(unsigned char c) {
  return (c < ' ' && !strchr("\t\n\v\f\r\x1b", c)) || c == 0x7f;
}

/* UTF-8 without control characters: ids of tokens are not, but for a few of them by
 * chance. The last character may be cut off. */
static bool is_text(const char *head, size_t n) {
  enum { LEAST = 32, CUT = 3 };
  size_t good = text_utf8(head, n);
  if (n < LEAST || good + CUT < n) return false;
  for (size_t i = 0; i < n; i++)
    if (is_control((unsigned char)head[i])) return false;
  return true;
}

const char *text_format(const File *f, const char *head, size_t n) {
  static const char *const ends[] = {".txt", ".text", ".md", ".csv", ".tsv"};
  if (n == 0) return NULL;
  if (is_named_rows(f->path)) return "JSON";
  if (!ends_with(f->path, ends, LEN(ends)) && !is_text(head, n)) return NULL;
  size_t at = 0;
  while (at < n && isspace((unsigned char)head[at])) at++;
  return at < n && head[at] == '{' ? "JSON" : "text";
}

bool has_many_zeros(const char *head, size_t n) {
  size_t zeros = 0;
  for (size_t i = 0; i < n; i++) zeros += head[i] == 0;
  return zeros > n / 32;
}
