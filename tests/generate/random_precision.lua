-- random_precision.lua - draws the number formats of a plan by number: f32 for two of three;
-- gradients in bf16 that ops in f32 make; bf16 with gradients and master weights in either type.
-- And in how many pieces the head makes its logits, where its gradient is in f32.
-- `routes`: whether the model chooses experts, which in bf16 are others. `new_draw` is that of
-- random_draw.lua.
local function formats(new_draw, number, routes)
  local d = new_draw(number + 29)
  if not d:maybe(3) then return "f32" end
  local grads = { grad_dtype = "bf16", reduce_dtype = d:pick { "bf16", "f32", false } or nil }
  if routes or d:maybe(2) then return grads end
  grads.param_dtype = "bf16"
  grads.grad_dtype = d:pick { "bf16", "bf16", "f32" }
  grads.master_dtype = d:pick { "bf16", "bf16", "f32", false } or nil
  return grads
end

return function(new_draw, number, routes)
  local of, d = formats(new_draw, number, routes), new_draw(number + 37)
  if type(of) == "table" and of.grad_dtype ~= "f32" then return of end
  return of, d:pick { 2, 4, "auto", false, false, false } or nil
end
