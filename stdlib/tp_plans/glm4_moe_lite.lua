-- glm4_moe_lite.lua - layers as those of DeepSeek-V3.
return require "weft.tp_plans.deepseek_v3"
