-- v100.lua - machines with eight NVIDIA V100 SXM2 32GB, as DGX-1.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "v100-32gb", "v100-sxm2" },
  gpus = 8,
  gpu = {
    memory_gib = 32,                   -- 32,768 MiB in nvidia-smi
    -- NVIDIA V100 datasheet, SXM2 column: tensor cores multiply in F16 only, so there is no
    -- figure for bf16; FP32 outside the tensor cores.
    f16 = 125e12,
    f32 = 15.7e12,
    sms = 80,                          -- Volta architecture whitepaper
    bandwidth = 0.9e12,                 -- the datasheet
    -- The same: 300 GB/s, both directions together, of six links; DGX-1 user guide: two GPUs that
    -- are joined have one or two of them.
    nvlink = 150e9,
    peer = 50e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    host = 16e9,                       -- PCIe 3.0 x16, one direction
  },
  -- DGX-1 user guide: four ConnectX-4 at 100 Gb/s, one for two GPUs.
  network = {
    per_gpu = 6.25e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
