/* check_tcp.c - the tcp backend in processes of their own, and their rendezvous: who may
 * come in, and what is said to those who may not. */
#include <check.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ranks/comm_child.h"
#include "tests/ranks/comm_world.h"
#include "tests/ranks/forked_ranks.h"
#include "vm/comm/tcp/tcp_int.h"

enum { RANKS = 4 };

/* ---- the backend ---- */

static bool act(const Rendezvous *m, const void *what) {
  World w;
  weft_error e;
  err_clear(&e);
  if (world_start(&w, world_kind("tcp", &e), NULL, m->size, &(WorldOptions){.meet = m},
                  &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return false;
  }
  bool ok = comm_child(&w, what);
  world_close(&w);
  return ok;
}

static void all_end(const Forked *f, int n, int code) {
  for (int i = 0; i < n; i++)
    ck_assert_msg(f->code[i] == code, "rank %d: code %d: %s", i, f->code[i], f->text);
}

static const struct {
  const char *what;
  int n;
} good[] = {{"scenes", 4}, {"scenes", 2}, {"raw", 4}};

START_TEST(backend) {
  Forked f = forked(good[_i].n, act, good[_i].what);
  all_end(&f, good[_i].n, 0);
}
END_TEST

START_TEST(who_dies_is_named) {
  Forked f = forked(RANKS, act, "die");
  ck_assert_int_eq(f.code[1], 128 + SIGKILL);
  ck_assert_msg(strstr(f.text, "rank 1 has closed its connection"), "%s", f.text);
  for (int i = 0; i < RANKS; i++) ck_assert_int_ne(f.code[i], 0);
}
END_TEST

/* ---- messages of the host ---- */

enum { LONG = 5000 };

/* What rank 1 does instead of answering, and what the others then hear. */
static void sends_zeros(World *w) {
  static const char zeros[2 * LONG];
  weft_error e = {.rank = -1};
  if (w->vt->send(w, zeros, sizeof zeros, 0, &e) != WEFT_OK) _exit(2);
}
static void sends_less(World *w) {
  static const char some[LONG];
  weft_error e = {.rank = -1};
  if (world_send(w, some, sizeof some - 1, 0, &e) != WEFT_OK) _exit(2);
}
static void sends_half(World *w) {
  static const char some[LONG];
  weft_error e = {.rank = -1};
  if (w->vt->send(w, some, 8, 0, &e) != WEFT_OK) _exit(2);
  _exit(0);
}

static const struct {
  void (*does)(World *w);
  const char *said;
} unanswered[] = {
    {sends_zeros, "the message from rank 1 is not the one of 5000 bytes"},
    {sends_less, "the message from rank 1 is not the one of 5000 bytes"},
    {sends_half, "rank 1 has closed its connection: its process has ended"},
};

static bool ask(const Rendezvous *m, const void *way) {
  World w;
  char answer[LONG];
  weft_error e = {.rank = -1};
  if (world_start(&w, world_kind("tcp", &e), NULL, m->size, &(WorldOptions){.meet = m},
                  &e) != WEFT_OK)
    return false;
  if (m->rank == 1) unanswered[*(const int *)way].does(&w);
  if (m->rank == 0 && world_recv(&w, answer, LONG, 1, &e) == WEFT_OK) return false;
  if (m->rank == 0) fprintf(stderr, "%s\n", e.text);
  world_close(&w);
  return true;
}

START_TEST(what_never_came_is_no_answer) {
  Forked f = forked(2, ask, &_i);
  all_end(&f, 2, 0);
  ck_assert_msg(strstr(f.text, unanswered[_i].said), "%s", f.text);
}
END_TEST

/* ---- who comes late ---- to a link, after it has joined the run */

typedef enum { LATE_MESSAGE, LATE_JOIN, LATE_UNWATCHED, LATE_ENDED, LATE_WAYS } Late;

static void *end_soon(void *w) {
  usleep(200000);
  world_abort(w, -1, WEFT_ERUN, "the disk is on fire");
  return NULL;
}

/* Rank 0 waits for rank 1 longer than a link may take. */
static bool wait_for_late(World *w, Late way, weft_error *e) {
  char word = 0;
  pthread_t other;
  if (way == LATE_JOIN) return comm_child(w, "cut");
  if (way == LATE_ENDED && pthread_create(&other, NULL, end_soon, w)) return false;
  weft_status st = world_recv(w, &word, 1, 1, e);
  if (way == LATE_ENDED) pthread_join(other, NULL);
  return way == LATE_MESSAGE ? st == WEFT_OK && word == 'x' : st == WEFT_ERUN;
}

static bool is_late(const Rendezvous *m, const void *arg) {
  World w;
  Late way = *(const int *)arg;
  weft_error e = {.rank = -1};
  if (world_start(&w, world_kind("tcp", &e), NULL, m->size, &(WorldOptions){.meet = m},
                  &e) != WEFT_OK)
    return false;
  w.net->seconds = 0.1;
  if (way != LATE_UNWATCHED) world_watched(&w);
  bool ok = true;
  double begun = now_s();
  if (m->rank == 0) {
    ok = wait_for_late(&w, way, &e);
    if (way > LATE_JOIN) fprintf(stderr, "%s\n", e.text);
    if (way == LATE_ENDED && now_s() - begun > 3) ok = false;
  } else {
    usleep(way == LATE_ENDED ? 4000000 : 600000);
    w.net->seconds = 20;
    if (way == LATE_MESSAGE) ok = world_send(&w, "x", 1, 0, &e) == WEFT_OK;
    if (way == LATE_JOIN) ok = comm_child(&w, "cut");
  }
  world_close(&w);
  return ok;
}

/* While the supervisor watches, a rank that loads for long is waited for; until then it
 * is an error of the run, not of how it was started, and a run that ends ends the wait.
 */
START_TEST(who_is_late_is_waited_for) {
  static const char *const said[LATE_WAYS] = {
      [LATE_UNWATCHED] = "rank 0: rank 1 has not connected within 0 s",
      [LATE_ENDED] = "the disk is on fire"};
  Forked f = forked(2, is_late, &_i);
  all_end(&f, 2, 0);
  if (said[_i]) ck_assert_msg(strstr(f.text, said[_i]), "%s", f.text);
}
END_TEST

/* A sum that all members make lies where the input was: it is not made before the input
 * has gone to all, though what they give is there already. Here the way to the other
 * member is full until it reads. */
START_TEST(what_is_not_sent_is_not_overwritten) {
  enum { N = 8 };
  int ends[2];
  char junk[1024] = {0};
  float x[N], other[N], came[N];
  for (int i = 0; i < N; i++) x[i] = (float)i, other[i] = 100;
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  int64_t full = 0;
  for (int64_t n; (n = tcp_push(ends[0], junk, sizeof junk)) > 0;) full += n;
  ck_assert_int_eq(tcp_push(ends[1], other, sizeof other), sizeof other);
  TcpHandle h = {.op = ALL_REDUCE(DT_F32, x, x, N), .next = -1};
  TcpPeer peer[2] = {{.fd = -1}, {.fd = ends[0]}};
  char *stage = malloc(2 * TCP_STAGE);
  TcpGroup g = {.n = 2, .rank = (int[]){0, 1}, .peer = peer, .stage = stage};
  struct pollfd looks[2];
  TcpEndpoint p = {.group = &g, .ngroup = 1, .handle = &h, .nhandle = 1, .poll = looks};
  int lost;
  ck_assert(tcp_group_move(&p, &g, &lost) && !h.done);
  for (int64_t n; full > 0 && (n = tcp_pull(ends[1], junk, sizeof junk)) > 0; full -= n)
    ck_assert_int_ge(full, n);
  ck_assert(tcp_group_move(&p, &g, &lost) && h.done);
  ck_assert_int_eq(tcp_pull(ends[1], came, sizeof came), sizeof came);
  for (int i = 0; i < N; i++)
    ck_assert_msg(came[i] == (float)i && x[i] == (float)i + 100,
                  "%d: %g goes, %g is made", i, came[i], x[i]);
  close(ends[0]);
  close(ends[1]);
  free(stage);
}
END_TEST

/* A member that hears no more, and one that says no more: each is noticed by itself. */
static const struct {
  const char *name;
  int how;
  bool sends, takes; /* who notices */
} gone[] = {{"hears no more", SHUT_RD, true, false},
            {"says no more", SHUT_WR, false, true}};

enum { OTHER = 5, SOME = 8 };

/* Moves an operation of rank 4 whose other member is at the end of `fd`. */
static bool group_moves(int fd, TcpHandle *h, int *lost) {
  struct pollfd looks[2];
  TcpPeer peer[2] = {{.fd = -1}, {.fd = fd}};
  TcpGroup g = {.n = 2, .rank = (int[]){4, OTHER}, .peer = peer};
  TcpEndpoint p = {.group = &g, .ngroup = 1, .handle = h, .nhandle = 1, .poll = looks};
  return tcp_group_move(&p, &g, lost);
}

static bool pair_moves(int fd, TcpHandle *h, bool sends, int *lost) {
  struct pollfd looks[2];
  TcpWorld w = {.net = {.rank = 4}};
  TcpQueue none = {-1, -1}, one = {0, 0};
  TcpPair q = {.rank = OTHER, .fd = fd, .out = sends ? one : none};
  q.in = sends ? none : one;
  TcpEndpoint p = {.w = &w, .pair = &q, .npair = 1, .handle = h, .nhandle = 1};
  p.poll = looks;
  return tcp_pair_move(&p, &q, lost);
}

START_TEST(a_member_that_is_gone_is_noticed) {
  float x[2 * SOME] = {0};
  int ends[2], lost = -1;
  for (int way = 0; way < 3; way++) { /* in a group, to a pair, from a pair */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    ck_assert_int_eq(shutdown(ends[1], gone[_i].how), 0);
    TcpHandle h = {.op = {.coll = COLL_ALL_GATHER, .dtype = DT_F32, .count = SOME}};
    h.op.in = x, h.op.out = x, h.next = -1;
    bool well = way == 0 ? group_moves(ends[0], &h, &lost)
                         : pair_moves(ends[0], &h, way == 1, &lost);
    bool notices = way == 0 || (way == 1 ? gone[_i].sends : gone[_i].takes);
    ck_assert_msg(well == !notices && (well || lost == OTHER),
                  "it %s, way %d: moved: %d, lost: %d", gone[_i].name, way, well, lost);
    ck_assert(!h.done || (well && way > 0));
    close(ends[0]);
    close(ends[1]);
  }
}
END_TEST

/* ---- the rendezvous ---- */

typedef struct Odd {
  const char *name;
  int who;        /* this rank comes otherwise */
  int rank, size; /* as which it says that it comes */
  bool stays_away, other_word;
  double seconds;
  const char *said[3];
} Odd;

static const Odd odd[] = {
    {.name = "secret",
     .who = 2,
     .rank = 2,
     .size = RANKS,
     .other_word = true,
     .seconds = 5,
     .said = {"rank 2 has another WEFT_SECRET than rank 0 at 127.0.0.1:",
              "only 3 of 4 processes have connected within 5 s; missing: rank 2; 1 "
              "connected with another WEFT_SECRET"}},
    {.name = "missing",
     .who = 3,
     .stays_away = true,
     .seconds = 5,
     .said = {"only 3 of 4 processes have connected within 5 s; missing: rank 3"}},
    {.name = "size",
     .who = 1,
     .rank = 1,
     .size = 5,
     .seconds = 4,
     .said = {"rank 1 has WORLD_SIZE = 5, rank 0 has 4"}},
    {.name = "twice",
     .who = 1,
     .rank = 2,
     .size = RANKS,
     .seconds = 4,
     .said = {"two processes have connected as rank 2"}},
    {.name = "rank",
     .who = 1,
     .rank = 7,
     .size = RANKS,
     .seconds = 4,
     .said = {"a process has connected as rank 7 of 4: RANK must be in 0..3"}},
    {.name = "no host",
     .who = 0,
     .stays_away = true,
     .seconds = 1,
     .said = {"cannot reach rank 0 at 127.0.0.1:"}},
};

/* True if it was refused, as all are. */
static bool come(const Rendezvous *meet, const void *arg) {
  const Odd *o = arg;
  Rendezvous m = *meet;
  weft_error e;
  Net n;
  err_clear(&e);
  m.seconds = o->seconds;
  if (m.rank == o->who) {
    if (o->stays_away) return true;
    m.rank = o->rank;
    m.size = o->size;
    if (o->other_word) m.secret = "another word";
  }
  if (rendezvous(&m, NULL, &n, &e) == WEFT_OK) return false;
  fprintf(stderr, "%s\n", e.text);
  return e.code == WEFT_EUSAGE;
}

START_TEST(who_does_not_fit_is_told) {
  const Odd *o = &odd[_i];
  Forked f = forked(RANKS, come, o);
  all_end(&f, RANKS, 0);
  for (int i = 0; i < LEN(o->said) && o->said[i]; i++)
    ck_assert_msg(strstr(f.text, o->said[i]), "%s: \"%s\" is not in:\n%s", o->name,
                  o->said[i], f.text);
}
END_TEST

/* A stranger who connects and says nothing, or nonsense, is no rank and stops nobody. */
static bool among_strangers(const Rendezvous *m, const void *arg) {
  char why[NET_TEXT];
  Net n;
  weft_error e;
  err_clear(&e);
  if (m->rank == 2) {
    int fd = net_reach(m->addr, m->port, until_in(5), why);
    net_put(fd, "GET / HTTP/1.1\r\n\r\n", 18, until_in(5));
    shutdown(fd, SHUT_WR);
  }
  if (rendezvous(m, NULL, &n, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return false;
  }
  if (m->rank == 2) {
    int fd = net_reach(n.peer[0].host, n.peer[0].port, until_in(5), why);
    net_put(fd, "hello", 5, until_in(5));
    close(fd);
  }
  int link = -1;
  bool ok = true;
  for (int i = 0; i < m->size; i++)
    if (i != m->rank) ok = ok && net_link(&n, i, 7, &link, &e) == WEFT_OK;
  if (!ok) fprintf(stderr, "%s\n", e.text);
  net_close(&n);
  return ok;
}

START_TEST(strangers_stop_nobody) {
  Forked f = forked(3, among_strangers, NULL);
  all_end(&f, 3, 0);
}
END_TEST

/* Rank 1: a process joins in its place and is killed; then a byte is written to a pipe.
 */
static void join_and_end(const Rendezvous *m, const int end[2]) {
  Net n;
  weft_error e = {.rank = -1};
  pid_t first = fork();
  if (first == 0) {
    (void)rendezvous(m, NULL, &n, &e);
    _exit(0);
  }
  usleep(300000); /* it has joined by then, or, on a busy machine, never does */
  kill(first, SIGKILL);
  waitpid(first, NULL, 0);
  if (write(end[1], "x", 1) != 1) perror("pipe");
}

/* Rank 2 comes after that one has ended. */
static void wait_for_end(const int end[2]) {
  char x;
  if (read(end[0], &x, 1) != 1) perror("pipe");
}

static Forked with_pipe(bool (*rank)(const Rendezvous *m, const void *end)) {
  int end[2];
  ck_assert_int_eq(pipe(end), 0);
  Forked f = forked(3, rank, end);
  close(end[0]);
  close(end[1]);
  return f;
}

/* Rank 1 joins and is killed while the others are waited for; who comes in its place is
 * rank 1. */
static bool joins_again(const Rendezvous *m, const void *end) {
  Net n;
  weft_error e = {.rank = -1};
  int link = -1;
  if (m->rank == 1) join_and_end(m, end);
  if (m->rank == 2) wait_for_end(end);
  if (rendezvous(m, NULL, &n, &e) != WEFT_OK) {
    fprintf(stderr, "%s\n", e.text);
    return false;
  }
  bool ok = m->rank == 2 || net_link(&n, m->rank ? 0 : 1, 7, &link, &e) == WEFT_OK;
  net_close(&n);
  return ok;
}

START_TEST(who_is_started_again_joins) {
  Forked f = with_pipe(joins_again);
  all_end(&f, 3, 0);
}
END_TEST

/* One that joins, ends and is not replaced is missing, and not a failure of all. */
static bool joins_and_ends(const Rendezvous *meet, const void *end) {
  Rendezvous m = *meet;
  Net n;
  weft_error e = {.rank = -1};
  m.seconds = 5;
  if (m.rank == 1) {
    join_and_end(&m, end);
    return true;
  }
  if (m.rank == 2) wait_for_end(end);
  if (rendezvous(&m, NULL, &n, &e) == WEFT_OK) return false;
  fprintf(stderr, "%s\n", e.text);
  return e.code == WEFT_EUSAGE;
}

START_TEST(who_joins_and_ends_is_missing) {
  Forked f = with_pipe(joins_and_ends);
  all_end(&f, 3, 0);
  ck_assert_msg(strstr(f.text, "only 2 of 3 processes have connected within 5 s; "
                               "missing: rank 1"),
                "%s", f.text);
}
END_TEST

/* ---- connections ---- */

/* A socket whose own port is the one that it connects to. */
static int connected_with_itself(void) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, n), 0);
  ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &n), 0);
  ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, n), 0);
  return fd;
}

START_TEST(a_connection_with_itself_is_seen) {
  char why[NET_TEXT];
  int self = connected_with_itself(), door = net_listen("127.0.0.1", 0);
  int fd = net_reach("127.0.0.1", net_port(door), until_in(5), why);
  ck_assert(net_is_self(self));
  ck_assert(fd >= 0 && !net_is_self(fd));
  close(self), close(fd), close(door);
}
END_TEST

/* In a network of its own, whose system keeps IPv4 from IPv6 sockets. */
START_TEST(all_addresses_are_those_of_both_kinds) {
  char why[NET_TEXT];
  struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  int net = unshare(CLONE_NEWNET), s = socket(AF_INET, SOCK_DGRAM, 0);
  int file = net ? -1 : open("/proc/sys/net/ipv6/bindv6only", O_WRONLY);
  if (file < 0 || write(file, "1", 1) < 0 || ioctl(s, SIOCSIFFLAGS, &up)) {
    printf("skipped: this user cannot make a network, or it has no IPv6\n");
    return;
  }
  int door = net_listen(NULL, 0);
  int fd = net_reach("127.0.0.1", net_port(door), until_in(0.5), why);
  ck_assert_msg(fd >= 0, "%s", why);
  close(fd), close(door), close(file), close(s);
}
END_TEST

/* Names and addresses of one machine, the first of which is not known here. */
START_TEST(several_addresses_are_tried) {
  char why[NET_TEXT];
  int door = net_listen("127.0.0.1", 0);
  int fd = net_reach("no-such-host.invalid,127.0.0.1", net_port(door), until_in(5), why);
  ck_assert_msg(fd >= 0, "%s", why);
  close(fd), close(door);
}
END_TEST

/* A machine that has the same name, or the same address of a bridge, is reached by the
 * rest. */
START_TEST(addresses_of_other_machines) {
  static const struct {
    const char *list, *mine, *left;
  } ways[] = {
      {"node,10.0.0.2", "node,10.0.0.1", "10.0.0.2"},
      {"node2,172.17.0.1,10.0.0.2", "node1,172.17.0.1,10.0.0.1", "node2,10.0.0.2"},
      {"node2", "node1,10.0.0.1", "node2"},
      {"node,10.0.0.1", "10.0.0.1,node", "node,10.0.0.1"},
      {"node", "node1,no", "node"},
  };
  for (int i = 0; i < LEN(ways); i++) {
    char list[NET_HOST];
    snprintf(list, sizeof list, "%s", ways[i].list);
    addresses_of_other(list, ways[i].mine);
    ck_assert_str_eq(list, ways[i].left);
  }
}
END_TEST

/* Beside its name a machine offers what others can connect to, also in little room. */
START_TEST(addresses_of_this_machine) {
  char list[NET_HOST], name[NET_HOST] = "", little[8];
  own_addresses(list, sizeof list);
  ck_assert_int_eq(gethostname(name, sizeof name - 1), 0);
  ck_assert_msg(strncmp(list, name, strlen(name)) == 0, "%s", list);
  ck_assert_msg(!strstr(list, ",127.") && !strstr(list, "fe80"), "%s", list);
  own_addresses(little, sizeof little);
  ck_assert_uint_lt(strlen(little), sizeof little);
}
END_TEST

/* A pod's name appears when it is ready, so that takes the time that there is. */
START_TEST(a_name_may_become_known) {
  char why[NET_TEXT];
  double begun = now_s();
  ck_assert_int_eq(net_reach("no-such-host.invalid", 1, until_in(0.5), why), -1);
  ck_assert_double_ge(now_s() - begun, 0.35);
}
END_TEST

/* In a network of its own, whose system chooses among four ports, to one of them of which
 * nobody listens: one attempt in some connects with itself. */
START_TEST(nobody_is_reached_by_itself) {
  char why[NET_TEXT];
  static const char range[] = "40010 40013",
                    sys[] = "/proc/sys/net/ipv4/ip_local_port_range";
  struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  int net = unshare(CLONE_NEWNET), s = socket(AF_INET, SOCK_DGRAM, 0);
  int file = net ? -1 : open(sys, O_WRONLY);
  if (file < 0 || write(file, range, sizeof range - 1) < 0 ||
      ioctl(s, SIOCSIFFLAGS, &up)) {
    printf("skipped: this user cannot make a network\n");
    return;
  }
  ck_assert_int_eq(net_reach("127.0.0.1", 40010, until_in(1), why), -1);
  ck_assert_str_eq(why, "Connection refused");
  int door = net_listen("127.0.0.1", 40010);
  ck_assert_int_ge(door, 0);
  close(door), close(file), close(s);
}
END_TEST

/* ---- SHA-256 ---- */

static void digest_is(const uint8_t *d, const char *hex) {
  char text[2 * SHA256_BYTES + 1];
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", d[i]);
  ck_assert_str_eq(text, hex);
}

/* FIPS 180-4's examples and RFC 4231's cases 2 and 6. */
START_TEST(hashes) {
  static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  uint8_t d[SHA256_BYTES], key[131];
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, "abc", 3);
  sha256_end(&s, d);
  digest_is(d, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha256_begin(&s);
  for (size_t i = 0; i < sizeof two - 1; i++) sha256_add(&s, two + i, 1);
  sha256_end(&s, d);
  digest_is(d, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  sha256_hmac("Jefe", 4, "what do ya want for nothing?", 28, d);
  digest_is(d, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  sha256_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First",
              54, d);
  digest_is(d, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
END_TEST

Suite *tcp_suite(void);
Suite *tcp_suite(void) {
  Suite *s = suite_create("tcp");
  TCase *t = tcase_create("processes");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, backend, 0, LEN(good));
  tcase_add_test(t, who_dies_is_named);
  tcase_add_loop_test(t, who_is_late_is_waited_for, 0, LATE_WAYS);
  tcase_add_loop_test(t, what_never_came_is_no_answer, 0, LEN(unanswered));
  tcase_add_test(t, what_is_not_sent_is_not_overwritten);
  tcase_add_loop_test(t, a_member_that_is_gone_is_noticed, 0, LEN(gone));
  tcase_add_loop_test(t, who_does_not_fit_is_told, 0, LEN(odd));
  tcase_add_test(t, strangers_stop_nobody);
  tcase_add_test(t, a_connection_with_itself_is_seen);
  tcase_add_test(t, nobody_is_reached_by_itself);
  tcase_add_test(t, all_addresses_are_those_of_both_kinds);
  tcase_add_test(t, several_addresses_are_tried);
  tcase_add_test(t, addresses_of_other_machines);
  tcase_add_test(t, addresses_of_this_machine);
  tcase_add_test(t, a_name_may_become_known);
  tcase_add_test(t, who_is_started_again_joins);
  tcase_add_test(t, who_joins_and_ends_is_missing);
  tcase_add_test(t, hashes);
  suite_add_tcase(s, t);
  return s;
}
