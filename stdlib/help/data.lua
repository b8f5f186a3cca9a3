-- data.lua - --help of verbs of checkpoints and token files.
return {
  ckpt = [[
Looks at checkpoints. DIR is a checkpoint or a folder of them, which stands for its
latest one.

  ls DIR             the checkpoints of a folder, in the order in which they were saved
  verify DIR         reads them all: files, shapes, completeness, checksums
  diff A B           tensors that differ, and by how much; exit code 1 if some do
  convert PLAN_A PLAN_B CKPT OUT
                     writes a checkpoint of plan A to the folder OUT as plan B would
  export PLAN CKPT DIR
                     writes its weights as a folder of Hugging Face files; of a plan
                     with an adapter the adapter alone, as a folder of PEFT's
  merge PLAN CKPT DIR
                     writes the model with its adapter merged
  plan PLAN [CKPT]   bytes that each rank writes, and reads of CKPT

  --dtype TYPE       export: f32, bf16 or f16; default: as in the folder that the model
                     came from, else f32
  --shard-size SIZE  export: most that a file holds, 5GB or 800MB; default: 5GB
  --from PLAN        plan: reads what this plan has written; there need be no files
  --json             print one object
]],

  tokenize = [[
Makes token files of text with the tokenizer of a model: its tokenizer.json, or the folder
that it lies in. A text file is one document; of the JSON rows of a .jsonl, .ndjson or .json
file, the "text" of each is.
Byte-level BPE is supported (GPT-2, Llama 3, Qwen, SmolLM).

  --out, -o NAME.bin the file; with Megatron's index NAME.idx beside it. What is there is not
                     replaced
  --eot TOKEN        put after each document, as "<|endoftext|>"
  --format NAME      megatron (the default) or llmc: a header and no index

With --chat it makes token files of conversations (docs/finetune.md): JSON lines or a JSON
list, - is the standard input. Beside NAME.bin and NAME.idx, NAME.mask says which tokens are
learnt.

  --chat             the files are conversations, each a document
  --tokenizer DIR    the tokenizer.json, or its folder, whose tokenizer_config.json says the
                     begin and end tokens and the template
  --template NAME    chatml, deepseek, deepseek-r1-distill, deepseek-v3, gemma, gemma3,
                     gpt-oss, llama3, llama3.1, mistral, qwen2.5, qwen3, smollm2; or
                     FILE.lua that returns a function(messages, tools, options). Default:
                     that of the tokenizer's folder, if it is one of these
  --option NAME=V    of the template: date, system (for conversations without one),
                     keep_reasoning; may be given several times
  --format NAME      messages (the default), sharegpt, alpaca, preference, or
                    prompt=COLUMN,response=COLUMN
  --train-on WHAT    assistant (the default): all answers; last: the last one; all: every token
  --max-length N     cuts longer conversations, and counts them
  --drop-bad         leaves out conversations that cannot be used, and counts them; else the
                     first one is an error
  --refuse-special   the text of a special token in a message is an error
]],
}
