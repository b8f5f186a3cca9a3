/* rendezvous_env.c - the environment variables by which the processes of a run find each
 * other.
 *
 * WEFT_DOOR: a listening socket of rank 0 that --procs has opened. MASTER_ADDR,
 * MASTER_PORT: as torchrun sets them. WEFT_SECRET: a shared secret of the run's
 * processes. WEFT_JOIN_S: seconds until the last process must have connected. WEFT_HOST:
 * the name or address under which other processes reach this one. */
#include <stdlib.h>

#include "cli.h"
#include "vm/comm/launcher_env.h"
#include "vm/comm/supervisor/rendezvous.h"

enum { PORT_MAX = 65535 };

static const char *env(const char *name) {
  const char *s = getenv(name);
  return s && *s ? s : NULL;
}

static const char *look(void *ud, const char *name) { return env(name); }

static weft_status positive(const char *name, double *out, weft_error *e) {
  const char *s = env(name);
  char *end = NULL;
  if (!s) return WEFT_OK;
  *out = strtod(s, &end);
  if (*out > 0 && *out < 1e6 && !*end) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "%s=%s in the environment: must be a positive number",
                 name, s);
}

/* Names are sent to other processes and appear in messages, so only safe characters are
 * allowed. */
static weft_status host_name(const char *name, const char *host, weft_error *e) {
  if (!host || net_is_host(host)) return WEFT_OK;
  return err_set(
      e, WEFT_EUSAGE,
      "%s in the environment, %zu characters, cannot be the name or the address "
      "of a machine: at most %d letters, digits and .:-_%%",
      name, strlen(host), NET_HOST - 1);
}

weft_status host_of_env(const char **out, weft_error *e) {
  *out = env("WEFT_HOST");
  return host_name("WEFT_HOST", *out, e);
}

weft_status rendezvous_of_env(const LaunchInfo *info, const StopFlag *stop,
                              Rendezvous *out, weft_error *e) {
  LaunchInfo master = {0};
  const char *store = env("TORCHELASTIC_USE_AGENT_STORE"), *door = env("WEFT_DOOR");
  TRY(launch_master(look, NULL, &master, e));
  *out = (Rendezvous){.rank = info->rank,
                      .size = info->size,
                      .addr = master.master_addr,
                      .port = master.master_port,
                      .door = door ? atoi(door) : -1,
                      .secret = env("WEFT_SECRET"),
                      .stop = stop};
  /* torchrun itself listens at MASTER_PORT, so the next port is taken */
  if (store && strcmp(store, "True") == 0) out->port += out->port > 0;
  if (out->port > PORT_MAX)
    return err_set(e, WEFT_EUSAGE,
                   "MASTER_PORT=%d: torchrun listens there, and rank 0 at the port after "
                   "it, which does not exist: take one of at most %d",
                   out->port - 1, PORT_MAX - 1);
  TRY(positive("WEFT_JOIN_S", &out->seconds, e));
  TRY(host_name("MASTER_ADDR", out->addr, e));
  TRY(host_of_env(&out->host, e));
  if (!out->addr || !out->port)
    return err_set(e, WEFT_EUSAGE,
                   "%s is not set: processes without MPI find each other at "
                   "MASTER_ADDR:MASTER_PORT, where rank 0 listens; torchrun sets both",
                   out->addr ? "MASTER_PORT" : "MASTER_ADDR");
  if (!out->secret)
    return err_set(e, WEFT_EUSAGE,
                   "WEFT_SECRET is not set: the processes of a run recognise each other "
                   "by this secret; export WEFT_SECRET=$(head -c 16 /dev/urandom | "
                   "base64) before they are started, the same for all");
  return WEFT_OK;
}
