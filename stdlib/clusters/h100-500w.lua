-- h100-500w.lua - machines with eight NVIDIA H100 SXM5 with HBM2e, limited to 500 W.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "h100-hbm2e" },
  gpus = 8,
  gpu = {
    memory_gib = 95,                   -- TorchTitan, arXiv 2410.06511, section 3: 95 GiB
    -- The same paper: at a lower power limit, with a peak between those of the SXM and the NVL
    -- form; this is the peak of the SXM form.
    bf16 = 989.4e12,
    fp8 = 1979e12,
    f32 = 67e12,
    -- What power leaves of it is not published: an A100 of 300 W reaches 0.93 of one of 400 W
    -- (ml-engineering, best shapes of matmul), the fourth root; of the 689 of the SXM form.
    reached = 633e12,
    mma = 0.57,                        -- as h100-sxm
    sms = 132,                         -- Hopper architecture whitepaper
    bandwidth = 2.4e12,                 -- six stacks; the five of the H100 PCIe give 2.0 TB/s
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
