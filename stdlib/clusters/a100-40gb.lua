-- a100-40gb.lua - machines with eight NVIDIA A100 SXM4 40GB, as the first DGX A100.
return {
  like = "a100-80gb",
  aliases = { "a100-sxm-40gb" },
  gpu = {
    memory_gib = 40,                   -- 40,960 MiB in nvidia-smi
    bandwidth = 1.555e12,               -- NVIDIA A100 datasheet
  },
}
