-- h100-pcie.lua - servers with eight NVIDIA H100 PCIe 80GB, linked in pairs by NVLink bridges.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "h100-pcie-80gb" },
  gpus = 8,
  domain = 2,                          -- an NVLink bridge joins two
  gpu = {
    -- What nvidia-smi reports as total memory (81,559 MiB), not the 80 GB on the label.
    memory_gib = 81559 / 1024,
    -- NVIDIA H100 PCIe product brief: BF16 1,513 and FP8 3,026 TFLOP/s with sparsity, half of that
    -- without; FP32 outside the tensor cores.
    bf16 = 756e12,
    fp8 = 1513e12,
    f32 = 51e12,
    -- By the power of 350 W: an A100 of 300 W reaches 0.93 of one of 400 W (ml-engineering, best
    -- shapes of matmul), the fourth root; of the 689 of the SXM form, with 114 of its 132 SMs.
    reached = 500e12,
    mma = 0.57,                        -- as h100-sxm
    sms = 114,                         -- Hopper architecture whitepaper
    bandwidth = 2.0e12,                 -- the product brief
    -- The same: 600 GB/s over a bridge, both directions together.
    nvlink = 300e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    host = 64e9,                       -- PCIe 5.0 x16, one direction
  },
  -- The network is the server's: give network = { per_gpu =, latency = }.
}
