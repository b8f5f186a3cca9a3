/* format.h - numbers, sizes and meshes as strings for people. */
#ifndef WEFT_FORMAT_H
#define WEFT_FORMAT_H

#include "vm/mesh/mesh.h"

const char *format_bytes(double n, char buf[32]);     /* "1.5 MiB" */
const char *format_count(double n, char buf[32]);     /* "1.05 M" */
const char *format_flops(double per_s, char buf[32]); /* "39.1 GFLOP/s" */
const char *format_span(double s, char buf[32]); /* "42 s", "3 min 05 s", "2 h 07 min" */
/* mesh_text() with the number of ranks, "tp=2 pp=2, 4 ranks"; or "one rank". */
const char *format_mesh_ranks(const Mesh *m, char buf[128]);

#endif
