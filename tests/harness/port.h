/* port.h - a port of this machine for rank 0 of processes that a test starts. */
#ifndef WEFT_TESTS_PORT_H
#define WEFT_TESTS_PORT_H

/* One that nobody has: below those that Linux gives to connections and to listeners that
 * ask for any, so that nobody gets it before rank 0 takes it. Each call gives another
 * one; tests that run at once look in other places. */
int port_free(void);

#endif
