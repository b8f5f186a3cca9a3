/* check_launcher.c - weft run --procs, the scripts of weft launch, and --trace: as a user
 * calls them. */
#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/ranks/mpirun.h"
#include "tests/harness/process.h"

static const char plan_text[] =
    "local weft = require 'weft'\n"
    "return weft.plan {\n"
    "  name = weft.var('a', 'small one'),\n"
    "  model = weft.model { 'llama', num_hidden_layers = 2, hidden_size = 16,\n"
    "    num_attention_heads = 4, num_key_value_heads = 2, intermediate_size = 24,\n"
    "    vocab_size = 128 },\n"
    "  mesh = { tp = 2, pp = 2, dp = 1 },\n"
    "  batch = { global = 4, micro = 1, seq = 8 },\n"
    "  data = weft.synthetic {},\n"
    "  comm = { timeout = 20 },\n"
    "  train = { steps = 1000000, log_every = 1000000 },\n"
    "}\n";

static void put_plan(void) { scratch_put("plan.lua", plan_text, strlen(plan_text)); }

/* ---- weft run --procs ---- */

static double last_loss(const char *json_text) {
  json_t *all = json_loads(json_text, 0, NULL);
  ck_assert_msg(all != NULL, "%s", json_text);
  double loss =
      json_number_value(json_object_get(json_object_get(all, "result"), "loss"));
  json_decref(all);
  return loss;
}

/* The same sums in the same order. */
START_TEST(processes_are_as_threads) {
  put_plan();
  Outcome a = process_run(60, "$weft run plan.lua --steps 3 --threads 1 --json -q");
  Outcome b =
      process_run(60, "$weft run plan.lua --steps 3 --threads 1 --json -q --procs 4");
  ck_assert_msg(a.code == 0 && b.code == 0, "%s%s", a.err, b.err);
  ck_assert_double_eq(last_loss(a.out), last_loss(b.out));
}
END_TEST

START_TEST(another_number_is_refused) {
  put_plan();
  Outcome o = process_run(60, "$weft run plan.lua --steps 1 --threads 1 --procs 3");
  ck_assert_int_eq(o.code, 2);
  static const char want[] = "weft: --procs 3, but the plan's mesh (pp=2 tp=2) has 4 "
                             "ranks: --procs 4, or change the mesh\n";
  ck_assert_msg(str_eq(o.err, want), "%s", o.err);
  o = process_run(60, "env RANK=0 WORLD_SIZE=2 $weft run plan.lua --procs 4");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "--procs starts processes itself"), "%s", o.err);
}
END_TEST

/* As in `srun --pty bash`, on platforms that set RANK and WORLD_SIZE everywhere, and in
 * shells from which a cluster is used. */
START_TEST(what_a_shell_has_left_does_no_harm) {
  static const char *const ways[] = {
      "RANK=0 WORLD_SIZE=1", "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1",
      "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_NTASKS=16",
      "WEFT_HOST=no-such-host.invalid MASTER_ADDR=no-such-host.invalid WEFT_DOOR=99 "
      "TORCHELASTIC_USE_AGENT_STORE=True LOCAL_RANK=0"};
  put_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o = process_run(
        60, "env %s $weft run plan.lua --steps 2 --threads 1 --procs 4", ways[i]);
    ck_assert_msg(o.code == 0 && strstr(o.err, "4 ranks (tcp)"), "%s: %d: %s", ways[i],
                  o.code, o.err);
  }
  for (int i = 0; i < 3; i++) {
    Outcome o =
        process_run(60, "env %s $weft run plan.lua --steps 2 --threads 1", ways[i]);
    ck_assert_msg(o.code == 0 && strstr(o.err, "4 ranks (local)"), "%s: %d: %s", ways[i],
                  o.code, o.err);
    o = process_run(60, "env %s $weft calibrate plan.lua --threads 1 -q -o c%d.lua",
                    ways[i], i);
    ck_assert_msg(o.code == 0, "%s: %d: %s", ways[i], o.code, o.err);
  }
#define HIDES "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
  Outcome o = process_run(60, "env " HIDES "$weft run plan.lua --procs 4");
  ck_assert_msg(o.code == 2 && strstr(o.err, "hide the 2 ranks of mpirun"), "%d: %s",
                o.code, o.err);
  o = process_run(60, "env WEFT_LAUNCHER=env " HIDES "$weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  o = process_run(60, "env RANK=0 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=5 "
                      "OMPI_COMM_WORLD_SIZE=8 $weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 2 && strstr(o.err, "MASTER_ADDR"), "%d: %s", o.code, o.err);
}
END_TEST

/* MPI has numbers of its own, so that nobody meets by those of the shell: each process
 * would be rank 0. The second time only MPI knows better. */
START_TEST(a_shell_has_left_the_rank_of_all) {
  static const char *const ways[] = {"", "TORCHELASTIC_RUN_ID=x"};
  put_plan();
  if (!mpirun_present()) return;
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o = process_run(60,
                            "env RANK=0 WORLD_SIZE=4 %s " MPIRUN
                            " $weft run plan.lua --comm mpi --steps 2 --threads 1 "
                            "--log run.jsonl",
                            ways[i], 4);
    ck_assert_msg(o.code == 2 && strstr(o.err, "RANK"), "%d: %s%s", o.code, o.out, o.err);
    ck_assert_msg(!strstr(o.out, "step "), "%s", o.out);
    ck_assert_ptr_null(
        strstr(scratch_get(scratch_path("run.jsonl")), "\"event\":\"start\""));
  }
}
END_TEST

/* As by mpiexec of MPICH, of which Open MPI knows nothing. */
START_TEST(another_mpi_is_told) {
  put_plan();
  if (!mpirun_present()) return;
  Outcome o = process_run(60, "env OMPI_ALLOW_RUN_AS_ROOT=1 PMI_RANK=0 PMI_SIZE=4 "
                              "ASAN_OPTIONS=detect_leaks=0 $weft run plan.lua --steps 1");
  ck_assert_msg(o.code == 2 && strstr(o.err, "weft_mpi.so is of another MPI"), "%d: %s",
                o.code, o.err);
}
END_TEST

/* Rank 0 fails before it listens, and nobody waits for it. */
START_TEST(an_error_of_rank_0_ends_all_at_once) {
  put_plan();
  double begun = now_s();
  Outcome o = process_run(
      60, "$weft run plan.lua --steps 1 --threads 1 --procs 4 --log none/run.jsonl");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "none/run.jsonl: ") && !strstr(o.err, "[rank "), "%s",
                o.err);
  ck_assert_msg(now_s() - begun < 5, "%.1f s", now_s() - begun);
}
END_TEST

/* SIGINT to the one that was started reaches all: code 130, and nobody is left. */
START_TEST(signals_are_passed_on) {
  put_plan();
  Process p = process_start(60, "$weft run plan.lua --threads 1 --procs 4");
  ck_assert(process_wait_for(&p, p.out, "step"));
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
}
END_TEST

/* Also one that comes while they are being started. */
START_TEST(an_early_signal_is_passed_on) {
  put_plan();
  for (int i = 0; i < 8; i++) {
    Process p = process_start(60, "$weft run plan.lua --threads 1 --procs 4");
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/comm", (int)p.pid);
    while (strcmp(scratch_get(name), "weft\n") != 0) usleep(500);
    usleep(5000 * (useconds_t)i);
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
  }
}
END_TEST

/* The first one ends the run after a step on all ranks, the second one at once: a step of
 * 100000 samples would take minutes. */
START_TEST(the_second_signal_ends_a_step) {
  put_plan();
  const char *const ways[] = {"", "--procs 4"};
  for (int i = 0; i < LEN(ways); i++) {
    Process p = process_start(60, "$weft run plan.lua --threads 1 %s", ways[i]);
    ck_assert(process_wait_for(&p, p.out, "step"));
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
    ck_assert_msg(strstr(o.err, "weft: interrupted after ") != NULL, "%s", o.err);
  }
  Process p =
      process_start(60, "$weft run plan.lua --threads 1 --set batch.global=100000");
  ck_assert(process_wait_for(&p, p.err, "4 ranks (local)"));
  kill(p.pid, SIGINT);
  usleep(300000);
  double start = now_s();
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code != 0 && now_s() - start < 5, "code %d: %s", o.code, o.err);
}
END_TEST

/* An error that all processes hear of has the name of its file, as on threads. */
START_TEST(files_of_errors_are_named) {
  put_plan();
  static const struct {
    const char *args, *said;
  } ways[] = {
      {"--set 'checkpoint.dir=\"runs\"' --set checkpoint.every=1",
       "runs: has checkpoints already, the last one of step 1: "},
      {"--trace /dev/full", "/dev/full: cannot be written: No space left on device"},
  };
  Outcome o = process_run(60, "$weft run plan.lua --threads 1 --steps 1 --set "
                              "'checkpoint.dir=\"runs\"'");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  for (int i = 0; i < LEN(ways); i++) {
    o = process_run(60, "$weft run plan.lua --threads 1 --steps 1 --procs 4 %s",
                    ways[i].args);
    ck_assert_msg(o.code == 2 && strstr(o.err, ways[i].said), "%d: %s", o.code, o.err);
  }
}
END_TEST

START_TEST(what_is_not_set_is_told) {
  static const struct {
    const char *env, *said;
  } ways[] = {
      {"WEFT_SECRET=x", "MASTER_ADDR is not set"},
      {"MASTER_ADDR=localhost", "MASTER_PORT is not set"},
      {"MASTER_ADDR=localhost MASTER_PORT=29500", "WEFT_SECRET is not set"},
      {"MASTER_ADDR=localhost MASTER_PORT=29500 WEFT_SECRET=x WEFT_JOIN_S=soon",
       "WEFT_JOIN_S=soon in the environment: must be a positive number"},
      {"MASTER_ADDR=no-such-host.invalid MASTER_PORT=29500 WEFT_SECRET=x WEFT_JOIN_S=1",
       "cannot reach rank 0 at no-such-host.invalid:29500"},
      {"MASTER_ADDR=localhost MASTER_PORT=65535 WEFT_SECRET=x "
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "MASTER_PORT=65535: torchrun listens there"},
  };
  put_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o =
        process_run(60, "env RANK=1 WORLD_SIZE=4 %s $weft run plan.lua", ways[i].env);
    ck_assert_int_eq(o.code, 2);
    ck_assert_msg(strstr(o.err, ways[i].said), "%s: %s", ways[i].env, o.err);
  }
}
END_TEST

/* Rank 0 says once that TCP between machines is not for training. Addresses of the
 * loopback are two machines here; on one there is nothing to say. */
START_TEST(tcp_between_machines_is_warned_of) {
  static const char warning[] = "weft: warning: --comm tcp carries data between machines";
  static const char *const other[] = {"", "WEFT_HOST=127.0.0.2"};
  put_plan();
  for (int i = 0; i < LEN(other); i++) {
    Outcome o = process_run(
        60,
        "bash -c 'export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
        "WEFT_SECRET=w; "
        "for r in 1 2; do RANK=$r $weft run plan.lua --threads 1 --steps 2 -q & done; "
        "RANK=3 %s $weft run plan.lua --threads 1 --steps 2 -q & "
        "RANK=0 exec $weft run plan.lua --threads 1 --steps 2 --log run.jsonl'",
        21000 + (getpid() + i) % 9000, other[i]);
    ck_assert_msg(o.code == 0, "%s", o.err);
    const char *said = strstr(o.err, warning);
    ck_assert_msg(!said == !i, "%s", o.err);
    ck_assert_msg(!said || !strstr(said + 1, warning), "%s", o.err);
    ck_assert_msg(!said || strstr(o.err, "weft launch --mpirun"), "%s", o.err);
    ck_assert_int_eq(!strstr(scratch_get(scratch_path("run.jsonl")), "--comm tcp"),
                     !said);
    ck_assert_int_eq(remove(scratch_path("run.jsonl")), 0);
  }
}
END_TEST

/* ---- weft launch ---- */

static const char *const kinds[] = {"slurm", "mpirun", "torchrun"};

static const char *script_of(const char *kind, const char *more) {
  char name[32];
  put_plan();
  snprintf(name, sizeof name, "%s.sh", kind);
  Outcome o = process_run(60, "$weft launch plan.lua --%s -o %s %s", kind, name, more);
  ck_assert_msg(o.code == 0, "%s", o.err);
  return scratch_get(scratch_path(name));
}

/* The shell reads it, quotes hold what is odd, and a file is not written over. */
START_TEST(scripts_can_be_read) {
  const char *more = "-D \"a=it's \\$HOME\" --set train.steps=3 --memory 3.5";
  const char *text = script_of(kinds[_i], more);
  ck_assert_msg(strstr(text, "-D 'a=it'\\''s $HOME' ") != NULL, "%s", text);
  ck_assert_msg(strstr(text, "run 'plan.lua' --set 'train.steps=3'") != NULL, "%s", text);
  ck_assert_msg(strstr(text, " --memory 3.5 --comm ") != NULL, "%s", text);
  ck_assert_ptr_null(strstr(text, "--resume"));
  /* bash before 4.4 ends where an empty array is read. */
  ck_assert_ptr_null(strstr(text, " \"${hosts[@]}\" "));
  Outcome o = process_run(60, "bash -n %s.sh", kinds[_i]);
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = process_run(60, "$weft launch plan.lua --%s -o %s.sh", kinds[_i], kinds[_i]);
  ck_assert_int_ne(o.code, 0);
  ck_assert_msg(strstr(o.err, "cannot be written"), "%s", o.err);
  if (system("command -v shellcheck >/dev/null 2>&1") != 0) {
    printf("launcher: shellcheck is not there, scripts are only parsed\n");
    return;
  }
  o = process_run(60, "shellcheck -S warning %s.sh", kinds[_i]);
  ck_assert_msg(o.code == 0, "%s", o.out);
}
END_TEST

/* Options in the place of the number or the address are no machine. */
START_TEST(scripts_of_torchrun_want_a_machine) {
  script_of("torchrun", "");
  const char *const wrong[] = {"--steps 3", "0 --steps 3", "1 127.0.0.1", "1x 127.0.0.1"};
  for (int i = 0; i < LEN(wrong); i++) {
    Outcome o = process_run(60, "env WEFT_SECRET=x bash torchrun.sh %s", wrong[i]);
    ck_assert_msg(o.code == 2 && strstr(o.err, "K ADDRESS-OF-MACHINE-0"), "%s: %d %s",
                  wrong[i], o.code, o.err);
  }
}
END_TEST

START_TEST(scripts_go_on) {
  const char *text = script_of(kinds[_i], "--set 'checkpoint={dir=\"ck\",every=1}'");
  ck_assert_msg(strstr(text, "--resume auto") != NULL, "%s", text);
  ck_assert_msg(strstr(text, "for attempt in") != NULL, "%s", text);
  Outcome o = process_run(60, "bash -n %s.sh", kinds[_i]);
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

START_TEST(sbatch_asks_for_machines) {
  const char *text = script_of(
      "slurm",
      "--set mesh.dp=4 --set batch.global=16 --set 'cluster={nodes=2,gpu=\"h100-sxm\"}'");
  static const char *const lines[] = {
      "#SBATCH --job-name=small-one\n", "#SBATCH --nodes=2\n",
      "#SBATCH --ntasks=16\n",          "#SBATCH --ntasks-per-node=8\n",
      "#SBATCH --gpus-per-node=8\n",    "#SBATCH --exclusive\n#SBATCH --mem=0\n"};
  for (int i = 0; i < LEN(lines); i++)
    ck_assert_msg(strstr(text, lines[i]) != NULL, "%s: %s", lines[i], text);
}
END_TEST

/* Over ssh mpirun takes along what it is told to. This one prints its arguments. */
static void variables_are_taken_along(const char *kind) {
  static const char stand_in[] = "#!/bin/sh\necho \"$@\"\n";
  static const struct {
    const char *env, *said;
  } ways[] = {
      {"OLD=1", "--bind-to none weft run "},
      {"WEFT_CPU=avx2", "--bind-to none -x WEFT_CPU weft run "},
      {"WEFT_CODES=x WEFT_HOST=y CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=z NCCL_ALGO=Ring",
       "--bind-to none -x NCCL_ALGO weft run "},
      {"WEFT_CPU=avx2 OMPI_MCA_mca_base_env_list=WEFT_CPU", "--bind-to none weft run "},
  };
  scratch_put("mpirun", stand_in, sizeof stand_in - 1);
  for (int i = 0; i < LEN(ways); i++) {
    Outcome o = process_run(60,
                            "sh -c 'chmod +x mpirun; exec env -i PATH=.:$PATH WEFT=weft "
                            "%s bash %s.sh'",
                            ways[i].env, kind);
    ck_assert_msg(o.code == 0 && strstr(o.out, ways[i].said), "%s: %d: %s%s", ways[i].env,
                  o.code, o.out, o.err);
  }
  ck_assert_int_eq(remove(scratch_path("mpirun")), 0);
}

/* Between machines data goes by MPI, also on machines that Slurm gives. */
START_TEST(scripts_of_mpi_run) {
  const char *kind = _i ? "slurm" : "mpirun";
  if (!mpirun_present()) return;
  const char *text = script_of(kind, "");
  ck_assert_msg(strstr(text, "mpirun -n 4 --map-by ppr:4:node") &&
                    strstr(text, " --comm mpi ") && !strstr(text, "MASTER_ADDR"),
                "%s", text);
  variables_are_taken_along(kind);
  Outcome o =
      process_run(60,
                  "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                  "OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0 "
                  "WEFT=$weft bash %s.sh --steps 2 --threads 1",
                  kind);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "step      1") != NULL, "%s%s", o.out, o.err);
}
END_TEST

/* Slurm warns the script, or somebody ends it, and it says so to mpirun: the state is
 * saved, and the script ends and does not begin another attempt. */
START_TEST(scripts_of_mpi_save_in_time) {
  if (!mpirun_present()) return;
  const char *kind = _i ? "mpirun" : "slurm";
  const char *text = script_of(kind, "--set 'checkpoint={dir=\"ck\",every=0}'");
  ck_assert_msg(_i || strstr(text, "#SBATCH --signal=B:USR1@120\n"), "%s", text);
  static const char watch[] =
      "bash $1.sh --threads 1 --log run.jsonl &\nscript=$!\n"
      "for i in $(seq 400); do grep -q '\"step\":' run.jsonl 2>/dev/null && break; "
      "sleep 0.1; done\nkill -$2 $script; wait $script\n";
  scratch_put("watch", watch, sizeof watch - 1);
  Outcome o =
      process_run(60,
                  "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                  "OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0 "
                  "WEFT=$weft bash watch %s",
                  _i ? "mpirun TERM" : "slurm USR1");
  ck_assert_msg(o.code == 138, "%d: %s%s", o.code, o.out, o.err);
  ck_assert_msg(strstr(o.err, "interrupted after ") && !strstr(o.err, "attempt"), "%s",
                o.err);
  o = process_run(20, "$weft ckpt verify ck");
  ck_assert_msg(o.code == 0 && strstr(o.out, ": complete, "), "%s%s", o.out, o.err);
}
END_TEST

/* What srun, whose plugin for MPI is pmi2, and torchrun do to the command that they are
 * given, on this machine. `wait
 * -n` would not know of what ended before it was called. */
#define FOR_FOUR(command)                                                                \
  "code=0 pids=\nfor r in 0 1 2 3; do " command " & pids+=\" $!\"; done\n"               \
  "for p in $pids; do wait $p || code=$?; done\nexit $code\n"

/* By a copy of the program that has no MPI beside it. */
static const char *script_without_mpi(void) {
  put_plan();
  Outcome o = process_run(60, "sh -c 'mkdir alone; cp $weft alone/ && cd alone && "
                              "./weft launch ../plan.lua --slurm -o ../slurm.sh && "
                              "sed -i s,../plan.lua,plan.lua, ../slurm.sh'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  const char *text = scratch_get(scratch_path("slurm.sh"));
  ck_assert_msg(strstr(text, "MPI is not there: "), "%s", text);
  return text;
}

/* The module of MPI may be there without what starts its ranks. */
START_TEST(scripts_without_mpirun) {
  put_plan();
  Outcome o = process_run(60, "env PATH=/nowhere $weft launch plan.lua --slurm");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.out, "# MPI is not there: there is no mpirun in PATH\n") &&
                    strstr(o.out, "\nsrun "),
                "%s", o.out);
}
END_TEST

static Outcome run_script_on(const char *srun, const char *weft, const char *kind,
                             const char *args) {
  /* After the first failure, or when it is told to end, it ends the others; and it ends
   * with 1 whatever their codes are. */
  static const char torchrun[] =
      "#!/bin/bash\nport=\nwhile [[ $1 == --* ]]; do case $1 in --master-port=*) "
      "port=${1#*=};; esac; shift; done\ncode=0 told= pids=()\n"
      "end() { [ \"$told\" ] || kill -TERM \"${pids[@]}\" 2>/dev/null; told=1 code=1; }\n"
      "trap end TERM INT HUP\n"
      "for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT=$port \"$@\" & pids+=($!); done\n"
      "while [ ${#pids[@]} -gt 0 ]; do\n  left=()\n  for p in \"${pids[@]}\"; do\n"
      "    if kill -0 $p 2>/dev/null; then left+=($p); else wait $p || code=1; fi\n"
      "  done\n  pids=(\"${left[@]}\")\n"
      "  if [ $code = 1 ] && [ ${#pids[@]} -gt 0 ]; then end; fi\n  sleep 0.05\n"
      "done\nexit $code\n";
  scratch_put("srun", srun, strlen(srun));
  scratch_put("torchrun", torchrun, strlen(torchrun));
  scratch_put("scontrol", "#!/bin/sh\necho 127.0.0.1\n", 25);
  return process_run(60,
                     "sh -c 'chmod +x srun torchrun scontrol; PATH=.:$PATH PORT=%d "
                     "SLURM_JOB_ID=%d SLURM_JOB_NODELIST=x WEFT_SECRET=w WEFT=%s bash "
                     "%s.sh %s --threads 1'",
                     21000 + getpid() % 9000, getpid(), weft, kind, args);
}

static Outcome run_script_by(const char *weft, const char *kind, const char *args) {
  static const char srun[] =
      "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n" FOR_FOUR(
          "SLURM_STEP_ID=0 SLURM_PROCID=$r SLURM_NTASKS=4 SLURM_LOCALID=$r PMI_RANK=$r "
          "PMI_SIZE=4 \"$@\"");
  return run_script_on(srun, weft, kind, args);
}

static Outcome run_script(const char *kind, const char *args) {
  return run_script_by("$weft", kind, args);
}

/* Its code is that of a run that failed, but it is told once, and no attempt is made;
 * what changes it stands among the arguments of the script. */
START_TEST(a_wrong_plan_is_not_tried) {
  script_of(kinds[_i], "--set 'checkpoint={dir=\"ck\",every=1}'");
  static const char *const wrong[] = {"--set mesh.tp=3", "--set=mesh.tp=3 --threads 1",
                                      "mesh.tp=3", "--threads 1 mesh.tp=3"};
  for (int i = 0; i < LEN(wrong); i++) {
    char args[80];
    snprintf(args, sizeof args, "%s %s", _i == 2 ? "0 127.0.0.1" : "", wrong[i]);
    Outcome o = run_script(kinds[_i], args);
    ck_assert_msg(o.code == 1, "%d: %s", o.code, o.err);
    ck_assert_msg(strstr(o.err, "mesh.tp") && !strstr(o.err, "attempt"), "%s", o.err);
  }
}
END_TEST

/* A launcher that is not there, or weft, is no failure of a machine. */
START_TEST(what_is_not_there_is_not_tried_again) {
  static const char gone[] =
      "#!/bin/sh\n[ \"$1\" != check ] || exit 0\necho run >>runs\nexit 127\n";
  script_of(kinds[_i], "--set 'checkpoint={dir=\"ck\",every=1}'");
  scratch_put("srun", gone, sizeof gone - 1);
  scratch_put("scontrol", "#!/bin/sh\necho 127.0.0.1\n", 25);
  Outcome o = process_run(
      20,
      "sh -c 'chmod +x srun scontrol; cp srun mpirun; cp srun torchrun; exec env "
      "PATH=.:$PATH SLURM_JOB_ID=1 SLURM_JOB_NODELIST=x WEFT_SECRET=w WEFT=./srun bash "
      "%s.sh %s'",
      kinds[_i], _i == 2 ? "0 127.0.0.1" : "");
  ck_assert_msg(o.code == 127 && !strstr(o.err, "attempt"), "%d: %s", o.code, o.err);
  ck_assert_str_eq(scratch_get(scratch_path("runs")), "run\n");
}
END_TEST

/* A word that may be the value of an option is not checked as a field. */
START_TEST(values_are_no_fields) {
  script_of("torchrun", "--set 'checkpoint={dir=\"ck\",every=1}'");
  Outcome o = run_script("torchrun", "0 127.0.0.1 --frobnicate mesh.tp=3 a/mesh.tp=3");
  ck_assert_msg(o.code == 2 && strstr(o.err, "--frobnicate"), "%d: %s", o.code, o.err);
}
END_TEST

START_TEST(other_scripts_run) {
  const char *kind = _i ? "torchrun" : "slurm";
  const char *text = _i ? script_of(kind, "") : script_without_mpi();
  ck_assert_msg(strstr(text, "# Data goes over TCP, which between machines is for first "
                             "runs and for debugging;\n# "),
                "%s", text);
  if (!_i) /* ports of who connects begin at 32768 */
    ck_assert_msg(strstr(text, "MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))\n"), "%s",
                  text);
  if (!_i) /* else a task has one core */
    ck_assert_msg(strstr(text, "srun --kill-on-bad-exit=0 --cpu-bind=none "), "%s", text);
  Outcome o = run_script(kind, _i ? "0 127.0.0.1 --steps 2" : "--steps 2");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "step      1") != NULL, "%s%s", o.out, o.err);
}
END_TEST

/* The name of rank 0's machine may lead to a loopback address there, and to another one
 * elsewhere. This is 127.0.0.2, as a name that is not known to be one. */
START_TEST(rank_0_is_reached_by_its_name) {
  put_plan();
  Outcome o = process_run(
      60,
      "bash -c 'export WORLD_SIZE=4 MASTER_ADDR=127.0.0.3 MASTER_PORT=%d WEFT_SECRET=w; "
      "for r in 1 2 3; do RANK=$r $weft run plan.lua --threads 1 --steps 2 -q & done; "
      "RANK=0 MASTER_ADDR=0x7f000002 exec $weft run plan.lua --threads 1 --steps 2'",
      21000 + getpid() % 9000);
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

/* Where the cluster names a GPU ranks run on it, or as --device says. */
START_TEST(scripts_for_gpus) {
  const char *cluster = "--set 'cluster={nodes=1,gpus=4,gpu=\"h100-sxm\"}'";
  const char *text = script_of(kinds[_i], cluster);
  ck_assert_msg(strstr(text, " --comm nccl --device cuda ") != NULL, "%s", text);
  ck_assert_msg(_i || strstr(text, "#SBATCH --gpus-per-node=4\n"), "%s", text);
  ck_assert_ptr_null(strstr(text, "Data goes over TCP"));
  remove(scratch_path(_i == 0 ? "slurm.sh" : _i == 1 ? "mpirun.sh" : "torchrun.sh"));
  text = script_of(kinds[_i],
                   "--set 'cluster={nodes=1,gpus=4,gpu=\"h100-sxm\"}' --device cpu");
  ck_assert_ptr_null(strstr(text, "--device cuda"));
  ck_assert_ptr_null(strstr(text, "--gpus-per-node"));
  remove(scratch_path(_i == 0 ? "slurm.sh" : _i == 1 ? "mpirun.sh" : "torchrun.sh"));
  text = script_of(kinds[_i], "--device cuda");
  ck_assert_msg(strstr(text, " --comm nccl --device cuda ") != NULL, "%s", text);
  ck_assert_msg(_i || strstr(text, "#SBATCH --gpus-per-node=4\n"), "%s", text);
  Outcome o = process_run(60, "$weft launch plan.lua --%s --device gpu", kinds[_i]);
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "gpu"), "%s", o.err);
}
END_TEST

/* Nothing can be preloaded before the address sanitizer. */
#ifdef __SANITIZE_ADDRESS__
enum { PRELOADS = false };
#else
enum { PRELOADS = true };
#endif

/* By mpirun, and by srun and torchrun as above, on stand-ins of GPUs and NCCL. MPI may be
 * the first to call CUDA, which reads then how many connections there shall be. */
START_TEST(scripts_run_on_gpus) {
  if (access(WEFT_BINARY_DIR "/standin/weft_nccl.so", F_OK) != 0) {
    printf("launcher: there is no stand-in of NCCL, so no script for GPUs is run\n");
    return;
  }
  bool mpirun = strcmp(kinds[_i], "mpirun") == 0;
  if (mpirun && !mpirun_present()) return;
  script_of(kinds[_i], "--device cuda --set precision=f32");
  Outcome o = process_run(60, "sh -c 'cp $weft weft; ln -sf " WEFT_BINARY_DIR
                              "/standin/weft_cuda.so " WEFT_BINARY_DIR
                              "/standin/weft_nccl.so " WEFT_BINARY_DIR "/weft_mpi.so .'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  setenv("WEFT_STANDIN", "gpus=4", 1);
  if (mpirun)
    o = process_run(120,
                    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                    "OMPI_MCA_rmaps_base_oversubscribe=1 ASAN_OPTIONS=detect_leaks=0 "
                    "%s WEFT=./weft bash mpirun.sh --steps 2 --threads 1",
                    PRELOADS ? "LD_PRELOAD=" WEFT_BINARY_DIR "/cuda_mpi.so" : "");
  else
    o = run_script_by("./weft", kinds[_i],
                      _i == 2 ? "0 127.0.0.1 --steps 2" : "--steps 2");
  unsetenv("WEFT_STANDIN");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  if (mpirun && PRELOADS)
    ck_assert_msg(strstr(o.err, "MPI_Init_thread: 32 connections\n"), "%s", o.err);
  ck_assert_msg(strstr(o.err, "4 ranks (nccl)") != NULL, "%s%s", o.out, o.err);
  ck_assert_msg(strstr(o.out, "step      1") != NULL, "%s%s", o.out, o.err);
}
END_TEST

/* A checkpoint that is not whole is gone back behind, and one that cannot be written is
 * tried again. The log has all runs. */
START_TEST(scripts_live_with_lost_checkpoints) {
  script_of("torchrun", "--set 'checkpoint={dir=\"ck\",every=1}'");
  Outcome o = run_script("torchrun", "0 127.0.0.1 --steps 2 --log=run.jsonl");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_int_eq(remove(scratch_path("ck/step-00000002/rank-00003.safetensors")), 0);
  o = run_script("torchrun", "0 127.0.0.1 --steps 3 --log=run.jsonl");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  ck_assert_msg(
      strstr(o.err, "step-00000002 is incomplete or damaged and is skipped: ") &&
          strstr(o.err, "resumes from step 1 "),
      "%s", o.err);
  const char *log = scratch_get(scratch_path("run.jsonl"));
  const char *start = strstr(log, "\"event\":\"start\""), *second;
  second = start ? strstr(start + 1, "\"event\":\"start\"") : NULL;
  ck_assert_msg(second && strstr(second, "\"step\":2,"), "%s", log);
  ck_assert_int_eq(
      process_run(20, "sh -c 'mkdir ck/step-00000004.tmp; echo >ck/step-00000004.tmp/x'")
          .code,
      0);
  o = run_script("torchrun", "0 127.0.0.1 --steps 4");
  ck_assert_msg(o.code == 1 && strstr(o.err, "attempt 5 ended with 1\n"), "%d: %s",
                o.code, o.err);
  ck_assert_msg(strstr(o.err, "the last checkpoint, of step 4, was not written: "), "%s",
                o.err);
}
END_TEST

/* What torchrun hides: that no attempt helps, and that the script was told to end. */
START_TEST(scripts_of_torchrun_know_why) {
  script_of("torchrun", "--set 'checkpoint={dir=\"ck\",every=0}'");
  Outcome o = run_script("torchrun", "0 127.0.0.1 --frobnicate");
  ck_assert_msg(o.code == 2 && !strstr(o.err, "attempt"), "%d: %s", o.code, o.err);
  static const char watch[] =
      "bash torchrun.sh \"$@\" --log run.jsonl &\nscript=$!\n"
      "for i in $(seq 400); do grep -q '\"step\":' run.jsonl 2>/dev/null && break; "
      "sleep 0.1; done\nkill -TERM $script; wait $script\n";
  scratch_put("watch.sh", watch, sizeof watch - 1);
  o = run_script("watch", "0 127.0.0.1");
  ck_assert_msg(o.code == 143 && !strstr(o.err, "attempt"), "%d: %s", o.code, o.err);
  ck_assert_msg(strstr(o.err, "checkpoint of step "), "%s", o.err);
}
END_TEST

/* One that lets nobody end it by SIGTERM. A program in the background of a script ignores
 * SIGINT unless it says what it does then, which a script cannot. */
START_TEST(a_second_interrupt_reaches_the_launcher) {
  static const char stubborn[] =
      "#!/usr/bin/perl\n$SIG{TERM} = 'IGNORE'; $SIG{INT} = sub { exit 1 };\n"
      "open(F, '>', 'there'); close(F); sleep 1 while 1;\n";
  script_of("torchrun", "--set 'checkpoint={dir=\"ck\",every=0}'");
  scratch_put("torchrun", stubborn, sizeof stubborn - 1);
  process_run(10, "chmod +x torchrun");
  Process p = process_start(30, "env PATH=.:$PATH WEFT_SECRET=w WEFT=$weft "
                                "bash torchrun.sh 0 127.0.0.1");
  for (int i = 0; i < 1000 && access(scratch_path("there"), F_OK) != 0; i++)
    usleep(20000);
  kill(p.pid, SIGINT);
  usleep(300000);
  ck_assert_int_eq(kill(p.pid, 0), 0);
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1 && strstr(o.err, "attempt 1 ended with 1"), "%d: %s", o.code,
                o.err);
  ck_assert_msg(!strstr(o.err, "attempt 2"), "%s", o.err);
}
END_TEST

/* srun returns the largest code, that of a rank that was killed. The first time this one
 * kills rank 1, once there is a checkpoint. */
START_TEST(scripts_go_on_without_a_rank) {
  static const char srun[] =
      "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n"
      "steps=100000 code=0 pids=()\n"
      "last=$(ls -d ck/step-???????? 2>/dev/null | tail -n 1)\n"
      "[ -z \"$last\" ] || steps=$((10#${last#ck/step-} + 2))\n"
      "for r in 0 1 2 3; do SLURM_STEP_ID=0 SLURM_PROCID=$r SLURM_NTASKS=4 "
      "SLURM_LOCALID=$r \"$@\" --steps $steps & pids+=($!); done\n"
      "while [ -z \"$last\" ] && ! ls ck/step-???????? >/dev/null 2>&1; do sleep 0.1; "
      "done\n[ -n \"$last\" ] || kill -KILL ${pids[1]}\n"
      "for p in ${pids[@]}; do wait $p; c=$?; [ $c -le $code ] || code=$c; done\n"
      "exit $code\n";
  put_plan();
  Outcome o = process_run(60, "sh -c 'mkdir alone; cp $weft alone/ && cd alone && "
                              "./weft launch ../plan.lua --slurm -o ../slurm.sh --set "
                              "\"checkpoint={dir=\\\"ck\\\",every=1}\" && "
                              "sed -i s,../plan.lua,plan.lua, ../slurm.sh'");
  ck_assert_msg(o.code == 0, "%s", o.err);
  o = run_script_on(srun, "$weft", "slurm", "--log run.jsonl --tensorboard events");
  ck_assert_msg(o.code == 0, "%d: %s", o.code, o.err);
  ck_assert_msg(strstr(o.err, "the process of rank 1 has ended"), "%s", o.err);
  ck_assert_msg(strstr(o.err, "attempt 1 ended with 137\n"), "%s", o.err);
  ck_assert_msg(strstr(o.err, "resumes from step "), "%s", o.err);
}
END_TEST

START_TEST(one_kind_of_script) {
  put_plan();
  Outcome o = process_run(60, "$weft launch plan.lua");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "launch takes one of --slurm, --mpirun and --torchrun"),
                "%s", o.err);
}
END_TEST

/* ---- --trace ---- */

enum { RANKS = 4, TRACKS = 64 };

typedef struct Seen {
  int steps, kernels, calls, moves, waits;
  double begin;       /* of the first event */
  double end[TRACKS]; /* of the last event of each track */
} Seen;

static const char *text_of(const json_t *o, const char *key) {
  const char *s = json_string_value(json_object_get(o, key));
  return s ? s : "";
}

/* Every rank has its steps; calls lie in steps, kernels in calls; a queue does one thing
 * at a time. */
static void look_at(const json_t *ev, Seen *seen) {
  int pid = (int)json_integer_value(json_object_get(ev, "pid"));
  int tid = (int)json_integer_value(json_object_get(ev, "tid"));
  double ts = json_number_value(json_object_get(ev, "ts"));
  double dur = json_number_value(json_object_get(ev, "dur"));
  const char *cat = text_of(ev, "cat");
  ck_assert(pid >= 0 && pid < RANKS && tid >= 0 && tid < TRACKS);
  Seen *s = &seen[pid];
  if (strcmp(text_of(ev, "ph"), "X") != 0) return;
  ck_assert_msg(dur >= 0 && ts >= 0, "rank %d: %g from %g on", pid, dur, ts);
  s->begin = MIN(s->begin, ts);
  s->steps += strcmp(cat, "step") == 0;
  s->kernels += strcmp(cat, "kernel") == 0;
  s->calls += strcmp(cat, "call") == 0;
  s->waits += strcmp(cat, "wait") == 0;
  if (strcmp(cat, "transfer") != 0) return;
  s->moves++;
  ck_assert_msg(tid > 0 && ts >= s->end[tid] - 0.01, "track %d of rank %d: two at a time",
                tid, pid);
  s->end[tid] = ts + dur;
}

static const char *const ways[] = {"", "--procs 4", "mpi"};

START_TEST(traces_show_all_ranks) {
  Seen seen[RANKS] = {{0}};
  put_plan();
  double begin = 1e9;
  for (int i = 0; i < RANKS * TRACKS; i++) seen[i / TRACKS].end[i % TRACKS] = -1e9;
  for (int r = 0; r < RANKS; r++) seen[r].begin = begin;
  bool mpi = strcmp(ways[_i], "mpi") == 0;
  if (mpi && !mpirun_present()) return;
  Outcome o =
      mpi ? process_run(60,
                        MPIRUN " $weft run plan.lua --steps 3 --threads 1 --trace t.json",
                        RANKS)
          : process_run(60, "$weft run plan.lua --steps 3 --threads 1 --trace t.json %s",
                        ways[_i]);
  ck_assert_msg(o.code == 0, "%s", o.err);
  json_error_t why;
  json_t *all = json_load_file(scratch_path("t.json"), 0, &why);
  ck_assert_msg(all != NULL, "line %d: %s", why.line, why.text);
  const json_t *events = json_object_get(all, "traceEvents");
  for (size_t i = 0; i < json_array_size(events); i++)
    look_at(json_array_get(events, i), seen);
  for (int r = 0; r < RANKS; r++) {
    ck_assert_int_eq(seen[r].steps, 3);
    ck_assert_int_ge(seen[r].calls, 3 * 2 * 4 * 2); /* F and B of four microbatches */
    ck_assert_int_gt(seen[r].kernels, seen[r].calls);
    ck_assert_int_ge(seen[r].waits, seen[r].moves);
    ck_assert_int_eq(seen[r].moves % 3, 0);
    begin = MIN(begin, seen[r].begin);
  }
  ck_assert_double_eq(begin, 0); /* the first event of any rank is at 0 */
  const char *text = scratch_get(scratch_path("t.json"));
  ck_assert_ptr_nonnull(strstr(text, "\"rank 3 (pp 1, dp 0, tp 1)\""));
  ck_assert_ptr_nonnull(strstr(text, "\"unit\":\"layers.1\""));
  ck_assert_ptr_nonnull(strstr(text, "all_reduce(tp) of "));
  json_decref(all);
}
END_TEST

/* What a run has done until it was interrupted is shown, with and without a checkpoint;
 * an export, which is none of a trained model, is told not to be there. */
START_TEST(traces_of_interrupted_runs) {
  const char *const ways[] = {"--export e", "--set 'checkpoint={dir=\"ck\",every=0}'",
                              "--procs 4"};
  put_plan();
  for (int i = 0; i < LEN(ways); i++) {
    Process p =
        process_start(60, "$weft run plan.lua --threads 1 --trace t.json %s", ways[i]);
    ck_assert(process_wait_for(&p, p.out, "step"));
    kill(p.pid, SIGINT);
    Outcome o = process_end(&p);
    ck_assert_msg(o.code == 130, "code %d: %s", o.code, o.err);
    ck_assert_int_eq(!strstr(o.err, "weft: warning: e: nothing was exported"), i != 0);
    json_error_t why;
    json_t *all = json_load_file(scratch_path("t.json"), 0, &why);
    ck_assert_msg(all != NULL, "%s: line %d: %s", o.err, why.line, why.text);
    ck_assert_int_gt(json_array_size(json_object_get(all, "traceEvents")), 20);
    json_decref(all);
    ck_assert_int_eq(remove(scratch_path("t.json")), 0);
  }
}
END_TEST

Suite *launcher_suite(void);
Suite *launcher_suite(void) {
  Suite *s = suite_create("launcher");
  TCase *t = tcase_create("program");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_test(t, processes_are_as_threads);
  tcase_add_test(t, another_number_is_refused);
  tcase_add_test(t, what_a_shell_has_left_does_no_harm);
  tcase_add_test(t, a_shell_has_left_the_rank_of_all);
  tcase_add_test(t, another_mpi_is_told);
  tcase_add_test(t, an_error_of_rank_0_ends_all_at_once);
  tcase_add_test(t, signals_are_passed_on);
  tcase_add_test(t, an_early_signal_is_passed_on);
  tcase_add_test(t, the_second_signal_ends_a_step);
  tcase_add_test(t, files_of_errors_are_named);
  tcase_add_test(t, what_is_not_set_is_told);
  tcase_add_test(t, tcp_between_machines_is_warned_of);
  tcase_add_loop_test(t, scripts_can_be_read, 0, LEN(kinds));
  tcase_add_loop_test(t, scripts_go_on, 0, LEN(kinds));
  tcase_add_loop_test(t, a_wrong_plan_is_not_tried, 0, LEN(kinds));
  tcase_add_loop_test(t, what_is_not_there_is_not_tried_again, 0, LEN(kinds));
  tcase_add_test(t, values_are_no_fields);
  tcase_add_test(t, scripts_of_torchrun_want_a_machine);
  tcase_add_test(t, sbatch_asks_for_machines);
  tcase_add_loop_test(t, scripts_of_mpi_run, 0, 2);
  tcase_add_loop_test(t, scripts_of_mpi_save_in_time, 0, 2);
  tcase_add_loop_test(t, other_scripts_run, 0, 2);
  tcase_add_test(t, scripts_without_mpirun);
  tcase_add_test(t, rank_0_is_reached_by_its_name);
  tcase_add_loop_test(t, scripts_for_gpus, 0, LEN(kinds));
  tcase_add_loop_test(t, scripts_run_on_gpus, 0, LEN(kinds));
  tcase_add_test(t, scripts_live_with_lost_checkpoints);
  tcase_add_test(t, scripts_of_torchrun_know_why);
  tcase_add_test(t, a_second_interrupt_reaches_the_launcher);
  tcase_add_test(t, scripts_go_on_without_a_rank);
  tcase_add_test(t, one_kind_of_script);
  tcase_add_loop_test(t, traces_show_all_ranks, 0, LEN(ways));
  tcase_add_test(t, traces_of_interrupted_runs);
  suite_add_tcase(s, t);
  return s;
}
