/* instr.c - names of instructions, collectives, phases and inputs. */
#include "program.h"

const char *const instr_name[I_N] = {
#define INSTR(name, is, doc) #name,
#include "instr.def"
};

#define NOTHING INSTR_NOTHING
#define MAIN    INSTR_MAIN
#define TOUCHES INSTR_TOUCHES
#define COLL    INSTR_COLL
#define PAIR    INSTR_PAIR
const uint8_t instr_is[I_N] = {
#define INSTR(name, is, doc) is,
#include "instr.def"
};

#undef NOTHING
#undef PAIR
#undef COLL
#define NOTHING 0
#define PIECE   false
#define PIECES  true
#define SUMS    COLL_SUMS
#define PAIR    COLL_BY_PAIR
#define COUNTED COLL_COUNTED
const CollInfo coll_info[COLL_N] = {
#define COLL(id, name, in, out, is, doc) {name, in, out, is},
#include "coll.def"
};

const char *const prog_phase_name[PH_UPDATE + 1] = {
    [PH_F] = "F", [PH_I] = "I", [PH_W] = "W", [PH_B] = "B", [PH_UPDATE] = "update",
};
