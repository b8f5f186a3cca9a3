/* schedule_fixture.c - see schedule_fixture.h. */
#include "schedule_fixture.h"
#include "bindings/schema/schema.h"
#include "bindings/schedule/schedule_facts.h"

#include <check.h>

void schedule_load(LangTest *t, const char *schedule, int virtual_stages) {
  const char *chunks =
      virtual_stages ? arena_printf(t->arena, "%d", virtual_stages) : "nil";
  lang_test_good(t, arena_printf(t->arena,
                                 HEAD "return weft.plan {\n  model = weft.model { "
                                      "'llama-tiny', num_hidden_layers = 64 },\n"
                                      "  mesh = { pp = 2 }, pp_plan = { virtual = %s },\n"
                                      "  batch = { global = 60, seq = 16 },\n"
                                      "  schedule = %s }",
                                 chunks, schedule));
}

bool schedule_legal(LangTest *t, int ranks, int microbatches, Diags *d) {
  Plan p = *lang_plan(t->lp);
  Mesh m;
  p.mesh.pp = ranks;
  p.batch.global = microbatches;
  ck_assert(mesh_resolve(&p.mesh, 0, &m, d));
  return lang_check_mesh(t->lp, &p, &m, d, &t->e) == WEFT_OK;
}

Schedule schedule_table(LangTest *t, Arena *a, int ranks, int microbatches) {
  Schedule s;
  Mesh m;
  Diags d = {.arena = a};
  ck_assert(mesh_resolve(&(MeshSpec){.pp = ranks}, 0, &m, &d));
  weft_status st = lang_schedule(t->lp, &m, microbatches, &s, &d, &t->e);
  ck_assert_msg(st == WEFT_OK, "%s, P=%d m=%d: %s", lang_plan(t->lp)->schedule, ranks,
                microbatches, d.list.n ? d.list.at[0].summary : t->e.text);
  return s;
}

const char *schedule_text(Arena *a, const Schedule *s, bool comms) {
  Text text = {0};
  schedule_csv_write(s, comms, &text);
  const char *copy = arena_str(a, text.s);
  text_free(&text);
  return copy;
}
