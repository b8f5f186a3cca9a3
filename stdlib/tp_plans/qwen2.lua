-- qwen2.lua - Llama's plan; the biases of q, k and v are cut with their weights.
return require "weft.tp_plans.llama"
