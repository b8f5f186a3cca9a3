/* port.c - see port.h. */
#include "port.h"

#include <check.h>
#include <unistd.h>

#include "vm/comm/socket.h"

enum { FIRST = 21000, PORTS = 9000, EACH = 8 };

int port_free(void) {
  static int calls;
  for (int tries = 0; tries < PORTS; tries++) {
    int port = FIRST + (getpid() % PORTS * EACH + calls++) % PORTS;
    int fd = net_listen(NULL, port);
    if (fd < 0) continue;
    close(fd);
    return port;
  }
  ck_abort_msg("no port of %d to %d is free", FIRST, FIRST + PORTS - 1);
  return 0;
}
