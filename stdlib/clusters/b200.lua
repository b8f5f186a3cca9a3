-- b200.lua - machines with eight NVIDIA B200 SXM 180GB, as DGX B200 and HGX B200.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "b200-sxm", "b200-180gb" },
  gpus = 8,
  gpu = {
    memory_gib = 183359 / 1024,        -- total memory as nvidia-smi reports it
    -- HGX B200 datasheet, of eight GPUs: BF16 36 and FP8 72 PFLOP/s with sparsity, half of that
    -- without; FP32 600 TFLOP/s.
    bf16 = 2250e12,
    fp8 = 4500e12,
    f32 = 75e12,
    -- No figure under load: that of gb200-nvl72 by the ratio of best shapes of matmul in bf16, 1,745
    -- to 1,822 TFLOP/s (ml-engineering).
    reached = 1392e12,
    mma = 0.26,                        -- as gb200-nvl72
    sms = 148,
    bandwidth = 8e12,                   -- DGX B200 datasheet: 64 TB/s of eight
    -- The datasheet: 1.8 TB/s, both directions together.
    nvlink = 900e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    -- PCIe 5.0 x16; of the memory of the host each GPU's share is about as fast.
    host = 64e9,
  },
  -- DGX B200 datasheet: eight ConnectX-7 at 400 Gb/s, one for each GPU.
  network = {
    per_gpu = 50e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
