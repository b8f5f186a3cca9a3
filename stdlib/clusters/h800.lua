-- h800.lua - machines with eight NVIDIA H800 SXM5 80GB: an H100 SXM with slower NVLink.
return {
  like = "h100-sxm",
  aliases = { "h800-sxm" },
  gpu = {
    -- NVIDIA H800 datasheet: 400 GB/s, both directions together.
    nvlink = 200e9,
  },
}
