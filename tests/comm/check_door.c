/* check_door.c - the sockets at which processes of a run find each other, when others
 * come to them: strangers cost nothing and none gets in, and what is forged or changed on
 * its way is refused, whichever byte it is and whichever way it goes. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/ranks/forked_ranks.h"
#include "tests/harness/port.h"
#include "tests/harness/process.h"
#include "tests/ranks/strangers.h"

enum { ANSWER = 212, HELLO = 52, AT_DATA = 200 };

/* What takes less has waited for none of the strangers, nor for who is not there; a
 * machine that does other things may need most of it. */
static const double LATE_S = 15;

static const char rendezvous_magic[MAGIC] = "weft-r2", link_magic[MAGIC] = "weft-l2";

/* A first message without the right hash. */
static const char *forged(const char magic[MAGIC], char message[ANSWER]) {
  memset(message, 0, ANSWER);
  memcpy(message, magic, MAGIC);
  return message;
}

/* ---- strangers ---- */

static bool said(const weft_error *e) {
  fprintf(stderr, "%s\n", e->text);
  return false;
}

static bool gone(Strangers *s) {
  char why[NET_TEXT];
  if (strangers_end(s, why)) return true;
  fprintf(stderr, "strangers: %s\n", why);
  return false;
}

/* A link to every other rank, and a word over each of them. */
static bool links_work(Net *n, weft_error *e) {
  bool ok = true;
  for (int i = 0; i < n->size && ok; i++) {
    int fd = -1, mine = 100 + n->rank, other = -1;
    if (i == n->rank) continue;
    if (net_link(n, i, 7, &fd, e) != WEFT_OK) return said(e);
    ok = net_put(fd, &mine, sizeof mine, until_in(5)) &&
         net_get(fd, &other, sizeof other, until_in(20)) && other == 100 + i;
    if (!ok) fprintf(stderr, "rank %d hears %d of rank %d\n", n->rank, other, i);
    close(fd);
  }
  return ok;
}

/* The last rank brings strangers: to rank 0, then to where all others listen. */
static bool among_strangers(const Rendezvous *m, const void *arg) {
  const int *at_door = arg;
  char message[ANSWER];
  Strangers s[FORKED_MOST];
  Net n;
  weft_error e;
  err_clear(&e);
  bool brings = m->rank == m->size - 1, ok = true;
  if (brings)
    s[0] = strangers_begin(m->port, *at_door, forged(rendezvous_magic, message), ANSWER);
  double begun = now_s();
  if (rendezvous(m, NULL, &n, &e) != WEFT_OK) return said(&e);
  for (int i = 0; brings && i < m->rank; i++)
    s[i + 1] =
        strangers_begin(n.peer[i].port, AT_DATA, forged(link_magic, message), HELLO);
  ok = links_work(&n, &e);
  double took = now_s() - begun;
  if (took > LATE_S) ok = false, fprintf(stderr, "rank %d: %.1f s\n", m->rank, took);
  for (int i = 0; brings && i < m->size; i++) ok = gone(&s[i]) && ok;
  net_close(&n);
  return ok;
}

START_TEST(strangers_stop_nobody) {
  static const int at_door[] = {1, 1000};
  if (!strangers_fit(at_door[_i])) return;
  Forked f = forked(4, among_strangers, &at_door[_i]);
  for (int i = 0; i < 4; i++)
    ck_assert_msg(f.code[i] == 0, "rank %d: code %d: %s", i, f.code[i], f.text);
}
END_TEST

/* Rank 0 has fewer descriptors than strangers come: the oldest ones go. */
static bool with_few_files(const Rendezvous *m, const void *arg) {
  struct rlimit few = {64, 64};
  if (m->rank == 0) setrlimit(RLIMIT_NOFILE, &few);
  return among_strangers(m, arg);
}

START_TEST(few_descriptors_are_enough) {
  static const int at_door = 300;
  Forked f = forked(3, with_few_files, &at_door);
  for (int i = 0; i < 3; i++)
    ck_assert_msg(f.code[i] == 0, "rank %d: code %d: %s", i, f.code[i], f.text);
}
END_TEST

/* ---- what is changed on its way ---- */

typedef struct Side {
  Rendezvous m;
  Net net;
  weft_error e;
  weft_status st;
} Side;

static void *be_side(void *arg) {
  Side *s = arg;
  err_clear(&s->e);
  s->st = rendezvous(&s->m, NULL, &s->net, &s->e);
  return NULL;
}

/* Between two ranks that meet through this process: takes `n` bytes from one to the
 * other, the one at `flip` changed. */
static bool relay(int from, int to, size_t n, size_t flip) {
  char message[4096];
  ck_assert_uint_le(n, sizeof message);
  if (!net_get(from, message, n, until_in(5))) return false;
  if (flip < n) message[flip] ^= 0x40;
  return net_put(to, message, n, until_in(5));
}

static Rendezvous meet_at(int rank, int door) {
  return (Rendezvous){.rank = rank,
                      .size = 2,
                      .addr = "127.0.0.1",
                      .port = net_port(door),
                      .door = rank ? -1 : door,
                      .secret = "a word",
                      .seconds = 15};
}

static int take_one(int door) {
  ck_assert(net_ready(door, POLLIN, until_in(10)));
  int fd = accept4(door, NULL, NULL, SOCK_NONBLOCK);
  ck_assert_int_ge(fd, 0);
  return fd;
}

static int go(int port) {
  char why[NET_TEXT];
  int fd = net_reach("127.0.0.1", port, until_in(40), why); /* of a program that starts */
  ck_assert_msg(fd >= 0, "%s", why);
  return fd;
}

static const size_t never = SIZE_MAX;

typedef struct Meeting {
  Side side[2];
  pthread_t thread[2];
  int door, between; /* of rank 0, and where rank 1 believes it to be */
} Meeting;

static void meeting_begin(Meeting *t) {
  *t = (Meeting){.door = net_listen("127.0.0.1", 0),
                 .between = net_listen("127.0.0.1", 0)};
  t->side[0].m = meet_at(0, t->door);
  t->side[1].m = meet_at(1, t->between);
  t->side[0].m.port = net_port(t->door);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&t->thread[i], NULL, be_side, &t->side[i]), 0);
}

static void meeting_end(Meeting *t) {
  for (int i = 0; i < 2; i++) {
    pthread_join(t->thread[i], NULL);
    if (t->side[i].st != WEFT_OK) continue;
    ck_assert_double_eq(t->side[i].net.seconds, 15); /* later waits are as long */
    net_close(&t->side[i].net);
  }
  close(t->between);
}

/* Rank, number of processes, host, port, both numbers and the hash itself: rank 0 takes
 * none of them from somebody who does not know the word. Rank 1, whose connection is
 * closed, comes again; at last nothing is changed. */
START_TEST(answers_cannot_be_changed) {
  Meeting t;
  meeting_begin(&t);
  int port = net_port(t.door);
  for (size_t flip = 0; flip < ANSWER; flip += 4) {
    int guest = take_one(t.between), host = go(port);
    int32_t verdict = -1;
    ck_assert(relay(host, guest, sizeof(Question), never));
    ck_assert(relay(guest, host, ANSWER, flip));
    bool told = net_get(host, &verdict, sizeof verdict, until_in(5));
    ck_assert_msg(!told || verdict != 0, "let in with another byte %zu", flip);
    close(guest);
    close(host);
  }
  int guest = take_one(t.between), host = go(port);
  char end;
  ck_assert(relay(host, guest, sizeof(Question), never));
  ck_assert(relay(guest, host, ANSWER, never));
  while (relay(host, guest, 1, never)) continue;
  ck_assert(!net_get(guest, &end, 1, until_in(5)));
  close(guest);
  close(host);
  meeting_end(&t);
  for (int i = 0; i < 2; i++)
    ck_assert_msg(t.side[i].st == WEFT_OK, "rank %d: %s", i, t.side[i].e.text);
}
END_TEST

/* An answer that was right once is so for one question. */
START_TEST(answers_cannot_be_used_again) {
  Meeting t;
  char answer[ANSWER];
  int32_t verdict = -1;
  Question q;
  meeting_begin(&t);
  int guest = take_one(t.between), host = go(net_port(t.door)),
      other = go(net_port(t.door));
  ck_assert(relay(host, guest, sizeof q, never));
  ck_assert(net_get(guest, answer, ANSWER, until_in(5)));
  ck_assert(net_get(other, &q, sizeof q, until_in(5)));
  ck_assert(net_put(other, answer, ANSWER, until_in(5)));
  bool told = net_get(other, &verdict, sizeof verdict, until_in(5));
  ck_assert_msg(!told || verdict != 0, "let in with the answer to another question");
  close(other);
  ck_assert(net_put(host, answer, ANSWER, until_in(5)));
  while (relay(host, guest, 1, never)) continue;
  close(guest);
  close(host);
  meeting_end(&t);
  for (int i = 0; i < 2; i++)
    ck_assert_msg(t.side[i].st == WEFT_OK, "rank %d: %s", i, t.side[i].e.text);
}
END_TEST

/* One meeting whose reply goes through here: a byte of it is changed, or rank 1 gets
 * another one in its place, of `n` bytes. Returns how many bytes rank 0 has sent. */
static size_t meet_with_changed_reply(size_t flip, char *reply, size_t n,
                                      weft_status *st) {
  Meeting t;
  meeting_begin(&t);
  int guest = take_one(t.between), host = go(net_port(t.door));
  ck_assert(relay(host, guest, sizeof(Question), never));
  ck_assert(relay(guest, host, ANSWER, never));
  if (n) net_put(guest, reply, n, until_in(5));
  size_t at = 0;
  for (char byte; !n && net_get(host, &byte, 1, until_in(5)); at++) {
    if (reply) reply[at] = byte;
    byte ^= at == flip ? 0x40 : 0;
    net_put(guest, &byte, 1, until_in(5));
  }
  close(guest);
  close(host);
  meeting_end(&t);
  *st = t.side[1].st;
  return at;
}

/* The verdict, the reason, the key's number and the table of where the others are. */
START_TEST(replies_cannot_be_changed) {
  weft_status st;
  char reply[4096];
  size_t n = meet_with_changed_reply(never, reply, 0, &st);
  ck_assert_int_eq(st, WEFT_OK);
  ck_assert_uint_gt(n, 2 * sizeof(NetPeer) + 3 * SHA256_BYTES);
  for (size_t flip = 0; flip < n; flip += flip < NET_TEXT ? 52 : 8) {
    meet_with_changed_reply(flip, NULL, 0, &st);
    ck_assert_msg(st == WEFT_EUSAGE, "taken with another byte %zu of %zu", flip, n);
  }
  meet_with_changed_reply(never, reply, n, &st);
  ck_assert_msg(st == WEFT_EUSAGE, "the reply of another meeting is taken");
}
END_TEST

enum { NETS = 3 };

/* The processes of a run, in one. */
static void open_nets(Net net[NETS]) {
  weft_error e;
  for (int i = 0; i < NETS; i++) {
    err_clear(&e);
    ck_assert_int_eq(net_open(&net[i], NULL, i, NETS, "127.0.0.1", &e), WEFT_OK);
    memset(net[i].key, 0x5a, sizeof net[i].key);
    net[i].seconds = 5;
  }
  for (int i = 0; i < NETS; i++)
    for (int k = 0; k < NETS; k++)
      net[i].peer[k] = (NetPeer){"127.0.0.1", net_port(net[k].listener.fd)};
}

/* What `from` sends first to another rank. */
static void catch_hello(Net *from, int to, char hello[HELLO]) {
  weft_error e;
  NetPeer there = from->peer[to];
  int fd, door = net_listen("127.0.0.1", 0);
  err_clear(&e);
  from->peer[to].port = net_port(door);
  ck_assert_int_eq(net_link(from, to, 7, &fd, &e), WEFT_OK);
  from->peer[to] = there;
  int other = take_one(door);
  ck_assert(net_get(other, hello, HELLO, until_in(5)));
  ck_assert(!net_get(other, &(char){0}, 1, until_in(0)));
  ck_assert_int_eq(memcmp(hello, link_magic, MAGIC), 0);
  close(other);
  close(fd);
  close(door);
}

/* Two links of ranks 0 and 1: what came to rank 0 before has then been looked at. */
static void link_twice(Net net[NETS]) {
  weft_error e;
  for (int i = 0; i < 2; i++) {
    int near, far;
    err_clear(&e);
    ck_assert_msg(net_link(&net[1], 0, 9, &far, &e) == WEFT_OK, "%s", e.text);
    ck_assert_msg(net_link(&net[0], 1, 9, &near, &e) == WEFT_OK, "%s", e.text);
    close(near);
    close(far);
  }
}

static int come_with(const Net *to, const char hello[HELLO]) {
  int fd = go(net_port(to->listener.fd));
  ck_assert(net_put(fd, hello, HELLO, until_in(5)));
  return fd;
}

/* Sent away without a word. */
static void is_refused(Net net[NETS], const char hello[HELLO], const char *what, int n) {
  char c;
  int stranger = come_with(&net[0], hello);
  link_twice(net);
  ck_assert_msg(net[0].nguest == 0 && net[0].listener.n == 0, "let in with %s %d", what,
                n);
  ck_assert(net_ready(stranger, POLLIN, until_in(5)));
  ck_assert_msg(!net_get(stranger, &c, 1, until_in(0)), "a stranger is answered");
  close(stranger);
}

START_TEST(links_cannot_be_forged) {
  Net net[NETS];
  weft_error e;
  char hello[HELLO], bad[HELLO];
  int fd;
  open_nets(net);
  catch_hello(&net[1], 0, hello);
  for (int flip = 0; flip < HELLO; flip++) {
    memcpy(bad, hello, HELLO);
    bad[flip] ^= 1;
    is_refused(net, bad, "another byte", flip);
  }
  /* Who goes in the middle of a word is forgotten. */
  int half = go(net_port(net[0].listener.fd));
  ck_assert(net_put(half, hello, HELLO / 2, until_in(5)));
  close(half);
  link_twice(net);
  ck_assert_int_eq(net[0].listener.n, 0);
  catch_hello(&net[2], 1, bad);
  is_refused(net, bad, "what was meant for rank", 1);
  /* As it was sent it is taken: all this was about the one byte. */
  int same = come_with(&net[0], hello);
  err_clear(&e);
  ck_assert_msg(net_link(&net[0], 1, 7, &fd, &e) == WEFT_OK, "%s", e.text);
  close(same);
  close(fd);
  for (int i = 0; i < NETS; i++) net_close(&net[i]);
}
END_TEST

/* ---- names that are too long ---- */

/* A message that does not fit is cut; it is written nowhere else. */
START_TEST(long_names_are_cut) {
  char addr[2000];
  memset(addr, '1', sizeof addr - 1);
  for (size_t n = 100; n < sizeof addr; n += 190) {
    weft_error e;
    Net net;
    Rendezvous m = meet_at(0, net_listen("127.0.0.1", 0));
    addr[n] = 0;
    m.addr = addr;
    m.size = 40;
    m.seconds = 0.05;
    err_clear(&e);
    ck_assert_int_eq(rendezvous(&m, NULL, &net, &e), WEFT_EUSAGE);
    ck_assert_msg(strstr(e.text, "only 1 of 40 processes have connected") &&
                      strstr(e.text, "missing: rank 1 rank 2") &&
                      strstr(e.text, "rank 8 and 31 more"),
                  "%s", e.text);
    addr[n] = '1';
  }
}
END_TEST

/* ---- weft run ---- */

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  model = weft.model { 'llama', num_hidden_layers = 2, hidden_size = 16,\n"
    "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24,\n"
    "    vocab_size = 128 },\n"
    "  mesh = { tp = 2, dp = 1 },\n"
    "  batch = { global = 4, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {},\n"
    "  train = { steps = 3, log_every = 1 },\n"
    "}\n";

static Process start_rank(int rank, int port, const char *more) {
  return process_start(60,
                       "env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                       "WEFT_SECRET=w %s $weft run plan.lua --threads 1",
                       rank, port, more);
}

/* Seconds from the start of rank 1 to the end of both, when rank 0 listens already. */
static double run_with(int strangers) {
  char message[ANSWER], why[NET_TEXT];
  int port = port_free();
  Process p[2] = {start_rank(0, port, "")};
  close(go(port));
  Strangers s = {-1, -1};
  if (strangers)
    s = strangers_begin(port, strangers, forged(rendezvous_magic, message), ANSWER);
  double begun = now_s();
  p[1] = start_rank(1, port, "");
  for (int i = 1; i >= 0; i--) {
    Outcome o = process_end(&p[i]);
    ck_assert_msg(o.code == 0, "rank %d: code %d: %s", i, o.code, o.err);
    ck_assert_msg(i || strstr(o.out, "step      2/3"), "%s", o.out);
  }
  double took = now_s() - begun;
  if (strangers) ck_assert_msg(strangers_end(&s, why), "strangers: %s", why);
  return took;
}

/* `./dev bench door` takes many turns and prints the ratio: the least of each is what the
 * run needs, the rest is what else the machine does. A test tells no more than whether
 * handshakes wait for each other. */
START_TEST(a_run_begins_among_strangers) {
  enum { N = 1000 };
  const char *more = getenv("WEFT_TURNS");
  double alone = 1e9, among = 1e9;
  if (!strangers_fit(N)) return;
  scratch_put("plan.lua", plan_text, strlen(plan_text));
  for (int i = 0; i < (more ? atoi(more) : 1); i++) {
    alone = MIN(alone, run_with(0));
    among = MIN(among, run_with(N));
  }
  printf("door: %.3f s, among %d strangers %.3f s (%.2f x)\n", alone, N, among,
         among / alone);
  ck_assert_msg(among < LATE_S, "%.3f s, among %d strangers %.3f s", alone, N, among);
}
END_TEST

static const struct {
  int rank, signal;
  const char *said; /* NULL: another rank speaks for it */
} interrupt[] = {
    {0, SIGINT,
     "weft: interrupted while rank 0 waited for the others: 1 of 2 processes had "
     "connected\n"},
    {0, SIGTERM,
     "weft: interrupted while rank 0 waited for the others: 1 of 2 processes had "
     "connected\n"},
    {1, SIGINT, NULL},
    {1, SIGTERM, NULL},
};

/* Both wait for somebody who is silent. */
START_TEST(signals_end_the_wait) {
  int port = port_free(), rank = interrupt[_i].rank, fd;
  scratch_put("plan.lua", plan_text, strlen(plan_text));
  int door = rank ? net_listen("127.0.0.1", port) : -1;
  Process p = start_rank(rank, port, "");
  if (rank)
    fd = take_one(door);
  else
    fd = go(port);
  usleep(100000);
  double begun = now_s();
  kill(p.pid, interrupt[_i].signal);
  Outcome o = process_end(&p);
  double took = now_s() - begun;
  ck_assert_msg(took < LATE_S, "it ends after %.1f s", took);
  ck_assert_msg(o.code == 128 + interrupt[_i].signal, "code %d: %s", o.code, o.err);
  ck_assert_str_eq(o.err, interrupt[_i].said ? interrupt[_i].said : "");
  close(fd);
  if (rank) close(door);
}
END_TEST

START_TEST(hosts_have_possible_names) {
  char addr[300];
  memset(addr, 'a', 290);
  addr[290] = 0;
  scratch_put("plan.lua", plan_text, strlen(plan_text));
  for (int i = 0; i < 3; i++) {
    const char *format = i == 0   ? "MASTER_ADDR=%s"
                         : i == 1 ? "MASTER_ADDR=$(printf \"a\\033]0;b\")"
                                  : "MASTER_ADDR=127.0.0.1 WEFT_HOST=%s";
    Outcome o = process_run(60,
                            "sh -c 'exec env RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 "
                            "WEFT_SECRET=w %s $weft run plan.lua'",
                            arena_printf(scratch_arena, format, addr));
    ck_assert_int_eq(o.code, 2);
    ck_assert_msg(strstr(o.err, i < 2 ? "MASTER_ADDR in the environment, "
                                      : "WEFT_HOST in the environment, 290 characters, "),
                  "%s", o.err);
    ck_assert_ptr_null(strchr(o.err, 033));
  }
}
END_TEST

Suite *door_suite(void);
Suite *door_suite(void) {
  Suite *s = suite_create("door");
  TCase *t = tcase_create("handshakes");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, strangers_stop_nobody, 0, 2);
  tcase_add_test(t, few_descriptors_are_enough);
  tcase_add_test(t, answers_cannot_be_changed);
  tcase_add_test(t, answers_cannot_be_used_again);
  tcase_add_test(t, replies_cannot_be_changed);
  tcase_add_test(t, links_cannot_be_forged);
  tcase_add_test(t, long_names_are_cut);
  suite_add_tcase(s, t);
  t = tcase_create("program");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, a_run_begins_among_strangers);
  tcase_add_loop_test(t, signals_end_the_wait, 0, LEN(interrupt));
  tcase_add_test(t, hosts_have_possible_names);
  suite_add_tcase(s, t);
  return s;
}
