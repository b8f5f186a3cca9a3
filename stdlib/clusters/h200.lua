-- h200.lua - machines with eight NVIDIA H200 SXM 141GB, as DGX H200 and HGX H200: the H100 SXM
-- with other memory. The rates and links are those of the H200 datasheet, too, and the user guide
-- of DGX H200 has the same cards for the network.
return {
  like = "h100-sxm",
  aliases = { "h200-sxm", "h200-141gb" },
  gpu = {
    memory_gib = 143771 / 1024,        -- total memory as nvidia-smi reports it
    -- Azure's AI benchmarking guide, ND H200 v5: 0.690 of the peak, FP8, 16,384 cubed, random values.
    reached = 683e12,
    bandwidth = 4.8e12,                 -- NVIDIA H200 Tensor Core GPU datasheet
  },
}
