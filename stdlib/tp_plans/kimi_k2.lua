-- kimi_k2.lua - layers as those of DeepSeek-V3.
return require "weft.tp_plans.deepseek_v3"
