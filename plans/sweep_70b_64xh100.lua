-- sweep_70b_64xh100.lua - how to cut Llama 3 70B over 64 H100: tries sizes of tensor and
-- pipeline parallelism, micro batches, schedules and batches with plans/llama3_70b.lua,
-- keeps what fits into a GPU, and prints the ten plans with the least estimated time for
-- a sequence. Takes a second or two.
--
--   weft sweep plans/sweep_70b_64xh100.lua                    the table
--   weft sweep --csv best.csv plans/sweep_70b_64xh100.lua     and the same as CSV
--   lua5.4 plans/sweep_70b_64xh100.lua                        with weft.so on the path
local weft = require "weft"

local folder = arg and arg[0]:match "^(.*/)" or ""

local result = weft.sweep {
  plan = folder .. "llama3_70b.lua",
  over = weft.grid {
    { "mesh.tp", 1, 2, 4, 8 },
    { "mesh.pp", 1, 2, 4, 8, 16 },
    { "batch.micro", 1, 2, 4 },
    { "strategy.sequence_parallel", false, true },
    { "schedule", "1f1b", "interleaved_1f1b", "zero_bubble", "zbv" },
    { "batch.global", 64, 128, 256, 512 },
  },
  -- Parameters with their gradients and optimizer state are 1.2 TiB, cut over tp * pp.
  where = function(point)
    local cut = point.tp * point.pp
    return cut >= 16 and cut <= 64
  end,
  max_gib = 79,
  score = function(row) return row.step_ms / row.global end,
  keep = 10,
}

print(result)
