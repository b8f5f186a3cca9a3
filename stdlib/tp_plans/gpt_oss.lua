-- gpt_oss.lua - Llama's attention, of whose sinks every rank has all; every expert is cut by
-- ffn, its way out has a whole bias. The router is whole.
return {
  ["embed_tokens"] = "embedding_rowwise",
  ["layers.*.self_attn.q_proj"] = "colwise",
  ["layers.*.self_attn.k_proj"] = "colwise",
  ["layers.*.self_attn.v_proj"] = "colwise",
  ["layers.*.self_attn.o_proj"] = "rowwise",
  ["layers.*.self_attn.sinks"] = "replicate",
  ["layers.*.mlp.experts.gate_up_proj"] = "colwise",
  ["layers.*.mlp.experts.gate_up_proj_bias"] = "colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
  ["layers.*.mlp.experts.down_proj_bias"] = "rowwise",
  ["lm_head"] = "colwise",
}
