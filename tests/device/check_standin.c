/* check_standin.c - the stand-in CUDA runtime's captures and graphs (tests/standin): what
 * is captured runs when the graph is launched and not before, in any order that its
 * events allow; and each of CUDA's rules is one here, so that what breaks it does not
 * pass. */
#include <check.h>

#include "tests/harness/emulated.h"
#include <pthread.h>
#include <stdio.h>

#include "vm/base/base.h"

#ifdef WEFT_EMULATED_CUDA

#include "tests/standin/cuda_runtime_api.h"
#include "tests/standin/standin.h"

static cudaStream_t a, b;
static cudaEvent_t event, other;
static int *host, *gpu; /* pinned memory; memory of the device */
static cudaGraph_t graph;

static void setup(void) {
  ck_assert_int_eq(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
  ck_assert_int_eq(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
  ck_assert_int_eq(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ck_assert_int_eq(cudaEventCreateWithFlags(&other, cudaEventDisableTiming), cudaSuccess);
  ck_assert_int_eq(cudaHostAlloc((void **)&host, 4 * sizeof *host, 0), cudaSuccess);
  ck_assert_int_eq(cudaMalloc((void **)&gpu, 4 * sizeof *gpu), cudaSuccess);
  for (int i = 0; i < 4; i++) host[i] = 0;
}

static cudaError_t copy(int *to, const int *from, cudaStream_t s) {
  return cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDefault, s);
}

static void begin(void) {
  ck_assert_int_eq(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal),
                   cudaSuccess);
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t s) {
  enum cudaStreamCaptureStatus is;
  ck_assert_int_eq(cudaStreamIsCapturing(s, &is), cudaSuccess);
  return is;
}

static void fork_to(cudaStream_t from, cudaStream_t to, cudaEvent_t e) {
  ck_assert_int_eq(cudaEventRecord(e, from), cudaSuccess);
  ck_assert_int_eq(cudaStreamWaitEvent(to, e, 0), cudaSuccess);
}

static cudaGraphExec_t end(void) {
  cudaGraphExec_t exec;
  ck_assert_int_eq(cudaStreamEndCapture(a, &graph), cudaSuccess);
  ck_assert_int_eq(
      cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority),
      cudaSuccess);
  ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
  ck_assert_int_eq(cudaGraphUpload(exec, a), cudaSuccess);
  return exec;
}

static void ends_with(cudaError_t want) {
  cudaError_t got = cudaStreamEndCapture(a, &graph);
  ck_assert_msg(got == want, "%s, not %s", cudaGetErrorName(got), cudaGetErrorName(want));
  ck_assert_ptr_null(graph);
  ck_assert_int_eq(status_of(a), cudaStreamCaptureStatusNone);
}

START_TEST(a_graph_runs_when_it_is_launched) {
  begin();
  ck_assert_int_eq(copy(&gpu[0], &host[0], a), cudaSuccess);
  ck_assert_int_eq(copy(&host[1], &gpu[0], a), cudaSuccess);
  ck_assert_int_eq(status_of(a), cudaStreamCaptureStatusActive);
  cudaGraphExec_t exec = end();
  host[0] = 7;
  ck_assert_int_eq(cudaStreamSynchronize(a), cudaSuccess);
  ck_assert_int_eq(host[1], 0);
  for (int i = 1; i < 4; i++) {
    host[0] = i;
    uint64_t before = standin_launched();
    ck_assert_int_eq(cudaGraphLaunch(exec, a), cudaSuccess);
    ck_assert_uint_eq(standin_launched() - before, 1);
    ck_assert_int_eq(cudaStreamSynchronize(a), cudaSuccess);
    ck_assert_int_eq(host[1], i);
  }
  ck_assert_int_eq(cudaGraphExecDestroy(exec), cudaSuccess);
}
END_TEST

/* What stands in the stream before a graph comes before all of it, what stands behind it
 * after all of it. */
START_TEST(a_graph_has_its_place) {
  begin();
  fork_to(a, b, event);
  copy(&gpu[1], &gpu[0], b);
  fork_to(b, a, other);
  cudaGraphExec_t exec = end();
  for (int order = 0; order < 20; order++) {
    Standin s = standin_usual;
    s.order = (uint64_t)order;
    standin_set(&s);
    host[0] = order + 1;
    copy(&gpu[0], &host[0], a);
    cudaGraphLaunch(exec, a);
    copy(&host[1], &gpu[1], a);
    cudaStreamSynchronize(a);
    ck_assert_int_eq(host[1], order + 1);
  }
  cudaGraphExecDestroy(exec);
}
END_TEST

/* Two branches write one place: both orders come, unless an event is between them. */
static int orders_seen(bool waits) {
  int seen = 0;
  begin();
  fork_to(a, b, event);
  copy(&gpu[2], &host[0], a);
  if (waits) fork_to(a, b, event);
  copy(&gpu[2], &host[1], b);
  fork_to(b, a, other);
  cudaGraphExec_t exec = end();
  host[0] = 1, host[1] = 2;
  for (int order = 0; order < 20; order++) {
    Standin s = standin_usual;
    s.order = (uint64_t)order;
    standin_set(&s);
    cudaGraphLaunch(exec, a);
    copy(&host[2], &gpu[2], a);
    cudaStreamSynchronize(a);
    seen |= host[2];
  }
  cudaGraphExecDestroy(exec);
  return seen;
}

START_TEST(events_alone_order_a_graph) {
  ck_assert_int_eq(orders_seen(false), 1 | 2);
  ck_assert_int_eq(orders_seen(true), 2);
}
END_TEST

/* ---- rules ---- */

START_TEST(an_event_of_before_is_refused) {
  cudaEventRecord(event, b);
  begin();
  ck_assert_int_eq(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  ck_assert_int_eq(status_of(a), cudaStreamCaptureStatusInvalidated);
  ends_with(cudaErrorStreamCaptureInvalidated);
}
END_TEST

START_TEST(an_event_of_a_capture_is_refused_after_it) {
  begin();
  cudaEventRecord(event, a);
  cudaGraphExecDestroy(end());
  ck_assert_int_eq(cudaStreamWaitEvent(b, event, 0), cudaErrorCapturedEvent);
  cudaEventRecord(event, a);
  ck_assert_int_eq(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
}
END_TEST

START_TEST(what_was_forked_is_joined) {
  begin();
  fork_to(a, b, event);
  copy(&gpu[0], &host[0], b);
  ends_with(cudaErrorStreamCaptureUnjoined);
  ck_assert_int_eq(status_of(b), cudaStreamCaptureStatusNone);
}
END_TEST

START_TEST(only_the_first_stream_ends_it) {
  begin();
  fork_to(a, b, event);
  ck_assert_int_eq(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  ends_with(cudaErrorStreamCaptureInvalidated);
}
END_TEST

START_TEST(two_captures_do_not_meet) {
  begin();
  cudaEventRecord(event, a);
  cudaStreamBeginCapture(b, cudaStreamCaptureModeThreadLocal);
  ck_assert_int_eq(cudaStreamWaitEvent(b, event, 0), cudaErrorStreamCaptureMerge);
  ends_with(cudaErrorStreamCaptureInvalidated);
  ck_assert_int_eq(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureInvalidated);
}
END_TEST

static cudaError_t query(void) { return cudaStreamQuery(a); }
static cudaError_t synchronize(void) { return cudaStreamSynchronize(a); }
static cudaError_t copy_from_anywhere(void) {
  int here = 3;
  return copy(&gpu[0], &here, a);
}
static cudaError_t copy_to_anywhere(void) {
  int here;
  return copy(&here, &gpu[0], a);
}
static cudaError_t allocate(void) {
  void *p;
  return cudaMalloc(&p, 1);
}
static cudaError_t allocate_host(void) {
  void *p;
  return cudaHostAlloc(&p, 1, 0);
}
static cudaError_t launch(void) { return cudaGraphLaunch(NULL, a); }
static cudaError_t (*const forbidden[])(void) = {
    query,         synchronize, copy_from_anywhere, copy_to_anywhere, allocate,
    allocate_host, launch};

START_TEST(a_call_that_waits_is_refused) {
  begin();
  copy(&gpu[0], &host[0], a);
  ck_assert_int_eq(forbidden[_i](), cudaErrorStreamCaptureUnsupported);
  ends_with(cudaErrorStreamCaptureInvalidated);
}
END_TEST

static void *allocate_elsewhere(void *result) {
  void *p = NULL;
  *(cudaError_t *)result = cudaMalloc(&p, 1);
  if (p) (void)cudaFree(p);
  return NULL;
}
static void *end_elsewhere(void *result) {
  *(cudaError_t *)result = cudaStreamEndCapture(a, &graph);
  return NULL;
}

static cudaError_t in_a_thread(void *(*fn)(void *)) {
  pthread_t t;
  cudaError_t result = cudaSuccess;
  ck_assert_int_eq(pthread_create(&t, NULL, fn, &result), 0);
  pthread_join(t, NULL);
  return result;
}

/* What other threads may do meanwhile is what the mode says. */
START_TEST(modes_differ) {
  begin();
  ck_assert_int_eq(in_a_thread(allocate_elsewhere), cudaSuccess);
  ck_assert_int_eq(in_a_thread(end_elsewhere), cudaErrorStreamCaptureWrongThread);
  cudaGraphExecDestroy(end());
  cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed);
  ck_assert_int_eq(allocate(), cudaSuccess);
  cudaGraphExecDestroy(end());
  cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
  ck_assert_int_eq(in_a_thread(allocate_elsewhere), cudaErrorStreamCaptureUnsupported);
  ends_with(cudaErrorStreamCaptureInvalidated);
}
END_TEST

START_TEST(a_capture_can_be_told_to_fail) {
  Standin s = standin_usual;
  s.capture_fails = 2;
  standin_set(&s);
  begin();
  copy(&gpu[0], &host[0], a);
  ck_assert_int_eq(status_of(a), cudaStreamCaptureStatusActive);
  copy(&gpu[0], &host[0], a);
  ck_assert_int_eq(status_of(a), cudaStreamCaptureStatusInvalidated);
  ends_with(cudaErrorStreamCaptureInvalidated);
}
END_TEST

Suite *standin_suite(void) {
  Suite *s = suite_create("standin");
  TCase *tc = tcase_create("graphs");
  tcase_add_checked_fixture(tc, setup, NULL);
  tcase_add_test(tc, a_graph_runs_when_it_is_launched);
  tcase_add_test(tc, a_graph_has_its_place);
  tcase_add_test(tc, events_alone_order_a_graph);
  tcase_add_test(tc, an_event_of_before_is_refused);
  tcase_add_test(tc, an_event_of_a_capture_is_refused_after_it);
  tcase_add_test(tc, what_was_forked_is_joined);
  tcase_add_test(tc, only_the_first_stream_ends_it);
  tcase_add_test(tc, two_captures_do_not_meet);
  tcase_add_loop_test(tc, a_call_that_waits_is_refused, 0, LEN(forbidden));
  tcase_add_test(tc, modes_differ);
  tcase_add_test(tc, a_capture_can_be_told_to_fail);
  suite_add_tcase(s, tc);
  return s;
}

#else

Suite *standin_suite(void) { return emulated_suite_without("standin"); }

#endif
