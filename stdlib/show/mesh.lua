-- mesh.lua - plan.mesh as weft show --json has it.
return function(mesh)
  local size, stride, inner = {}, {}, 1
  for i = #mesh.axes, 1, -1 do
    local axis = mesh.axes[i]
    size[axis], stride[axis], inner = mesh[axis], inner, inner * mesh[axis]
  end
  return { mesh = { order = mesh.axes, size = size, stride = stride, world = #mesh } }
end
