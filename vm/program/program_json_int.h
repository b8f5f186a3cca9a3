/* program_json_int.h - what the files of program_json.c share. */
#ifndef WEFT_PROGRAM_JSON_INT_H
#define WEFT_PROGRAM_JSON_INT_H

#include "program.h"
#include "vm/base/json.h"

typedef struct ProgramJson {
  const Compiled *c;
  const Program *p;
  Json *j;
  int rank;
  int *group; /* room for the members of a communicator */
} ProgramJson;

/* Offsets on the host count from the begin of its arena. */
static inline uint64_t in_its_arena(uint64_t off) {
  return on_host(off) ? off - HOST_BASE : off;
}

static inline void json_offset(Json *j, const char *key, uint64_t at) {
  json_int(j, key, (int64_t)at);
}

/* ---- code_json.c ---- */
/* A list of `n` instructions. */
void json_code(const ProgramJson *k, const char *key, uint32_t first, uint32_t n);

#endif
