-- kimi_k2.lua - Kimi K2: DeepSeek-V3 with other sizes, by another model_type.
return require "weft.models.deepseek_v3"
