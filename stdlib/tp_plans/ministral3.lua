-- ministral3.lua - layers as those of Llama.
return require "weft.tp_plans.llama"
