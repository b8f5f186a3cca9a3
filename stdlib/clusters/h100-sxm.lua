-- h100-sxm.lua - machines with eight NVIDIA H100 SXM5 80GB, as DGX H100 and HGX H100.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "h100", "h100-80gb" },
  gpus = 8,
  gpu = {
    -- What nvidia-smi reports as total memory (81,559 MiB), not the 80 GB on the label.
    memory_gib = 81559 / 1024,
    -- NVIDIA H100 Tensor Core GPU datasheet, SXM column: BF16 1,979 and FP8 3,958 TFLOP/s with
    -- sparsity, half of that without; FP32 outside the tensor cores.
    bf16 = 989.4e12,
    fp8 = 1979e12,
    f32 = 67e12,
    -- Azure's AI benchmarking guide, ND H100 v5: 0.696 of the peak, FP8, 16,384 cubed, random values.
    reached = 689e12,
    -- FlashAttention-2, heads of 128, forward: 370 of 989 TFLOP/s (figure 5 of FlashAttention-3,
    -- arXiv:2407.08608), 0.66 of the peak on A100.
    mma = 0.57,
    sms = 132,                         -- Hopper architecture whitepaper
    bandwidth = 3.35e12,                -- the datasheet
    -- The datasheet: 900 GB/s, both directions together.
    nvlink = 450e9,
    nvlink_latency = 3.4e-6,           -- a ring's step in NCCL's tuning table (Ring/Simple, NVLINK)
    -- PCIe 5.0 x16; of the memory of the host each GPU's share is about as fast.
    host = 64e9,
  },
  -- DGX H100 user guide: eight ConnectX-7 at 400 Gb/s, one for each GPU.
  network = {
    per_gpu = 50e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
