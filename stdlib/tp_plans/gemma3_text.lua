-- gemma3_text.lua - Qwen3's plan: norms over each head of q and k.
return require "weft.tp_plans.qwen3"
