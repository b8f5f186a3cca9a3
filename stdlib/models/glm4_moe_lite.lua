-- glm4_moe_lite.lua - GLM-4.7-Flash: DeepSeek-V3's latent attention and experts; the layers with an
-- MLP are the first one, or those that mlp_layer_types says.
local deepseek_v3 = require "weft.models.deepseek_v3"

local changes = {
  vocab_size = 154880, hidden_size = 2048, intermediate_size = 10240, moe_intermediate_size = 1536,
  num_hidden_layers = 47, num_attention_heads = 20, num_key_value_heads = 20,
  n_routed_experts = 64, routed_scaling_factor = 1.8, q_lora_rank = 768, qk_nope_head_dim = 192,
  v_head_dim = 256, n_group = 1, topk_group = 1, num_experts_per_tok = 4,
  max_position_embeddings = 202752, rms_norm_eps = 1e-5, first_k_dense_replace = 1,
  mlp_layer_types = false,
}
local glm = deepseek_v3.like("Glm4MoeLiteForCausalLM", changes, {
  { "first_k_dense_replace", "only", { 1 } }, { "mlp_layer_types", "each", { "dense", "sparse" } },
})
for _, key in ipairs { "first_k_dense_replace", "num_nextn_predict_layers", "moe_layer_freq",
                       "scoring_func", "topk_method" } do
  glm.unwritten[key] = true
end

return glm
