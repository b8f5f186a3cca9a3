/* attention_report.c - which backend computes attention in a plan's programs, in words.
 */
#include <stdio.h>

#include "program.h"

typedef struct Share {
  int of_library, all, drops;
} Share;

static void count(const Program *p, Share back[2]) {
  for (uint32_t i = 0; i < p->ncode; i++) {
    const Instr *in = &p->code[i];
    bool dx = in->op == OP_attention_dx || in->op == OP_attention_part_dx;
    if (in->code != I_KERNEL) continue;
    if (!dx && in->op != OP_attention && in->op != OP_attention_part) continue;
    back[dx].all++;
    back[dx].drops += p->attr[in->attr].rate > 0;
    back[dx].of_library += attr_of_library(&p->attr[in->attr]);
  }
}

static const char *who(const Share *s) {
  return s->drops > 0              ? "weft's own kernels, which drop alike on every mesh"
         : s->of_library == 0      ? "weft's own kernels"
         : s->of_library == s->all ? "cuDNN"
                                   : "cuDNN and weft's own kernels";
}

const char *attention_way(const Compiled *c, char text[ATTENTION_WAY]) {
  Share back[2] = {{0}, {0}};
  if (!c->device->refuses) return NULL;
  for (int pp = 0; pp < c->mesh.size[AXIS_PP]; pp++) count(&c->prog[pp], back);
  if (back[0].all + back[1].all == 0) return NULL;
  if (back[0].all == 0 || back[1].all == 0 || strcmp(who(&back[0]), who(&back[1])) == 0)
    snprintf(text, ATTENTION_WAY, "%s", who(&back[back[0].all == 0]));
  else
    snprintf(text, ATTENTION_WAY, "forward by %s, backward by %s", who(&back[0]),
             who(&back[1]));
  return text;
}
