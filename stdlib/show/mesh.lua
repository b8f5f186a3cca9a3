-- mesh.lua - plan.mesh as weft show --json has it; `experts`: sizes of the expert mesh, where these
-- are its own.
return function(mesh)
  local size, stride, inner = {}, {}, 1
  for i = #mesh.axes, 1, -1 do
    local axis = mesh.axes[i]
    size[axis], stride[axis], inner = mesh[axis], inner, inner * mesh[axis]
  end
  local of, experts = mesh.expert, nil
  if of.ep > 1 or of.etp ~= mesh.tp then experts = { ep_shard = of.ep_shard, ep = of.ep, etp = of.etp } end
  return { mesh = { experts = experts, order = mesh.axes, size = size, stride = stride, world = #mesh } }
end
