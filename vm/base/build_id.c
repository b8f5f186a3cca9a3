/* build_id.c - the note that the linker leaves in every program (--build-id). */
#include "build_id.h"

#include <link.h>
#include <stdio.h>

typedef struct Find {
  uintptr_t self; /* an address inside the object to find */
  char *out;
  size_t n;
} Find;

static bool loads(const struct dl_phdr_info *info, uintptr_t at) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type == PT_LOAD && at - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
      return true;
  }
  return false;
}

static void write_id(const Find *f, const unsigned char *id, size_t n) {
  for (size_t i = 0; i < n && 2 * i + 2 < f->n; i++)
    snprintf(f->out + 2 * i, 3, "%02x", id[i]);
}

/* A note is a header, a name and a descriptor, each aligned to 4 bytes. */
static void read_notes(const Find *f, const char *at, size_t size) {
  ElfW(Nhdr) h;
  for (size_t i = 0; i + sizeof h <= size;) {
    memcpy(&h, at + i, sizeof h);
    size_t name = i + sizeof h, text = name + (h.n_namesz + 3u) / 4 * 4;
    i = text + (h.n_descsz + 3u) / 4 * 4;
    if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && i <= size)
      write_id(f, (const unsigned char *)at + text, h.n_descsz);
  }
}

static int visit(struct dl_phdr_info *info, size_t size, void *ud) {
  const Find *f = ud;
  if (!loads(info, f->self)) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type == PT_NOTE)
      read_notes(f, (const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
  }
  return 1;
}

void build_id(char *out, size_t n) {
  snprintf(out, n, "unknown");
  dl_iterate_phdr(visit, &(Find){(uintptr_t)visit, out, n});
}
