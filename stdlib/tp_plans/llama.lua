-- llama.lua - the usual tensor-parallel plan of Llama: attention and MLP are cut by heads
-- and by ffn, embedding and head by vocabulary (the loss is computed on the cut logits).
-- With tied embeddings there is no lm_head weight; the embedding's cut is the head's.
return {
  ["embed_tokens"] = "embedding_rowwise",
  ["layers.*.self_attn.q_proj"] = "colwise",
  ["layers.*.self_attn.k_proj"] = "colwise",
  ["layers.*.self_attn.v_proj"] = "colwise",
  ["layers.*.self_attn.o_proj"] = "rowwise",
  ["layers.*.mlp.gate_proj"] = "colwise",
  ["layers.*.mlp.up_proj"] = "colwise",
  ["layers.*.mlp.down_proj"] = "rowwise",
  ["lm_head"] = "colwise",
}
