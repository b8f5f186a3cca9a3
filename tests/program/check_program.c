/* check_program.c - printing of programs (text and JSON) and their structural check. */
#include <check.h>
#include <jansson.h>

#include "tests/generate/program_builder.h"
#include "tests/generate/handmade_regions.h"
#include "vm/program/program_check.h"

enum { KIB = 1024 };

static Arena *arena;

static void setup(void) { arena = arena_new(NULL); }
static void teardown(void) { arena_free(arena); }

/* Two pp ranks of tp = 2. Rank 0 runs a body and sends; rank 1 receives and gathers. */
static Compiled *example(void) {
  Build *b = build_new(arena, 2, 2, 8 * KIB);
  build_comm(b, "tp", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  build_comm(b, "tie(1)", AXIS_BIT(AXIS_PP), 1, (int[]){1}, 1);
  int unit = build_unit(b, 0, "layers.0", (uint64_t[]){KIB}, 1);
  int body = build_body(b, 0, "layer:F", PH_F, 4);
  build_kernel(b, 0, OP_scale, f32_at(2, 0, 16), f32_at(1, 64, 16))->acc = ACC_BIT + 3;
  build_coll(b, 0, 0, COLL_ALL_REDUCE, 1, f32_at(1, 64, 16), f32_at(1, 64, 16), "mlp");
  build_wait(b, 0, 1);
  build_kernel(b, 0, OP_silu, f32_at(1, 64, 16), f32_at(3, 0, 16));
  build_main(b, 0);
  build_line(b, 12);
  build_call(b, 0, body, unit, 2, "F2", (uint64_t[]){2 * KIB, 3 * KIB}, 2);
  Operand o = f32_at(0, 3 * KIB, 16);
  o.ndim = 2, o.dim[0] = 2, o.dim[1] = 8;
  build_send(b, 0, 1, 0, o, "F2 out");
  build_wait(b, 0, 0);
  build_recv(b, 1, 0, 0, o, "F2 in");
  build_wait(b, 1, 0);
  build_coll(b, 1, 0, COLL_ALL_GATHER, 0, typed_at(DT_BF16, 0, KIB, 4),
             typed_at(DT_BF16, 0, 2 * KIB, 8), NULL);
  build_wait(b, 1, 0);
  Compiled *c = build_done(b);
  Program *p = &c->prog[0];
  p->call[0].fresh = 8;
  p->flops = p->body[0].flops = 96;
  p->recomputed = p->body[0].room = 32;
  p->mem = NEW_N(arena, MemClass, 2);
  p->nmem = 2;
  p->mem[0] = (MemClass){"parameters", 2 * KIB, NULL};
  p->mem[1] = (MemClass){"activations", 6 * KIB, "2 slots x 3 KiB"};
  p->input[IN_TOKENS] = 4 * KIB;
  p->attr = NEW_N(arena, OpAttr, 2);
  p->nattr = 2;
  p->attr[1] = (OpAttr){.scale = 0.5f, .n = 3, .cut = AXIS_BIT(AXIS_TP)};
  p->code[p->nmain].attr = 1;
  c->param = NEW(arena, CompiledParam);
  c->param[0] = (CompiledParam){
      .name = "model.norm.weight", .ndim = 1, .dim = {16}, .place = place_whole()};
  c->nparam = 1;
  stored_add(arena, &p->regions, (Stored){.count = 16}, DT_F32,
             (StoredAt){KIB, KIB, KIB + 64, KIB + 128, KIB + 192});
  return c;
}

static const char golden_0[] =
    "rank 1 of 4: pp 0, dp_replicate 0, dp_shard 0, cp 0, tp 1\n"
    "program of pp rank 0: 3 instructions in main, 1 body, 2 handles\n"
    "one step: 1 microbatch of 1 x 8 tokens, f32, 96 flops, 32 of them repeated\n"
    "\n"
    "arena 8192 bytes\n"
    "  parameters                 2048\n"
    "  activations                6144  2 slots x 3 KiB\n"
    "  scalars          @0\n"
    "  tokens           @4096\n"
    "\n"
    "communicators\n"
    "     0  tp           in flight 1, ranks 0 1\n"
    "     1  tie(1)       in flight 1, ranks: not a member\n"
    "\n"
    "regions of the flat parameter buffer\n"
    "     0  work: 16 f32 @1024\n"
    "     1  grad: 16 f32 @1088\n"
    "     2  state1: 16 f32 @1152\n"
    "     3  state2: 16 f32 @1216\n"
    "\n"
    "flat parameter buffer\n"
    "     0  model.norm.weight: 16 elements at 0, block 0, owned elsewhere\n"
    "\n"
    "what calls bind to slots 1, 2, ...\n"
    "     0  layers.0: @1024\n"
    "\n"
    "main\n"
    "     0  CALL   body 0 layer:F layers.0 mb 2 chunk 0 binds 0 fresh 0x8 with @2048 "
    "@3072  \"F2\"  "
    "line 12\n"
    "     1  SEND   h0 to rank 3, 64 bytes, f32[2,8] @3072  \"F2 out\"  line 12\n"
    "     2  WAIT   h0  line 12\n"
    "\n"
    "body 0: layer:F, phase F, 4 slots, 96 flops, room for 32 more\n"
    "     0  KERNEL scale f32[16] $2+0 -> f32[16] $1+64 accumulate unless fresh bit 3 "
    "cut=16 n=3 scale=0.5\n"
    "     1  COLL   h1 all_reduce sum on tp, 64 bytes, f32[16] $1+64 -> f32[16] $1+64  "
    "\"mlp\"\n"
    "     2  WAIT   h1\n"
    "     3  KERNEL silu f32[16] $1+64 -> f32[16] $3+0\n"
    "\n"
    "kernels\n"
    "  scale            y = x * attr.scale\n"
    "  silu             y = x * sigmoid(x)\n";

static const char golden_1[] =
    "rank 2 of 4: pp 1, dp_replicate 0, dp_shard 0, cp 0, tp 0\n"
    "program of pp rank 1: 4 instructions in main, 0 bodies, 1 handle\n"
    "one step: 1 microbatch of 1 x 8 tokens, f32, 0 flops\n"
    "\n"
    "arena 8192 bytes\n"
    "  scalars          @0\n"
    "\n"
    "communicators\n"
    "     0  tp           in flight 1, ranks 2 3\n"
    "     1  tie(1)       in flight 1, ranks 2\n"
    "\n"
    "main\n"
    "     0  RECV   h0 from rank 0, 64 bytes, f32[2,8] @3072  \"F2 in\"  line 12\n"
    "     1  WAIT   h0  line 12\n"
    "     2  COLL   h0 all_gather on tp, 8 bytes, bf16[4] @1024 -> bf16[8] @2048  "
    "line 12\n"
    "     3  WAIT   h0  line 12\n";

START_TEST(text) {
  Text t = {0};
  program_print(example(), 1, true, &t);
  ck_assert_str_eq(t.s, golden_0);
  text_free(&t);
  program_print(example(), 2, true, &t);
  ck_assert_str_eq(t.s, golden_1);
  text_free(&t);
}
END_TEST

static void keys_are_sorted(json_t *v) {
  const char *key, *last = "";
  json_t *item;
  size_t i;
  json_object_foreach(v, key, item) {
    ck_assert_msg(strcmp(last, key) < 0, "\"%s\" comes before \"%s\"", last, key);
    last = key;
    keys_are_sorted(item);
  }
  json_array_foreach(v, i, item) keys_are_sorted(item);
}

static const char *text_of(json_t *v, const char *list, int i, const char *key) {
  json_t *item = json_array_get(json_object_get(v, list), (size_t)i);
  ck_assert_ptr_nonnull(json_object_get(item, key));
  return json_string_value(json_object_get(item, key));
}

static long long number_of(json_t *v, const char *list, int i, const char *key) {
  json_t *item = json_array_get(json_object_get(v, list), (size_t)i);
  ck_assert(json_is_integer(json_object_get(item, key)));
  return json_integer_value(json_object_get(item, key));
}

START_TEST(json) {
  Text t = {0};
  json_error_t why;
  program_json(example(), 1, &t);
  json_t *v = json_loads(t.s, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(v != NULL, "%s at line %d", why.text, why.line);
  keys_are_sorted(v);
  ck_assert_int_eq(json_integer_value(json_object_get(v, "rank")), 1);
  ck_assert_int_eq(json_array_size(json_object_get(v, "main")), 3);
  ck_assert_int_eq(number_of(v, "main", 0, "body"), 0);
  ck_assert_str_eq(text_of(v, "bodies", 0, "name"), "layer:F");
  ck_assert_int_eq(number_of(v, "main", 0, "microbatch"), 2);
  ck_assert_str_eq(text_of(v, "main", 1, "code"), "SEND");
  ck_assert_int_eq(number_of(v, "main", 1, "peer"), 3);
  ck_assert_int_eq(number_of(v, "main", 1, "line"), 12);
  ck_assert_int_eq(number_of(v, "memory", 1, "bytes"), 6 * KIB);
  ck_assert_str_eq(text_of(v, "communicators", 0, "name"), "tp");
  json_t *body = json_array_get(json_object_get(v, "bodies"), 0);
  ck_assert_int_eq(number_of(body, "code", 0, "accumulate"), 3);
  json_t *kernel = json_array_get(json_object_get(body, "code"), 0);
  json_t *attr = json_object_get(kernel, "attr");
  ck_assert_int_eq(json_object_size(attr), 3);
  ck_assert(json_number_value(json_object_get(attr, "scale")) == 0.5);
  ck_assert_str_eq(text_of(body, "code", 1, "collective"), "all_reduce");
  ck_assert_str_eq(text_of(body, "code", 3, "accumulate"), "never");
  json_decref(v);
  text_free(&t);
}
END_TEST

/* ---- communicators ---- */

START_TEST(members) {
  Compiled *c = build_done(build_new(arena, 4, 2, KIB));
  int pp[] = {3, 0}, group[8];
  CommDesc tie = {.axes = AXIS_BIT(AXIS_PP), .npp = 2, .pp = pp};
  CommDesc tie_tp = {.axes = AXIS_BIT(AXIS_PP) | AXIS_BIT(AXIS_TP), .npp = 2, .pp = pp};
  ck_assert_int_eq(comm_size(&c->mesh, &tie), 2);
  ck_assert_int_eq(comm_group(&c->mesh, &tie, 7, group), 2);
  ck_assert_int_eq(group[0], 1);
  ck_assert_int_eq(group[1], 7);
  ck_assert_int_eq(comm_group(&c->mesh, &tie, 3, group), 0);
  ck_assert_int_eq(comm_size(&c->mesh, &tie_tp), 4);
  ck_assert_int_eq(comm_group(&c->mesh, &tie_tp, 6, group), 4);
  ck_assert_int_eq(group[0] + 10 * group[1] + 100 * group[2] + 1000 * group[3], 7610);
  ck_assert_int_eq(rank_on_pp(&c->mesh, 3, 3), 7);
  ck_assert_int_eq(rank_on_pp(&c->mesh, 7, 0), 1);
}
END_TEST

/* ---- structure ---- */

START_TEST(example_is_sound) {
  weft_error e = {0};
  ck_assert_msg(program_check(example(), &e) == WEFT_OK, "%s", e.text);
}
END_TEST

/* Every way to break the example, and what the check then says. */
static void break_it(Compiled *c, int way) {
  Program *p = &c->prog[0];
  Instr *main0 = p->code, *body = p->code + p->nmain;
  switch (way) {
  case 0: c->prog[1].pp = 0; break;
  case 1: main0[0].code = I_N; break;
  case 2: main0[0].call = 1; break;
  case 3: p->call[0].body = 1; break;
  case 4: p->call[0].unit = 2; break;
  case 5: p->call[0].ndyn = 3; break;
  case 6: p->call[0].ndyn = 1; break;
  case 7: main0[1].peer = 0; break;
  case 8: main0[1].handle = 2; break;
  case 9: main0[1].operand = 7; break;
  case 10: main0[1].what = 4; break;
  case 11: p->operand[main0[1].operand].slot = 1; break;
  case 12: p->operand[main0[1].operand].off = 3; break;
  case 13: p->operand[main0[1].operand].off = 8 * KIB - 60; break;
  case 14: p->operand[main0[1].operand].dtype = DT_ACT; break;
  case 15: p->operand[main0[1].operand].ndim = 5; break;
  case 16: p->operand[main0[1].operand].dim[0] = -1; break;
  case 17: p->dyn[1] = 8 * KIB - 32; break;
  case 18: body[0].code = I_CALL; break;
  case 19: body[0].op = OP_N; break;
  case 20: body[0].op = OP_mul; break;
  case 21: body[0].attr = 2; break;
  case 22: body[1].comm = 2; break;
  case 23: body[1].comm = 1; break;
  case 24: body[1].coll = COLL_SEND; break;
  case 25: body[1].coll = COLL_REDUCE_SCATTER; break;
  case 26: body[1].red = RED_MAX + 1; break;
  case 27: p->operand[body[1].operand].dtype = DT_I32; break;
  case 28: p->body[0].n = 5; break;
  case 29: p->mem[0].bytes++; break;
  case 30: p->input[IN_LABELS] = 8 * KIB - 31; break;
  case 31: p->scalars = 8 * KIB - 8 * SC_N + 8; break;
  case 32: p->regions.region[3].off = 8 * KIB - 60; break;
  case 33: p->regions.param[0].param = 1; break;
  case 34: p->call[0].nbind = 2; break;
  case 35: c->prog[1].ncomm = 1; break;
  case 38: p->regions.param[0].block = 1; break;
  case 39: p->regions.block[0].first = 16; break;
  case 40: p->regions.block[0].whole = 15; break;
  case 41: p->regions.region[1].ways = 2; break;
  case 42: p->regions.region[1].spread = true, p->regions.region[1].count = 8; break;
  case 43: p->operand[body[0].operand].shard = AXIS_BIT(AXIS_TP); break;
  case 44:
    p->operand[main0[1].operand].off = 8 * KIB - 64;
    p->operand[main0[1].operand].shard = AXIS_BIT(AXIS_TP);
    break;
  case 45: p->operand[main0[1].operand].shard = AXES_ALL | AXIS_BIT(AXIS_EP); break;
  case 46: p->body[0].phase = PH_UPDATE + 1; break;
  default:
    c->prog[1].comm = NEW_N(arena, CommDesc, 2);
    memcpy(c->prog[1].comm, p->comm, 2 * sizeof(CommDesc));
    c->prog[1].comm[1].axes = way == 36 ? AXES_DP : AXIS_BIT(AXIS_PP);
    c->prog[1].comm[1].in_flight += way == 37;
  }
}

static const char *const said[] = {
    "program 1 is of pp rank 0",
    "main[0] ?: unknown instruction ",
    "main[0] CALL: call 1 of 1",
    "main[0] CALL: body 1 of 1",
    "main[0] CALL: unit 2 of 2",
    "main[0] CALL: dynamic slots 0..+3 of 2",
    "body layer:F has 4 slots, the call binds 3",
    "main[1] SEND: peer 0 is no other pp rank",
    "main[1] SEND: handle 2 of 2",
    "main[1] SEND: operands 7..+1 of 7",
    "main[1] SEND: name 4 of 4",
    "operand 0 is in slot 1 of 1",
    "offset 3 is not a multiple of f32",
    "the reach of main is 8196, the limit is 8192",
    "operand 0 has no storage type",
    "operand 0 has 5 dimensions",
    "operand 0: dimension 0 is negative",
    "main[0] CALL: layer:F: slot 3 at 8160 reaches 64 bytes, the arena has 8192",
    "body layer:F[0] CALL: bodies do not call",
    "body layer:F[0] KERNEL: op ",
    "mul is given 1 inputs and 1 results, not 2 and 1",
    "attributes 2 of 2",
    "body layer:F[1] COLL: communicator 2 of 2",
    "this rank is no member of tie(1)",
    "6 is not a collective",
    "reduce_scatter of 16 elements gives 16 over tp of 2 ranks",
    "unknown reduction ",
    "i32 in, f32 out",
    "the end of a body is 8, the limit is 7",
    "the sum of memory classes is 8193, the limit is 8192",
    "the end of an input is 8193, the limit is 8192",
    "the end of the scalars is 8200, the limit is 8192",
    "the end of a region is 8196",
    "a parameter is 1, the limit is 1",
    "main[0] CALL: parameter slots 0..+2 of 1",
    "the number of communicators is 1",
    "communicator 1 (tie(1)) is not the one of pp rank 0",
    "communicator 1 (tie(1)) is not the one of pp rank 0",
    "the block of a parameter is 1, the limit is 1",
    "the blocks of a region, elements is 16",
    "the blocks of a region, elements is 16",
    "the shards of a region is 2, the limit is 1",
    "the length of a region is 8, the limit is 16",
    "body layer:F[0] KERNEL: operand 0 is a shard over axes",
    "the reach of main is 8256, the limit is 8192",
    "main[1] SEND: operand 0 is a shard over axes",
    "the phase of a body is 5, the limit is 4",
};

START_TEST(broken_ones_are_named) {
  Compiled *c = example();
  weft_error e = {0};
  break_it(c, _i);
  ck_assert_int_eq(program_check(c, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, said[_i]) != NULL, "way %d: %s", _i, e.text);
}
END_TEST

/* Each number that is out of its range by one, with what the check then says. */
typedef struct Beyond {
  const char *said;
  void (*does)(Compiled *c, Program *p, Instr *main, Instr *body);
} Beyond;

#define BEYOND(name, ...)                                                                \
  static void name(Compiled *c, Program *p, Instr *main, Instr *body) { __VA_ARGS__; }
BEYOND(peer_below, main[1].peer = -1)
BEYOND(peer_above, main[1].peer = 2)
BEYOND(handle_below, main[1].handle = -1)
BEYOND(inputs_below, main[1].nin = -1)
BEYOND(results_below, main[1].nout = -1)
BEYOND(scratch_below, main[1].nwork = -1)
BEYOND(scratch_above, body[0].nwork = 2)
BEYOND(nothing_sent, main[1].nin = 0)
BEYOND(also_received, main[1].nin = 0; main[1].nout = 1)
BEYOND(comm_below, body[1].comm = -1)
BEYOND(bit_above, body[0].acc = ACC_BIT + 64)
BEYOND(action_below, main[1].action = -1)
BEYOND(action_above, main[1].action = 1)
BEYOND(gathers_in_a_body, body[2].code = I_GATHER)
BEYOND(main_above, p->nmain = p->ncode + 1)
BEYOND(body_in_main, p->body[0].first = p->nmain - 1)
BEYOND(copy_below, p->bind[0].copy = BIND_STORED - 1)
BEYOND(copy_above, p->bind[0].copy = p->nunit)
BEYOND(number_again, p->number[1] = p->number[0])
BEYOND(scalars_off, p->scalars = 4)
BEYOND(input_far, p->input[IN_TOKENS] = UINT64_MAX - 4)
BEYOND(input_above, p->input[IN_SEED] = 8 * KIB - 3)
BEYOND(on_host_in_a_body, p->operand[body[0].operand].off = HOST_BASE)
BEYOND(host_above, p->operand[main[1].operand].off = HOST_BASE + 64)
BEYOND(type_above, p->operand[main[1].operand].dtype = DT_ACT)
BEYOND(region_kind, p->regions.region[0].kind = REGION_N)
BEYOND(region_type, p->regions.region[0].dtype = DT_ACT)
BEYOND(region_below, p->regions.region[0].first = -1)
BEYOND(region_far, p->regions.region[0].off = 8 * KIB + 64)
BEYOND(region_above, p->regions.region[0].off = 8 * KIB - 60)
BEYOND(region_on_host, p->regions.region[0].off = HOST_BASE)
BEYOND(param_below, p->regions.param[0].param = -1)
BEYOND(block_below, p->regions.param[0].block = -1)
BEYOND(param_early, p->regions.param[0].at = -1)
BEYOND(param_late, p->regions.param[0].at = 1)
BEYOND(param_short, p->regions.param[0].count = 15)
BEYOND(block_empty, p->regions.block[0].n = 0)
BEYOND(block_long, p->regions.block[0].n = 2)
BEYOND(block_later, p->regions.block[0].at = 1)
BEYOND(pp_below, ((int *)p->comm[1].pp)[0] = -1)
BEYOND(pp_above, ((int *)p->comm[1].pp)[0] = 2)
BEYOND(inputs_above, body[1].nin = 2)
BEYOND(call_binds, p->call[0].nbind = 0)
BEYOND(gathered_by_maximum, c->prog[1].code[2].red = RED_MAX)

static const Beyond beyond[] = {
    {"main[1] SEND: peer -1 is no other pp rank", peer_below},
    {"main[1] SEND: peer 2 is no other pp rank", peer_above},
    {"main[1] SEND: handle -1 of 2", handle_below},
    {"main[1] SEND: operands 6..+-1 of 7", inputs_below},
    {"main[1] SEND: operands 6..+0 of 7", results_below},
    {"main[1] SEND: operands 6..+0 of 7", scratch_below},
    {"body layer:F[0] KERNEL: 2 places for scratch", scratch_above},
    {"main[1] SEND: it needs one operand", nothing_sent},
    {"main[1] SEND: it needs one operand", also_received},
    {"body layer:F[1] COLL: communicator -1 of 2", comm_below},
    {"body layer:F[0] KERNEL: accumulation bit 64 of 64", bit_above},
    {"main[1] SEND: action -1 is not in the schedule", action_below},
    {"main[1] SEND: action 1 is not in the schedule", action_above},
    {"body layer:F[2] GATHER: it belongs into main", gathers_in_a_body},
    {"the length of main is 8, the limit is 7", main_above},
    {"the end of a body is 6, the limit is 7", body_in_main},
    {"the unit of a gathered copy is 18446744073709551614, the limit is 2", copy_below},
    {"the unit of a gathered copy is 2, the limit is 2", copy_above},
    {"the number of a unit is 0, the limit is 1", number_again},
    {"the end of the scalars is", scalars_off},
    {"the end of an input is 27, the limit is 8192", input_far},
    {"the end of an input is 8193, the limit is 8192", input_above},
    {"operand 0 of a body is on the host", on_host_in_a_body},
    {"the reach on the host is 128, the limit is 0", host_above},
    {"operand 0 has no storage type", type_above},
    {"the kind of a region is", region_kind},
    {"the type of a region is", region_type},
    {"the length of a region is 16, the limit is 16", region_below},
    {"the end of a region is 8320, the limit is 8192", region_far},
    {"the end of a region is 8196, the limit is 8192", region_above},
    {"the end of a region is 64, the limit is 0", region_on_host},
    {"a parameter is 18446744073709551615, the limit is 1", param_below},
    {"the block of a parameter is 18446744073709551615, the limit is 1", block_below},
    {"model.norm.weight: 16 elements from -1 on overlap those before", param_early},
    {"model.norm.weight: 16 elements from 1 on have no place in a region", param_late},
    {"model.norm.weight is 15, the limit is 16", param_short},
    {"the start of a block is 0, the limit is 0", block_empty},
    {"the start of a block is 0, the limit is 0", block_long},
    {"the start of a block is 0, the limit is 0", block_later},
    {"communicator tie(1): pp rank -1 is not there or twice", pp_below},
    {"communicator tie(1): pp rank 2 is not there or twice", pp_above},
    {"it needs one input and one result", inputs_above},
    {"body layer:F has 4 slots, the call binds 3", call_binds},
    {"main[2] COLL: a reduction in all_gather, which has none", gathered_by_maximum},
};

START_TEST(one_too_many_is_named) {
  Compiled *c = example();
  Program *p = &c->prog[0];
  weft_error e = {0};
  beyond[_i].does(c, p, p->code, p->code + p->nmain);
  ck_assert_msg(program_check(c, &e) == WEFT_EINTERNAL, "\"%s\" is not said",
                beyond[_i].said);
  ck_assert_msg(strstr(e.text, beyond[_i].said) != NULL, "\"%s\" is not in: %s",
                beyond[_i].said, e.text);
}
END_TEST

/* What ends where the arena ends is inside. */
START_TEST(what_just_fits_is_sound) {
  for (int i = 0; i < 5; i++) {
    Compiled *c = example();
    Program *p = &c->prog[0];
    weft_error e = {0};
    switch (i) {
    case 0: p->operand[p->code[1].operand].off = 8 * KIB - 64; break;
    case 1: p->input[IN_LABELS] = 8 * KIB - 32; break;
    case 2: p->input[IN_SEED] = 8 * KIB - 4; break;
    case 3: p->scalars = 8 * KIB - 8 * SC_N; break;
    default: p->code[p->nmain].acc = ACC_BIT + 63;
    }
    ck_assert_msg(program_check(c, &e) == WEFT_OK, "%d: %s", i, e.text);
  }
}
END_TEST

/* ---- rows that are counted ---- two places of three rows of two */

static Compiled *counted(void) {
  Build *b = build_new(arena, 1, 2, 8 * KIB);
  build_comm(b, "ep", AXIS_BIT(AXIS_TP), 1, NULL, 0);
  Operand places = f32_at(0, 0, 2), counts = typed_at(DT_I32, 0, KIB, 2);
  places.ndim = 3, places.dim[1] = 3, places.dim[2] = 2;
  counts.ndim = 2, counts.dim[1] = 4;
  Operand o[] = {places, counts, counts, places};
  o[2].off += 64, o[3].off = 2 * KIB;
  build_rows(b, 0, 0, 0, o, "experts");
  build_wait(b, 0, 0);
  return build_done(b);
}

START_TEST(counts_are_shown) {
  Text text = {0}, json = {0};
  Compiled *c = counted();
  weft_error e = {0};
  ck_assert_int_eq(program_check(c, &e), WEFT_OK);
  program_print(c, 0, true, &text);
  program_json(c, 0, &json);
  const char *line = "COLL   h0 all_to_all_v on ep, at most 48 bytes, f32[2,3,2] @0 rows "
                     "i32[2,4] @1024, i32[2,4] @1088 -> f32[2,3,2] @2048  \"experts\"\n";
  ck_assert_msg(strstr(text.s, line) != NULL, "%s", text.s);
  json_t *j = json_loads(json.s, 0, NULL);
  json_t *x = json_array_get(json_object_get(j, "main"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(x, "collective")), "all_to_all_v");
  ck_assert_int_eq((int)json_array_size(json_object_get(x, "in")), 3);
  json_t *out = json_array_get(json_object_get(x, "out"), 0);
  ck_assert_int_eq((int)json_integer_value(json_object_get(out, "offset")), 2 * KIB);
  json_decref(j);
  text_free(&text);
  text_free(&json);
}
END_TEST

START_TEST(broken_counts_are_named) {
  static const char *const why[] = {
      "operand 1 is no count for each of 2 ranks",
      "operand 2 is no count for each of 2 ranks",
      "operand 1 is no count for each of 2 ranks",
      "it needs one input with two counts",
      "places of 6 elements are not of rows of 4",
      "places of 0 elements are not of rows of 0",
      "it needs one input and one result",
  };
  Compiled *c = counted();
  Instr *in = &c->prog[0].code[0];
  Operand *o = &c->prog[0].operand[in->operand];
  weft_error e = {0};
  switch (_i) {
  case 0: o[1].dtype = DT_F32; break;
  case 1: o[2].dim[1] = 2; break;
  case 2: o[1].dim[0] = o[2].dim[0] = 3, o[1].dim[1] = o[2].dim[1] = 1; break;
  case 3: in->nin = 2; break;
  case 4: o[0].ndim = 2, o[0].dim[0] = 3, o[0].dim[1] = 4; break;
  case 5: o[0].ndim = 1, o[0].dim[0] = o[3].dim[0] = 0; break;
  default: in->coll = COLL_ALL_TO_ALL;
  }
  ck_assert_int_eq(program_check(c, &e), WEFT_EINTERNAL);
  ck_assert_msg(strstr(e.text, why[_i]), "way %d: %s", _i, e.text);
}
END_TEST

START_TEST(names) {
  ck_assert_str_eq(instr_name[I_CALL], "CALL");
  ck_assert_str_eq(instr_name[I_WAIT], "WAIT");
  for (int i = 0; i < COLL_N; i++) ck_assert_ptr_nonnull(coll_info[i].name);
  for (int i = 0; i < IN_N; i++) ck_assert_ptr_nonnull(input_name[i]);
  ck_assert_str_eq(coll_info[COLL_REDUCE_SCATTER].name, "reduce_scatter");
  ck_assert_str_eq(prog_phase_name[PH_UPDATE], "update");
}
END_TEST

Suite *program_suite(void) {
  Suite *s = suite_create("program");
  TCase *tc = tcase_create("printing");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, text);
  tcase_add_test(tc, json);
  tcase_add_test(tc, members);
  tcase_add_test(tc, names);
  suite_add_tcase(s, tc);
  tc = tcase_create("structure");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, example_is_sound);
  tcase_add_loop_test(tc, broken_ones_are_named, 0, LEN(said));
  tcase_add_loop_test(tc, one_too_many_is_named, 0, LEN(beyond));
  tcase_add_test(tc, what_just_fits_is_sound);
  tcase_add_test(tc, counts_are_shown);
  tcase_add_loop_test(tc, broken_counts_are_named, 0, 7);
  suite_add_tcase(s, tc);
  return s;
}
