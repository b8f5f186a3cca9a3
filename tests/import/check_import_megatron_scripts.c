/* check_import_megatron_scripts.c - what a script that starts Megatron says: words as
 * bash makes them, files that it sources, what it is given, and what it does not say,
 * which is told with its line. */
#include <check.h>

#include "tests/harness/import_files.h"

/* What a shell makes of its words, as bash does. */
static const struct Words {
  const char *script, *says;
} words[] = {
    {"A=1; B=\"x y\"; C=($A \"$B\" z)\nG \"${C[@]}\"\n", "a.sh:2: --x = 1 x y z"},
    {"X=${X:-3}; Y=${X:+yes}\nG $Y$((X*2+1))\n", "a.sh:2: --x = yes7"},
    {"A=\"1 \\\n --y 2\n--x 3\"\nG $A\n", "a.sh:3: --x = 3"},
    {"A='$B'\\'\\\"\nG \"$A\"\"c\"d\n", "a.sh:2: --x = $B'\"cd"},
    {"f() { A+=(--x $1 2); }\nA=(--y)\nf\nG 1 ${A[@]}\n", "a.sh:1: --x = 2"},
    {"f() { A+=(--x $1 $2); }\nA=(--y)\nf 7 \"8\"\nG 1 ${A[@]}\n", "a.sh:1: --x = 7 8"},
    {"f() { shift; G 1 \"$@\"; }\nf no --x 7\n", "a.sh:2: --x = 7"},
    {"set -- --x 3\nG 1 $@\n", "a.sh:1: --x = 3"},
    {"G ${1:-8} --x ${2:-9}\n", "a.sh:1: --x = 9"},
    /* What scripts out there do. */
    {"A=\"G 7\"\necho $A\neval $A\n", "a.sh:1: --x = 7"},
    {"A=(G 7)\necho \"${A[*]}\"\n\"${A[@]}\" | tee log\n", "a.sh:1: --x = 7"},
    {"A=7\ncat <<EOF > job.sh\nsrun G \\\n  $A\nEOF\nsbatch job.sh\n", "a.sh:3: --x = 7"},
    {"A=7\nsbatch <<'EOF'\nA=8\nG $A\nEOF\n", "a.sh:4: --x = 8"},
    {"cat <<EOF > ds.json\n{ \"a\": (((\nEOF\nG 7\n", "a.sh:4: --x = 7"},
    {"read -r -d '' A <<'EOF'\n--y 1\n--x 3\nEOF\nG 1 $A\n", "a.sh:3: --x = 3"},
    {"A=\"\"\nfor a in 1 2 3; do A=\"$A $a\"; done\nG $A\n", "a.sh:3: --x = 1 2 3"},
    {"for a in 1 2 3; do G $a; done\n", "a.sh:1: --x = 1"},
    {"declare -A L=([small]=4 [big]=8)\nS=big\nG ${L[small]}${L[$S]}\n",
     "a.sh:3: --x = 48"},
    {"A=7; if (( A > 7 )); then A=1; fi; ((A+=2)); let B=A*2\nG $A$B\n",
     "a.sh:2: --x = 918"},
    {"G $((2 ** 3 << 2))\n", "a.sh:1: --x = 32"},
    {"A=/a/b.tar.gz; B=BF16\nG ${A##*/},${A%%.*},${A%.gz},${B,,},${B/F/x}\n",
     "a.sh:2: --x = b.tar.gz,/a/b,/a/b.tar,bf16,Bx16"},
    {"G 7 \\\n  `# a comment` \\\n  --y 1\n", "a.sh:1: --x = 7"},
    {"G 7 $(echo --y)\n", "a.sh:1: --x = 7"},
    {"A=\"\r\n--y 2 \\\r\n 3\"\r\nG 1 $A\r\n", "a.sh:2: --y = 2 3"},
    {"[ 1 -gt 2 ] && A=3 || A=4\n! [ $A = 3 ] && A=5$A\nG $A\n", "a.sh:3: --x = 54"},
    {"case big in s*|t) A=1;; b*) A=2;; *) A=3;; esac\nG $A\n", "a.sh:2: --x = 2"},
    {"if [ -n \"\" ]; then A=1; elif [[ a == a ]]; then A=2; else A=3; fi\nG $A\n",
     "a.sh:2: --x = 2"},
    {"A=(1 2 3); export B=${A[1]} C\nG $B${A[0]}\n", "a.sh:2: --x = 21"},
    {"cat <<EOF > x\n\"--x 7\nEOF\nG 8\n", "a.sh:4: --x = 8"},
    {"A=5\nbash -c \"G $A --y\"\n", "a.sh:2: --x = 5"},
    {"G 1 2>err >out # --x 3\n", "a.sh:1: --x = 1"},
    {"G 1\\\n2 \\", "a.sh:1: --x = 12"},
};

START_TEST(words_are_those_of_the_shell) {
  Text t = {0};
  for (const char *p = words[_i].script; *p; p++) {
    if (*p == 'G')
      text_add(&t, "python a.py --micro-batch-size 1 --x");
    else
      text_printf(&t, "%c", *p);
  }
  import_put("a.sh", t.s);
  text_free(&t);
  import_has(import_file("a.sh", "--model llama3.2-1b"), words[_i].says);
}
END_TEST

/* What a script asks Slurm for is in its environment. */
START_TEST(slurm_says_what_it_was_asked_for) {
  import_put("a.sh",
             "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
             "#SBATCH --ntasks-per-node=4\n"
             "GLOBAL=$(( SLURM_NNODES * 8 ))\n"
             "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --lr 1e-3 \\\n"
             "  --num-attention-heads 4 --micro-batch-size 1 --seq-length 32 \\\n"
             "  --max-position-embeddings 32 --global-batch-size $GLOBAL \\\n"
             "  --tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n");
  import_file("a.sh", "");
  import_plan_has("tp = 4,");
  import_plan_has("global = 16,");
  import_file("a.sh", "SLURM_GPUS_PER_NODE=2");
  import_plan_has("tp = 2,");
}
END_TEST

/* Files that a script sources are read beside it. */
START_TEST(sourced_files_are_read) {
  import_put("a.sh",
             "source conf/args.sh\n. \"$(dirname \"$0\")/more.sh\"\nsource lost.sh\n"
             "python a.py $ARGS --hidden-size $H --seq-length 64\n");
  import_put("args.sh",
             "# a comment\nH=64\nARGS=\"--num-layers 4 --micro-batch-size 1\"\n");
  import_put("more.sh", "ARGS=\"$ARGS --num-attention-heads 4\"\nsource more.sh\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("num_attention_heads = 4,");
  import_has(report, "a.sh:3: lost.sh is not beside the script");
}
END_TEST

/* What a script takes from its command line. */
START_TEST(arguments_of_a_script_are_given_behind_it) {
  import_put("a.sh", "tp=${tp}\nif [ $# -lt 1 ]; then exit 1; fi\n"
                     "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $1 \\\n"
                     "  --hidden-size ${2:-64} --num-attention-heads ${3} \\\n"
                     "  --tensor-model-parallel-size $tp --seq-length 64 \\\n"
                     "  --max-position-embeddings 64 --micro-batch-size 1 --mock-data\n");
  import_fails(1, "a.sh", "",
               "a.sh:3: error: $1 has no value in the file: give one by 1=VALUE behind "
               "the file or --set num-layers=VALUE");
  import_fails(1, "a.sh", "1=4",
               "a.sh:4: error: $3 has no value in the file: give one by 3=VALUE");
  import_fails(1, "a.sh", "1=4 3=4",
               "a.sh:5: error: ${tp} has no value in the file: give one by '$tp=VALUE' "
               "behind the file or --set tensor-model-parallel-size=VALUE");
  import_file("a.sh", "1=4 3=4 '$tp=2'");
  import_plan_has("num_hidden_layers = 4,");
  import_plan_has("hidden_size = 64,");
  import_plan_has("tp = 2,");
  import_file("a.sh", "1=4 2=128 3=4 '$tp=2'");
  import_plan_has("hidden_size = 128,");
  import_fails(2, "a.sh", "1=4 3=4 '$tp=2' '$tpp=4'",
               "a.sh: has no variable tpp (did you mean tp?)");
  import_fails(1, "a.sh", "1=4 3=4 '$tp=2' tensor-model-parallel-sz=4",
               "(did you mean \"tensor_model_parallel_size\"?)");
}
END_TEST

START_TEST(what_cannot_be_decided_is_said) {
  import_put("a.sh", "if [ -f /etc/passwd ]; then X=--made-up; fi\n"
                     "for i in 1 2; do N=$i; done\n"
                     "while read x; do Y=--made-up; done\n"
                     "[[ \"$FP8\" == 1 ]] && Z=--made-up\n"
                     "case $KIND in\n  big) L=99;;\n  *) L=2;;\nesac\n"
                     "run() {\n  python pretrain_gpt.py --num-layers $L $X $Y $Z \\\n"
                     "    --hidden-size 64 --num-attention-heads 4 --seq-length 64 \\\n"
                     "    --max-position-embeddings 64 --micro-batch-size $N\n}\nrun\n");
  const char *report = import_file("a.sh", "");
  import_plan_has("num_hidden_layers = 2,");
  import_plan_has("micro = 2,  -- a.sh:12");
  import_has(report, "a.sh:1: whether the test in this line holds is not in the file");
  import_has(report, "a.sh:3: this loop is not read");
  import_has(report, "a.sh:4: the file does not set FP8: here it is tested as empty");
  import_has(report, "a.sh:5: the file does not set KIND");
  import_file("a.sh", "KIND=big L=3 --set num-layers=4");
  import_plan_has("num_hidden_layers = 4,");
}
END_TEST

Suite *import_megatron_scripts_suite(void) {
  Suite *s = suite_create("import_megatron_scripts");
  TCase *c = tcase_create("import_megatron_scripts");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, words_are_those_of_the_shell, 0, LEN(words));
  tcase_add_test(c, sourced_files_are_read);
  tcase_add_test(c, slurm_says_what_it_was_asked_for);
  tcase_add_test(c, arguments_of_a_script_are_given_behind_it);
  tcase_add_test(c, what_cannot_be_decided_is_said);
  suite_add_tcase(s, c);
  return s;
}
