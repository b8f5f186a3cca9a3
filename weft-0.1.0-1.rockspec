-- weft-0.1.0-1.rockspec - the module "weft" for Lua 5.4 as a rock: in the root of the sources
--
--   luarocks --lua-version 5.4 make
--
-- builds and installs it; ./dev rock packs it, so that it can be installed without sources.
rockspec_format = "3.0"
package = "weft"
version = "0.1.0-1"
source = { url = "git+file://." } -- where luarocks finds it: luarocks make takes the folder that it runs in
description = {
  summary = "plans of parallel training, checked, proven, swept and run",
  detailed = [[
    require "weft" gives meshes, plans and sweeps as objects: docs/scripting.md of the sources.]],
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua == 5.4" }
external_dependencies = {
  JANSSON = { header = "jansson.h" },
  YAML = { header = "yaml.h" },
  DNNL = { header = "dnnl.h" },
  EDIT = { header = "histedit.h" },
  ONIGURUMA = { header = "oniguruma.h" },
  UTF8PROC = { header = "utf8proc.h" },
}
build = {
  type = "command",
  build_command = "cmake -S . -B build-rock -D CMAKE_BUILD_TYPE=Release -D WEFT_TESTS=OFF -D WEFT_CUDA=OFF "
    .. "-D WEFT_MPI=OFF -D WEFT_BLAS=OFF && cmake --build build-rock --parallel \"$(nproc)\" --target module",
  install_command = "cmake --install build-rock --component rock --strip --prefix build-rock/rock",
  install = {
    lib = {
      weft = "build-rock/rock/weft.so",
      ["weft.weft_gemm_dnnl"] = "build-rock/rock/weft/weft_gemm_dnnl.so",
      ["weft.weft_text"] = "build-rock/rock/weft/weft_text.so",
    },
  },
}
