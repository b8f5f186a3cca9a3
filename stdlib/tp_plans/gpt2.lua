-- gpt2.lua - c_attn packs q, k and v side by side: every rank takes its heads of each of
-- the three. Positions are replicated; the head is the embedding's weight, cut the same.
return {
  ["wte"] = "embedding_rowwise",
  ["wpe"] = "replicate",
  ["h.*.attn.c_attn"] = "packed_colwise",
  ["h.*.attn.c_proj"] = "rowwise",
  ["h.*.mlp.c_fc"] = "colwise",
  ["h.*.mlp.c_proj"] = "rowwise",
  ["lm_head"] = "colwise",
}
