/* model_int.h - a model that is being found; shared by model.c, model_config.c and
 * model_modules.c. */
#ifndef WEFT_MODEL_INT_H
#define WEFT_MODEL_INT_H

#include "model.h"

typedef struct Model {
  lua_State *L;
  LangPlan *lp;
  Arena *arena;
  Diags *d;
  int arch;         /* stack index of the architecture's table */
  int config;       /* stack index of the config that is being filled */
  int base;         /* of what it was before the plan's keys */
  bool hf;          /* weft.hf, with weights */
  const char *path; /* of the field that says it */
  int written;      /* stack index of a table: config key -> key that the user wrote */
  int ids;          /* of special tokens that the user wrote: stack index of a table */
  const char *file; /* config.json of the folder; NULL: there is none */
  int said; /* stack index of a table: config key -> key of the file that is read */
  VEC(const char *)
  unread; /* keys of a preset or file that the architecture does not know */
} Model;

/* ---- model.c ---- */
/* Pushes the table of an architecture: a file of models/ with a build function. */
bool push_architecture(lua_State *L, const char *name);

/* ---- model_names.c ---- */
/* Pushes the table of a public model, "Qwen/Qwen3-8B"; false: there is none. */
bool push_public(Model *m, const char *name);
/* The preset or architecture whose name is nearest, or NULL. */
const char *near_model(Model *m, const char *name);
/* Says that there is no such model, and which one is near. */
void unknown_model(Model *m, const char *path, const char *name);

/* ---- model_config.c ---- */
/* Copies the keys of the table at `src` into the config. `path` NULL: the user has not
 * written it, and keys that the architecture does not know are collected. */
void config_overlay(Model *m, int src, const char *path);
/* Copies those of the plan's table at `src`, which count by whatever key the config says
 * the same. */
void config_write(Model *m, int src);
/* Runs the architecture's own check, which returns a list of { key =, message =, severity
 * = }. */
void config_check(Model *m);
/* Checks ids of special tokens that the plan writes, and keeps them for exports. */
void config_ids(Model *m);
/* Tells keys of the plan that nothing reads. */
void config_check_read(Model *m);

#endif
