-- model.lua - one of weft's architectures as Megatron's arguments: what import/megatron/model.lua reads, the
-- other way. A key of the config that no argument says is found when the script is read again.
local model = {}

local function put_sizes(s, c)
  s:put("--num-layers", c.num_hidden_layers, "model.num_hidden_layers")
  s:put("--hidden-size", c.hidden_size, "model.hidden_size")
  s:put("--num-attention-heads", c.num_attention_heads, "model.num_attention_heads")
  s:put("--ffn-hidden-size", c.intermediate_size, "model.intermediate_size")
  s:put("--init-method-std", c.initializer_range, "model.initializer_range")
  s:put("--untie-embeddings-and-output-weights", not c.tie_word_embeddings, "model.tie_word_embeddings")
  -- Both are 0.1 if nothing is said. One rate is of the embedding and of the branches.
  local attention, hidden = c.attention_dropout or c.attn_pdrop or 0.0, c.resid_pdrop or 0.0
  s:put("--attention-dropout", attention, attention > 0 and "model.attention_dropout" or nil)
  s:put("--hidden-dropout", hidden, hidden > 0 and "model.resid_pdrop" or nil)
end

-- Positions are as many as sequences have tokens, at least: Megatron wants that of all models.
local function put_positions(s, f)
  local most = f.config.max_position_embeddings
  s:put("--max-position-embeddings", math.max(most, f.value["batch.seq"]), "model.max_position_embeddings")
end

-- Rows of the embedding are padded to a multiple of this times tp.
local function multiple_of(vocab, tp)
  local each = vocab % tp == 0 and vocab // tp or nil
  if not each then return 1 end
  for _, n in ipairs { 128, 64, 32, 16, 8, 4, 2 } do
    if each % n == 0 then return n end
  end
  return each
end

-- Up to February 2026 the null tokenizer has one token more than --vocab-size, of later versions as
-- many: with one fewer than there are rows padding makes the same of both.
local function put_vocabulary(s, f)
  local vocab, tp = f.config.vocab_size, f.value["mesh.tp"]
  s:group "TOKENIZER_ARGS"
  s:put("--tokenizer-type", "NullTokenizer")
  s:put("--vocab-size", vocab - 1, "model.vocab_size")
  s:put("--make-vocab-size-divisible-by", multiple_of(vocab, tp), "model.vocab_size")
end

-- ---- Llama's layers ----

local function whole(x) return x and math.floor(x + 0.5) end

local function put_llama3(s, scaling)
  if type(scaling) ~= "table" or (scaling.rope_type or scaling.type) ~= "llama3" then return end
  s:put("--use-rope-scaling", true, "model.rope_scaling")
  s:put("--rope-scaling-factor", scaling.factor, "model.rope_scaling")
end

local function put_layers(s, c)
  s:put("--position-embedding-type", "rope", "model")
  s:put("--rotary-base", whole(c.rope_theta), "model.rope_theta")
  s:put("--normalization", "RMSNorm", "model")
  s:put("--norm-epsilon", c.rms_norm_eps, "model.rms_norm_eps")
  s:put("--swiglu", true, "model")
  s:put("--disable-bias-linear", true, "model")
end

local function put_heads(s, c)
  s:put("--group-query-attention", true, "model.num_key_value_heads")
  s:put("--num-query-groups", c.num_key_value_heads or c.num_attention_heads, "model.num_key_value_heads")
  s:put("--kv-channels", c.head_dim or c.hidden_size // c.num_attention_heads, "model.head_dim")
end

-- "([0]*3+[1]*58)", a number for each layer.
local function runs_of(layers, number)
  local runs = {}
  for i = 0, layers - 1 do
    local n, last = number(i), runs[#runs]
    if last and last.n == n then last.times = last.times + 1 else runs[#runs + 1] = { n = n, times = 1 } end
  end
  for i, run in ipairs(runs) do runs[i] = string.format("[%d]*%d", run.n, run.times) end
  return "(" .. table.concat(runs, "+") .. ")"
end

-- Which layers have experts.
local function put_dense(s, c, is_dense)
  local any = false
  for i = 0, c.num_hidden_layers - 1 do any = any or is_dense(i) end
  if not any then return end
  s:put("--moe-layer-freq", runs_of(c.num_hidden_layers, function(i) return is_dense(i) and 0 or 1 end), "model")
end

local function put_experts(s, n, topk, width)
  s:group "MOE_ARGS"
  s:put("--num-experts", n, "model")
  s:put("--moe-router-topk", topk, "model.num_experts_per_tok")
  s:put("--moe-ffn-hidden-size", width, "model")
end

local families = {}

function families.llama(s, c)
  put_layers(s, c)
  put_heads(s, c)
  put_llama3(s, c.rope_scaling)
end

function families.qwen2(s, c)
  families.llama(s, c)
  s:put("--add-qkv-bias", true, "model")
end

function families.qwen3(s, c)
  families.llama(s, c)
  s:put("--qk-layernorm", true, "model")
end

-- "127,0": tokens before each that it sees, and behind it. "([1]*3+[0])": 0 for a layer that sees all.
local function put_window(s, c, slides)
  if not c.sliding_window then return end
  s:put("--window-size", string.format("%d,0", c.sliding_window - 1), "model.sliding_window")
  local runs = runs_of(c.num_hidden_layers, function(i) return slides(i) and 1 or 0 end)
  if runs ~= string.format("([1]*%d)", c.num_hidden_layers) then
    s:put("--window-attn-skip-freq", runs, "model.layer_types")
  end
end

function families.mistral(s, c)
  families.llama(s, c)
  put_window(s, c, function() return true end)
end

function families.ministral(s, c)
  families.llama(s, c)
  local types = c.layer_types or {}
  put_window(s, c, function(i) return types[i + 1] ~= "full_attention" end)
end

function families.mixtral(s, c)
  families.llama(s, c)
  put_experts(s, c.num_local_experts, c.num_experts_per_tok, c.intermediate_size)
end

function families.qwen3_moe(s, c)
  families.qwen3(s, c)
  put_experts(s, c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size)
  s:put("--moe-router-pre-softmax", c.norm_topk_prob ~= true, "model.norm_topk_prob")
  local only, step = {}, c.decoder_sparse_step or 1
  for _, layer in ipairs(type(c.mlp_only_layers) == "table" and c.mlp_only_layers or {}) do only[layer] = true end
  put_dense(s, c, function(i) return only[i] or (i + 1) % step ~= 0 end)
end

-- Of YaRN without a scale of all elements, which multiplies what turns by attention_factor: Megatron does by
-- 0.1 * mscale * ln(factor) + 1, which is what it is here if nothing is said, with 1 for mscale.
local function lone_mscale(scaling)
  if not scaling.attention_factor or scaling.factor <= 1 then return 1.0 end
  return tonumber(string.format("%.12g", (scaling.attention_factor - 1) / (0.1 * math.log(scaling.factor))))
end

local function put_latent(s, c)
  s:put("--multi-latent-attention", true, "model")
  s:put("--qk-layernorm", true, "model")
  s:put("--q-lora-rank", c.q_lora_rank, "model.q_lora_rank")
  s:put("--kv-lora-rank", c.kv_lora_rank, "model.kv_lora_rank")
  s:put("--qk-head-dim", c.qk_nope_head_dim, "model.qk_nope_head_dim")
  s:put("--qk-pos-emb-head-dim", c.qk_rope_head_dim, "model.qk_rope_head_dim")
  s:put("--v-head-dim", c.v_head_dim, "model.v_head_dim")
  s:put("--kv-channels", c.v_head_dim) -- not read, but the default is made of sizes that need not go together
  local scaling = c.rope_scaling
  if type(scaling) ~= "table" or (scaling.type or scaling.rope_type) ~= "yarn" then
    s:put("--no-rope-fusion", true) -- of latent attention it is of yarn alone
    return s:put("--rope-type", "rope", "model.rope_scaling")
  end
  s:put("--rope-type", "yarn", "model.rope_scaling")
  s:put("--rotary-scaling-factor", scaling.factor, "model.rope_scaling")
  local all = scaling.mscale_all_dim or 0.0
  s:put("--mscale", all == 0 and lone_mscale(scaling) or scaling.mscale or 1.0, "model.rope_scaling")
  s:put("--mscale-all-dim", all, "model.rope_scaling")
end

function families.deepseek_v3(s, c)
  put_layers(s, c)
  put_latent(s, c)
  if not c.n_routed_experts then return end
  put_experts(s, c.n_routed_experts, c.num_experts_per_tok, c.moe_intermediate_size)
  s:put("--moe-router-score-function", "sigmoid", "model")
  s:put("--moe-router-enable-expert-bias", true, "model")
  s:put("--moe-router-topk-scaling-factor", c.routed_scaling_factor, "model.routed_scaling_factor")
  if (c.n_group or 1) > 1 then
    s:put("--moe-router-num-groups", c.n_group, "model.n_group")
    s:put("--moe-router-group-topk", c.topk_group, "model.topk_group")
  end
  if c.n_shared_experts then
    s:put("--moe-shared-expert-intermediate-size", c.n_shared_experts * c.moe_intermediate_size,
          "model.n_shared_experts")
  end
  put_dense(s, c, function(i) return i < (c.first_k_dense_replace or 0) end)
end

function families.gpt2(s, c)
  s:put("--position-embedding-type", "learned_absolute", "model")
  s:put("--norm-epsilon", c.layer_norm_epsilon, "model.layer_norm_epsilon")
  s:put("--no-bias-gelu-fusion", c.activation_function == "gelu", "model.activation_function")
end

-- How many experts a config has; nil: none.
function model.experts(c) return c.num_local_experts or c.num_experts or c.n_routed_experts end

-- Why these arguments make no such model; nil: they do.
function model.refused(f)
  if families[f.architecture] then return nil end
  return f.architecture .. ": weft export writes Megatron's arguments of " .. table.concat(keys(families), ", ")
end

function model.put(s, f)
  s:group "MODEL_ARGS"
  put_sizes(s, f.config)
  put_positions(s, f)
  families[f.architecture](s, f.config)
  put_vocabulary(s, f)
end

return model
