-- members.lua - what verbs print with --json: a section for each, of rows { names, type, what it
-- is }. docs/json.md shows them, `weft completion schema` makes a JSON schema of them
-- (stdlib/json/schema.lua, which says how types are written).
local class = "{name: string, bytes: integer, note?: string|null}"
local action = "{op: string, stage: integer, chunk: integer, mb?: integer, chunk2?: integer, mb2?: integer, line?: integer}"
local tensor = "{id: integer, name: string, dims: [integer], dtype: string, placement: {*: string}}"
local traffic = "{axis: string, op: string, count: integer, bytes: integer, link: string, at_most: boolean}"
local stage = "{stage: integer, pp: integer, chunk: integer, layers: integer, units: [string], "
  .. "parameters: integer, flops: number, share: number}"
local sizes = "{*: integer}"
local proof = "{transfers: integer, collectives: integer, communicators: integer, instructions: integer}"
local reason = "{code: string, path: string, message: string, count: integer}"
local scalar = "string|number|boolean|object|list|null"
local layout = "{layout?: {*: string|number|boolean}, fields?: [[" .. scalar .. "]], seconds: number, low: number, "
  .. "high: number, bound: number, mfu: number, tokens_per_s_per_gpu: number, peak_gib: number, "
  .. "microbatches: integer, classes: {*: number}, behind?: number, tie?: boolean, why?: [{class: string, seconds: number}]}"
local setting = "{key: string, place: string, value?: " .. scalar .. ", what?: string}"
local difference = "{field: string, here?: " .. scalar .. ", there?: " .. scalar .. "}"
local speed = "{flops: number, backend: string, widened: boolean}"
local source = "[{name: string, loss: number|null, tokens: integer}]"
local sample = "{prompt: integer, tokens: [integer], text?: string, ended: string}"
local turn = "{question: string, prompt: integer, tokens: [integer], text?: string, ended: string}"
local parts = "[{in: string, what: string, a: number, b: number}]"

local frame = {
  { "format_version", "string", '`"1.0"`; new members may come, others do not go without another number' },
  { "command", "string", "the verb" },
  { "valid", "boolean", "no error was found" },
  { "error_count, warning_count", "integer" },
  { "diagnostics", "[{code: string, severity: error|warning, path: string, summary: string, suggestions: [string], "
    .. "range: null|{filename: string, start: {line: integer, column: integer}}}]",
    "of `code`, `severity` (`error`, `warning`), `path` of the field, `summary`, `suggestions`, "
    .. "`range` (null, or `filename` and `start` with `line` and `column`)" },
  { "result", "object|null", "what is below; null after an error, but for what `sample` had answered before it" },
}

-- Verbs in the frame; `bare` ones print their object alone. A topic of show gives its member alone.
local sections = {
  { "check", {
    { "name", "string|null" },
    { "mesh", sizes, "size of each axis, and `world`" },
    { "parameters", "integer", "elements of all, of the model that is trained" },
    { "second_parameters?", "integer", "those of the reference of a preference loss or of a teacher, where there is one" },
    { "microbatches", "integer", "of a step" },
    { "memory_bytes", "integer", "the arena of the worst rank" },
    { "learns", "{activation_bytes: integer, frozen_bytes: integer, parameter_bytes: integer, parameters: integer, "
      .. "saved_bytes: integer, state_bytes: integer}|null",
      "of a plan with `adapter` or `freeze`: how many `parameters` learn, `frozen_bytes`, `parameter_bytes`, `state_bytes`, "
      .. "`activation_bytes` of the worst rank, and `saved_bytes`, by which it needs less than if all of the model learnt" },
    { "proof", proof, "`transfers`, `collectives`, `communicators`, `instructions` that it went through" },
    { "fits", "boolean|null", "whether the worst rank fits its GPU, null where the plan names none" },
    { "unsaid", "[string]", "defaults that other systems have otherwise, as text" },
  } },
  { "show", {
    { "mesh?", "{experts?: " .. sizes .. ", order: [string], size: " .. sizes .. ", stride: " .. sizes .. ", world: integer}",
      "`order`, `size`, `stride` of axes, `world`; `experts`: sizes of the expert mesh, where they are its own" },
    { "memory?", "[{pp: integer, total_bytes: integer, classes: [" .. class .. "], outside: [" .. class .. "], "
      .. "host: [" .. class .. "], gpu: [" .. class .. "]}]", "of pipeline ranks, `pp`, `total_bytes`, `classes` of `name`, "
      .. "`bytes`, `note`, what of it is in the memory of the `host`, `outside`, and estimates of what CUDA and NCCL take on a `gpu`" },
    { "memory_process?", "[" .. class .. "]", "what a process holds besides" },
    { "memory_libraries?", "[{name: string, note: string}]", "and what libraries do, by `name` and `note`" },
    { "schedule?", "{name: string, virtual: integer, microbatches: integer, actions: [[string|null]], "
      .. "makespan: integer, bubble: number, bubble_own: number, total_bytes_sent: integer|null, unknown?: string, "
      .. "placed?: [[string]], ranks: [{idle: number, idle_own: number, chunks_in_flight: integer, bytes_sent?: integer, "
      .. "bytes_received?: integer, slots: [[integer]]}]}",
      "actions of each pipeline rank, and figures; `unknown`: why bytes are not known, of a plan that does not compile; "
      .. "`placed`: parameters and gradients between the actions" },
  } },
  { "show stages", { { "stages", "[" .. stage .. "]",
    "of `stage`, its `pp` rank and `chunk`, `layers`, `units`, `parameters`, `flops`, and their `share`" } } },
  { "show comm", { { "comm", "[" .. traffic .. "]",
    "of `axis`, `op`, `count`, `bytes` of a step, the `link` that carries them, `at_most`: not known before a run" } } },
  { "show rank", { { "rank", "{rank: integer, world: integer, node: integer, local_rank: integer, "
    .. "coord: [{axis: string, at: integer}], groups: [{axis: string, nodes: integer, ranks: object}], "
    .. "stages: [" .. stage .. "], microbatches: integer, "
    .. "memory: {rank: integer, pp: integer, total: integer, "
    .. "classes: [" .. class .. "], host?: [" .. class .. "], outside: [" .. class .. "], gpu: [" .. class .. "], process: [" .. class .. "], "
    .. "libraries: [{name: string, note: string}], scores?: integer}, comm: {rank: integer, list: [" .. traffic .. "]}, "
    .. "actions: {pp: integer, peak: integer, list: [" .. action .. "]}}",
    "its coordinates `coord`, `groups`, `stages`, `memory`, `comm` and `actions`" } } },
  { "show graph", { { "ops", "[{op: string, name?: string|null, unit: string, line: integer, phase: string, "
    .. "recomputed: boolean, in: [" .. tensor .. "], out: [" .. tensor .. "]}]",
    "of one rank, in their order, with collectives among them: `op`, the `name` of its module, `unit`, `line` of the "
    .. "model, `phase` (`F`, `I`, `W`), tensors `in` and `out` of `id`, `name`, `dims` on a rank, `dtype` and `placement`: "
    .. "of each axis `R`, `S(dimension)`, `P`, `Pmax` or `own`. With `--logical` those of the model itself" } } },
  { "show program", { { "program", "object", "all of it, as [program.md](program.md) says" } } },
  { "sim", {
    { "sim", "{plan: string, gpu: string, ranks: integer, tokens: integer, seconds: number, low: number, high: number, "
      .. "tokens_per_s_per_gpu: number, flops: number, mfu: number, hfu: number, gpu_bytes: number, sources: {*: number}, "
      .. "pipeline: [{pp: integer, compute: number, shared?: number, bubble: number, exposed: {*: number}, kernels: {*: number}}], "
      .. "ops?: [{name: string, dtype: string, count: integer, seconds: number, sources: {*: number}}], "
      .. "waits: [{axis: string, what: string, pp: integer, count: integer, seconds: number}]}",
      "time of a step, tokens/s, MFU, HFU, where the time of each pipeline rank goes, and which shares of it `sources` "
      .. "of times have; with `--calibration` also that of `ops`" },
    { "compare?", "[{op: string, dtype: string, count: integer, measured: number, predicted: number, by: string}]",
      "with `--compare`: of each kernel its seconds, `measured` and `predicted`, and `by` what" },
  } },
  { "sim --diff", {
    { "diff", "{a: number, b: number, per_token: boolean, parts: " .. parts .. ", waits: " .. parts .. "}",
      "`a`, `b`, seconds of the two steps, or, if `per_token`, of all ranks for a token; `parts` and `waits`: "
      .. "lists of `in`, `what`, `a`, `b`" },
  } },
  { "verify", {
    { "ranks, steps, tensors", "integer", "that were compared" },
    { "differences", "{loss: number|null, gradient: number|null, gradient_norm: number|null, parameter: number|null}",
      "the largest relative ones, of `loss`, `gradient`, `gradient_norm`, `parameter`" },
    { "tolerance", "number" },
    { "rounding", "string", "what is beyond the tolerance, and why it is rounding; else empty" },
    { "worst", "string", "the tensor with the largest difference" },
    { "not_covered", "[string]", "what was made smaller, as text" },
  } },
  { "run", {
    { "steps", "integer", "that were taken, with those before the checkpoint of `--resume`" },
    { "world", "integer", "ranks" },
    { "loss, grad_norm, lr", "number|null", "of the last step; null: this run took none, or, of `grad_norm`, it was skipped" },
    { "tokens", "integer", "label tokens of all steps of this run" },
    { "tokens_per_s", "number", "`tokens` by the time of these steps" },
    { "memory_bytes", "integer", "the arena of the worst rank" },
    { "eval_loss?", "number|null", "of the last evaluation; null: this run made none; this and the next two: with validation data" },
    { "best_eval_loss?, best_eval_step?", "number|null", "the lowest one, and the number of steps before it" },
    { "stopped?", "boolean", "with `train.early_stopping`: whether it ended the run" },
    { "skipped?", "integer", "of f16: steps of this run whose gradients overflowed" },
    { "sources?", source, "of a blend: its streams over the last steps" },
  } },
  { "eval", {
    { "loss", "number|null", "the mean over label tokens, with what routers, further tokens and z-loss add" },
    { "cross_entropy?, perplexity?", "number|null", "the mean cross entropy alone, and exp of it; with a loss of cross entropy" },
    { "tokens", "integer", "label tokens that were counted" },
    { "batches", "integer", "of `batch.global` samples" },
    { "checkpoint?", "string", "of `--ckpt`: its folder" },
    { "data", "string", "what was read" },
    { "sources?", source, "of a blend: its streams" },
    { "seconds", "number" },
    { "memory_bytes", "integer", "the arena of the worst rank" },
    { "world", "integer", "ranks" },
  } },
  { "eval --reference", {
    { "file", "string", "that was written" },
    { "sequences", "integer", "in it" },
    { "mean_loss", "number|null", "of them" },
    { "val_sequences", "integer", "in it, of the validation data" },
    { "val_mean_loss", "number|null", "of them; null: there are none" },
  } },
  { "sample", {
    { "prompt?", "integer", "tokens of it; of one prompt, as the next three" },
    { "tokens?", "[integer]", "ids of the prompt and what follows" },
    { "text?", "string", "of what follows" },
    { "ended?", "string", "by what" },
    { "samples?", "[" .. sample .. "]", "of several prompts: these four of each" },
    { "turns?", "[" .. turn .. "]", "with `--chat`: these four of each answer, and the `question`" },
  } },
  { "ckpt ls", { { "checkpoints", "[{name: string, step: integer, plan: string, mesh: string|" .. sizes .. ", saved_at: string, "
    .. "files: integer, bytes: integer, complete: boolean, latest: boolean}]",
    "of `name`, `step`, `plan`, `mesh`, `saved_at`, `files`, `bytes`, `complete` (all files are there, in their sizes), `latest`" } } },
  { "ckpt verify", {
    { "tensors", "integer", "whose checksums are right" },
    { "bytes", "integer", "that were read" },
  } },
  { "ckpt diff", {
    { "tensors", "integer", "that were compared" },
    { "differ, missing", "integer", "tensors" },
    { "largest_absolute, largest_relative", "number|null", "differences of an element; null: one is not finite" },
  } },
  { "ckpt convert", {
    { "path", "string", "of the new checkpoint" },
    { "step", "integer" },
    { "world", "integer", "ranks that it is of" },
  } },
  { "ckpt export", {
    { "step", "integer" },
    { "tensors", "integer", "that were written" },
    { "bytes_read", "integer" },
  } },
  { "ckpt plan", {
    { "pp", "[{rank_writes: integer, rank_reads: integer, written: integer}]",
      "of pipeline ranks, `rank_writes`, `rank_reads`, `written`: bytes of a rank, and of all ranks" },
    { "world", "integer" },
  } },
  { "sweep", { { "sweep", "{rows: [{*: string|number|boolean}], reasons: [" .. reason .. "], points: integer, "
    .. "asked: integer, judged: integer, legal: integer, illegal: integer, memory: integer, dropped: integer, "
    .. "seconds: number, interrupted: boolean}",
    "`rows`, `reasons` and counts, see [sweeps.md](sweeps.md#long-sweeps)" } } },
  { "doctor", {
    { "cpu", "string" },
    { "cores", "integer" },
    { "memory_bytes", "integer", "of the machine" },
    { "level, kernels", "string", "of the CPU's instructions, and of the kernels that run" },
    { "threads", "string", "how they wait" },
    { "f32, bf16", speed, "`flops` per second of products, `backend`, `widened`" },
    { "parts", "{*: string|null}", "version of each library, null: not found" },
    { "gpus", "integer" },
    { "gpu_libraries", "{*: integer|string|null}", "version of each library, null: not found" },
    { "calibration?", "object", "with `--calibration FILE`: how it has aged" },
  } },
  { "explain", bare = true, { { "codes", "[{code: string, summary: string, text: string}]",
    "of `code`, `summary`, `text`; one of them, or all" } } },
  { "best", bare = true, {
    { "plan, gpu", "string" },
    { "ranks", "integer" },
    { "room_gib", "number", "that a rank may have" },
    { "best?", layout .. "|null", "`layout`, the `fields` of a plan with it, `seconds` of a step between `low` and `high`, its "
      .. "`bound`, `mfu`, `tokens_per_s_per_gpu`, `peak_gib`, `microbatches`, `classes` of time" },
    { "rows", "[" .. layout .. "]", "of the same, best first; from the second on with `behind`, `tie` and `why`" },
    { "others", "[{field: string, value?: " .. scalar .. ", behind: number, seconds: number, layouts: integer, "
      .. "why: [{class: string, seconds: number}]}]",
      "of `field`, `value`, the best layout on the clock with it is `behind`, `why`, and how many `layouts` "
      .. "on the clock have it" },
    { "layouts", "integer", "that were looked at; what became of them is" },
    { "on_the_clock, forecast_slower, slower_by_bound, memory, memory_by_buffers, memory_beside, refused, unseen", "integer" },
    { "reasons", "[" .. reason .. "]", "of `code`, `path`, `message`, `count` of what was refused" },
    { "least_forecast?, forecast_error?", "number",
      "what the rest is expected to take at least; how far off expectations were; absent where nothing was left, or expected" },
    { "interrupted", "boolean", "by Ctrl-C" },
    { "seconds", "number", "that the search took" },
    { "calibration?", "object", "see below" },
  } },
  { "diff", bare = true, {
    { "same", "boolean" },
    { "from_fits?, to_fits?", "boolean", "whether the plan fits its GPUs; absent where it names none" },
    { "fields", "[{path: string, from?: string, to?: string}]", "of `path`, `from`, `to`" },
    { "figures", "[{name: string, from?: number, to?: number}]", "of `name`, `from`, `to`: what follows from the fields" },
    { "unknown?", "string", "why time is not among them: a figure that the clock lacks" },
  } },
  { "report", bare = true, {
    { "file", "string" },
    { "fits", "boolean|null" },
    { "verdict", "string" },
    { "settings?", "{system: string, translated: integer, no_effect: integer, not_expressible: [" .. setting .. "], "
      .. "assumed: [{what: string, text: string}]}", "of a file of another system: what became of its settings" },
    { "gpu?", "{name: string, room_bytes: number, assumed: boolean}",
      "`name`, `room_bytes`, `assumed`; this and all below but `nearest` and `errors`: of a plan that compiles" },
    { "mesh?", "string", "as text" },
    { "world?", "integer" },
    { "parameters?", "integer" },
    { "memory?", "{worst_bytes: integer, free_bytes: number, pipeline_rank: integer, classes: [" .. class .. "]}",
      "of the worst rank, its `classes` of `name`, `bytes`" },
    { "bubble?", "number" },
    { "proof?", proof, "as of `weft check`" },
    { "nearest", "list", "layouts that fit, if this one does not" },
    { "interrupted?", "boolean", "Ctrl-C has ended the search for them" },
    { "errors", "list", "of `message`, and where they are known `code`, `path`, `file`, `line`, `severity`, `suggestion`" },
    { "warnings?", "list", "of the same" },
  } },
  { "import", bare = true, {
    { "ok", "boolean" },
    { "file, system", "string" },
    { "plan?", "string", "the Lua text; absent after an error" },
    { "translated, no_effect, not_expressible", "[" .. setting .. "]",
      "of `key`, `place`, `value` of a setting, and `what` became of it" },
    { "assumed", "[{what: string, text: string}]", "of `what`, `text`" },
    { "errors", "list" },
  } },
  { "export", bare = true, {
    { "system", "string" },
    { "settings?, model?, environment?, schedule?", "string", "texts of the files that there are" },
    { "not_said?", "[" .. difference .. "]", "of `field`, `here`, `there`" },
    { "error?", "string", "alone: why the system cannot say this plan" },
  } },
}

return { frame = frame, sections = sections }
