/* check_mesh_object.c - meshes as Lua objects. */
#include <check.h>

#include "tests/harness/lua_run.h"
#include "tests/harness/scratch.h"

#define SMALL "local m = weft.mesh { tp = 2, pp = 2, dp = 2, gpus = 4 }\n"
#define LARGE "local m = weft.mesh { tp = 8, pp = 4, world = 64 }\n"

START_TEST(coordinates) {
  lua_run(LARGE "local c = m:coord(37)\n"
                "same(c.pp, 2) same(c.dp, 0) same(c.tp, 5) same(c.cp, 0)\n"
                "same(c.dp_shard, 0) same(c.node, 4) same(c.local_rank, 5)\n"
                "prints(c, '{ pp = 2, dp = 0, tp = 5, node = 4, local_rank = 5 }')\n"
                "for r = 0, m.world - 1 do same(m:rank(m:coord(r)), r) end\n"
                "same(m:rank { pp = 3, dp = 1, tp = 7 }, 63)\n"
                "same(m:rank { pp = 3, dp_shard = 1, tp = 7 }, 63)\n"
                "local node, here = m:node(37) same(node, 4) same(here, 5)\n");
}
END_TEST

/* With dp_replicate the two parts of dp are axes of their own. */
START_TEST(split_data_parallel) {
  lua_run("local m = weft.mesh { tp = 2, dp = 6, dp_replicate = 2 }\n"
          "for r = 0, m.world - 1 do same(m:rank(m:coord(r)), r) end\n"
          "same(m:coord(11).dp, 5) same(m:coord(11).dp_replicate, 1)\n"
          "prints(m:coord(11), '{ dp_replicate = 1, dp_shard = 2, tp = 1, node = 1, '\n"
          "  .. 'local_rank = 3 }')\n"
          "same(m:rank { dp = 4, tp = 0 }, 8)\n"
          "prints(m:group('dp', 1), '{ 1, 3, 5, 7, 9, 11 }  -- 2 nodes')\n"
          "prints(m:group('dp_replicate', 1), '{ 1, 7 }  -- 1 node')\n"
          "raises('dp = 5 does not fit the other coordinates: rank 8 has dp = 4',\n"
          "  m.rank, m, { dp = 5, dp_replicate = 1, dp_shard = 1, tp = 0 })\n");
}
END_TEST

START_TEST(groups) {
  lua_run(LARGE
          "prints(m:group('tp', 37), '{ 32, 33, 34, 35, 36, 37, 38, 39 }  -- 1 node')\n"
          "prints(m:group('pp', 37), '{ 5, 21, 37, 53 }  -- 4 nodes')\n"
          "prints(m:group('dp', 37), '{ 37, 45 }  -- 2 nodes')\n"
          "same(#m:group('pp+dp', 0), 8) same(#m:group('world', 0), 64)\n"
          "prints(m:group('node', 13), '{ 8, 9, 10, 11, 12, 13, 14, 15 }  -- 1 node')\n"
          "for _, axis in ipairs { 'tp', 'pp', 'dp', 'dp+tp', 'node', 'world' } do\n"
          "  local seen, n = {}, 0\n"
          "  for _, g in ipairs(m:groups(axis)) do\n"
          "    for _, r in ipairs(g) do\n"
          "      assert(not seen[r]) seen[r] = true n = n + 1 end\n"
          "    if axis ~= 'node' then\n"
          "      local other = m:group(axis, g[#g])\n"
          "      for i = 1, #g do same(other[i], g[i]) end end\n"
          "  end\n"
          "  same(n, 64)\n"
          "end\n"
          "prints(weft.mesh { tp = 2, dp = 2 }:groups 'tp',\n"
          "  '{ 0, 1 }  -- 1 node\\n{ 2, 3 }  -- 1 node')\n");
}
END_TEST

START_TEST(neighbors) {
  lua_run(LARGE "local n = m:neighbors(0)\n"
                "same(#n, 3) same(n[1].axis, 'pp') same(n.pp.prev, 48)\n"
                "same(n.pp.next, 16) same(n.dp.prev, 8) same(n.dp_shard.next, 8)\n"
                "same(n.tp.prev, 7) same(n.tp.next, 1)\n"
                "prints(n, 'pp           prev 48, next 16\\n'\n"
                "  .. 'dp           prev 8, next 8\\n'\n"
                "  .. 'tp           prev 7, next 1')\n"
                "says(weft.mesh {}:neighbors(0), 'no neighbors')\n");
}
END_TEST

START_TEST(views) {
  lua_run(
      LARGE
      "local f = m:flatten { 'pp', 'tp' }\n"
      "same(table.concat(f.axes, ' '), 'pp+tp dp_replicate dp_shard cp')\n"
      "same(f['pp+tp'], 32) same(f.dp, 2)\n"
      "prints(f:group('pp+tp', 8), '{ 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, '\n"
      "  .. '28, 29, 30, 31, 40, 41, 42, 43, 44, 45, 46, 47, 56, 57, 58, 59, 60, '\n"
      "  .. '61, 62, 63 }  -- 4 nodes')\n"
      "same(m:flatten { 'dp', 'cp' }.axes[2], 'dp_cp')\n"
      "same(m:flatten { 'cp', 'tp', name = 'model' }.model, 8)\n"
      "for r = 0, 63 do same(f:rank(f:coord(r)), r) end\n"
      "local s = m:slice { pp = 1 }\n"
      "same(#s, 16) same(s.ranks[1], 16) same(s.ranks[16], 31) same(s.nodes, 2)\n"
      "prints(s:group('dp', 20), '{ 20, 28 }  -- 2 nodes')\n"
      "raises('rank 3 is not in this part of the mesh', s.coord, s, 3)\n"
      "raises('no axis \"pp\"', s.group, s, 'pp', 20)\n"
      "same(#m:slice { pp = 1, dp = 0 }, 8) same(#m:slice { tp = 3 }, 8)\n"
      "same(m:slice { pp = 3, dp = 1, tp = 7 }.ranks[1], 63)\n");
}
END_TEST

/* tp is fastest in the dense mesh, etp in the expert mesh. */
START_TEST(experts) {
  lua_run("local m = weft.mesh { pp = 2, dp = 4, tp = 2, ep = 4, etp = 1 }\n"
          "local e = m.expert\n"
          "same(table.concat(e.axes, ' '), 'pp ep_shard ep etp')\n"
          "same(e.ep, 4) same(e.ep_shard, 2) same(e.etp, 1) same(e.world, 16)\n"
          "prints(e:group('ep', 9), '{ 8, 9, 10, 11 }  -- 1 node')\n"
          "prints(e:group('ep_shard', 9), '{ 9, 13 }  -- 1 node')\n"
          "for r = 0, 15 do same(e:rank(e:coord(r)), r) end\n"
          "same(m.ep, 4) same(m.ep_shard, 2) same(m.etp, 1)\n"
          "for _, axis in ipairs { 'ep', 'etp', 'ep_shard', 'pp+ep' } do\n"
          "  same(tostring(m:groups(axis)), tostring(e:groups(axis)))\n"
          "  for r = 0, 15 do\n"
          "    same(tostring(m:group(axis, r)), tostring(e:group(axis, r))) end\n"
          "end\n"
          "prints(m:group('ep_shard', 9), '{ 9, 13 }  -- 1 node')\n"
          "says(m, 'experts: ep_shard=2 ep=4 etp=1,')\n"
          "assert(not tostring(weft.mesh { tp = 2, dp = 2 }):find 'experts')\n"
          "assert(not tostring(e):find 'experts')\n"
          "raises('no axis \"tp\"; it has pp, ep_shard, ep, etp', function() return e.tp "
          "end)\n"
          "local part = m:slice { pp = 1 }\n"
          "raises('slice mesh.expert', part.group, part, 'ep', 8)\n"
          "raises('slice mesh.expert', function() return part.ep end)\n"
          "raises('no axis \"ep+tp\"; it has pp', m.group, m, 'ep+tp', 0)\n"
          /* The expert mesh of a part would be that of the whole. */
          "raises('slice mesh.expert', function() return m:slice { pp = 1 }.expert end)\n"
          "same(#e:slice { pp = 1 }, 8)\n");
}
END_TEST

START_TEST(grid) {
  lua_run(SMALL
          "prints(m, [[\n"
          "mesh pp=2 dp=2 tp=2: 8 ranks on 2 nodes of 4; slowest axis first\n"
          "              tp     0     1\n"
          "  pp 0   dp 0    |   0     1 |  node 0\n"
          "  pp 0   dp 1    |   2     3 |  node 0\n"
          "                 |------------\n"
          "  pp 1   dp 0    |   4     5 |  node 1\n"
          "  pp 1   dp 1    |   6     7 |  node 1]])\n"
          "prints(weft.mesh { tp = 8, gpus = 4 }, [[\n"
          "mesh tp=8: 8 ranks on 2 nodes of 4; slowest axis first\n"
          "  tp     0     1     2     3     4     5     6     7\n"
          "     |   0     1     2     3 |   4     5     6     7 |  nodes 0 to 1]])\n"
          "says(weft.mesh {}, 'mesh: 1 rank on 1 node of 8')\n"
          "for dp = 1, 64 do\n"
          "  local text = tostring(weft.mesh { dp = dp })\n"
          "  for r = 0, dp - 1 do assert(text:find(' ' .. r .. ' '), r) end\n"
          "end\n");
}
END_TEST

START_TEST(summary) {
  lua_run("local m = weft.mesh { tp = 8, pp = 16, world = 16384 }\n"
          "prints(m, [[\n"
          "mesh pp=16 dp=128 tp=8: 16384 ranks on 2048 nodes of 8; slowest axis first\n"
          "  axis             size   stride  nodes  ranks of the first group\n"
          "  pp                 16     1024     16  0, 1024, 2048, 3072, ..., 15360\n"
          "  dp                128        8    128  0, 8, 16, 24, ..., 1016\n"
          "  tp                  8        1      1  0, 1, 2, 3, 4, 5, 6, 7]])\n");
}
END_TEST

START_TEST(fields) {
  lua_run(SMALL
          "same(m.world, 8) same(#m, 8) same(m.nodes, 2) same(m.gpus, 4)\n"
          "same(m.tp, 2) same(m.pp, 2) same(m.dp, 2) same(m.dp_shard, 2) same(m.cp, 1)\n"
          "same(m.dp_replicate, 1) same(#m.axes, 5) same(#m.ranks, 8)\n"
          "same(m, weft.mesh { tp = 2, pp = 2, world = 8, gpus = 4 })\n"
          "assert(m ~= weft.mesh { tp = 2, pp = 2, world = 8 })\n"
          "same(getmetatable(m), 'weft.mesh')\n"
          "local o = weft.mesh { tp = 2, pp = 2, order = { 'tp', 'dp', 'cp', 'pp' } }\n"
          "prints(o:group('pp', 0), '{ 0, 1 }  -- 1 node')\n");
}
END_TEST

START_TEST(errors) {
  lua_run(
      LARGE
      "raises(\"weft.mesh has no 'wrld' (did you mean 'world'?)\",\n"
      "  function() return m.wrld end)\n"
      "raises(\"has no 'neighbours' (did you mean 'neighbors'?)\",\n"
      "  function() m:neighbours(1) end)\n"
      "raises('cannot be changed', function() m.tp = 3 end)\n"
      "raises('no axis \"dp_shar\" (did you mean \"dp_shard\"?)', m.group, m, 'dp_shar', "
      "0)\n"
      "raises('it has pp, dp_replicate', m.group, m, 'frobnicate', 0)\n"
      "raises('there is no rank 64: the mesh has 64, counted from 0', m.coord, m, 64)\n"
      "raises('there is no rank -1', m.node, m, -1)\n"
      "raises('number expected', m.coord, m, 'x')\n"
      "raises('with a colon', m.coord, 3)\n"
      "raises('dp_shard is missing: from 0 to 1', m.rank, m, { pp = 1, tp = 0 })\n"
      "raises('tp must be an integer from 0 to 7', m.rank, m, { pp = 1, dp = 0, tp = 8 "
      "})\n"
      "raises('no axis \"tpp\"', m.rank, m, { tpp = 1 })\n"
      "raises('node = 7 does not fit the other coordinates: rank 17 has node = 2',\n"
      "  m.rank, m, { pp = 1, dp = 0, tp = 1, node = 7 })\n"
      "raises('named twice', m.flatten, m, { 'dp', 'dp_shard' })\n"
      "raises('name the axes in a list', m.flatten, m, {})\n"
      "raises(\"no option 'nam'\", m.flatten, m, { 'dp', nam = 'x' })\n"
      "for _, name in ipairs { '', 5, 'a b', 'a+b', ('x'):rep(64) } do\n"
      "  raises('name must be a string', m.flatten, m, { 'dp', name = name }) end\n"
      "for _, name in ipairs { 'pp', 'world', 'node', 'local_rank' } do\n"
      "  raises('stands for something else', m.flatten, m, { 'dp', name = name }) end\n"
      "same(m:flatten { 'dp', 'tp', name = 'tp' }.tp, 16)\n"
      "raises('item 1 is number', m.flatten, m, { 1 })\n"
      "raises('table expected', m.slice, m, 1)\n");
}
END_TEST

/* All reasons at once, with the line of the script. */
START_TEST(impossible) {
  lua_run(
      "raises('test:2: weft.mesh: tp: tp * pp * cp = 3 does not divide world = 64',\n"
      "  function() weft.mesh { tp = 3, world = 64 } end)\n"
      "local _, e = pcall(weft.mesh, { tp = 0, wrld = 64, pp = 'x', order = 3 })\n"
      "says(e, 'weft.mesh: tp: expected an integer from 1 to 1e7, got number 0')\n"
      "says(e, 'weft.mesh: pp: expected an integer from 1 to 1e7, got string \"x\"')\n"
      "says(e, 'wrld: a mesh has no such field (did you mean \"world\"?)')\n"
      "says(e, 'weft.mesh: order: expected a list of axes')\n"
      "raises('order', weft.mesh, { order = { 'tp', 'tp' } })\n"
      "raises('table expected', weft.mesh, 3)\n"
      "raises('the keys are names', weft.mesh, { [{}] = 1 })\n"
      "same(weft.mesh { tp = 64 / 8, pp = 2.0 }.tp, 8)\n");
}
END_TEST

Suite *mesh_object_suite(void) {
  Suite *s = suite_create("mesh_object");
  TCase *tc = tcase_create("meshes");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_add_test(tc, coordinates);
  tcase_add_test(tc, split_data_parallel);
  tcase_add_test(tc, groups);
  tcase_add_test(tc, neighbors);
  tcase_add_test(tc, views);
  tcase_add_test(tc, experts);
  tcase_add_test(tc, grid);
  tcase_add_test(tc, summary);
  tcase_add_test(tc, fields);
  tcase_add_test(tc, errors);
  tcase_add_test(tc, impossible);
  suite_add_tcase(s, tc);
  return s;
}
