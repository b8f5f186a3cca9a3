-- Names of other systems, and fields that stand at the wrong level.
local weft = require "weft"

return weft.plan {
  model = weft.model "llama-tiny",
  tp = 2,
  lr = 1e-3,
  learning_rate = 1e-3,
  micro_batch_size = 1,
  gradient_accumulation_steps = 4,
  sequence_parallel = true,
  mesh = { tensor_model_parallel_size = 4, batch = { global = 8 }, vpp = 2 },
  batch = { global = 8, seq = 64, seq_length = 64, stage = 1 },
  optimizer = weft.adamw { ["max-grad-norm"] = 1, warmup_steps = 10, warmup = 3 },
  train = { train_iters = 7, ["log"] = 3 },
  shedule = "1f1b",
}
--> bad_foreign.lua:6: error: plan.tp: unknown field (did you mean "mesh.tp"?)
--> bad_foreign.lua:7: error: plan.lr: unknown field (did you mean "optimizer.lr"?)
--> bad_foreign.lua:8: error: plan.learning_rate: unknown field (weft's name is optimizer.lr)
--> bad_foreign.lua:9: error: plan.micro_batch_size: unknown field (weft's name is batch.micro)
--> bad_foreign.lua:10: error: plan.gradient_accumulation_steps: unknown field (in weft: batch.global / (batch.micro * dp))
--> bad_foreign.lua:11: error: plan.sequence_parallel: unknown field (did you mean "strategy.sequence_parallel"?)
--> bad_foreign.lua:12: error: plan.mesh.batch: unknown field (a field of the plan itself)
--> bad_foreign.lua:12: error: plan.mesh.tensor_model_parallel_size: unknown field (weft's name is mesh.tp)
--> bad_foreign.lua:12: error: plan.mesh.vpp: unknown field (weft's name is pp_plan.virtual)
--> bad_foreign.lua:13: error: plan.batch.seq_length: unknown field (weft's name is batch.seq)
--> bad_foreign.lua:13: error: plan.batch.stage: unknown field (did you mean "strategy.stage"?)
--> bad_foreign.lua:14: error: plan.optimizer["max-grad-norm"]: unknown field (weft's name is optimizer.clip)
--> bad_foreign.lua:14: error: plan.optimizer.warmup: unknown field (did you mean "optimizer.lr.warmup"?)
--> bad_foreign.lua:14: error: plan.optimizer.warmup_steps: unknown field (weft's name is optimizer.lr.warmup)
--> bad_foreign.lua:15: error: plan.train.log: unknown field (did you mean "log_every"?)
--> bad_foreign.lua:15: error: plan.train.train_iters: unknown field (weft's name is train.steps)
--> bad_foreign.lua:16: error: plan.shedule: unknown field (did you mean "schedule"?)
--> 17 errors
