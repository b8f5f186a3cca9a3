/* launched.h - the plan of tests that start runs as users do. */
#ifndef WEFT_TESTS_LAUNCHED_H
#define WEFT_TESTS_LAUNCHED_H

/* Writes plan.lua in the scratch folder: four ranks, a million steps. */
void launched_plan(void);

#endif
