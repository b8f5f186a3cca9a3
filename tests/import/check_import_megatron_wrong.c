/* check_import_megatron_wrong.c - settings of Megatron that are refused: other models,
 * wrong values, broken and hostile files. */
#include <check.h>

#include "tests/harness/import_files.h"
#include "tests/harness/megatron_suite.h"

static const struct Refused {
  const char *args, *says;
} refused[] = {
    {"hybrid-layer-pattern=M-M*", "layers of Mamba are not in weft"},
    {"encoder-num-layers=12", "an encoder and a decoder"},
    {"tokenizer-type=BertWordPieceCase", "an encoder and a decoder"},
    {"vision-model-type=clip", "images are not in weft"},
    {"experimental-attention-variant=dsa", "is an attention that weft does not have"},
    {"quick-geglu=true", "is an activation function that weft does not have"},
    {"normalization=BatchNorm", "BatchNorm: expected LayerNorm or RMSNorm"},
    {"position-embedding-type=alibi", "alibi: weft has learned_absolute, rope and none"},
    {"tensor-model-parallel-size=two", "tensor-model-parallel-size = two: expected an"},
    {"num-layers=-3", "expected an integer, at least 1"},
    {"num-attention-heads=7", "7 heads do not divide hidden-size = 512"},
    {"num-experts=4 moe-layer-freq=[0]*99", "expected a number, or a list such as"},
    {"global-batch-size=30 --world 8", "30 sequences are no multiple of microbatches"},
    {"seq-length=4096", "4096 tokens are more than max-position-embeddings = 1024"},
    {"recompute-granularity=some", "some: expected full or selective"},
    {"lr=fast", "lr = fast: expected a number, at least 0"},
    {"window-size=all", "all: expected two numbers, such as 127,0"},
    {"'window-size=3,0' 'window-attn-skip-freq=[1]*3'",
     "with one number for each of 12 layers"},
    {"chunk-attention-size=64",
     "attention within chunks is not in weft; --window-size is"},
    {"qk-layernorm=true", "weft's LayerNorm is over all of a token"},
    {"tensor-model-parallel-size='${TP}'",
     "${TP} has no value in the file: give one by --set tensor-model-parallel-size="},
};

START_TEST(other_models_and_wrong_values_are_refused) {
  import_put("a.yaml", MEGATRON_SUITE);
  import_fails(1, "a.yaml", refused[_i].args, refused[_i].says);
}
END_TEST

#define ARGS " --num-layers 2 --hidden-size 64 --micro-batch-size 1 "

static const struct Hostile {
  int code;
  const char *name, *text, *says;
} hostile[] = {
    {2, "h.sh", "A=\"--num-layers 2\nB=1\n", "h.sh:1: a \" is not closed"},
    {2, "h.sh", "A=1\nB='x\n", "h.sh:2: a ' is not closed"},
    {2, "h.sh", "A=(--num-layers 2\n", "h.sh:1: a ( is not closed"},
    {2, "h.sh", "A=${B\n", "h.sh:1: a ${ is not closed"},
    {2, "h.sh", "if true; then\nA=1\n", "h.sh:1: what begins here has no end"},
    {2, "h.sh", "A=1\nfi )\n", "h.sh:2: ) is not where a command can begin"},
    {2, "h.sh", "cat <<EOF\nx\n", "<<EOF has no end"},
    {2, "h.sh",
     "\x7f"
     "ELF\x02\x01",
     "h.sh:1: is no text: it has a byte of value 127"},
    {2, "h.sh", "echo \x01\n", "is no text: it has a byte of value 1"},
    {2, "h.sh", "", "h.sh: has no command with arguments of Megatron"},
    {2, "h.sh", "echo hello\n", "h.sh: has no command with arguments of Megatron"},
    {2, "h.sh", "python a.py" ARGS "\npython b.py" ARGS "\n",
     "h.sh:2: a second command that trains begins (the first one is in line 1)"},
    {2, "h.yaml", "zero_optimization: {stage: 1}\nMODEL_ARGS: {--lr: 1}\n",
     "h.yaml: has settings of DeepSpeed and of Megatron"},
    /* A cycle: what a variable stands for when it is set is nothing yet. */
    {1, "h.sh", "A=$B\nB=$A\npython a.py --num-attention-heads $A" ARGS "\n",
     "h.sh:3: error: ${B} has no value in the file: give one by B=VALUE behind the "
     "file or --set num-attention"},
    {1, "h.sh", "python a.py" ARGS "--num-attention-heads $(nproc)\n",
     "h.sh:1: error: $(nproc) has no value in the file"},
    {1, "h.yaml", "MODEL: gpt_16b\nTP: 1\nMETRICS: [a]\n",
     "do not say --num-layers: give it by --set num-layers=N, or a model by --model"},
};

START_TEST(hostile_files_are_refused) {
  const struct Hostile *h = &hostile[_i];
  import_put(h->name, h->text);
  import_fails(h->code, h->name, "", h->says);
}
END_TEST

/* Variables that stand for 2^40 bytes, brackets and calls without end, and large files.
 */
START_TEST(bombs_are_refused) {
  Text t = {0};
  text_add(&t, "A0=xxxxxxxxxxxxxxxx\n");
  for (int i = 1; i < 40; i++) text_printf(&t, "A%d=\"$A%d$A%d\"\n", i, i - 1, i - 1);
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "its variables stand for more than 1048576 bytes");
  for (int i = 0; i < 100; i++) text_add(&t, "A=${A:-");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "is nested too deeply");
  for (int i = 0; i < 100; i++) text_add(&t, "if true; then\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "is nested too deeply");
  import_put("h.sh", "f() { f; }\nf\n");
  import_fails(2, "h.sh", "", "functions call each other too deeply");
  for (int i = 0; i < 1 << 13; i++)
    text_add(&t, "# a comment of 38 bytes, with its end\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "h.sh: has 311296 bytes; a script has at most 262144");
  for (int i = 0; i < 1 << 16; i++)
    text_add(&t, "# 64 bytes of a comment that say nothing, but there are many of.\n");
  import_put("h.sh", t.s);
  text_free(&t);
  import_fails(2, "h.sh", "", "settings have at most 4194304");
}
END_TEST

Suite *import_megatron_wrong_suite(void) {
  Suite *s = suite_create("import_megatron_wrong");
  TCase *c = tcase_create("import_megatron_wrong");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, other_models_and_wrong_values_are_refused, 0, LEN(refused));
  tcase_add_loop_test(c, hostile_files_are_refused, 0, LEN(hostile));
  tcase_add_test(c, bombs_are_refused);
  suite_add_tcase(s, c);
  return s;
}
