-- help.lua - what weft VERB --help says, by verb; `plan` follows where a verb takes a plan. The verbs are in
-- files as they are in folders of bindings/cli.
local help = {
  plan = [[
  --set PATH=VALUE   change a field: --set mesh.tp=4, --set 'optimizer=weft.lion { lr = 1e-4 }';
                     nil leaves it out; without --set behind the plan, too: PLAN.lua mesh.tp=4
  -D NAME=VALUE      the plan has it as weft.var("NAME", DEFAULT) or weft.vars.NAME
  --data DIR         data and models may be below DIR as well; may be repeated
  --memory GIB       most that graph, schedule and programs may take; default: half
                     of the machine's
]],

  codes = [[
Exit codes: 0 ok; 1 the plan or the run is wrong; 2 usage or file; 3 a limit was hit;
4 internal; 130 interrupted.
]],
}

for _, group in ipairs { "run", "convert", "judge", "data", "machine" } do
  for verb, text in pairs(use("help/" .. group)) do help[verb] = text end
end
return help
