/* budget.c - an allocator that enforces a limit and counts by part; see budget.h. */
#include "budget.h"

#include <stdlib.h>
#include <unistd.h>

static void *take(void *ud, void *p, size_t old, size_t n) {
  Budget *b = ud;
  uint64_t used = b->used - old + n;
  if (n > old && used > b->limit) {
    b->over = true;
    return NULL;
  }
  void *q = mem_resize(&b->from, p, old, n);
  if (q || n == 0) b->used = used;
  return q;
}

static uint64_t half_of_machine(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 2 : UINT64_MAX;
}

void budget_init(Budget *b, const weft_alloc *from, uint64_t limit) {
  *b = (Budget){.limit = limit ? limit : half_of_machine()};
  if (from) b->from = *from;
}

weft_alloc budget_alloc(Budget *b) { return (weft_alloc){take, b}; }

Budget *budget_of(const Arena *a) {
  const weft_alloc *alloc = arena_allocator(a);
  return alloc->fn == take ? alloc->ud : NULL;
}

/* A nested compile has a budget of its own on top of the outer one's. */
const weft_alloc *budget_below(const Arena *a) {
  const weft_alloc *alloc = arena_allocator(a);
  while (alloc->fn == take) alloc = &((const Budget *)alloc->ud)->from;
  return alloc;
}

void budget_part(const Arena *a, const char *what) {
  Budget *b = budget_of(a);
  if (!b) return;
  int i = 0;
  while (i < b->nparts && strcmp(b->part[i].what, what) != 0) i++;
  if (i == BUDGET_PARTS) return;
  b->part[i].what = what;
  b->part[i].before = b->used;
  b->nparts = i + 1; /* a part that is repeated starts over */
}

/* "1.35 GiB", "12 MiB" */
static void add_size(TextBuf *to, double bytes) {
  bool gib = bytes >= 1 << 30;
  textbuf_printf(to, "%.3g %s", bytes / (gib ? 1 << 30 : 1 << 20), gib ? "GiB" : "MiB");
}

weft_status budget_error(const Budget *b, weft_error *e) {
  char text[2][512];
  TextBuf limit = textbuf(text[0], sizeof text[0]);
  TextBuf parts = textbuf(text[1], sizeof text[1]);
  add_size(&limit, (double)b->limit);
  for (int i = 0; i < b->nparts && !parts.cut; i++) {
    uint64_t end = i + 1 < b->nparts ? b->part[i + 1].before : b->used;
    uint64_t took = end > b->part[i].before ? end - b->part[i].before : 0;
    textbuf_printf(&parts, "%s%s ", i ? ", " : "", b->part[i].what);
    add_size(&parts, (double)took);
  }
  const char *last = b->nparts ? b->part[b->nparts - 1].what : "the plan";
  return err_set(
      e, WEFT_ELIMIT,
      "the memory limit of %s is reached while making %s (so far: %s): raise it "
      "(--memory, compile_limit) or ask for less",
      limit.s, last, parts.s);
}
