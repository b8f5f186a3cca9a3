-- decoder.lua - a config by its sizes: hidden, feed-forward, layers, heads, key-value heads, vocabulary; and what
-- else there is.
return function(arch, sizes, more)
  local c = { arch, hidden_size = sizes[1], intermediate_size = sizes[2],
              num_hidden_layers = sizes[3], num_attention_heads = sizes[4],
              num_key_value_heads = sizes[5], vocab_size = sizes[6] }
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end
