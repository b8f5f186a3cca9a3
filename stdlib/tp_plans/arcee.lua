-- arcee.lua - Llama's plan without gates, as Nemotron's.
return require "weft.tp_plans.nemotron"
