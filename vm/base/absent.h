/* absent.h - why a file that is asked for may not be there, and what to do: for the end
 * of an error. NULL where nothing is known. */
#ifndef WEFT_ABSENT_H
#define WEFT_ABSENT_H

#include "base.h"

/* For "meta-llama/Llama-3.1-8B", if there is neither such a folder nor one of its owner:
 * how to get it. */
const char *absent_hub(Arena *a, const char *path);
/* For a folder without safetensors that has weights in another format: what to do. */
const char *absent_pickle(Arena *a, const char *folder);
/* The same of the file `name`, which is in the folder. */
const char *absent_convert(Arena *a, const char *folder, const char *name);
/* The name in the path's folder that is nearest to the path's last one, or the only plan
 * that begins with it. */
const char *absent_nearest(Arena *a, const char *path);

#endif
