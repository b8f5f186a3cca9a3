-- b300.lua - machines with eight NVIDIA B300 SXM, as DGX B300 and HGX B300.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "b300-sxm" },
  gpus = 8,
  gpu = {
    memory_gib = 275040 / 1024,        -- total memory as nvidia-smi reports it; the datasheet: 288 GB
    -- HGX B300 datasheet, of eight GPUs: BF16 36 and FP8 72 PFLOP/s with sparsity, half of that
    -- without; FP32 600 TFLOP/s.
    bf16 = 2250e12,
    fp8 = 4500e12,
    f32 = 75e12,
    -- No figure under load: that of gb200-nvl72 by the ratio of best shapes of matmul in bf16, 1,769
    -- to 1,822 TFLOP/s (ml-engineering).
    reached = 1411e12,
    mma = 0.26,                        -- as gb200-nvl72
    sms = 148,
    bandwidth = 8e12,                   -- the datasheet: 8 TB/s
    -- The datasheet: 1.8 TB/s, both directions together.
    nvlink = 900e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    host = 128e9,                      -- PCIe 6.0 x16, one direction
  },
  -- HGX B300 datasheet: eight ConnectX-8 at 800 Gb/s, one for each GPU.
  network = {
    per_gpu = 100e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
