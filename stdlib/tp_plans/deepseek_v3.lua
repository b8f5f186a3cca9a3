-- deepseek_v3.lua - heads, ffn and vocabulary are cut. What leads to the latents is whole
-- on each rank: they are narrow, and all heads read them. Its gradients are sums over the
-- heads of all ranks.
return {
  ["embed_tokens"] = "embedding_rowwise",
  ["layers.*.self_attn.q_proj"] = "colwise",
  ["layers.*.self_attn.q_b_proj"] = "colwise",
  ["layers.*.self_attn.kv_b_proj"] = "colwise",
  ["layers.*.self_attn.o_proj"] = "rowwise",
  ["layers.*.mlp.gate_proj"] = "colwise",
  ["layers.*.mlp.up_proj"] = "colwise",
  ["layers.*.mlp.down_proj"] = "rowwise",
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
  ["layers.*.mlp.shared_experts.gate_proj"] = "colwise",
  ["layers.*.mlp.shared_experts.up_proj"] = "colwise",
  ["layers.*.mlp.shared_experts.down_proj"] = "rowwise",
  ["lm_head"] = "colwise",
}
