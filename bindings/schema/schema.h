/* schema.h - the table of plan fields, and the functions that its checks share. */
#ifndef WEFT_SCHEMA_H
#define WEFT_SCHEMA_H

#include "bindings/plan_table/loaded_plan.h"

/* What a field influences of that which a sweep keeps; see schema.def. */
enum {
  FOR_UNITS = 1,
  FOR_SCHEDULE = 2,
  FOR_SHARES = 4,
  FOR_SIZES = 8,
  FOR_POINT = 16,
  FOR_NOTHING = 32,
  FOR_GRAPH = 64
};

typedef enum {
  FIELD_TEXT,
  FIELD_INT,
  FIELD_NUM,
  FIELD_BOOL,
  FIELD_NAME,
  FIELD_NAMED, /* a name, or { name, option = ... } */
  FIELD_BUILT, /* a table from one of the builders in `names` */
  FIELD_TABLE,
  FIELD_ALIAS,
  FIELD_RANGE,   /* a number, or one of the builders at_most, at_least, between */
  FIELD_NOOP,    /* taken, with a warning that says why nothing depends on it */
  FIELD_REFUSED, /* an error that says why it cannot be */
  FIELD_OWN      /* a form of its own, which `check` knows */
} FieldType;

/* How the member of Plan that a row fills is stored; a pointer to a text may also hold a
 * number or a switch, as text. */
typedef enum {
  STORED_NOWHERE,
  STORED_BOOL,
  STORED_INT, /* enums too */
  STORED_INT64,
  STORED_DOUBLE,
  STORED_TEXT,
  STORED_RANGE
} Storage;

struct Check;
/* Stores the value at idx, or says what is wrong with it. */
typedef void FieldCheck(struct Check *c, int idx, const char *path);

typedef struct Field {
  const char *scope, *key;
  FieldType type;
  unsigned influences; /* FOR_UNITS ...; 0 is not known: all of them */
  const char *names;   /* see schema.def; TABLE, OWN: scopes of its fields */
  double lo, hi, def;
  size_t at;      /* in Plan, */
  Storage stored; /* as this */
  const char *doc;
  const char *form; /* of OWN: what it takes, for people, */
  FieldCheck *check;
} Field;

/* Two fields of pp_plan contradict each other. */
#define PP_BOTH "%s and %s both say what a stage has; give one of them"

extern const Field schema[]; /* ends with a NULL scope */
const Field *schema_find(const char *scope, const char *key);
/* Whether fields are of this scope: a builder or a schedule takes them. */
bool schema_has_scope(const char *scope);
bool schema_required(const Field *f);
/* "integer, 1 to 64", and the default, "required" or "-". */
void schema_form(const Field *f, Text *out);
void schema_default(const Field *f, Text *out);
/* The field whose value selects the scope of `f`; the first of them where there are
 * several, NULL for "plan". */
const Field *schema_parent(const Field *f);
/* "mesh.tp" for the field `tp` of the scope "mesh". */
const char *schema_path(Arena *a, const Field *f);
/* Whether the field may change one of these (FOR_UNITS ...). */
bool schema_influences(const Field *f, unsigned what);
/* Whether the row is the one that tells what lies at its place of Plan: builders of one
 * kind share places, and several rows may lead to one. What lies at no place is told as
 * it was written (plan_key_others). */
bool schema_tells(const Field *f);
/* Checks the plan's table and stores its values in lp->plan. Of a point of a grid fields
 * that are shared are taken from lp->shared. */
void schema_check(lua_State *L, LangPlan *lp, Diags *d);
/* Fills shared->plan with the fields that are shared; those were checked before. */
void schema_check_shared(lua_State *L, LangPlan *lp, LangShared *shared, Diags *d);
/* Whether a field of the plan is checked without regard to others, and no axis changes
 * it. */
bool schema_shared(const LangShared *s, const char *field);
/* The tables of docs/plan.md. */
void schema_markdown(Text *out);
/* Names of schedules, as a list of names in schema.def; case, '-' and '_' do not matter.
 */
#define GPU_NAMES                                                                        \
  "v100, a100-40gb, a100-80gb, h100-sxm, h100-pcie, h100-500w, h800, h200, b200, b300, " \
  "gb200-nvl72, gb300-nvl72, mi300x"
#define LOSS_NAMES "cross_entropy dpo distill"
#define SCHEDULE_NAMES                                                                   \
  "gpipe afab=gpipe all_forward_all_backward=gpipe schedule_gpipe=gpipe "                \
  "1f1b one_forward_one_backward=1f1b train_schedule=1f1b schedule_1f1b=1f1b "           \
  "interleaved_1f1b interleaved=interleaved_1f1b vpp=interleaved_1f1b "                  \
  "dfs=interleaved_1f1b schedule_interleaved_1f1b=interleaved_1f1b "                     \
  "1f1b_interleaved=interleaved_1f1b "                                                   \
  "looped_bfs bfs=looped_bfs schedule_looped_bfs=looped_bfs "                            \
  "zero_bubble zb=zero_bubble zb1p=zero_bubble zb_h1=zero_bubble "                       \
  "interleaved_zero_bubble=zero_bubble schedule_interleaved_zero_bubble=zero_bubble "    \
  "zb_h2 zb2p=zb_h2 "                                                                    \
  "zbv v_schedule=zbv zero_bubble_v=zbv zbv_zero_bubble=zbv "                            \
  "schedule_zbv_zero_bubble=zbv "                                                        \
  "dualpipe_v schedule_dualpipe_v=dualpipe_v "                                           \
  "v_half v_min "                                                                        \
  "eager_1f1b "                                                                          \
  "| dualpipe zbv_greedy 1f1b_v seq1f1b group_interleaved_1f1b"

/* ---- field_storage.c: what lies in Plan, for all who read and write it ---- */
typedef struct FieldValue {
  Storage stored;
  union {
    int64_t whole;    /* BOOL, INT, INT64 */
    double real;      /* DOUBLE */
    const char *text; /* TEXT; NULL: not given */
    ExpectRange range;
  };
} FieldValue;
FieldValue field_get(const Field *f, const Plan *p);
/* The same as text: equal texts, equal values. "0.001", "true", "bf16", "0 to 3", "-" for
 * what is not given; the text of the user between quotes. Adds nothing for a row that
 * lies nowhere. */
void field_print(const Field *f, const Plan *p, Text *out);
/* Stores a number, or nothing if the row lies nowhere; a text that it becomes lies in the
 * arena. */
void field_set(Arena *a, const Field *f, Plan *p, double v);
void field_set_text(const Field *f, Plan *p, const char *s);
void field_set_range(const Field *f, Plan *p, ExpectRange r);
/* The number that stands for a name of the row. */
int field_name_number(const Field *f, const char *name);

/* The optimizer that a plan has chosen, with its own defaults. */
void schema_optimizer(struct Check *c, const char *name);

typedef struct Check {
  lua_State *L;
  LangPlan *lp;
  Plan *plan;
  Arena *arena;
  Diags *d;
  const LangShared *shared; /* fields of the plan that it has are left out, */
  bool only_shared;         /* or all others */
  bool validation;          /* in data.val */
  VEC(const char *) told;   /* fields whose names in other systems are in the plan */
} Check;

/* A wrong type: "expected a positive integer, got string "four"". */
Diag *check_type(Check *c, const char *path, const char *want, int idx);
/* The value at idx of field `f`: stores it, or says what is wrong with it. */
void check_value(Check *c, const Field *f, int idx, const char *path);
/* Checks every field of the table at idx against the fields of `scope`; items before
 * list position `from` belong to the caller. */
void check_scope(Check *c, int idx, const char *scope, const char *path, int from);
/* One word of a list of names: alias=name or name. */
typedef struct NameWord {
  const char *s;
  size_t n;          /* of the alias */
  const char *canon; /* the name that it stands for */
  bool later;
} NameWord;
/* The next word of a list; *p and *later begin as the list and false. */
bool name_next(Arena *a, const char **p, bool *later, NameWord *w);
/* Is `name` one of those that words of the list stand for? */
bool name_listed(const char *names, const char *name);
/* Equal without case, '-' and '_': "Interleaved1F1B" is "interleaved_1f1b". */
bool name_same(const char *a, const char *b);
/* The longest of the names with which the text begins, in the same sense, followed by
 * '-',
 * '_' or its end; NULL: none of at least so many characters. */
const char *begins_with_name(Arena *a, const char *text, const char *const *names, int n,
                             size_t least);

/* ---- unknown_field.c ---- */
/* "WHAT is not built yet", with what comes nearest. */
void not_built(Check *c, const char *path, const char *what);
/* What may be meant by a name that `scope` does not have, or NULL. */
const char *field_hint(Check *c, const char *scope, const char *path, const char *name);
/* The names of the fields of a scope, at most so many. */
const char *scope_names(Arena *a, const char *scope, int most);
/* The string or number at index `key` names no field of `scope`; its value is above it.
 */
void unknown_field(Check *c, const char *scope, const char *path, int key);

/* ---- field_said.c ---- */
/* Pushes the value of the field in the plan's table; its path as it is written there,
 * with aliases. NULL, with nothing pushed: the plan does not say it. */
const char *field_said(lua_State *L, Arena *a, const char *path);

/* ---- foreign_names.c ---- */
typedef struct ForeignName {
  const char *name; /* the end of a path: "tp_size", "pipeline.dtype" */
  enum { FOREIGN_HERE, FOREIGN_MODEL, FOREIGN_NEEDLESS, FOREIGN_ABSENT } is;
  const char *text; /* what it is in weft, keys of models, of which an architecture has
                     * one; why it is not needed; what is not in weft */
} ForeignName;
/* What other systems mean by the name at the end of this path ("plan.mesh.tp_size"); of
 * names that match the longest counts. NULL: unknown. */
const ForeignName *foreign_find(const char *path);
/* One whose name is spelt nearly so, or begins so or is how this begins. */
const ForeignName *foreign_near(Arena *a, const char *name);
/* "weft's name is mesh.tp" */
const char *foreign_says(Arena *a, const ForeignName *f);

/* ---- named_strategy.c ---- */
/* strategy = "ddp" or { "zero", stage = 0 }: the name selects the scope of the options.
 */
void check_named(Check *c, const Field *f, int idx, const char *path);

/* The canonical name for `text` in the list `names`; NULL after adding a diagnostic. */
const char *check_name(Check *c, const char *names, const char *path, const char *text);
/* A builder's call that went wrong was noted in its mark: reports it. */
bool check_mark(Check *c, int idx, const char *path);
/* An integer from lo to hi at idx. */
bool check_int(Check *c, int idx, const char *path, double lo, double hi, int64_t *out);
/* The list items of a builder's table (file names); returns how many there are, -1 if
 * they are wrong and say all about the table. */
int field_items(Check *c, const char *kind, int idx, const char *path);
/* ---- of rows with a form of their own ---- */
FieldCheck field_mesh_order, field_pp_layers, field_pp_layout, field_pp_modules,
    field_gpu, field_checkpoint_dir, field_nccl_names, field_epochs; /* fields.c */
FieldCheck field_tp_plan; /* fields_tp_plan.c */
FieldCheck field_betas, field_epsilons, field_coefficients,
    field_lr;                                        /* fields_optimizer.c */
FieldCheck field_packed, field_files, field_weights; /* fields_data.c */
FieldCheck field_precision, field_mp_policy, field_reshard, field_hpz_partition,
    field_reduce_bucket, field_offload_policy, field_zero_dp, field_bucket_cap,
    field_ac_scope, field_fp8_exclude, field_switch, field_always_on, field_autocast,
    field_fp8_cache, field_recompute, field_loss_chunks; /* fields_strategy.c */
FieldCheck field_schedule;                               /* fields_schedule.c */
FieldCheck field_freeze, field_groups, field_adapter, field_targets,
    field_target_parameters, field_modules_to_save, field_rank_pattern,
    field_alpha_pattern; /* fields_learning.c */
FieldCheck field_loss;   /* fields_loss.c */
void loss_rules(Check *c);
FieldCheck field_chat_format, field_chat_template, field_chat_options; /* fields_data.c */
/* Once all fields are checked: number formats that strategy and precision both name. */
void strategy_rules(Check *c);
/* The length of the list at idx; -1 after a diagnostic if it is not one. */
int field_list_length(Check *c, int idx, const char *path, const char *want);
/* Texts of a list, which ends with NULL; NULL after a diagnostic. */
const char **field_list_texts(Check *c, int idx, const char *path, const char *want,
                              int *count);
/* "PATH[i]" */
const char *field_item_path(Check *c, const char *path, int i);

/* ---- cluster.c ---- */
/* Fills Plan.cluster from the plan's field, which has been checked. */
void cluster_resolve(lua_State *L, LangPlan *lp, Diags *d);
/* Is there a GPU of this name? Reports it if not. */
bool cluster_known(lua_State *L, const char *name, const char *path, Diags *d);

/* ---- cross/cross_checks.c ---- */
/* Checks of the plan against a mesh other than the one in the file (paths "mesh.tp"...):
 * heads, batch. WEFT_EPLAN if `d` got errors. lang_load does this for the file's mesh. */
weft_status lang_check_mesh(LangPlan *lp, const Plan *p, const Mesh *m, Diags *d,
                            weft_error *e);

#endif
