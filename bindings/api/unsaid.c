/* unsaid.c - what a plan leaves to defaults with which other systems do not begin. */
#include "bindings/schema/schema.h"
#include "job.h"

/* Paths of which one says it, separated by spaces. */
static bool says(lua_State *L, Arena *a, const char *paths) {
  bool said = false;
  int top = lua_gettop(L);
  for (const char *p = paths; *p && !said; p += strspn(p, " ")) {
    size_t n = strcspn(p, " ");
    said = field_said(L, a, arena_strn(a, p, n)) != NULL;
    lua_settop(L, top);
    p += n;
  }
  return said;
}

typedef struct UnsaidJob {
  const Job *j;
  JobUnsaid *out;
} UnsaidJob;

static void look(lua_State *L, void *ud) {
  UnsaidJob *u = ud;
  Arena *a = u->j->arena;
  const int *n = u->j->mesh.size;
  int dp = n[AXIS_DP_SHARD] * n[AXIS_DP_REPLICATE];
  if (dp > 1 && !says(L, a, "strategy"))
    u->out->text[u->out->n++] = arena_printf(
        a, "strategy: copies on all %d ranks of dp (NeMo, torchtitan: fsdp2)", dp);
  if (!says(L, a, "precision strategy.mp_policy strategy.autocast_dtype"))
    u->out->text[u->out->n++] = "precision: f32 (NeMo, torchtitan: bf16)";
}

weft_status job_unsaid(Job *j, JobUnsaid *out) {
  *out = (JobUnsaid){0};
  UnsaidJob u = {j, out};
  return state_protect(j->lp->state, look, &u, &j->e);
}

/* ---- data ---- */

static void look_for_data(lua_State *L, void *ud) {
  Job *j = ud;
  if (says(L, j->arena, "data")) return;
  diag_warn(&j->d, "data", "data",
            "the model begins with the weights of %s, and without data a run trains them "
            "on made-up tokens: weft.tokens, weft.chat and weft.text read files; "
            "weft.synthetic {} says that made-up tokens are meant",
            lang_weights(j->lp));
}

weft_status job_no_data(Job *j) {
  if (!lang_weights(j->lp) || j->plan.data.kind != DATA_SYNTHETIC) return WEFT_OK;
  return state_protect(j->lp->state, look_for_data, j, &j->e);
}
