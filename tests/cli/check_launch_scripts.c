/* check_launch_scripts.c - scripts of weft launch: what they say, and that they run. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/launched.h"
#include "tests/harness/port.h"
#include "tests/harness/process.h"
#include "tests/ranks/mpirun.h"

static const char *const kinds[] = {"slurm", "mpirun", "torchrun"};

static const char *script_of(const char *kind, const char *more) {
  char name[32];
  launched_plan();
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
  launched_plan();
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
  launched_plan();
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
  int port = port_free(); /* which a script for Slurm makes of the number of its job */
  return process_run(60,
                     "sh -c 'chmod +x srun torchrun scontrol; PATH=.:$PATH PORT=%d "
                     "SLURM_JOB_ID=%d SLURM_JOB_NODELIST=x WEFT_SECRET=w WEFT=%s bash "
                     "%s.sh %s --threads 1'",
                     port, port - 20000, weft, kind, args);
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
  launched_plan();
  Outcome o = process_run(
      60,
      "bash -c 'export WORLD_SIZE=4 MASTER_ADDR=127.0.0.3 MASTER_PORT=%d WEFT_SECRET=w; "
      "for r in 1 2 3; do RANK=$r $weft run plan.lua --threads 1 --steps 2 -q & done; "
      "RANK=0 MASTER_ADDR=0x7f000002 exec $weft run plan.lua --threads 1 --steps 2'",
      port_free());
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

/* One that lets nobody end it by SIGTERM, and notes that it was told. A program in the
 * background of a script ignores SIGINT unless it says what it does then, which a script
 * cannot. */
static Process stubborn_torchrun(const char *env) {
  static const char stubborn[] =
      "#!/usr/bin/perl\nsub made { open(F, '>', $_[0]); close(F) }\n"
      "$SIG{TERM} = sub { made('told') }; $SIG{INT} = sub { exit 1 };\n"
      "made('there'); sleep 1 while 1;\n";
  script_of("torchrun", "--set 'checkpoint={dir=\"ck\",every=0}'");
  scratch_put("torchrun", stubborn, sizeof stubborn - 1);
  process_run(10, "chmod +x torchrun");
  return process_start(30,
                       "env PATH=.:$PATH WEFT_SECRET=w WEFT=$weft %s "
                       "bash torchrun.sh 0 127.0.0.1",
                       env);
}

static void wait_for_file(const char *name) {
  for (int i = 0; i < 1000 && access(scratch_path(name), F_OK) != 0; i++) usleep(20000);
  ck_assert_msg(access(scratch_path(name), F_OK) == 0, "no %s", name);
}

START_TEST(a_second_interrupt_reaches_the_launcher) {
  Process p = stubborn_torchrun("");
  wait_for_file("there");
  kill(p.pid, SIGINT);
  wait_for_file("told");
  ck_assert_int_eq(kill(p.pid, 0), 0);
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1 && strstr(o.err, "attempt 1 ended with 1"), "%d: %s", o.code,
                o.err);
  ck_assert_msg(!strstr(o.err, "attempt 2"), "%s", o.err);
}
END_TEST

/* A launcher that ends while the script passes the signal on has a code of its own, which
 * is not that of the signal. This shell is slow to pass on. */
START_TEST(the_code_is_of_what_ended) {
  Process p = stubborn_torchrun(
      "'BASH_FUNC_kill%%=() { builtin kill \"$@\"; local c=$?; sleep 0.5; return $c; }'");
  wait_for_file("there");
  kill(p.pid, SIGINT);
  wait_for_file("told");
  kill(p.pid, SIGINT);
  Outcome o = process_end(&p);
  ck_assert_msg(o.code == 1 && strstr(o.err, "attempt 1 ended with 1"), "%d: %s", o.code,
                o.err);
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
  launched_plan();
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
  launched_plan();
  Outcome o = process_run(60, "$weft launch plan.lua");
  ck_assert_int_eq(o.code, 2);
  ck_assert_msg(strstr(o.err, "launch takes one of --slurm, --mpirun and --torchrun"),
                "%s", o.err);
}
END_TEST

Suite *launch_scripts_suite(void);
Suite *launch_scripts_suite(void) {
  Suite *s = suite_create("launch_scripts");
  TCase *t = tcase_create("scripts");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
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
  tcase_add_test(t, the_code_is_of_what_ended);
  tcase_add_test(t, scripts_go_on_without_a_rank);
  tcase_add_test(t, one_kind_of_script);
  suite_add_tcase(s, t);
  return s;
}
