-- a100-40gb.lua - machines with eight NVIDIA A100 SXM4 40GB, as the first DGX A100.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "a100-sxm-40gb" },
  gpus = 8,
  gpu = {
    memory_gib = 40,                   -- 40,960 MiB in nvidia-smi
    -- NVIDIA A100 datasheet, SXM column: BF16 without sparsity; FP32 outside the tensor cores.
    bf16 = 312e12,
    f32 = 19.5e12,
    -- Azure's AI benchmarking guide, ND A100 v4: F16 product of 16,384 cubed, random values.
    reached = 256.5e12,
    sms = 108,                         -- Ampere architecture whitepaper
    bandwidth = 1.555e12,               -- the datasheet
    -- The datasheet: 600 GB/s, both directions together.
    nvlink = 300e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    -- PCIe 4.0 x16; of the memory of the host each GPU's share is about as fast.
    host = 32e9,
  },
  -- DGX A100 user guide: eight ConnectX-6 for compute at 200 Gb/s, one for each GPU.
  network = {
    per_gpu = 25e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
