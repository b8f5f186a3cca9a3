-- convert.lua - --help of verbs that make plans and settings of others, and compare them.
return {
  init = [[
Makes the folder DIR, or takes one that is there and has no files, such as . here:

  plan.lua           a small plan that runs as it is, to change
  weft.d.lua         every field and function with types and meaning, and
  .luarc.json        settings, with which editors that have lua-language-server complete
                     and check plans

]],

  import = [[
Makes a plan of settings of another system: recipes of NeMo AutoModel and axolotl (YAML),
arguments of LLaMA-Factory (YAML), DeepSpeed (JSON), accelerate config and nanotron (YAML),
Megatron's scripts, torchtitan (TOML), Hugging Face's config.json, or a folder with one. The
plan is printed, or written to -o, and what became of each setting is said: translated, no
effect here, not expressible; and what was assumed. Nothing of a file is run. key=value behind
the file, or --set key=value, takes the place of what the file says; of a script NAME=value is
a variable and 1=value its first argument.

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

  completion = [[
Prints a script with which a shell completes verbs and options, or the manual page. Packages
install them; else

  bash               source <(weft completion bash)
  zsh                weft completion zsh >DIR/_weft, in a folder of $fpath
  fish               weft completion fish | source
  man                weft completion man >weft.1; man ./weft.1
  schema             the JSON schema of what verbs print with --json, one in $defs for each

]],
}
