-- olmo3.lua - layers as those of OLMo 2.
return require "weft.tp_plans.olmo2"
