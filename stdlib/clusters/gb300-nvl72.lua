-- gb300-nvl72.lua - racks of 18 trays with four NVIDIA GB300 GPUs each, in one NVLink domain: GB200
-- with more memory and a faster network. Rates and links are those of its datasheet, too.
return {
  like = "gb200-nvl72",
  aliases = { "gb300" },
  gpu = {
    memory_gib = 284208 / 1024,        -- total memory as nvidia-smi reports it; the datasheet: 279 GB
  },
  -- The same: 72 ConnectX-8 at 800 Gb/s.
  network = {
    per_gpu = 100e9,
  },
}
