/* instr.c - the names of instructions, collectives, phases and inputs, for printing and
 * messages. */
#include "program.h"

const char *const instr_name[I_N] = {
#define INSTR(name, is, doc) #name,
#include "instr.def"
};

#define NOTHING INSTR_NOTHING
#define MAIN INSTR_MAIN
#define TOUCHES INSTR_TOUCHES
#define COLL INSTR_COLL
#define PAIR INSTR_PAIR
const uint8_t instr_is[I_N] = {
#define INSTR(name, is, doc) is,
#include "instr.def"
};

const char *const coll_name[COLL_N] = {
    [COLL_ALL_REDUCE] = "all_reduce", [COLL_ALL_GATHER] = "all_gather",
    [COLL_REDUCE_SCATTER] = "reduce_scatter", [COLL_SEND] = "send", [COLL_RECV] = "recv",
};

const char *const prog_phase_name[4] = {
    [PH_F] = "F", [PH_I] = "I", [PH_W] = "W", [PH_UPDATE] = "update",
};

const char *const prog_input_name[IN_N] = {
    [IN_TOKENS] = "tokens", [IN_LABELS] = "labels", [IN_POSITIONS] = "positions",
    [IN_DOC_STARTS] = "doc_starts", [IN_SEED] = "seed",
};
