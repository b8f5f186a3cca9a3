/* kernel_cases.c - the table of cases and the generation of their operands. */
#include "kernel_cases.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "vm/program/program.h"

const KernelCase kernel_case[] = {
    {OP_embedding, "t50 2,5 w 50,7", "x 2,5,7", {0}, 0},
    {OP_embedding, "t60 3,41 w 30,300", "x 3,41,300", {.cut = 1}, 1},
    {OP_linear, "x 1,1,1 w 1,1", "x 1,1,1", {0}, 0},
    {OP_linear, "x 2,3,5 w 7,5", "x 2,3,7", {0}, 0},
    {OP_linear, "x 2,3,5 w 5,7", "x 2,3,7", {.layout = 1}, 0},
    {OP_linear, "x 3,31,65 w 130,65", "x 3,31,130", {0}, 0},
    {OP_linear, "x 3,31,65 w 65,130", "x 3,31,130", {.layout = 1}, 0},
    {OP_linear, "x 2,64,96 w 257,96", "x 2,64,257", {0}, 0},
    {OP_linear, "x 2,64,256 w 256,64", "x 2,64,64", {.layout = 1}, 0},
    {OP_linear, "x 1,1,300 w 40,300", "x 1,1,40", {0}, 0},
    {OP_add_bias, "x 2,3,5 w 5", "x 2,3,5", {0}, 0},
    {OP_add_bias, "x 2,83,300 w 300", "x 2,83,300", {0}, 0},
    {OP_add, "x 2,3,5 x 2,3,5", "x 2,3,5", {0}, 0},
    {OP_add, "x 3,2,2737 x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_mul, "x 2,3,5 x 2,3,5", "x 2,3,5", {0}, 0},
    {OP_mul, "x 3,2,2737 x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_scale, "x 3,2,2737", "x 3,2,2737", {.scale = 0.37f}, 0},
    {OP_gelu, "x 3,2,2737", "x 3,2,2737", {.kind = 0}, 0},
    {OP_gelu, "x 3,2,2737", "x 3,2,2737", {.kind = 1}, 0},
    {OP_silu, "x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_relu, "x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_silu_mul, "x 3,2,2737 x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_rmsnorm, "x 2,3,8 w 8", "x 2,3,8 f 2,3", {.eps = 1e-5f}, 0},
    {OP_rmsnorm, "x 2,70,301 w 301", "x 2,70,301 f 2,70", {.eps = 1e-6f}, 0},
    {OP_rmsnorm, "x 2,35,160 w 40", "x 2,35,160 f 2,35,4", {.eps = 1e-6f}, 0},
    {OP_layernorm, "x 2,3,8 w 8 b 8", "x 2,3,8 f 2,3,2", {.eps = 1e-5f}, 0},
    {OP_layernorm, "x 2,70,301 w 301 b 301", "x 2,70,301 f 2,70,2", {.eps = 1e-5f}, 0},
    {OP_split, "x 2,3,12", "x 2,3,4 x 2,3,4 x 2,3,4", {.n = 3}, 0},
    {OP_split, "x 2,80,202", "x 2,80,101 x 2,80,101", {.n = 2}, 0},
    {OP_rope, "x 2,5,24 i4096 2,5", "x 2,5,24", {.head_dim = 8, .theta = 1e4f}, 0},
    {OP_rope,
     "x 2,70,260 i131072 2,70",
     "x 2,70,260",
     {.head_dim = 130, .theta = 5e5f},
     0},
    {OP_rope,
     "x 1,33,128 i131072 1,33",
     "x 1,33,128",
     {.head_dim = 64,
      .theta = 5e5f,
      .rope_factor = 8,
      .rope_low = 1,
      .rope_high = 4,
      .rope_original = 8192},
     0},
    {OP_rope,
     "x 2,5,60 i4096 2,5",
     "x 2,5,60",
     {.head_dim = 20,
      .theta = 1e4f,
      .rotary_dim = 8,
      .rotary_from = 12,
      .interleaved = 1},
     0},
    {OP_rope,
     "x 2,9,22 i70 2,9",
     "x 2,9,22",
     {.head_dim = 11,
      .theta = 100,
      .rotary_dim = 6,
      .rotary_from = 2,
      .rope_scale = 1.3f},
     0},
    {OP_rope,
     "x 1,33,384 i163840 1,33",
     "x 1,33,384",
     {.head_dim = 192,
      .theta = 1e4f,
      .rotary_dim = 64,
      .rotary_from = 128,
      .yarn = 1,
      .interleaved = 1,
      .rope_factor = 40,
      .rope_low = 10,
      .rope_high = 23,
      .rope_scale = 0.8f},
     0},
    {OP_rope,
     "x 2,3,520 i99 2,3",
     "x 2,3,520",
     {.head_dim = 260, .theta = 5e5f, .interleaved = 1},
     0},
    {OP_split_heads, "x 2,3,15", "x 2,3,6 x 2,3,9", {.head_dim = 5, .head_part = 2}, 0},
    {OP_split_heads,
     "x 2,80,202",
     "x 2,80,130 x 2,80,72",
     {.head_dim = 202, .head_part = 130},
     0},
    {OP_join_heads, "x 2,3,6 x 2,3,9", "x 2,3,15", {.head_dim = 5, .head_part = 2}, 0},
    {OP_join_heads, "x 2,3,12 x 2,3,1", "x 2,3,16", {.head_dim = 4, .head_part = 3}, 0},
    {OP_join_heads,
     "x 3,40,90 x 3,40,71",
     "x 3,40,729",
     {.head_dim = 81, .head_part = 10},
     0},
    {OP_attention,
     "x 1,1,4 x 1,1,4 x 1,1,4",
     "x 1,1,4 f 1,1,1",
     {.head_dim = 4, .scale = 0.5f},
     0},
    {OP_attention,
     "x 2,7,15 x 2,7,15 x 2,7,15",
     "x 2,7,15 f 2,7,3",
     {.head_dim = 5, .scale = 0.4f},
     0},
    {OP_attention,
     "x 2,150,80 x 2,150,40 x 2,150,40",
     "x 2,150,80 f 2,150,4",
     {.head_dim = 20, .scale = 0.22f},
     0},
    {OP_attention,
     "x 1,129,128 x 1,129,64 x 1,129,64",
     "x 1,129,128 f 1,129,2",
     {.head_dim = 64, .scale = 0.125f},
     0},
    {OP_attention,
     "x 2,150,80 x 2,150,40 x 2,150,40 s 2,150",
     "x 2,150,80 f 2,150,4",
     {.head_dim = 20, .scale = 0.22f},
     0},
    {OP_attention,
     "x 1,200,32 x 1,200,32 x 1,200,32 s 1,200",
     "x 1,200,32 f 1,200,2",
     {.head_dim = 16, .scale = 0.25f},
     0},
    {OP_attention,
     "x 2,66,256 x 2,66,64 x 2,66,64",
     "x 2,66,256 f 2,66,4",
     {.head_dim = 64, .scale = 0.125f},
     0},
    {OP_attention,
     "x 1,130,256 x 1,130,256 x 1,130,256",
     "x 1,130,256 f 1,130,2",
     {.head_dim = 128, .scale = 0.088f},
     0},
    {OP_attention,
     "x 2,50,40 x 2,150,20 x 2,150,20",
     "x 2,50,40 f 2,50,4",
     {.head_dim = 10, .scale = 0.3f, .n = 3},
     1},
    {OP_attention,
     "x 1,128,64 x 1,512,32 x 1,512,32",
     "x 1,128,64 f 1,128,4",
     {.head_dim = 16, .scale = 0.25f, .n = 4, .mirror = 1},
     2},
    {OP_attention,
     "x 2,150,80 x 2,300,40 x 2,300,40 s 2,150",
     "x 2,150,80 f 2,150,4",
     {.head_dim = 20, .scale = 0.22f, .n = 2, .mirror = 1},
     1},
    {OP_attention,
     "x 1,70,16 x 1,140,16 x 1,140,16",
     "x 1,70,16 f 1,70,2",
     {.head_dim = 8, .scale = 0.3f, .n = 2, .mirror = 1},
     0},
    {OP_attention,
     "x 2,150,80 x 2,150,40 x 2,150,24",
     "x 2,150,48 f 2,150,4",
     {.head_dim = 20, .scale = 0.22f, .value_dim = 12},
     0},
    {OP_attention,
     "x 1,70,18 x 1,70,18 x 1,70,102 s 1,70",
     "x 1,70,102 f 1,70,2",
     {.head_dim = 9, .scale = 0.3f, .value_dim = 51},
     0},
    {OP_attention,
     "x 1,65,384 x 1,130,384 x 1,130,256",
     "x 1,65,256 f 1,65,2",
     {.head_dim = 192, .scale = 0.07f, .n = 2, .value_dim = 128},
     1},
    {OP_attention,
     "x 2,80,80 x 2,160,40 x 2,160,40 z4 2,160",
     "x 2,80,80 f 2,80,4",
     {.head_dim = 20, .scale = 0.22f, .n = 2, .mirror = 1, .parts = 4},
     1},
    {OP_attention,
     "x 1,240,32 x 1,240,32 x 1,240,32 z6 1,240",
     "x 1,240,32 f 1,240,2",
     {.head_dim = 16, .scale = 0.25f, .parts = 6},
     0},
    {OP_attention,
     "x 1,100,256 x 1,100,128 x 1,100,128 s 1,100",
     "x 1,100,256 f 1,100,2",
     {.head_dim = 128, .scale = 0.09f},
     0},
    {OP_attention,
     "x 1,140,100 x 1,140,100 x 1,140,70",
     "x 1,140,70 f 1,140,1",
     {.head_dim = 100, .scale = 0.1f, .value_dim = 70},
     0},
    {OP_attention,
     "x 1,37,256 x 1,37,256 x 1,37,232 s 1,37",
     "x 1,37,232 f 1,37,1",
     {.head_dim = 256, .scale = 0.06f, .value_dim = 232},
     0},
    {OP_attention_part,
     "x 1,96,32 x 1,96,32 x 1,96,32 f 1,96,32 f 1,96,2 z8 1,192",
     "x 1,96,32 f 1,96,2",
     {.head_dim = 16, .scale = 0.25f, .n = 2, .mirror = 1, .parts = 8, .step = 1},
     1},
    {OP_attention_part,
     "x 2,50,40 x 2,50,20 x 2,50,20",
     "f 2,50,40 f 2,50,4",
     {.head_dim = 10, .scale = 0.3f, .n = 3},
     1},
    {OP_attention_part,
     "x 1,128,64 x 1,128,32 x 1,128,32 f 1,128,64 f 1,128,4",
     "x 1,128,64 f 1,128,4",
     {.head_dim = 16, .scale = 0.25f, .n = 4, .mirror = 1, .step = 1},
     2},
    {OP_attention_part,
     "x 1,140,64 x 1,140,32 x 1,140,32 f 1,140,64 f 1,140,4 s 1,140",
     "f 1,140,64 f 1,140,4",
     {.head_dim = 16, .scale = 0.25f, .n = 3, .mirror = 1, .step = 2},
     1},
    {OP_attention_part,
     "x 2,70,16 x 2,70,16 x 2,70,16 s 2,70",
     "x 2,70,16 f 2,70,2",
     {.head_dim = 8, .scale = 0.3f, .n = 2, .mirror = 1},
     1},
    {OP_attention_part,
     "x 2,66,30 x 2,66,10 x 2,66,10 f 2,66,30 f 2,66,3",
     "f 2,66,30 f 2,66,3",
     {.head_dim = 10, .scale = 0.3f, .n = 4, .step = 3},
     3},
    {OP_attention_part,
     "x 2,70,24 x 2,70,12 x 2,70,20 f 2,70,40 f 2,70,4",
     "x 2,70,40 f 2,70,4",
     {.head_dim = 6, .value_dim = 10, .scale = 0.3f, .n = 2, .mirror = 1, .step = 1},
     0},
    {OP_attention_part,
     "x 1,33,8 x 1,33,8 x 1,33,8 f 1,33,8 f 1,33,2",
     "f 1,33,8 f 1,33,2",
     {.head_dim = 4, .scale = 0.5f, .n = 2, .step = 1},
     0},
    {OP_flatten, "x 2,3,5", "x 6,5", {0}, 0},
    {OP_unflatten, "x 6,5", "x 2,3,5", {0}, 0},
    {OP_router_logits, "x 1,1 w 1,1", "f 1,1", {0}, 0},
    {OP_router_logits, "x 70,301 w 12,301", "f 70,12", {0}, 0},
    {OP_route, "f 5,4", "f 5,2 t4 5,2", {.topk = 2, .scale = 1, .norm_topk = 1}, 0},
    {OP_route, "f 90,60", "f 90,8 t60 90,8", {.topk = 8, .scale = 1}, 0},
    {OP_route, "f 90,60", "f 90,8 t60 90,8", {.topk = 8, .scale = 1, .norm_topk = 1}, 0},
    {OP_route,
     "f 90,60 b 60",
     "f 90,8 t60 90,8",
     {.topk = 8, .scale = 2.5f, .norm_topk = 1, .score = SCORE_SIGMOID},
     0},
    {OP_route,
     "f 90,60 b 60",
     "f 90,8 t60 90,8",
     {.topk = 8,
      .scale = 2.5f,
      .norm_topk = 1,
      .score = SCORE_SIGMOID,
      .groups = 6,
      .topk_group = 3},
     0},
    {OP_route,
     "f 30,12 b 12",
     "f 30,3 t12 30,3",
     {.topk = 3, .scale = 0.5f, .score = SCORE_SIGMOID},
     0},
    {OP_expert_counts, "t9 7,3 l50 7", "f 10", {.experts = 9}, 0},
    {OP_expert_load, "t9 7,3", "f 9", {0}, 0},
    {OP_expert_load, "t130 700,8", "f 130", {0}, 0},
    {OP_router_loss, "f 50,12 v 13", "f 1", {.topk = 3, .n = 60, .aux = 900, .z = 7}, 0},
    {OP_router_loss,
     "f 50,12 v 13",
     "f 1",
     {.topk = 3, .n = 60, .aux = 900, .z = 7, .score = SCORE_SIGMOID},
     0},
    {OP_permute, "x 1,1 t1 1,1 v 1,1", "x 1,1 t1 2 t1 1,1", {.experts = 1}, 0},
    {OP_permute,
     "x 70,301 t12 70,3 v 70,3",
     "x 210,301 t1 13 t1 70,3",
     {.experts = 12},
     0},
    {OP_permute,
     "x 20,7 t12 20,3 v 20,3",
     "x 60,7 t1 5 t1 20,3",
     {.experts = 12, .cut = 1},
     2},
    {OP_permute,
     "x 70,9 t6 70,3 v 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .capacity = 0.8, .drop = DROP_POSITION},
     0},
    {OP_permute,
     "x 70,9 t6 70,3 v 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .capacity = 0.8, .drop = DROP_PROBS},
     0},
    {OP_permute,
     "x 70,9 t6 70,3 v 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .capacity = 0.7, .drop = DROP_PROBS, .n = 5},
     0},
    {OP_permute,
     "x 70,9 t6 70,3 v 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .capacity = 0.7, .drop = DROP_POSITION, .n = 10},
     0},
    {OP_permute,
     "x 40,7 t12 40,3 v 40,3",
     "x 120,7 t1 5 t1 40,3",
     {.experts = 12, .cut = 1, .capacity = 1, .drop = DROP_PROBS, .n = 4},
     2},
    {OP_permute,
     "x 70,9 t6 70,3 e 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .capacity = 0.5, .drop = DROP_PROBS},
     0},
    {OP_permute,
     "x 70,9 t6 70,3 v 70,3",
     "x 210,9 t1 7 t1 70,3",
     {.experts = 6, .bound = 1.1, .drop = DROP_POSITION, .n = 2, .parts = 3},
     0},
    {OP_permute,
     "x 600,9 t6 600,3 v 600,3",
     "x 1800,9 t1 7 t1 600,3",
     {.experts = 6, .bound = 1, .drop = DROP_PROBS, .parts = 2},
     0},
    {OP_permute,
     "x 40,7 t12 40,3 v 40,3",
     "x 52,7 t1 5 t1 40,3",
     {.experts = 12, .cut = 1, .bound = 1.3, .drop = DROP_PROBS, .n = 4, .parts = 3},
     2},
    {OP_permute,
     "x 40,7 t12 40,3 v 40,3",
     "x 40,7 t1 5 t1 40,3",
     {.experts = 12, .cut = 1, .bound = 1, .drop = DROP_POSITION, .n = 4, .parts = 3},
     1},
    {OP_permute,
     "x 40,7 t12 40,3 v 40,3",
     "x 120,7 t1 13 t1 40,3",
     {.experts = 12, .bound = 3, .n = 4, .parts = 3},
     0},
    {OP_grouped_linear, "x 1,1 w 1,1,1 o1 2", "x 1,1", {0}, 0},
    {OP_grouped_linear, "x 40,7 w 5,9,7 o40 6", "x 40,9", {0}, 0},
    {OP_grouped_linear, "x 300,130 w 4,70,130 o290 5", "x 300,70", {0}, 0},
    {OP_expert_sizes, "t50 13", "t1 3,4", {0}, 0},
    {OP_expert_ends, "t9 1,1", "t1 2", {0}, 0},
    {OP_expert_ends, "t9 3,4", "t1 5", {0}, 0},
    {OP_regroup, "x 1,4,1 t5 1,1", "x 4,1", {0}, 0},
    {OP_regroup, "x 3,17,7 t5 3,4", "x 60,7", {0}, 0},
    {OP_regroup, "x 3,17,301 t5 3,4", "x 51,301", {.kind = 1}, 0},
    {OP_regroup, "x 60,7 t5 3,4", "x 3,17,7", {.inverse = 1}, 0},
    {OP_regroup, "x 51,301 t5 3,4", "x 3,17,301", {.kind = 1, .inverse = 1}, 0},
    {OP_combine, "x 6,5 v 3,2 r6 3,2", "x 3,5", {0}, 0},
    {OP_combine, "x 210,301 v 70,3 r210 70,3", "x 70,301", {0}, 0},
    {OP_attention_step,
     "x 1,1,4 x 1,1,4 x 1,1,4 i1 1,1",
     "x 1,1,4 x 1,1,4 x 1,1,4",
     {.head_dim = 4, .scale = 0.5f, .n = 1},
     0},
    {OP_attention_step,
     "x 3,1,30 x 3,1,10 x 3,1,10 i7 3,1",
     "x 3,1,30 x 3,7,10 x 3,7,10",
     {.head_dim = 5, .scale = 0.4f, .n = 7},
     0},
    {OP_attention_step,
     "x 2,1,320 x 2,1,320 x 2,1,320 i300 2,1",
     "x 2,1,320 x 2,300,320 x 2,300,320",
     {.head_dim = 160, .scale = 0.08f, .n = 300},
     0},
    {OP_attention_step,
     "x 3,1,60 x 3,1,30 x 3,1,14 i9 3,1",
     "x 3,1,28 x 3,9,30 x 3,9,14",
     {.head_dim = 15, .scale = 0.3f, .n = 9, .value_dim = 7},
     0},
    {OP_attention_step,
     "x 1,1,40 x 1,1,20 x 1,1,300 i150 1,1",
     "x 1,1,600 x 1,150,20 x 1,150,300",
     {.head_dim = 10, .scale = 0.4f, .n = 150, .value_dim = 150},
     0},
    {OP_attention_part_dx,
     "x 2,72,24 x 2,72,12 x 2,72,12 x 2,72,24 f 2,72,4 x 2,72,24 f 2,72,24 z6 2,216",
     "x 2,72,24 f 2,72,12 f 2,72,12",
     {.head_dim = 6, .scale = 0.3f, .n = 3, .mirror = 1, .parts = 6, .step = 2},
     1},
    {OP_attention_part_dx,
     "x 2,50,40 x 2,50,20 x 2,50,20 x 2,50,40 f 2,50,4 x 2,50,40",
     "f 2,50,40 f 2,50,20 f 2,50,20",
     {.head_dim = 10, .scale = 0.3f, .n = 3},
     1},
    {OP_attention_part_dx,
     "x 1,128,64 x 1,128,32 x 1,128,32 x 1,128,64 f 1,128,4 x 1,128,64 f 1,128,64",
     "x 1,128,64 f 1,128,32 f 1,128,32",
     {.head_dim = 16, .scale = 0.25f, .n = 4, .mirror = 1, .step = 1},
     2},
    {OP_attention_part_dx,
     "x 1,140,64 x 1,140,32 x 1,140,32 x 1,140,64 f 1,140,4 x 1,140,64 f 1,140,64 s "
     "1,140",
     "f 1,140,64 f 1,140,32 f 1,140,32",
     {.head_dim = 16, .scale = 0.25f, .n = 3, .mirror = 1, .step = 2},
     1},
    {OP_attention_part_dx,
     "x 2,70,16 x 2,70,16 x 2,70,16 x 2,70,16 f 2,70,2 x 2,70,16 s 2,70",
     "f 2,70,16 f 2,70,16 f 2,70,16",
     {.head_dim = 8, .scale = 0.3f, .n = 2, .mirror = 1},
     1},
    {OP_attention_part_dx,
     "x 2,70,24 x 2,70,12 x 2,70,20 x 2,70,40 f 2,70,4 x 2,70,40 f 2,70,24",
     "f 2,70,24 f 2,70,12 f 2,70,20",
     {.head_dim = 6, .value_dim = 10, .scale = 0.3f, .n = 2, .mirror = 1, .step = 1},
     1},
    {OP_attention_part_dx,
     "x 1,33,8 x 1,33,8 x 1,33,8 x 1,33,8 f 1,33,2 x 1,33,8 f 1,33,8",
     "f 1,33,8 f 1,33,8 f 1,33,8",
     {.head_dim = 4, .scale = 0.5f, .n = 2, .step = 1},
     0},
    {OP_ce_max, "x 2,3,11", "f 2,3", {.vocab = 9}, 0},
    {OP_ce_max, "x 2,9,1000", "f 2,9", {.vocab = 1700, .cut = 1}, 1},
    {OP_ce_max, "x 2,3,11", "f 2,3", {.vocab = 20, .cut = 1}, 2},
    {OP_ce_sum, "x 2,3,11 l9 2,3 m 2,3", "f 2,3,2", {.vocab = 9}, 0},
    {OP_ce_sum, "x 2,9,1000 l1700 2,9 m 2,9", "f 2,9,2", {.vocab = 1700, .cut = 1}, 0},
    {OP_ce_sum, "x 2,9,1000 l1700 2,9 m 2,9", "f 2,9,2", {.vocab = 1700, .cut = 1}, 1},
    {OP_ce_sum, "x 2,3,11 l20 2,3 m 2,3", "f 2,3,2", {.vocab = 20, .cut = 1}, 2},
    {OP_ce_dx,
     "x 2,9,1000 l1700 2,9 m 2,9 v 2,9,2 v 1",
     "=0",
     {.vocab = 1700, .cut = 1},
     1},
    {OP_ce_loss, "v 2,9,2 l100 2,9", "f 1", {0}, 0},
    {OP_add_rmsnorm, "q 2,3,8 q 2,3,8 w 8", "x 2,3,8 x 2,3,8 f 2,3", {.eps = 1e-5f}, 0},
    {OP_add_rmsnorm,
     "q 2,70,301 q 2,70,301 w 301",
     "x 2,70,301 x 2,70,301 f 2,70",
     {.eps = 1e-6f},
     0},
    {OP_add_rmsnorm,
     "q 1,3,2060 q 1,3,2060 w 2060",
     "x 1,3,2060 x 1,3,2060 f 1,3",
     {.eps = 1e-6f},
     0},
    {OP_add_rmsnorm,
     "q 2,35,160 q 2,35,160 w 40",
     "x 2,35,160 x 2,35,160 f 2,35,4",
     {.eps = 1e-6f},
     0},
    {OP_rmsnorm_back, "x 2,3,8 w 8 v 2,3 x 2,3,8", "f 8 x 2,3,8", {0}, 0},
    {OP_rmsnorm_back,
     "x 2,70,301 w 301 v 2,70 x 2,70,301 x 2,70,301",
     "f 301 x 2,70,301",
     {0},
     0},
    {OP_rmsnorm_back,
     "x 1,67,2060 w 2060 v 1,67 x 1,67,2060 x 1,67,2060",
     "f 2060 x 1,67,2060",
     {0},
     0},
    {OP_rmsnorm_back,
     "x 1,3,12290 w 12290 v 1,3 x 1,3,12290 x 1,3,12290",
     "f 12290 x 1,3,12290",
     {0},
     0},
    {OP_rmsnorm_back, "x 2,35,160 w 40 v 2,35,4 x 2,35,160", "f 40 x 2,35,160", {0}, 0},
    {OP_rope_pair,
     "x 2,70,260 x 2,70,130 i131072 2,70",
     "x 2,70,260 x 2,70,130",
     {.head_dim = 130, .theta = 5e5f},
     0},
    {OP_rope_pair,
     "x 2,5,60 x 2,5,20 i4096 2,5",
     "=0 =1",
     {.head_dim = 20,
      .theta = 1e4f,
      .rotary_dim = 8,
      .rotary_from = 12,
      .interleaved = 1,
      .inverse = 1},
     0},
    {OP_rope_pair,
     "x 2,70,260 x 2,70,130 i131072 2,70",
     "=0 =1",
     {.head_dim = 130, .theta = 5e5f},
     0},
    {OP_swiglu, "x 1,1,2", "x 1,1,1", {0}, 0},
    {OP_swiglu, "x 1,1,5474", "x 1,1,2737", {0}, 0},
    {OP_swiglu, "x 2,37,602", "x 2,37,301", {0}, 0},
    {OP_swiglu, "x 2,150,144", "x 2,150,72", {0}, 0},
    {OP_swiglu, "x 1,1,4112", "x 1,1,2056", {0}, 0},
    {OP_swiglu, "x 3,100,24", "x 3,100,12", {0}, 0},
    {OP_swiglu, "x 70000,6", "x 70000,3", {0}, 0},
    {OP_swiglu, "x 40,1040", "x 40,520", {0}, 0},
    {OP_rope_qkv,
     "x 2,70,412 i131072 2,70",
     "x 2,70,260 x 2,70,130 x 2,70,22",
     {.head_dim = 130, .theta = 5e5f},
     0},
    {OP_rope_qkv,
     "x 2,5,115 i4096 2,5",
     "x 2,5,60 x 2,5,20 x 2,5,35",
     {.head_dim = 20,
      .theta = 1e4f,
      .rotary_dim = 8,
      .rotary_from = 12,
      .interleaved = 1,
      .inverse = 1},
     0},
    {OP_rope_qkv,
     "x 1,1,24 i99 1,1",
     "x 1,1,8 x 1,1,8 x 1,1,8",
     {.head_dim = 8, .theta = 1e4f},
     0},
    {OP_rope_qkv,
     "x 2,9,69 i70 2,9",
     "x 2,9,33 x 2,9,22 x 2,9,14",
     {.head_dim = 11,
      .theta = 100,
      .rotary_dim = 6,
      .rotary_from = 2,
      .rope_scale = 1.3f},
     0},
    {OP_rope_qkv,
     "x 1,33,768 i131072 1,33",
     "x 1,33,512 x 1,33,128 x 1,33,128",
     {.head_dim = 64,
      .theta = 5e5f,
      .rope_factor = 8,
      .rope_low = 1,
      .rope_high = 4,
      .rope_original = 8192},
     0},
    {OP_rope_qkv_dx,
     "x 2,70,260 x 2,70,130 x 2,70,22 i131072 2,70",
     "x 2,70,412",
     {.head_dim = 130, .theta = 5e5f},
     0},
    {OP_rope_qkv_dx,
     "x 1,33,384 x 1,33,192 x 1,33,64 i163840 1,33",
     "x 1,33,640",
     {.head_dim = 192,
      .theta = 1e4f,
      .rotary_dim = 64,
      .rotary_from = 128,
      .yarn = 1,
      .interleaved = 1,
      .inverse = 1,
      .rope_factor = 40,
      .rope_low = 10,
      .rope_high = 23,
      .rope_scale = 0.8f},
     0},
    {OP_ce_stats, "x 2,3,11 l9 2,3", "f 2,3 f 2,3,2", {.vocab = 9}, 0},
    {OP_ce_stats, "x 2,9,1000 l1700 2,9", "f 2,9 f 2,9,2", {.vocab = 1700, .cut = 1}, 0},
    {OP_ce_stats, "x 2,9,1000 l1700 2,9", "f 2,9 f 2,9,2", {.vocab = 1700, .cut = 1}, 1},
    {OP_ce_stats, "x 2,3,11 l20 2,3", "f 2,3 f 2,3,2", {.vocab = 20, .cut = 1}, 2},
    {OP_ce_shift, "v 2,3,2 v 2,3 m 2,3 l9 2,3", "f 2,3,2", {.vocab = 9, .n = 11}, 0},
    {OP_ce_shift,
     "v 2,9,2 v 2,9 m 2,9 l1700 2,9",
     "f 2,9,2",
     {.vocab = 1700, .n = 1000, .cut = 1},
     1},
    {OP_acc, "x 3,2,2737 x 3,2,2737", "x 3,2,2737", {0}, 0},
    {OP_acc, "x 3,7 x 3,7 x 3,7 x 3,7 x 3,7", "x 3,7", {0}, 0},
    {OP_cast, "x 3,7", "f 3,7", {0}, 0},
    {OP_cast, "x 3,2,2737", "f 3,2,2737", {.cut = 1}, 0},
    {OP_cast, "f 3,2,2737", "f 3,2,2737", {.cut = 1}, 1},
    {OP_copy, "x 3,7", "x 3,7", {0}, 0},
    {OP_copy, "g 32", "g 32", {0}, 0},
    {OP_slice, "x 4,6,10", "x 4,3,10", {.n = 2, .dim = 1}, 1},
    {OP_slice, "x 4,6,10", "x 4,6,4", {.n = 3, .dim = 2}, 2},
    {OP_slice, "x 7,5", "x 3,5", {.n = 3, .dim = 0}, 2},
    {OP_slice, "x 40,3,600", "x 40,3,300", {.n = 2, .dim = 2, .parts = 3}, 1},
    {OP_slice, "f 4,21", "f 4,6", {.n = 4, .dim = 1, .parts = 3}, 3},
    {OP_slice, "x 3,24,5", "x 3,8,5", {.n = 3, .dim = 1, .parts = 2, .mirror = 1}, 1},
    {OP_pack, "x 2,24,7", "x 3,2,8,7", {.n = 3, .parts = 2, .mirror = 1}, 0},
    {OP_unpack, "x 3,2,8,7", "x 2,24,7", {.n = 3, .parts = 2, .mirror = 1}, 0},
    {OP_pack, "x 3,6,5", "x 2,3,3,5", {.n = 2}, 0},
    {OP_pack, "x 40,700,1", "x 3,40,234,1", {.n = 3}, 0},
    {OP_pack, "f 2,12,7", "f 2,2,6,7", {.n = 2, .parts = 3}, 0},
    {OP_pack, "x 2,21,7", "x 4,2,6,7", {.n = 4, .parts = 3}, 0},
    {OP_unpack, "x 2,3,3,5", "x 3,6,5", {.n = 2}, 0},
    {OP_unpack, "x 3,40,234,1", "x 40,700,1", {.n = 3}, 0},
    {OP_unpack, "f 2,2,6,7", "f 2,12,7", {.n = 2, .parts = 3}, 0},
    {OP_unpack, "x 4,2,6,7", "x 2,21,7", {.n = 4, .parts = 3}, 0},
    {OP_count_labels, "l50 3,2,5 g 32", "=1", {0}, 0},
    {OP_seed, "g 32", "f 1", {0}, 0},
    {OP_acc_loss, "f 1 g 32", "=1", {0}, 0},
    {OP_acc_rows, "o40 6 g 32", "=1", {0}, 0},
    {OP_acc_rows, "o900 300 g 32", "=1", {0}, 0},
    {OP_acc_dropped, "r400 200,2 g 32", "=1", {0}, 0},
    {OP_sqnorm, "f 37 g 32", "=1", {.n = SC_NORM2}, 0},
    {OP_sqnorm, "f 613,701 g 32", "=1", {.n = SC_NORM2_CUT}, 0},
    {OP_clip_coef, "g 32", "=0", {.clip = 1}, 0},
    {OP_clip_coef, "g 32", "=0", {.clip = 100}, 0},
    {OP_clip_coef, "g 32", "=0", {.clip = 0}, 0},
    {OP_clip_coef, "n 32", "=0", {.clip = 1}, 0},
    {OP_clip_coef, "u 32", "=0", {.clip = 1}, 0},
    {OP_clip_coef, "u 32", "=0", {.clip = 100}, 0},
    {OP_clip_guess, "g 32", "=0", {.clip = 1}, 0},
    {OP_clip_guess, "g 32", "=0", {.clip = 1, .n = 1}, 0},
    {OP_clip_guess, "g 32", "=0", {.clip = 100}, 0},
    {OP_clip_guess, "c 32", "=0", {.clip = 100}, 0},
    {OP_clip_guess, "n 32", "=0", {.clip = 100, .n = 1}, 0},
    {OP_adamw,
     "f 37,501 f 37,501 f 37,501 v 37,501 g 32",
     "=0 =2 =3 x 37,501",
     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1},
     0},
    {OP_adamw,
     "f 33 f 33 f 33 v 33 g 32",
     "=0 =2 =3 =0",
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6f},
     0},
    {OP_adamw,
     "f 37,501 f 37,501 h 37,501 p 37,501 g 32",
     "=0 =2 =3 x 37,501",
     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1},
     0},
    {OP_adamw,
     "f 37,501 f 37,501 h 37,501 p 37,501 g 32",
     "=0 =2 =3 x 37,501",
     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1, .kind = 1},
     0},
    {OP_adamw,
     "f 33 f 33 f 33 v 33 k 32",
     "=0 =2 =3 x 33",
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6f},
     0},
    {OP_adamw,
     "f 613 y 613 e 613 e 613 g 32",
     "=0 =2 =3 x 613",
     {.beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1},
     0},
    {OP_adamw,
     "f 613 y 613 e 613 e 613 g 32",
     "=0 =2 =3 =0",
     {.beta1 = 0.999999, .beta2 = 0.999999},
     0},
    {OP_adamw, "f 613 y 613 f 613 v 613 g 32", "=0 =2 =3 x 613", {.eps = 1e-8f}, 0},
    {OP_adamw_try,
     "f 613 y 613 e 613 e 613 g 32",
     "=0 =2 =3 =0 f 613 f 613 f 613",
     {.beta1 = 0.9, .beta2 = 0.999999},
     0},
    {OP_adamw_try,
     "f 37,501 f 37,501 f 37,501 v 37,501 g 32",
     "=0 =2 =3 x 37,501 f 37,501 f 37,501 f 37,501",
     {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1},
     0},
    {OP_adamw_try,
     "f 33 f 33 f 33 v 33 k 32",
     "=0 =2 =3 =0 f 33 f 33 f 33",
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6f},
     0},
    {OP_sgd,
     "f 37,501 f 37,501 f 37,501 g 32",
     "=0 =2 x 37,501",
     {.weight_decay = 0.1},
     0},
    {OP_sgd,
     "f 37,501 f 37,501 f 37,501 g 32",
     "=0 =2 x 37,501",
     {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
     0},
    {OP_sgd, "f 33 f 33 f 33 1 32", "=0 =2 =0", {.momentum = 0.9, .dampening = 0.3}, 0},
    {OP_sgd,
     "f 37,501 f 37,501 h 37,501 g 32",
     "=0 =2 x 37,501",
     {.momentum = 0.9, .nesterov = 1, .weight_decay = 0.1},
     0},
    {OP_sgd,
     "f 37,501 f 37,501 h 37,501 g 32",
     "=0 =2 =0",
     {.momentum = 0.5, .kind = 1},
     0},
    {OP_sgd, "f 33 f 33 f 33 k 32", "=0 =2 x 33", {.momentum = 0.9}, 0},
    {OP_sgd_try,
     "f 37,501 f 37,501 f 37,501 g 32",
     "=0 =2 x 37,501 f 37,501 f 37,501",
     {.momentum = 0.9, .nesterov = 1, .weight_decay = 0.1},
     0},
    {OP_sgd_try, "f 33 f 33 f 33 k 32", "=0 =2 =0 f 33 f 33", {.momentum = 0.9}, 0},
    {OP_lion,
     "f 37,501 f 37,501 f 37,501 g 32",
     "=0 =2 x 37,501",
     {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
     0},
    {OP_lion,
     "f 37,501 f 37,501 h 37,501 g 32",
     "=0 =2 x 37,501",
     {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
     0},
    {OP_lion,
     "f 37,501 f 37,501 h 37,501 g 32",
     "=0 =2 =0",
     {.beta1 = 0.95, .beta2 = 0.98, .kind = 1},
     0},
    {OP_lion, "f 613 y 613 e 613 g 32", "=0 =2 x 613", {.beta1 = 0.9, .beta2 = 0.99}, 0},
    {OP_lion, "f 33 f 33 f 33 k 32", "=0 =2 x 33", {.beta1 = 0.9, .beta2 = 0.99}, 0},
    {OP_lion_try,
     "f 37,501 f 37,501 f 37,501 g 32",
     "=0 =2 x 37,501 f 37,501 f 37,501",
     {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
     0},
    {OP_lion_try, "f 33 f 33 f 33 k 32", "=0 =2 =0 f 33 f 33", {.beta1 = 0.9}, 0},
    {OP_step_undo, "f 613 v 613 u 32", "f 613 x 613 f 613", {0}, 0},
    {OP_step_undo,
     "f 37,501 f 37,501 v 37,501 u 32",
     "f 37,501 x 37,501 f 37,501 f 37,501",
     {0},
     0},
    {OP_step_undo, "f 33 f 33 v 33 g 32", "f 33 x 33 f 33 f 33", {0}, 0},
    {OP_bias_step, "f 37,5 f 37,5 g 32", "=0 x 37,5", {.scale = 0.25f, .theta = 0.1f}, 0},
    {OP_bias_step, "f 33 f 33 k 32", "=0 =0", {.scale = 0.25f, .theta = 0.1f}, 0},
    {OP_scal_add, "g 32", "=0", {.n = SC_NORM2, .dim = SC_NORM2_CUT}, 0},
    {OP_scal_zero, "g 32", "=0", {0}, 0},
};
const int kernel_cases = LEN(kernel_case);

const GradCase grad_case[] = {
    {OP_embedding_dw, OP_embedding, "x0 d0", "1", false},
    {OP_linear_dx, OP_linear, "d0 x1", "0", false},
    {OP_linear_dw, OP_linear, "x0 d0", "1", false},
    {OP_bias_dw, OP_add_bias, "d0", "1", false},
    {OP_scale, OP_scale, "d0", "0", false},
    {OP_gelu_dx, OP_gelu, "x0 d0", "0", false},
    {OP_silu_dx, OP_silu, "x0 d0", "0", false},
    {OP_relu_dx, OP_relu, "x0 d0", "0", false},
    {OP_silu_mul_dx, OP_silu_mul, "x0 x1 d0", "0 1", false},
    {OP_swiglu_dx, OP_swiglu, "x0 d0", "0", false},
    {OP_rmsnorm_dx, OP_rmsnorm, "x0 x1 y1 d0", "0", false},
    {OP_rmsnorm_dw, OP_rmsnorm, "x0 y1 d0", "1", false},
    {OP_layernorm_dx, OP_layernorm, "x0 x1 y1 d0", "0", false},
    {OP_layernorm_dw, OP_layernorm, "x0 y1 d0", "1 2", false},
    {OP_concat, OP_split, "d*", "0", false},
    {OP_rope, OP_rope, "d0 x1", "0", true},
    {OP_rope_qkv_dx, OP_rope_qkv, "d0 d1 d2 x1", "0", true},
    {OP_join_heads, OP_split_heads, "d*", "0", false},
    {OP_split_heads, OP_join_heads, "d0", "0 1", false},
    {OP_attention_dx, OP_attention, "x0 x1 x2 y0 y1 d0 x3", "0 1 2", false},
    {OP_unflatten, OP_flatten, "d0", "0", false},
    {OP_flatten, OP_unflatten, "d0", "0", false},
    {OP_router_logits_dx, OP_router_logits, "d0 x1", "0", false},
    {OP_router_logits_dw, OP_router_logits, "x0 d0", "1", false},
    {OP_route_dx, OP_route, "x0 y1 d0", "0", false},
    {OP_router_loss_dx, OP_router_loss, "x0 x1 d0", "0", false},
    {OP_permute_dx, OP_permute, "d0 y2", "0", false},
    {OP_grouped_linear_dx, OP_grouped_linear, "d0 x1 x2", "0", false},
    {OP_grouped_linear_dw, OP_grouped_linear, "x0 d0 x2", "1", false},
    {OP_combine_dx, OP_combine, "x0 x1 x2 d0", "0 1", false},
    {OP_ce_dx, OP_ce_sum, "x0 x1 x2 y0 u", "0", false},
};
const int grad_cases = LEN(grad_case);

const char *op_title(int op) {
  static const char *const name[] = {
#define OP(name, nin, nout, infer, grad, shard, cost, doc) #name,
#include "vm/graph/ops.def"
  };
  return name[op];
}

/* ---- numbers ---- */

static double uniform(uint64_t *s) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (double)(*s >> 11) / 9007199254740992.0;
}

/* Roughly normal: mean 0, variance 1. */
static double normal(uint64_t *s) {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += uniform(s);
  return sum;
}

static int64_t value_count(const Value *x) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim; i++) n *= x->dim[i];
  return n;
}

/* Rounds to the nearest number of the type: a bf16 has 8 significant bits, an f16 11 and
 * none below 2^-24. */
static double rounded(double v, DType t) {
  if (t == DT_F32) return (float)v;
  if ((t != DT_BF16 && t != DT_F16) || v == 0 || !isfinite(v)) return v;
  int e, bits = t == DT_BF16 ? 8 : 11;
  double m = frexp(v, &e);
  if (t == DT_F16 && e < -13) return ldexp(rint(ldexp(v, 24)), -24);
  return ldexp(rint(ldexp(m, bits)), e - bits);
}

static void fill_scalars(double *v, char kind) {
  for (int i = 0; i < SC_N; i++) v[i] = 0.25 * i;
  v[SC_LR] = 0.01;
  v[SC_STEP] = kind == '1' ? 1 : 3;
  v[SC_BC1] = 0.19;
  v[SC_BC2] = 0.0975;
  v[SC_SCALE] = 4;
  v[SC_CLIP] = 0.5;
  v[SC_CAREFUL] = kind == 'c';
  v[SC_HOLD] = kind == 'k';
  v[SC_UNDO] = kind == 'u';
  v[SC_GUESS] = kind == 'u' || kind == 'n' ? 0.25 : 0;
  v[SC_NORM2] = kind == 'n' ? INFINITY : 9.0;
}

static void fill_starts(const Value *x, uint64_t *s) {
  for (int64_t i = 0; i < value_count(x); i++) {
    int64_t t = i % x->dim[1];
    x->v[i] = t == 0 ? 0 : uniform(s) < 0.03 ? (double)t : x->v[i - 1];
  }
}

/* Row offsets of the experts; some experts have no rows. */
static void fill_offsets(Value *x, uint64_t *s) {
  int64_t n = value_count(x), each = 2 * x->limit / (n - 1);
  for (int64_t i = 1; i < n; i++) {
    double more = uniform(s) < 0.2 ? 0 : floor(uniform(s) * (double)each);
    x->v[i] = fmin((double)x->limit, x->v[i - 1] + more);
  }
}

/* A distinct row for each choice, in any order; some have none (elsewhere or dropped). */
static void fill_rows(Value *x, uint64_t *s) {
  int64_t n = value_count(x), used = 0;
  for (int64_t i = 0; i < n; i++)
    x->v[i] = uniform(s) < 0.2 ? (double)(-1 - i % 2) : (double)used++;
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = (int64_t)(uniform(s) * (double)(i + 1));
    double v = x->v[i];
    x->v[i] = x->v[j], x->v[j] = v;
  }
}

/* The same in slot order: index i of slot c has position slots*(i+1)-1-c. */
static void fill_slots(Value *x, uint64_t *s) {
  int64_t T = x->dim[1], each = T / x->limit, n = value_count(x);
  double *to = calloc((size_t)n, sizeof *to);
  fill_starts(x, s);
  for (int64_t k = 0; k < n; k++) {
    int64_t y = k % T, c = y / each, i = y % each;
    to[k] = x->v[k - y + x->limit * (i + 1) - 1 - c];
  }
  free(x->v);
  x->v = to;
}

static void fill(Value *x, uint64_t *s) {
  int64_t n = value_count(x);
  x->v = calloc((size_t)n, sizeof(double));
  if (x->kind == 's') fill_starts(x, s);
  if (x->kind == 'z') fill_slots(x, s);
  if (strchr("gkncu1", x->kind)) fill_scalars(x->v, x->kind);
  if (x->kind == 'o') fill_offsets(x, s);
  if (x->kind == 'r') fill_rows(x, s);
  if (strchr("gkncu1sorz", x->kind)) return;
  for (int64_t i = 0; i < n; i++) {
    double v = strchr("til", x->kind)  ? floor(uniform(s) * (double)x->limit)
               : strchr("vp", x->kind) ? 0.01 + uniform(s)
               : x->kind == 'm'        ? 3.5 + uniform(s)
               : x->kind == 'q'        ? floor(32 * uniform(s) - 16) / 8
                                       : normal(s);
    if (x->kind == 'l' && i % 3 == 1) v = -100;
    if (x->kind == 'e' || (x->kind == 'y' && i % 3 == 1)) v = 0;
    x->v[i] = rounded(v, x->type);
  }
}

static int parse(const char *text, Value *x, DType dtype) {
  int n = 0;
  for (const char *p = text; *p; n++) {
    char *end = (char *)p + 1;
    x[n] = (Value){.kind = *p, .alias = -1};
    if (isdigit((unsigned char)p[1])) x[n].limit = strtol(p + 1, &end, 10);
    if (*p == '=') x[n].alias = (int)x[n].limit;
    x[n].type = strchr("xwbq", *p)      ? dtype
                : strchr("fvmye", *p)   ? DT_F32
                : strchr("hp", *p)      ? DT_BF16
                : strchr("tlisorz", *p) ? DT_I32
                                        : DT_F64;
    p = end;
    if (*p == ' ' && x[n].alias < 0) do
        x[n].dim[x[n].ndim++] = strtol(p + 1, (char **)&p, 10);
      while (*p == ',');
    while (*p == ' ') p++;
  }
  return n;
}

void problem_make(Problem *p, const KernelCase *c, DType dtype, uint64_t seed) {
  *p = (Problem){.op = c->op, .attr = c->attr, .index = c->index};
  p->nin = parse(c->in, p->in, dtype);
  p->nout = parse(c->out, p->out, dtype);
  for (int i = 0; i < p->nin; i++) fill(&p->in[i], &seed);
  for (int i = 0; i < p->nout; i++) {
    int alias = p->out[i].alias;
    if (alias < 0) {
      fill(&p->out[i], &seed);
    } else {
      p->out[i] = p->in[alias];
      p->out[i].alias = alias;
    }
  }
}

void problem_free(Problem *p) {
  for (int i = 0; i < p->nin; i++) free(p->in[i].v);
  for (int i = 0; i < p->nout; i++)
    if (p->out[i].alias < 0) free(p->out[i].v);
}

static RefTensor view(const Value *x) {
  RefTensor t = {.v = x->v, .ndim = x->ndim};
  memcpy(t.dim, x->dim, sizeof t.dim);
  return t;
}

RefArgs problem_ref(const Problem *p, bool accumulate) {
  RefArgs a = {.attr = &p->attr,
               .nin = p->nin,
               .nout = p->nout,
               .accumulate = accumulate,
               .index = p->index};
  for (int i = 0; i < p->nin; i++) a.in[i] = view(&p->in[i]);
  for (int i = 0; i < p->nout; i++) a.out[i] = view(&p->out[i]);
  return a;
}

static Value copy_of(const Value *x) {
  Value y = *x;
  size_t bytes = (size_t)value_count(x) * sizeof(double);
  y.v = malloc(bytes);
  memcpy(y.v, x->v, bytes);
  return y;
}

static Value random_like(const Value *x, uint64_t *seed) {
  Value y = *x;
  y.kind = 'x';
  fill(&y, seed);
  return y;
}

static Value loss_seed(void) {
  Value y = {.kind = 'f', .alias = -1, .type = DT_F32, .ndim = 1, .dim = {1}};
  y.v = calloc(1, sizeof(double));
  y.v[0] = 0.125;
  return y;
}

void problem_grad(Problem *p, Problem *forward, const GradCase *g, const KernelCase *c,
                  DType dtype, uint64_t seed) {
  Problem f;
  problem_make(&f, c, dtype, seed);
  RefArgs ref = problem_ref(&f, false);
  ref_ops[f.op](&ref);
  for (int i = 0; i < f.nout; i++)
    for (int64_t j = 0; j < value_count(&f.out[i]); j++)
      f.out[i].v[j] = rounded(f.out[i].v[j], f.out[i].type);
  *p = (Problem){.op = g->op, .attr = c->attr, .index = c->index};
  if (g->inverse) p->attr.inverse = !c->attr.inverse;
  for (const char *s = g->in; *s; s++) {
    if (!isalpha((unsigned char)*s)) continue;
    int i = s[1] - '0';
    if (*s == 'u') p->in[p->nin++] = loss_seed();
    if (*s == 'x' && i < f.nin) p->in[p->nin++] = copy_of(&f.in[i]);
    if (*s == 'y') p->in[p->nin++] = copy_of(&f.out[i]);
    if (*s == 'd' && s[1] != '*') p->in[p->nin++] = random_like(&f.out[i], &seed);
    for (int k = 0; s[1] == '*' && k < f.nout; k++)
      p->in[p->nin++] = random_like(&f.out[k], &seed);
  }
  for (const char *s = g->grad; *s; s++) {
    if (*s == ' ') continue;
    const Value *x = &f.in[*s - '0'];
    bool parameter = x->kind == 'w' || x->kind == 'b';
    Value y = *x;
    y.type = parameter ? DT_F32 : x->type;
    p->adds |= parameter;
    p->out[p->nout++] = random_like(&y, &seed);
  }
  if (forward)
    *forward = f;
  else
    problem_free(&f);
}
