/* megatron_suite.h - settings of a small model as Megatron's suites of tests have them,
 * for suites of weft import. */
#ifndef WEFT_TESTS_MEGATRON_SUITE_H
#define WEFT_TESTS_MEGATRON_SUITE_H

#define MEGATRON_ARGS                                                                    \
  "  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n"               \
  "  --micro-batch-size: 4\n  --global-batch-size: 32\n  --seq-length: 1024\n"           \
  "  --max-position-embeddings: 1024\n  --lr: 0.00015\n  --train-iters: 50\n"

#define MEGATRON_SUITE                                                                   \
  "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n  NCCL_ALGO: Ring\n"                     \
  "MODEL_ARGS:\n" MEGATRON_ARGS "  --weight-decay: 1e-2\n  --deterministic-mode: true\n" \
  "  --pipeline-model-parallel-size: 4\n  --vocab-file: ${DATA_PATH}/vocab.json\n"       \
  "  --bf16: true\n  --swiglu: false\n"                                                  \
  "TEST_TYPE: regular\n"

#endif
