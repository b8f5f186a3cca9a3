-- sweep_70b_64xh100.lua - how to cut Llama 3 70B over 64 H100: tries tensor and pipeline
-- sizes, micro batches, schedules and batches of plans/llama3_70b.lua, keeps what fits
-- into 79 GiB, and prints the ten plans whose estimated time for a token is least.
--
--   weft sweep plans/sweep_70b_64xh100.lua                     the table, in seconds
--   weft sweep --csv best.csv plans/sweep_70b_64xh100.lua      and the same as CSV
--   lua5.4 plans/sweep_70b_64xh100.lua                         with weft.so on the path
local weft = require "weft"

local folder = arg and arg[0]:match "^(.*/)" or ""

local result = weft.sweep {
  plan = folder .. "llama3_70b.lua",
  over = weft.grid {
    { "mesh.tp", 1, 2, 4, 8 },
    { "mesh.pp", 1, 2, 4, 8, 16 },
    { "batch.micro", 1, 2, 4 },
    { "strategy.sequence_parallel", false, true },
    { "schedule", "gpipe", "1f1b" },
    { "batch.global", 32, 48, 64, 96, 128, 192, 256, 384, 512 },
  },
  -- Sixteen ranks at least share the parameters: fewer cannot hold their state.
  where = function(point) return point.tp * point.pp <= 64 end,
  max_gib = 79,
  score = function(row) return row.step_ms / row.global end,
  keep = 10,
}

print(result)
