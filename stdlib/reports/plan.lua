-- plan.lua - methods of plan objects that put together what others say. `report(kind,
-- value)` gives a table the printed form of stdlib/reports/KIND.lua.
return function(report)
  local methods = {}

  -- plan:rank(n): who the rank is, what it runs, holds and sends.
  function methods.rank(plan, n)
    local mesh, memory = plan.mesh, plan:memory(n)
    local coord, groups, at = {}, {}, mesh:coord(n)
    for _, axis in ipairs(mesh.axes) do
      if mesh[axis] > 1 then
        local name = axis == "dp_shard" and mesh.dp_replicate == 1 and "dp" or axis
        local group = mesh:group(axis, n)
        coord[#coord + 1] = { axis = name, at = at[axis] }
        groups[#groups + 1] = { axis = name, ranks = group, nodes = group.nodes }
      end
    end
    local stages, schedule = {}, plan:schedule()
    for _, s in ipairs(plan:stages()) do
      if s.pp == memory.pp then stages[#stages + 1] = s end
    end
    return report("rank", {
      rank = n, world = #mesh, node = at.node, local_rank = at.local_rank, coord = coord,
      groups = groups, stages = stages, microbatches = schedule.microbatches,
      actions = schedule[memory.pp + 1], memory = memory, comm = plan:comm(n),
    })
  end

  return methods
end
