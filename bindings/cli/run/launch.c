/* launch.c - weft launch: writes a script that starts a plan on the machines of a
 * cluster. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/cli/cli.h"
#include "vm/io/file.h"
#include "vm/base/plural.h"

/* What the script needs to know. */
typedef struct Launch {
  const Cli *cli;
  Job job;
  int ranks, per_node, nodes;
  bool cuda;     /* ranks run on them, and NCCL carries what they exchange */
  bool resumes;  /* the plan has checkpoints to resume from */
  bool mpi;      /* data goes over MPI */
  bool warned;   /* the script is told when its time is nearly up */
  bool batch;    /* the script has no terminal */
  bool coded;    /* ranks leave their codes, which the launcher does not pass on */
  char name[64]; /* job name: letters, digits, - and _ */
  Text out;
} Launch;

/* Quotes a string for the shell. */
static void put_quoted(Text *out, const char *s) {
  text_add(out, "'");
  for (; *s; s++)
    if (*s == '\'')
      text_add(out, "'\\''");
    else
      text_addn(out, s, 1);
  text_add(out, "'");
}

static void put_list(Launch *l, const char *option, const char *const *list, int n) {
  for (int i = 0; i < n; i++) {
    text_printf(&l->out, " %s ", option);
    put_quoted(&l->out, list[i]);
  }
}

/* The plan, with the options of this verb. */
static void put_plan(Launch *l) {
  put_quoted(&l->out, l->cli->arg[0]);
  put_list(l, "--set", l->cli->set, l->cli->nset);
  put_list(l, "-D", l->cli->define, l->cli->ndefine);
  put_list(l, "--data", l->cli->data, l->cli->ndata);
  if (l->cli->memory > 0) text_printf(&l->out, " --memory %.15g", l->cli->memory);
}

/* "weft run PLAN ...". */
static void put_run(Launch *l, const char *comm) {
  if (l->cuda) comm = "nccl --device cuda";
  text_add(&l->out, "\"${WEFT:-weft}\" run ");
  put_plan(l);
  text_printf(&l->out, " --comm %s%s \"$@\"%s", comm, l->resumes ? " --resume auto" : "",
              l->resumes ? " $append" : "");
}

static void put_title(Launch *l, const char *use) {
  char mesh[128];
  text_printf(&l->out, "# %s: %s on %d machine%s of %d. By weft launch.\n", l->name,
              format_mesh_ranks(&l->job.mesh, mesh), l->nodes, plural(l->nodes, "s"),
              l->per_node);
  text_printf(&l->out, "# %s; what follows goes to weft run.\n", use);
}

/* A run refuses a log that another one has begun, unless it is told to add to it: one
 * that resumes does. */
static void put_append(Launch *l) {
  text_add(&l->out, "# A log is added to by the run that goes on.\nappend=\n"
                    "for word in \"$@\"; do\n  case $word in --log | --log=* | "
                    "--tensorboard | --tensorboard=*) append=--append ;; esac\ndone\n");
}

/* A plan that is wrong and a machine that failed end a run with the same code, so the
 * plan is checked first, once, with the options among the arguments of the script that
 * plans have. Only the code of a wrong plan counts: this machine need not be one of those
 * that run, which have the files of the plan. */
static void put_check(Launch *l) {
  text_add(
      &l->out,
      "# A plan that is wrong is not tried.\noptions=() value='' last=''\n"
      "for word in \"$@\"; do\n"
      "  if [ \"$value\" ]; then options+=(\"$word\") value='' last=''; continue; fi\n"
      "  case $word in\n"
      "  --set | -D | --data | --memory) options+=(\"$word\") value=1 ;;\n"
      "  --set=* | -D* | --data=* | --memory=*) options+=(\"$word\") ;;\n"
      "  [A-Za-z_]*=*) # a field, unless it may be the value of another option\n"
      "    case ${word%%=*}$last in */* | *-*) ;; *) options+=(\"$word\") ;; esac ;;\n"
      "  esac\n  case $word in -*=*) last='' ;; -*) last=- ;; *) last='' ;; esac\n"
      "done\ncode=0\nsaid=$(\"${WEFT:-weft}\" check --quiet ");
  put_plan(l);
  if (l->cuda) text_add(&l->out, " --device cuda");
  text_add(&l->out,
           " ${options[@]+\"${options[@]}\"} 2>&1) || code=$?\n"
           "if [ \"$code\" = 1 ]; then printf '%s\\n' \"$said\" >&2; exit 1; fi\n");
}

/* A signal that asks the script to end goes to the launcher, once, as one on which it
 * lets the ranks save: mpirun and srun pass on SIGUSR1, and kill the ranks on others. So
 * Slurm, whose warning reaches none of the ranks that mpirun has started, warns the
 * script. The second Ctrl-C is of somebody who does not want to wait. */
static void put_signals(Launch *l) {
  text_printf(&l->out,
              "# A signal that asks to end is passed on, and no other attempt is made.\n"
              "run='' asked='' told=''\npass_on() {\n"
              "  if [ \"$asked\" ] && [ \"$run\" ] && [ -z \"$told\" ]; then\n"
              "    told=1\n    kill -s %s \"$run\" 2>/dev/null || :\n  fi\n}\n"
              "trap 'asked=1; pass_on' HUP TERM USR1\n"
              "pressed=''\ntrap 'pressed+=1\n  case $pressed in\n"
              "  1) asked=1; pass_on ;;\n  11) kill -s INT \"$run\" ;;\n"
              "  *) kill -s KILL -- \"-$run\" ;;\n  esac 2>/dev/null || :' INT\n",
              l->mpi || l->batch ? "USR1" : "TERM");
}

/* torchrun ends with 1 whatever has happened, so its ranks leave their codes. It sends
 * SIGTERM to the other ranks of its machine after the first failure: the code of a signal
 * counts only where all ranks have one. */
static void put_codes(Launch *l) {
  text_printf(&l->out,
              "# torchrun ends with 1 after any failure; weft run leaves its codes.\n"
              "WEFT_CODES=$(mktemp -d)\nexport WEFT_CODES\n"
              "trap 'rm -rf \"$WEFT_CODES\"' EXIT\ncode_of_ranks() {\n"
              "  local r c n=0 signal=''\n"
              "  for ((r = 0; r < %d; r++)); do\n"
              "    [ -e \"$WEFT_CODES/$r\" ] || continue\n"
              "    c=$(cat \"$WEFT_CODES/$r\") n=$((n + 1))\n"
              "    case $c in\n    0) ;;\n"
              "    129 | 130 | 138 | 143) signal=${signal:-$c} ;;\n"
              "    *) code=$c; return ;;\n    esac\n  done\n"
              "  if [ \"$n\" = %d ] && [ \"$signal\" ]; then code=$signal; fi\n}\n",
              l->ranks, l->per_node);
}

/* Ctrl-C would reach the launcher, too, which may end the ranks at once; one with a
 * session of its own is told by the script only. Slurm keeps no terminal. A signal ends
 * `wait` with the signal's code, also where the run ends meanwhile: the shell keeps the
 * code of the run for another `wait`. */
#define PASS_ON                                                                          \
  " &\n  run=$!\n  pass_on\n"                                                            \
  "  while wait \"$run\"; kill -0 \"$run\" 2>/dev/null; do :; done\n"                    \
  "  code=0\n  wait \"$run\" || code=$?\n  run=''\n"

/* A loop that restarts the run after failures of machines, but not for a plan that is
 * wrong, nor after errors of files and options, limits and signals. */
static void put_attempts(Launch *l, void (*put_command)(Launch *l)) {
  if (!l->resumes) {
    put_command(l);
    text_add(&l->out, "\n");
    return;
  }
  put_append(l);
  put_check(l);
  put_signals(l);
  if (l->coded) put_codes(l);
  text_add(&l->out,
           "# Resumes from the last checkpoint if machines fail: code 2 is of files and "
           "options,\n# 3 of a limit, 126 and 127 of a command that is not there, 129, "
           "130, 138 and 143\n# of a signal that asked to end.\n"
           "for attempt in 1 2 3 4 5; do\n");
  if (l->coded) text_add(&l->out, "  rm -f \"$WEFT_CODES\"/*\n");
  text_add(&l->out, l->batch ? "  " : "  setsid ");
  put_command(l);
  text_add(&l->out, PASS_ON);
  if (l->coded) text_add(&l->out, "  [ \"$code\" = 0 ] || code_of_ranks\n");
  text_add(&l->out,
           "  case $code in\n  0 | 2 | 3 | 126 | 127 | 129 | 130 | 138 | 143) exit "
           "\"$code\" ;;\n  esac\n"
           "  echo \"attempt $attempt ended with $code\" >&2\n"
           "  [ -z \"$asked\" ] || break\n"
           "done\nexit \"$code\"\n");
}

/* Over ssh Open MPI takes along its own variables alone. What is of one machine stays
 * there. An array that is empty is not set in bash before 4.4. */
static void put_variables(Launch *l) {
  text_add(&l->out,
           "# Variables that all machines get.\npass=()\n"
           "for word in $(compgen -e); do\n  case $word in\n"
           "  WEFT_CODES | WEFT_HOST | CUDA_VISIBLE_DEVICES | NCCL_HOSTID | NCCL_TOPO_* "
           "| NCCL_GRAPH_* | NCCL_CONF_FILE) ;;\n"
           "  WEFT_* | NCCL_* | OMP_* | GOMP_* | CUDA_* | HF_*) pass+=(-x \"$word\") ;;\n"
           "  esac\ndone\n"
           "[ -z \"${OMPI_MCA_mca_base_env_list:-}\" ] || pass=() # one list alone\n");
}

static void put_mpi(Launch *l, const char *hosts) {
  text_printf(&l->out,
              "mpirun -n %d --map-by ppr:%d:node --bind-to none "
              "${pass[@]+\"${pass[@]}\"} %s",
              l->ranks, l->per_node, hosts);
  put_run(l, "mpi");
}

/* `why`: the reason why there is no MPI; its first line is used. */
static void put_tcp_note(Launch *l, const char *why) {
  text_add(&l->out,
           "# Data goes over TCP, which between machines is for first runs and for "
           "debugging;\n");
  if (why)
    text_printf(&l->out, "# MPI is not there: %.*s\n", (int)strcspn(why, "\n"), why);
  else
    text_add(&l->out, "# --slurm and --mpirun write scripts for MPI.\n");
}

/* ---- Slurm ---- */

/* mpirun finds the machines of a Slurm allocation; srun starts MPI ranks only if it was
 * built for this MPI. Ranks are not bound to cores: to srun a task is one CPU unless it
 * is told how many, and threads of a rank, and NCCL's, would share it. Nor does srun end
 * the other ranks: they end by themselves, once it is said why, while srun kills them at
 * the first that ends, and returns the code of that (137). */
static void put_slurm_command(Launch *l) {
  if (l->mpi) {
    put_mpi(l, "");
    return;
  }
  text_add(&l->out, "srun --kill-on-bad-exit=0 --cpu-bind=none ");
  put_run(l, "tcp");
}

/* Whether a program of this name is in a folder of PATH. */
static bool has_program(Arena *a, const char *name) {
  const char *path = getenv("PATH");
  for (size_t n; path && *path; path += n + (path[n] == ':')) {
    n = strcspn(path, ":");
    const char *folder = n ? arena_strn(a, path, n) : ".";
    if (access(arena_printf(a, "%s/%s", folder, name), X_OK) == 0) return true;
  }
  return false;
}

/* Whether this machine, where the script is written, has MPI: the library and what starts
 * its ranks. Ranks of GPUs meet over TCP: that carries what NCCL needs to begin. */
static void choose_mpi(Launch *l, weft_error *why) {
  if (has_program(l->job.arena, "mpirun"))
    l->mpi = !l->cuda && world_kind("mpi", NULL)->load(why);
  else
    err_set(why, WEFT_EUSAGE, "there is no mpirun in PATH");
  l->warned = l->mpi && l->resumes;
}

static void put_slurm(Launch *l) {
  Text *out = &l->out;
  weft_error why = NO_ERROR;
  choose_mpi(l, &why);
  l->batch = true;
  text_add(out, "#!/bin/bash\n");
  put_title(l, "sbatch FILE");
  text_printf(out, "#SBATCH --job-name=%s\n", l->name);
  text_printf(out, "#SBATCH --nodes=%d\n", l->nodes);
  text_printf(out, "#SBATCH --ntasks=%d\n", l->ranks);
  text_printf(out, "#SBATCH --ntasks-per-node=%d\n", l->per_node);
  if (l->cuda) text_printf(out, "#SBATCH --gpus-per-node=%d\n", l->per_node);
  /* --exclusive is not of memory. */
  text_add(out, "#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH --open-mode=append\n");
  text_printf(out, "#SBATCH --output=%s-%%j.log\n", l->name);
  if (l->resumes)
    text_printf(out, "#SBATCH --requeue\n#SBATCH --signal=%s@120\n",
                l->warned ? "B:USR1" : "TERM");
  text_add(out, "set -euo pipefail\n");
  if (!l->mpi && !l->cuda) put_tcp_note(l, why.text);
  if (!l->mpi) /* a port below 32768: above, Linux gives them to outgoing connections */
    text_add(
        out,
        "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))\n"
        "WEFT_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n"
        "export MASTER_ADDR MASTER_PORT WEFT_SECRET\n");
  if (l->mpi) put_variables(l);
  put_attempts(l, put_slurm_command);
}

/* ---- mpirun ---- */

static void put_mpirun_command(Launch *l) { put_mpi(l, "${hosts[@]+\"${hosts[@]}\"} "); }

static void put_mpirun(Launch *l) {
  l->mpi = true;
  text_add(&l->out, "#!/bin/bash\n");
  put_title(l, "HOSTS=FILE bash FILE, where HOSTS lists the machines of Open MPI");
  text_add(&l->out, "set -euo pipefail\n"
                    "hosts=()\n"
                    "if [ -n \"${HOSTS:-}\" ]; then hosts=(--hostfile \"$HOSTS\"); fi\n");
  put_variables(l);
  put_attempts(l, put_mpirun_command);
}

/* ---- torchrun ---- */

static void put_torchrun_command(Launch *l) {
  text_printf(
      &l->out,
      "torchrun --no-python --nnodes=%d --nproc-per-node=%d \\\n"
      "  --node-rank=\"$node\" --master-addr=\"$master\" --master-port=\"$port\" ",
      l->nodes, l->per_node);
  put_run(l, "tcp");
}

/* An option in the place of the machine's number would be dropped with what follows it.
 */
static void put_machine(Launch *l) {
  text_printf(
      &l->out,
      "node=${1:-0} master=${2:-127.0.0.1} port=${PORT:-29500}\n"
      "if [[ ! $node =~ ^[0-9]+$ || $node -ge %d || $master == -* ]]; then\n"
      "  echo \"usage: WEFT_SECRET=WORD bash $0 K ADDRESS-OF-MACHINE-0 [OPTION...], with "
      "K from 0 to %d\" >&2\n  exit 2\nfi\nshift \"$(($# < 2 ? $# : 2))\"\n",
      l->nodes, l->nodes - 1);
}

static void put_torchrun(Launch *l) {
  text_add(&l->out, "#!/bin/bash\n");
  put_title(l,
            "on machine K (from 0): WEFT_SECRET=WORD bash FILE K ADDRESS-OF-MACHINE-0");
  text_add(&l->out,
           "set -euo pipefail\n: \"${WEFT_SECRET:?must be a secret that is the same on "
           "all machines}\"\nexport WEFT_SECRET\n");
  put_machine(l);
  l->coded = true;
  if (!l->cuda) put_tcp_note(l, NULL);
  put_attempts(l, put_torchrun_command);
}

/* ---- the verb ---- */

typedef struct Kind {
  const char *option;
  size_t at; /* offset in Cli */
  void (*put)(Launch *l);
} Kind;

static const Kind kinds[] = {
    {"--slurm", offsetof(Cli, slurm), put_slurm},
    {"--mpirun", offsetof(Cli, mpirun), put_mpirun},
    {"--torchrun", offsetof(Cli, torchrun), put_torchrun},
};

static weft_status choose_kind(const Cli *cli, const Kind **out, weft_error *e) {
  int n = 0;
  for (int i = 0; i < LEN(kinds); i++)
    if (*(const bool *)((const char *)cli + kinds[i].at)) *out = &kinds[i], n++;
  if (n == 1) return WEFT_OK;
  return err_set(e, WEFT_EUSAGE, "launch takes one of --slurm, --mpirun and --torchrun");
}

static weft_status measure(Launch *l) {
  Job *j = &l->job;
  TRY(job_mesh(j, 0));
  l->ranks = j->mesh.world;
  l->per_node = MIN(job_node_ranks(j), l->ranks);
  l->nodes = (l->ranks + l->per_node - 1) / l->per_node;
  l->cuda = j->plan.cluster.gpu != NULL;
  if (l->cli->device) {
    const DeviceKind *kind = device_kind(l->cli->device, &j->e);
    if (!kind) return WEFT_EUSAGE;
    l->cuda = !kind->host;
  }
  l->resumes = j->plan.checkpoint.dir != NULL;
  snprintf(l->name, sizeof l->name, "%s", j->plan.name);
  for (char *s = l->name; *s; s++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *s))
      *s = '-';
  if (l->ranks % l->per_node == 0) return WEFT_OK;
  return err_set(&j->e, WEFT_EUSAGE,
                 "%d ranks are not a multiple of the %d ranks of a machine", l->ranks,
                 l->per_node);
}

/* An existing script is not replaced. */
static weft_status write_script(Launch *l) {
  const char *path = l->cli->output;
  weft_error *e = &l->job.e;
  const FilePart part = {l->out.s, l->out.n};
  weft_status st = WEFT_OK;
  if (l->out.oom)
    st = err_set(e, WEFT_ENOMEM, "out of memory");
  else if (path)
    st = file_write_as(NULL, path, &part, 1, 0777, true, e);
  else if (fwrite(part.data, 1, part.bytes, stdout) != part.bytes || fflush(stdout))
    st = err_file(e, WEFT_EFILE, "-", 0, "cannot be written: %s", strerror(errno));
  text_free(&l->out);
  return st;
}

static weft_status launch(Launch *l, Arena *arena) {
  const Kind *kind = NULL;
  TRY(job_start(&l->job, l->cli, arena, l->cli->arg[0]));
  TRY(choose_kind(l->cli, &kind, &l->job.e));
  TRY(measure(l));
  kind->put(l);
  return write_script(l);
}

int verb_launch(Cli *cli, Arena *arena) {
  Launch l = {.cli = cli};
  weft_status st = launch(&l, arena);
  return job_end(&l.job, cli, st, NULL, NULL);
}
