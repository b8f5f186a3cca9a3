/* tp_match.c - which tp_plan rule speaks of a parameter.
 *
 * A pattern is tried on the parameter, its module and the module of the op that reads it
 * (a tied head), each with and without the base prefix. `*` stands for a layer number.
 * The pattern with most literal characters wins. */
#include "shard.h"

#include <ctype.h>

static bool segment_matches(const char *p, size_t np, const char *s, size_t ns) {
  if (np == 1 && *p == '*') {
    for (size_t i = 0; i < ns; i++)
      if (!isdigit((unsigned char)s[i])) return false;
    return ns > 0;
  }
  return np == ns && memcmp(p, s, np) == 0;
}

/* Whole names, segment by segment; `s` has `n` characters. */
static bool matches(const char *p, const char *s, size_t n) {
  const char *end = s + n;
  for (;;) {
    size_t np = strcspn(p, "."), ns = 0;
    while (s + ns < end && s[ns] != '.') ns++;
    if (!segment_matches(p, np, s, ns)) return false;
    p += np, s += ns;
    if (!*p || s == end) return !*p && s == end;
    p++, s++;
  }
}

/* `s` and `s` without "model." or "transformer.". */
static bool matches_based(const char *p, const char *s, size_t n) {
  static const char *const base[] = {"model.", "transformer."};
  if (matches(p, s, n)) return true;
  for (int i = 0; i < LEN(base); i++) {
    size_t k = strlen(base[i]);
    if (n > k && memcmp(s, base[i], k) == 0 && matches(p, s + k, n - k)) return true;
  }
  return false;
}

static bool rule_matches(const char *pattern, const char *param, const char *module) {
  const char *dot = strrchr(param, '.');
  if (matches_based(pattern, param, strlen(param))) return true;
  if (dot && matches_based(pattern, param, (size_t)(dot - param))) return true;
  return module && matches_based(pattern, module, strlen(module));
}

static int literals(const char *p) {
  int n = 0;
  for (; *p; p++) n += *p != '*';
  return n;
}

int tp_match(const Plan *p, const char *param, const char *module, Diags *d) {
  int best = -1, tie = -1;
  for (int i = 0; i < p->ntp; i++) {
    if (!rule_matches(p->tp[i].pattern, param, module)) continue;
    int more = best < 0 ? 1 : literals(p->tp[i].pattern) - literals(p->tp[best].pattern);
    if (more > 0) best = i, tie = -1;
    else if (more == 0 && p->tp[i].style != p->tp[best].style) tie = i;
  }
  if (tie >= 0) {
    const char *path = arena_printf(d->arena, "tp_plan[\"%s\"]", p->tp[tie].pattern);
    diag_error(d, "tp-plan", path,
               "\"%s\" (%s) and \"%s\" (%s) both match %s and are equally specific",
               p->tp[best].pattern, tp_style_name(p->tp[best].style), p->tp[tie].pattern,
               tp_style_name(p->tp[tie].style), param);
  }
  return best;
}

void tp_unmatched(const Shard *s) {
  const Plan *p = s->plan;
  for (int i = 0; i < p->ntp; i++) {
    if (s->rule_hits[i] || p->tp[i].from_default) continue;
    const char *path = arena_printf(s->d->arena, "tp_plan[\"%s\"]", p->tp[i].pattern);
    Diag *x = diag_error(s->d, "tp-plan", path, "the pattern matches no parameter");
    if (s->g->param.n > 0)
      x->suggestion = arena_printf(s->d->arena, "parameters look like %s",
                                   s->g->param.at[s->g->param.n / 2].name);
  }
}
