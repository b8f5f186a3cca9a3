-- run.lua - --help of verbs that train and use models, and the script that starts them on a cluster.
return {
  run = [[
Trains. Without a launcher all ranks are threads of this process; under mpirun or
srun every process is one rank. A line is printed every train.log_every steps.

  --steps N          take N steps instead of train.steps; the learning rate is as
                     in the plan
  --threads N        threads of each rank; default: the machine's share
  --comm NAME        local, mpi, tcp or nccl; default: tcp where RANK and WORLD_SIZE are
                     set, mpi under mpirun and srun, nccl for both with --device cuda,
                     else local
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --procs N          start N processes on this machine, each of which is a rank
  --trace FILE       write what every rank did when, for Perfetto
  --resume DIR       resume from a checkpoint, or from the latest one of a folder of
                     them; auto: from that of the plan, or start at step 0
  --log FILE         write lines of JSON: what runs, then every step; a file that
                     is not empty is refused
  --tensorboard DIR  write event files for TensorBoard; a folder that has some is
                     refused
  --append           with --log or --tensorboard: append to existing files
  --export DIR       at the end, write the weights as a folder of Hugging Face files
  --dtype TYPE       of exported weights: f32, bf16 or f16; default: as in the folder
                     that they came from, else f32
  --shard-size SIZE  most that a file of them holds, 5GB or 800MB; default: 5GB
  --quiet            print no steps
  --json             print one object at the end
]],

  eval = [[
Measures loss and perplexity of a trained model: on all validation data of the plan, or, where
it has none, on all of its data. Without a launcher all ranks are threads of this process.

  --ckpt DIR         parameters of a checkpoint, or of the latest one of a folder
  --weights DIR      parameters of safetensors files; default: those of weft.hf
  --batches N        at most so many batches of batch.global samples; default: all
  --reference        writes the file of loss.reference_file instead: the loss of each sequence
                     of the data, for training and validation, by the model as it begins
  --threads N        threads of each rank; default: the machine's share
  --comm NAME        local, mpi, tcp or nccl; default: as of weft run
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --procs N          start N processes on this machine, each of which is a rank
  --json             print one object at the end
]],

  sample = [[
Continues a prompt with the plan's model, token by token with a key-value cache, on the
ranks of its tp in this process. Prompt and continuation are at most batch.seq tokens.

  --ckpt DIR         parameters of a checkpoint, or of the latest one of a folder
  --weights DIR      parameters of safetensors files; default: those of weft.hf
  --prompt TEXT      for a model of bytes (weft.text), or with a tokenizer; may be given
                     several times: one continuation after the other
  --tokenizer FILE   a tokenizer.json; default: the plan's, else that beside the weights
  --tokens 1,2,3     ids of tokens, of any model
  --max-tokens N     length of the continuation; default: 100, or what batch.seq leaves.
                     An eos_token_id of the model's folder ends it earlier
  --stop TEXT        ends before this text; may be given several times
  --chat             a conversation: each --prompt, or else each line of the standard input,
                     is a question. Answers end where those of the template do, or at
                     eos_token_id, and have --max-tokens or what batch.seq leaves
  --template NAME    of --chat, or a FILE.lua; default: that of the plan's weft.chat, else the
                     one that tokenizer_config.json has
  --option NAME=VALUE  of the template; added to those of the plan
  --refuse-special   special tokens in questions are errors
  --temperature T    logits are divided by it; default: 1
  --top-k K          sample from the K likeliest tokens only
  --top-p P          sample from the fewest tokens with this probability in sum
  --seed S           of sampling; the same seed gives the same continuation; default: 0
  --greedy           always the likeliest token
  --device NAME      cpu or cuda: where the ranks compute (cpu)
  --threads N        threads of each rank
  --quiet            only the continuation
  --json             one object at the end
]],

  launch = [[
Writes a script that starts the plan on its machines: as many ranks as its mesh has, as
many on each as its cluster has GPUs. Arguments of the script are passed to weft run.

  --slurm            for sbatch
  --mpirun           for mpirun of Open MPI
  --torchrun         to be started on each machine
  --device NAME      cpu or cuda; default: cuda where the plan's cluster names its GPU. On
                     GPUs ranks exchange by NCCL
  -o, --output FILE  where to; default: the standard output
]],
}
