-- mi300x.lua - machines with eight AMD Instinct MI300X on a fully connected board.
-- Rates are the vendor's peaks per GPU without sparsity, bandwidths those of one direction.
return {
  aliases = { "mi300" },
  gpus = 8,
  gpu = {
    memory_gib = 192,                  -- AMD Instinct MI300X datasheet
    -- The same: peaks without sparsity; FP32 of matrices.
    bf16 = 1307.4e12,
    fp8 = 2614.9e12,
    f32 = 163.4e12,
    -- Azure's AI benchmarking guide, ND MI300X v5: 0.443 of the peak, FP8, 8,192 cubed, random values.
    reached = 580e12,
    sms = 304,                         -- compute units, the same
    bandwidth = 5.3e12,                 -- the same
    -- The platform's datasheet: seven Infinity Fabric links of 128 GB/s, both directions
    -- together, one to each other GPU; rings over all of them use all links, two GPUs only one.
    nvlink = 448e9,
    peer = 64e9,
    nvlink_latency = 3.4e-6,           -- no figure of AMD's: that of NVLink
    -- PCIe 5.0 x16; of the memory of the host each GPU's share is about as fast.
    host = 64e9,
  },
  -- Reference servers have eight cards at 400 Gb/s, one for each GPU.
  network = {
    per_gpu = 50e9,
    latency = 9.6e-6,                  -- NCCL's tuning table again: hwLat, Ring/Simple, NET
  },
}
