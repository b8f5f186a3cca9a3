-- h100-sxm.lua - machines with eight NVIDIA H100 SXM5 80GB, as DGX H100 and HGX H100.
-- Rates are the vendor's peaks per GPU, bandwidths are those of one direction.
return {
  aliases = { "h100", "h100-80gb" },
  gpus = 8,
  -- What nvidia-smi reports as total memory (81,559 MiB), not the 80 GB on the label.
  memory = 81559 * 2^20,
  -- NVIDIA H100 Tensor Core GPU datasheet, SXM column: BF16 1,979 TFLOP/s with
  -- sparsity, half of that without; FP32 outside the tensor cores.
  bf16 = 989.4e12,
  f32 = 67e12,
  hbm_bandwidth = 3.35e12,             -- the same datasheet
  nvlink_bandwidth = 450e9,            -- the same: 900 GB/s, both directions together
  -- Cost of one step of a ring in NCCL's own tuning table (hwLat, Ring/Simple, NVLINK).
  nvlink_latency = 3.4e-6,
  -- DGX H100 user guide: eight ConnectX-7 at 400 Gb/s, one for each GPU.
  network_bandwidth = 50e9,
  network_latency = 9.6e-6,            -- NCCL's table again, NET
  -- PCIe 5.0 x16; of the memory of the host each GPU's share is about as fast.
  host_bandwidth = 64e9,
}
