/* tp_plan_match.c - finds the tp_plan rule of a parameter.
 *
 * A pattern is compared with the module of the op that reads the parameter (a tied head
 * has a name of its own), then with the parameter and its module, each with and without
 * the base prefix. `*` stands for a layer number. Of several patterns that match, the one
 * with most literal characters wins. */
#include "shard.h"

#include "vm/graph/second_model.h"

#include <ctype.h>

static bool segment_matches(const char *p, size_t np, const char *s, size_t ns) {
  if (np == 1 && *p == '*') {
    for (size_t i = 0; i < ns; i++)
      if (!isdigit((unsigned char)s[i])) return false;
    return ns > 0;
  }
  return np == ns && memcmp(p, s, np) == 0;
}

/* Compares whole names, segment by segment; `s` has `n` characters. */
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

bool tp_pattern_fits(const char *p, const char *s, size_t n) {
  static const char *const base[] = {"model.", "transformer.", "backbone."};
  if (matches(p, s, n)) return true;
  size_t second = second_prefix(s, n);
  s += second, n -= second;
  if (second && matches(p, s, n)) return true;
  for (int i = 0; i < LEN(base); i++) {
    size_t k = strlen(base[i]);
    if (n > k && memcmp(s, base[i], k) == 0 && matches(p, s + k, n - k)) return true;
  }
  return false;
}

bool tp_pattern_holds(const char *pattern, const char *name) {
  for (size_t n = 0;; n++)
    if (!name[n] || name[n] == '.') {
      if (tp_pattern_fits(pattern, name, n)) return true;
      if (!name[n]) return false;
    }
}

/* Matches the parameter's name or its module's. */
static bool matches_param(const char *pattern, const char *param) {
  const char *dot = strrchr(param, '.');
  if (tp_pattern_fits(pattern, param, strlen(param))) return true;
  return dot && tp_pattern_fits(pattern, param, (size_t)(dot - param));
}

static bool matches_module(const char *pattern, const char *module) {
  return tp_pattern_fits(pattern, module, strlen(module));
}

/* Whether the parameter is of this module; if not it is tied, and read by another one. */
static bool belongs_to(const char *param, const char *module) {
  size_t n = strlen(module);
  return strncmp(param, module, n) == 0 && (param[n] == '.' || !param[n]);
}

bool tp_pattern_matches(const char *pattern, const char *param, const char *module) {
  bool tied = module && !belongs_to(param, module);
  return (tied && matches_module(pattern, module)) || matches_param(pattern, param);
}

static int literals(const char *p) {
  int n = 0;
  for (; *p; p++) n += *p != '*';
  return n;
}

int tp_match(const Plan *p, const char *param, const char *module, int *hits, int *tie) {
  int best = -1;
  bool tied = module && !belongs_to(param, module), own = false;
  *tie = -1;
  for (int i = 0; i < p->ntp && tied; i++)
    own |= matches_module(p->tp[i].pattern, module);
  for (int i = 0; i < p->ntp; i++) {
    const char *pattern = p->tp[i].pattern;
    bool match = own ? matches_module(pattern, module) : matches_param(pattern, param);
    if (!match) continue;
    hits[i]++;
    int more = best < 0 ? 1 : literals(pattern) - literals(p->tp[best].pattern);
    if (more > 0)
      best = i, *tie = -1;
    else if (more == 0 && p->tp[i].style != p->tp[best].style)
      *tie = i;
  }
  return best;
}

const char *tp_as_pattern(Arena *a, const char *param) {
  const char *from = strncmp(param, "model.", 6) == 0          ? param + 6
                     : strncmp(param, "transformer.", 12) == 0 ? param + 12
                     : strncmp(param, "backbone.", 9) == 0     ? param + 9
                                                               : param;
  const char *end = strrchr(from, '.');
  char *s = arena_strn(a, from, end ? (size_t)(end - from) : strlen(from));
  size_t n = 0;
  for (const char *c = s; *c;) {
    bool starts = c == s || c[-1] == '.';
    size_t digits = strspn(c, "0123456789");
    if (starts && digits && (c[digits] == '.' || !c[digits])) {
      s[n++] = '*';
      c += digits;
    } else {
      s[n++] = *c++;
    }
  }
  s[n] = 0;
  return s;
}

void tp_module_patterns(Arena *a, const char *name, PatternList *out) {
  for (const char *end = name; *end;) {
    end += strcspn(end + 1, ".") + 1;
    const char *part = arena_printf(a, "%.*s.", (int)(end - name), name);
    const char *pattern = tp_as_pattern(a, part);
    if (*pattern) *VEC_PUSH(a, *out) = pattern;
  }
}

static const char *last_part(const char *s) {
  const char *dot = strrchr(s, '.');
  return dot ? dot + 1 : s;
}

/* The pattern of the module that the last part of this one names, or nearly names. */
static const char *of_module(Arena *a, const char *pattern, const char *const *names,
                             int n) {
  const char **last = NEW_N(a, const char *, n);
  for (int i = 0; i < n; i++) last[i] = last_part(names[i]);
  const char *near = str_nearest(last_part(pattern), last, n);
  for (int i = 0; i < n && near; i++)
    if (last[i] == near) return names[i];
  return NULL;
}

static const char *suggestion(const Shard *s, const char *pattern) {
  Arena *a = s->d->arena;
  int n = s->g->param.n;
  const char **names = NEW_N(a, const char *, n);
  for (int i = 0; i < n; i++) names[i] = tp_as_pattern(a, s->g->param.at[i].name);
  const char *near = str_nearest(pattern, names, n);
  if (!near) near = of_module(a, pattern, names, n);
  if (near) return arena_printf(a, "did you mean \"%s\"?", near);
  if (n == 0) return NULL;
  return arena_printf(a, "parameters look like %s", s->g->param.at[n / 2].name);
}

/* A parameter that the pattern matches although no op has asked for its style. */
static const char *matches_unread(const Shard *s, const char *pattern) {
  for (int i = 0; i < s->g->param.n; i++)
    if (matches_param(pattern, s->g->param.at[i].name)) return s->g->param.at[i].name;
  return NULL;
}

void tp_unmatched(const Shard *s) {
  const Plan *p = s->plan;
  for (int i = 0; i < p->ntp; i++) {
    if (s->rule_hits[i] || p->tp[i].from_default) continue;
    const char *path = arena_printf(s->d->arena, "tp_plan[\"%s\"]", p->tp[i].pattern);
    const char *unread = matches_unread(s, p->tp[i].pattern);
    if (unread) {
      diag_error(s->d, "tp-plan", path,
                 "no op of this module that has a style (linear, embedding, add_bias, "
                 "norms) reads %s",
                 unread);
      continue;
    }
    Diag *x = diag_error(s->d, "tp-plan", path, "the pattern matches no parameter");
    x->suggestion = suggestion(s, p->tp[i].pattern);
  }
}
