/* packed_modules.h - linears that files of some families have as one module, rows of the
 * first above those of the second: "q_proj", "k_proj" and "v_proj" as "qkv_proj". */
#ifndef WEFT_PACKED_MODULES_H
#define WEFT_PACKED_MODULES_H

#include <stdbool.h>

enum { PACKED_PARTS = 5, PACKED_NAME = 512 };

typedef struct PackedModule {
  const char *whole, *part[PACKED_PARTS]; /* NULL behind the last one */
} PackedModule;

/* A name that has such a part: "layers.0.self_attn.k_proj.weight". */
typedef struct PackedName {
  const PackedModule *of;
  int part;  /* its number */
  int begin; /* where it begins in the name */
} PackedName;

/* Whether `name` has a part of a module, of those that are listed (NULL-terminated), or
 * of any if `listed` is NULL. */
bool packed_find(const char *name, const char *const *listed, PackedName *found);
/* The name with another module in the place of that part. */
void packed_rename(const char *name, const PackedName *found, const char *module,
                   char out[PACKED_NAME]);

#endif
