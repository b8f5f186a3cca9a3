/* instr.c - the names of instructions and collectives, for printing and messages. */
#include "program.h"

const char *const instr_name[I_N] = {
#define INSTR(name, doc) #name,
#include "instr.def"
};

const char *const coll_name[COLL_N] = {
    [COLL_ALL_REDUCE] = "all_reduce", [COLL_ALL_GATHER] = "all_gather",
    [COLL_REDUCE_SCATTER] = "reduce_scatter", [COLL_SEND] = "send", [COLL_RECV] = "recv",
};
