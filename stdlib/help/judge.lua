-- judge.lua - --help of verbs that say what a plan means, and those of scripts.
return {
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

  lua = [[
Runs a Lua file (-: the standard input) in which require "weft" gives meshes and
plans as objects (docs/scripting.md). The arguments are in `arg` and `...`.

  --data DIR         before the script: data and models of plans may be there as well
]],

  repl = [[
On a terminal: a prompt for Lua, with the functions of weft, and the globals `plan`
and `mesh` of the plan (docs/repl.md). Otherwise the standard input is run as a
script; the first error ends it with exit code 1.

]],
}
