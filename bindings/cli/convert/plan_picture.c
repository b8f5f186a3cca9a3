/* plan_picture.c - the timeline of a plan object as an element of a page. */
#include "convert.h"

#include "bindings/object/plan_object.h"
#include "bindings/script/library.h"
#include "vm/draw/timeline_draw.h"
#include "vm/sim/sim_timeline.h"

typedef struct PictureCall {
  const Job *j;
  Arena *arena;
  bool by_clock;
  Schedule s;
  Timeline t;
  weft_status st;
  weft_error e;
} PictureCall;

static void picture_call(void *ud) {
  PictureCall *k = ud;
  const Job *j = k->j;
  k->s = job_step_schedule(j, k->arena);
  k->st = k->by_clock ? sim_timeline(j->compiled, &j->plan, j->costs, k->arena, &k->s,
                                     &k->t, &k->e)
                      : timeline_run(&k->s, TIMELINE_UNIT, k->arena, &k->t, &k->e);
}

static int plan_picture(lua_State *L) {
  PictureCall k = {.j = plan_object_compiled(L), .by_clock = lua_toboolean(L, 2)};
  k.arena = script_push_arena(L);
  err_clear(&k.e);
  if (!arena_try(k.arena, picture_call, &k)) return luaL_error(L, "not enough memory");
  if (k.st != WEFT_OK) return plan_object_raise(L, plan_object_self(L), k.st, &k.e);
  timeline_svg(&k.s, &k.t, true, script_push_text(L));
  script_end_text(L);
  return 1;
}

void plan_picture_provide(lua_State *L) {
  lua_pushcfunction(L, plan_picture);
  library_provide(L, "plan_picture");
}
