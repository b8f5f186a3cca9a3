-- a100-80gb.lua - machines with eight NVIDIA A100 SXM4 80GB, as DGX A100 and HGX A100.
-- Rates are the vendor's peaks per GPU, bandwidths are those of one direction.
return {
  aliases = { "a100", "a100-sxm" },
  gpus = 8,
  memory = 81920 * 2^20,               -- total memory as nvidia-smi reports it
  -- NVIDIA A100 80GB datasheet, SXM column: BF16 without sparsity; FP32 outside the
  -- tensor cores.
  bf16 = 312e12,
  f32 = 19.5e12,
  hbm_bandwidth = 2.039e12,            -- the same datasheet
  nvlink_bandwidth = 300e9,            -- the same: 600 GB/s, both directions together
  -- Cost of one step of a ring in NCCL's own tuning table (hwLat, Ring/Simple, NVLINK).
  nvlink_latency = 3.4e-6,
  -- DGX A100 user guide: eight ConnectX-6 for compute at 200 Gb/s, one for each GPU.
  network_bandwidth = 25e9,
  network_latency = 9.6e-6,            -- NCCL's table again, NET
  -- PCIe 4.0 x16; of the memory of the host each GPU's share is about as fast.
  host_bandwidth = 32e9,
}
