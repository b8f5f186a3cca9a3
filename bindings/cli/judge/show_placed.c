/* show_placed.c - what the compiler placed between the actions of a schedule: gathers and
 * reshards of parameters, reductions of gradients. */
#include "bindings/schedule/schedule_csv.h"
#include "bindings/cli/cli.h"

/* Walks through the main list of a rank and gives a word for each action and each placed
 * collective. */
typedef struct Words {
  const Compiled *c;
  const Program *p;
  uint32_t pc;
  int32_t action; /* 1 + the last action that had a word */
  uint8_t code;   /* of the last word, with its unit */
  uint32_t unit;
} Words;

static const char *kind_of(const Instr *in) {
  switch ((InstrCode)in->code) {
  case I_GATHER: return "UNSHARD";
  case I_FREE: return "RESHARD";
  case I_SCATTER: return "REDUCE_GRAD";
  default: return NULL;
  }
}

/* The next word, allocated in `a`, or NULL. Several collectives of one unit are one word.
 */
static const char *next_word(Words *w, Arena *a) {
  const Schedule *s = &w->c->schedule;
  char buf[ACTION_TEXT];
  while (w->pc < w->p->nmain) {
    const Instr *in = &w->p->code[w->pc++];
    const char *kind = kind_of(in);
    if (kind) {
      bool same = w->code == in->code && w->unit == in->unit;
      w->code = in->code, w->unit = in->unit;
      if (!same) return arena_printf(a, "%s(%s)", kind, w->p->unit[in->unit]);
    } else if (in->code == I_CALL) {
      bool same = w->action == in->action;
      w->code = in->code, w->action = in->action;
      if (same || in->action == 0) continue;
      schedule_action_text(s, w->p->pp, &s->list[w->p->pp][in->action - 1], buf);
      return arena_str(a, buf);
    }
  }
  return NULL;
}

bool placed_any(const Compiled *c) {
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++)
    for (uint32_t i = 0; i < c->prog[r].nmain; i++)
      if (kind_of(&c->prog[r].code[i])) return true;
  return false;
}

void placed_text(const Compiled *c, Arena *a, Text *out) {
  enum { SHOWN = 40 };
  text_add(out, "parameters and gradients among the first actions of each rank:\n");
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++) {
    Words w = {.c = c, .p = &c->prog[r]};
    const char *word = NULL;
    text_printf(out, "%4d ", r);
    for (int i = 0; i < SHOWN && (word = next_word(&w, a)); i++)
      text_printf(out, " %s", word);
    text_add(out, word && next_word(&w, a) ? " ...\n" : "\n");
  }
}

void placed_json(const Compiled *c, Arena *a, Json *out) {
  json_open(out, "placed", '[');
  for (int r = 0; r < c->mesh.size[AXIS_PP]; r++) {
    Words w = {.c = c, .p = &c->prog[r]};
    json_open(out, NULL, '[');
    for (const char *word; (word = next_word(&w, a));) json_str(out, NULL, word);
    json_close(out, ']');
  }
  json_close(out, ']');
}
