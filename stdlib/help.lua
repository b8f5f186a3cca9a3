-- help.lua - what weft VERB --help says, by verb; `plan` follows where a verb takes a plan.
return {
  init = [[
Makes the folder DIR, or takes one that is there and has no files, such as . here:

  plan.lua           a small plan that runs as it is, to change
  weft.d.lua         every field and function with types and meaning, and
  .luarc.json        settings, with which editors that have lua-language-server complete
                     and check plans

]],

  run = [[
Trains. Without a launcher all ranks are threads of this process; under mpirun or
srun every process is one rank. A line is printed every train.log_every steps.

  --steps N          take N steps instead of train.steps; the learning rate is as
                     in the plan
  --threads N        threads of each rank; default: the machine's share
  --comm NAME        local, mpi, tcp or nccl; default: tcp where RANK and WORLD_SIZE are
                     set, mpi under mpirun and srun, nccl for both with --device cuda,
                     else local
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --procs N          start N processes on this machine, each of which is a rank
  --trace FILE       write what every rank did when, for Perfetto
  --resume DIR       resume from a checkpoint, or from the latest one of a folder of
                     them; auto: from that of the plan, or start at step 0
  --log FILE         write lines of JSON: what runs, then every step; a file that
                     is not empty is refused
  --tensorboard DIR  write event files for TensorBoard; a folder that has some is
                     refused
  --append           with --log or --tensorboard: append to existing files
  --export DIR       at the end, write the weights as a folder of Hugging Face files
  --dtype TYPE       of exported weights: f32, bf16 or f16; default: as in the folder
                     that they came from, else f32
  --shard-size SIZE  most that a file of them holds, 5GB or 800MB; default: 5GB
  --quiet            print no steps
  --json             print one object at the end
]],

  eval = [[
Measures loss and perplexity of a trained model: on all validation data of the plan, or, where
it has none, on all of its data. Without a launcher all ranks are threads of this process.

  --ckpt DIR         parameters of a checkpoint, or of the latest one of a folder
  --weights DIR      parameters of safetensors files; default: those of weft.hf
  --batches N        at most so many batches of batch.global samples; default: all
  --reference        writes the file of loss.reference_file instead: the loss of each sequence
                     of the data, for training and validation, by the model as it begins
  --threads N        threads of each rank; default: the machine's share
  --comm NAME        local, mpi, tcp or nccl; default: as of weft run
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --procs N          start N processes on this machine, each of which is a rank
  --json             print one object at the end
]],

  sample = [[
Continues a prompt with the plan's model, token by token with a key-value cache, on the
ranks of its tp in this process. Prompt and continuation are at most batch.seq tokens.

  --ckpt DIR         parameters of a checkpoint, or of the latest one of a folder
  --weights DIR      parameters of safetensors files; default: those of weft.hf
  --prompt TEXT      for a model of bytes (weft.text), or with a tokenizer; may be given
                     several times: one continuation after the other
  --tokenizer FILE   a tokenizer.json; default: the plan's, else that beside the weights
  --tokens 1,2,3     ids of tokens, of any model
  --max-tokens N     length of the continuation; default: 100, or what batch.seq leaves.
                     An eos_token_id of the model's folder ends it earlier
  --stop TEXT        ends before this text; may be given several times
  --chat             a conversation: each --prompt, or else each line of the standard input,
                     is a question. Answers end where those of the template do, or at
                     eos_token_id, and have --max-tokens or what batch.seq leaves
  --template NAME    of --chat, or a FILE.lua; default: that of the plan's weft.chat, else the
                     one that tokenizer_config.json has
  --option NAME=VALUE  of the template; added to those of the plan
  --refuse-special   special tokens in questions are errors
  --temperature T    logits are divided by it; default: 1
  --top-k K          sample from the K likeliest tokens only
  --top-p P          sample from the fewest tokens with this probability in sum
  --seed S           of sampling; the same seed gives the same continuation; default: 0
  --greedy           always the likeliest token
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --threads N        threads of each rank
  --quiet            only the continuation
  --json             one object at the end
]],

  import = [[
Makes a plan of settings of another system: NeMo AutoModel recipes (YAML), DeepSpeed
(JSON), accelerate config (YAML), Hugging Face's config.json, or a folder with one. The
plan is printed, or written to -o, and what became of each setting is said: translated, no
effect here, not expressible; and what was assumed. Nothing of a file is run. key=value behind the
file, or --set key=value, takes the place of what the file says; of a script NAME=value is a
variable and 1=value its first argument.

  -o FILE            the plan; a file that is there is not replaced. The report then goes
                     to the standard output, else to the standard error
  --model NAME       a preset, a public name, or ./DIR with a config.json, in the place of
                     the model in the settings
  --world N          ranks in all, for settings that do not say it
  --gpu NAME         the GPU of the plan's cluster, h100-sxm; see cluster.gpu in plan.md
  --set key=value    as key=value
  --quiet            no report, if there is a plan
  --json             plan and lists as one object
]],

  export = [[
Writes a plan as settings of another system, and says which of its fields they do not say. What
is written is read again as weft import reads it and compared with the plan, so the list is
complete. Weights are written by weft ckpt export.

  --to SYSTEM        automodel: a recipe of NeMo AutoModel; deepspeed: DeepSpeed's JSON, and
                     the model's config.json; megatron: a script that starts Megatron-LM;
                     torchtitan: TOML, and the model's arguments in Python
  -o DIR             a new folder: the settings, schedule.csv (the order of the pipeline as
                     PyTorch reads it), environment.sh, not_said.txt; without it the settings
                     go to the standard output, the list to the standard error
  --set PATH=VALUE   change a field of the plan
  -D NAME=VALUE      the plan has it as weft.var("NAME", DEFAULT) or weft.vars.NAME
  --data DIR         data and models may lie below DIR, too; may be repeated
  --quiet            no list
  --json             settings, schedule, environment and list as one object

]],

  report = [[
Says on one screen whether a plan, or settings of another system (weft import lists them), fit
their GPUs: memory and its largest parts, the proof, the bubble, warnings, and, if it does not
fit, the nearest layouts that do. key=value behind the file, or --set, changes a setting, or a
field of a plan.

  --gpu NAME         see cluster.gpu in plan.md; default: that of the plan, else h100-sxm
  --world N          ranks in all
  --model NAME       of settings that name none: a preset, a public name, or ./DIR
  --set key=value    as key=value
  -D NAME=VALUE      a plan has it as weft.var("NAME", DEFAULT) or weft.vars.NAME
  --data DIR         data and models may lie below DIR, too; may be repeated
  --html FILE        write the report as a page, too: one file without requests to anything
  --quiet            nothing if it fits
  --json             one object

Exit code 0: it fits; 1: it does not, or is wrong, or cannot be imported.
]],

  best = [[
Searches the fastest layout of a plan on its cluster: sizes of the mesh, strategy, micro batch,
recomputation, schedule, stages of a rank and how layers are shared out. All of them are judged
by bounds of memory and time, those that may be best by their exact memory and the clock of weft
sim. Says what became of every layout, and why those that come next lose.

  NAME=VALUE,...     look at these values only, of tp, pp, cp, ep, etp, strategy (zero-0 to
                     zero-3, fsdp2, ddp), recompute, micro, schedule, virtual, balance
  clock=N            so many layouts at most are on the clock (64)
  keep=N             so many are told (10)
  memory=GIB         that a rank may have; default: of the GPU, less cluster.reserve_gib
  threads=N          default: one for each core
  -o FILE            write a plan with that layout; a file that is there is not replaced
  --set PATH=VALUE   change a field of the plan
  -D NAME=VALUE      the plan has it as weft.var("NAME", DEFAULT) or weft.vars.NAME
  --data DIR         data and models may lie below DIR, too; may be repeated
  --json             one object

Ctrl-C ends the search with the best so far.
]],

  launch = [[
Writes a script that starts the plan on its machines: as many ranks as its mesh has, as
many on each as its cluster has GPUs. Arguments of the script are passed to weft run.

  --slurm            for sbatch
  --mpirun           for mpirun of Open MPI
  --torchrun         to be started on each machine
  --device NAME      cpu or cuda; default: cuda where the plan's cluster names its GPU. On
                     GPUs ranks exchange by NCCL
  -o, --output FILE  where to; default: the standard output
]],

  check = [[
Evaluates the plan, checks every field, builds the model, compiles the programs of
all ranks and proves that they cannot deadlock. Nothing is run. weft explain CODE says more
about the code behind an error or a warning. Warnings leave the exit code 0, also that a
plan does not fit its GPUs, with which weft report ends with 1.

  --device NAME      compile for cpu or cuda, which need not be there (cpu)
  --quiet            print nothing if the plan is right
  --json             print one object
]],

  explain = [[
Says what the code in brackets behind an error or a warning of weft check means, why it
matters and what to do. Without CODE: all of them.

  --json             one object with a list of code, summary and text

]],

  show = [[
Prints one view of a compiled plan; without a topic, mesh, memory and schedule.

  mesh               the ranks as a grid, with the borders of machines
  stages             what each pipeline stage runs, and its share of the work
  schedule           the timeline of the pipeline, with its figures
  memory             bytes of each pipeline rank by class
  comm [N]           operations and bytes on every axis, of rank N or the most
  rank [N]           one screen about a rank (0)
  graph              the graph of one rank: local shapes, placements, collectives
  program [N]        what rank N (0) does, instruction by instruction

  --rank N           the same as a number after the topic
  --device NAME      compile for cpu or cuda, which need not be there (cpu)
  --offsets          program: with the place of every operand in the arena
  --logical          graph: as the model wrote it, with global shapes
  --csv              schedule: one row per pipeline rank, as PyTorch reads it
  --comms            with --csv: the transfers, too
  --svg FILE         schedule: draw it as a picture, too
  --width N          schedule: columns of the drawing; default: the terminal's
  --json             print one object
]],

  ckpt = [[
Looks at checkpoints. DIR is a checkpoint or a folder of them, which stands for its
latest one.

  ls DIR             the checkpoints of a folder, in the order in which they were saved
  verify DIR         reads them all: files, shapes, completeness, checksums
  diff A B           tensors that differ, and by how much; exit code 1 if some do
  convert PLAN_A PLAN_B CKPT OUT
                     writes a checkpoint of plan A to the folder OUT as plan B would
  export PLAN CKPT DIR
                     writes its weights as a folder of Hugging Face files; of a plan
                     with an adapter the adapter alone, as a folder of PEFT's
  merge PLAN CKPT DIR
                     writes the model with its adapter merged
  plan PLAN [CKPT]   bytes that each rank writes, and reads of CKPT

  --dtype TYPE       export: f32, bf16 or f16; default: as in the folder that the model
                     came from, else f32
  --shard-size SIZE  export: most that a file holds, 5GB or 800MB; default: 5GB
  --from PLAN        plan: reads what this plan has written; there need be no files
  --json             print one object
]],

  sim = [[
Compiles the plan and runs its programs on a clock: how long a step takes on the plan's
cluster, tokens/s for each GPU, MFU and HFU, and for each pipeline rank the time of kernels,
transfers that it waited for, and the bubble. Times come from the data sheet of the GPU and
from what kernels and collectives usually reach of it; planning.md says how far off that is.
With a calibration they are those that were measured, and the report says what share is not.

  --calibration FILE what weft calibrate has written; a plan without a cluster is then on
                     the machine that it was measured on
  --compare TRACE    kernels of a run of this plan, which weft run --trace has written, beside
                     what the clock says of them, by op, the largest difference first
  --diff OTHER.lua   say where the steps of the two plans spend different time: kernels by
                     class, transfers that ranks wait for, the bubble; the parts add up to
                     the steps. --diff mesh.tp=4 compares the plan with itself changed.
                     Options hold for both. Plans of other batches or numbers of
                     ranks are compared by what a token costs all ranks together
  --skew FIELDS      ranks that are not alike: "slow = 1.1, pp = 2": kernels of a rank of
                     pipeline rank 2 take 1.1 times as long; "experts = 1.3": the busiest
                     rank has 1.3 times the mean of the rows; "experts = { 3, 1, 1, 1 }"
  --trace FILE       write what every pipeline rank does when, for Perfetto
  --svg FILE         draw the same as a timeline of the schedule's actions
  --json             print one object
]],

  calibrate = [[
Compiles the plans, runs each of their distinct kernels and collectives several times on
virtual ranks of this machine, and writes the times to calibration.lua, or another FILE: for
weft sim --calibration FILE. A file that is there already keeps its rows, so that a
calibration that was ended goes on; it is written whole or not at all, also on Ctrl-C. It has
to be of this machine.

  -o, --output FILE  where to
  --procs N          measure transfers between N processes of this machine, as weft run
                     --procs has them; mpirun and other launchers do the same. Kernels are
                     those of rank 0, as many at once as there are cores for
  --comm NAME        what connects them, as in weft run; a file is of one way
  --threads N        threads of each rank; default: the machine's share for the plan that
                     has most ranks, or for the processes
  --device NAME      cpu or cuda; default: cpu
  -q, --quiet        no progress
]],

  diff = [[
Compares two plans, or a plan and the same with changes, which key=value gives the second
one alone: weft diff plan.lua mesh.tp=4. What is compared are fields, as they are after --set
and -D, which both get; a default that only one of them writes is no difference; and what
follows from them: memory by class, communication by axis and operation, and, where the
cluster names its GPU, the time that weft sim predicts.

  --set PATH=VALUE   in both plans
  -D NAME=VALUE      of weft.var, in both plans
  --data DIR         both may read files below DIR
  --json             fields and figures as one object

Exit code 0: the same; 1: they differ, or one of them is wrong.
]],

  verify = [[
Makes the plan small enough for this machine, runs it on virtual ranks and on one
rank, and compares loss, gradients and parameters. Prints what was made smaller and
is therefore not covered. Exit code 1 if they differ.

  --steps N          steps to compare (3)
  --ranks N          at most so many virtual ranks (32)
  --device NAME      cpu or cuda: where the ranks compute; the one rank that they are
                     compared with is the CPU's (cpu)
  --tolerance X      largest relative difference of any number (1e-5 in f32, 1e-4 with
                     cuda, 2e-2 in bf16, 5e-3 in f16, more for what rounds by more on
                     one rank, too)
  --json             print one object
]],

  sweep = [[
weft lua with files for the rows of the script's first weft.sweep, see
docs/sweeps.md. Ctrl-C ends the sweep; the script continues with the finished rows.
Options may follow the script; arguments after -- are the script's.

  --csv FILE         the best rows as CSV, written at the end
  --jsonl FILE       every point as a line of JSON, written as it is done; neither replaces a
                     file that is there
  --resume FILE      continue such a file, or create it
  --data DIR         data and models of plans may be below DIR as well
  --json             one object with the best rows; what the script prints goes to the
                     standard error
]],

  repl = [[
On a terminal: a prompt for Lua, with the functions of weft, and the globals `plan`
and `mesh` of the plan (docs/repl.md). Otherwise the standard input is run as a
script; the first error ends it with exit code 1.

]],

  lua = [[
Runs a Lua file (-: the standard input) in which require "weft" gives meshes and
plans as objects (docs/scripting.md). The arguments are in `arg` and `...`.

  --data DIR         before the script: data and models of plans may be there as well
]],

  tokenize = [[
Makes token files of text with the tokenizer of a model: its tokenizer.json, or the folder
that it lies in. A text file is one document; of the JSON rows of a .jsonl, .ndjson or .json
file, the "text" of each is.
Byte-level BPE is supported (GPT-2, Llama 3, Qwen, SmolLM).

  --out, -o NAME.bin the file; with Megatron's index NAME.idx beside it. What is there is not
                     replaced
  --eot TOKEN        put after each document, as "<|endoftext|>"
  --format NAME      megatron (the default) or llmc: a header and no index

With --chat it makes token files of conversations (docs/finetune.md): JSON lines or a JSON
list, - is the standard input. Beside NAME.bin and NAME.idx, NAME.mask says which tokens are
learnt.

  --chat             the files are conversations, each a document
  --tokenizer DIR    the tokenizer.json, or its folder, whose tokenizer_config.json says the
                     begin and end tokens and the template
  --template NAME    chatml, deepseek, deepseek-r1-distill, deepseek-v3, gemma, gemma3,
                     gpt-oss, llama3, llama3.1, mistral, qwen2.5, qwen3, smollm2; or
                     FILE.lua that returns a function(messages, tools, options). Default:
                     that of the tokenizer's folder, if it is one of these
  --option NAME=V    of the template: date, system (for conversations without one),
                     keep_reasoning; may be given several times
  --format NAME      messages (the default), sharegpt, alpaca, preference, or
                    prompt=COLUMN,response=COLUMN
  --train-on WHAT    assistant (the default): all answers; last: the last one; all: every token
  --max-length N     cuts longer conversations, and counts them
  --drop-bad         leaves out conversations that cannot be used, and counts them; else the
                     first one is an error
  --refuse-special   the text of a special token in a message is an error
]],

  completion = [[
Prints a script with which a shell completes verbs and options, or the manual page. Packages
install them; else

  bash               source <(weft completion bash)
  zsh                weft completion zsh >DIR/_weft, in a folder of $fpath
  fish               weft completion fish | source
  man                weft completion man >weft.1; man ./weft.1
  schema             the JSON schema of what verbs print with --json, one in $defs for each

]],

  doctor = [[
Prints the CPU and which kernels it gets, the libraries that were found and their
versions, the rate of matrix products in f32 and bf16 (about a second), and what is
missing with the Debian package to install.

  --calibration FILE say how what weft calibrate has written has aged: what is another
                     on this machine than then, and its rates measured again (a second)
  --json             print one object
]],

  plan = [[
  --set PATH=VALUE   change a field: --set mesh.tp=4, --set 'optimizer=weft.lion { lr = 1e-4 }';
                     nil leaves it out; without --set behind the plan, too: PLAN.lua mesh.tp=4
  -D NAME=VALUE      the plan has it as weft.var("NAME", DEFAULT) or weft.vars.NAME
  --data DIR         data and models may be below DIR as well; may be repeated
  --memory GIB       most that graph, schedule and programs may take; default: half
                     of the machine's
]],

  codes = [[
Exit codes: 0 ok; 1 the plan or the run is wrong; 2 usage or file; 3 a limit was hit;
4 internal; 130 interrupted.
]],
}
