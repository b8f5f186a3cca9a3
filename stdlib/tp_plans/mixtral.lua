-- mixtral.lua - Llama's attention; every expert is cut by ffn, as an MLP is. The router is
-- whole.
return {
  ["embed_tokens"] = "embedding_rowwise",
  ["layers.*.self_attn.q_proj"] = "colwise",
  ["layers.*.self_attn.k_proj"] = "colwise",
  ["layers.*.self_attn.v_proj"] = "colwise",
  ["layers.*.self_attn.o_proj"] = "rowwise",
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
  ["lm_head"] = "colwise",
}
