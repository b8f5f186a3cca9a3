/* leaks.h - the leak check at the end of a test process. */
#ifndef WEFT_TEST_LEAKS_H
#define WEFT_TEST_LEAKS_H

/* LeakSanitizer cannot look at the threads that OpenMP keeps for a GEMM library that was
 * opened with dlopen: it crashes. Tests that start such teams turn the check off for
 * their own process; addresses and undefined behaviour are still checked. */
void leak_check_off(void);

#endif
