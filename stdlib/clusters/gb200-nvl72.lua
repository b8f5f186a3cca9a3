-- gb200-nvl72.lua - racks of 18 trays with four NVIDIA GB200 GPUs each, in one NVLink domain.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "gb200" },
  gpus = 4,
  domain = 72,                         -- the NVLink switches of a rack join all of it
  gpu = {
    memory_gib = 189471 / 1024,        -- total memory as nvidia-smi reports it; the datasheet: 186 GB
    -- GB200 NVL72 datasheet, of 72 GPUs: BF16 360 and FP8 720 PFLOP/s with sparsity, half of that without; FP32
    -- 5,760 TFLOP/s.
    bf16 = 2500e12,
    fp8 = 5000e12,
    f32 = 80e12,
    -- Azure's AI benchmarking guide, ND GB200 v6: 0.581 of the peak, FP8, 16,384 cubed, random values.
    reached = 1453e12,
    -- FlashAttention-2 in Azure's guide: 374 TFLOP/s of GB200 where an H100 has 328.
    mma = 0.26,
    sms = 152,                         -- as the device reports them
    bandwidth = 8e12,                   -- the same: 576 TB/s of 72
    -- The same: 130 TB/s of 72, both directions together.
    nvlink = 900e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    -- NVLink-C2C: 900 GB/s in both directions for the two GPUs of a superchip.
    host = 225e9,
  },
  -- The same: 72 ConnectX-7 at 400 Gb/s.
  network = {
    per_gpu = 50e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
