"""Makes oracle data of whole optimizer steps under PyTorch's own FSDP2: a small Llama of
Hugging Face transformers, fully_shard on every layer and on the root, over 2 processes and
over 2 x 2 (HSDP: copies over the first axis, shards over the second), with gloo on the CPU.
Twelve steps of AdamW in f32, gradients clipped over all shards.

By hand, with torch, transformers and safetensors installed:
    python tests/oracle/fsdp2.py

steps_fsdp2 is as the folders of steps.py, but has loss and norm twice: "loss", "norm" of 2
processes, "loss.hsdp", "norm.hsdp" of 2 x 2.
"""
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers as tf
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import steps

SIZES = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
             pad_token_id=None, tie_word_embeddings=False, attn_implementation="eager")


def made():
    torch.manual_seed(23)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES)).float().train()
    steps.randomise(model, 0.15)
    tokens = torch.randint(0, SIZES["vocab_size"], (steps.STEPS, steps.BATCH, steps.SEQ))
    labels = torch.randint(0, SIZES["vocab_size"], (steps.STEPS, steps.BATCH, steps.SEQ))
    labels[torch.rand(labels.shape) < 0.2] = -100
    return model, tokens, labels


def worker(rank, world, port, out):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    model, tokens, labels = made()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": steps.DECAY},
         {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
        lr=steps.LR, betas=steps.BETAS, eps=steps.EPS, foreach=False)
    mine = slice(rank * steps.BATCH // world, (rank + 1) * steps.BATCH // world)
    losses, norms = [], []
    for step in range(steps.STEPS):
        optimizer.zero_grad()
        count = (labels[step] != -100).sum()
        logits = model(input_ids=tokens[step, mine], use_cache=False).logits
        total = torch.nn.functional.cross_entropy(
            logits.view(-1, SIZES["vocab_size"]), labels[step, mine].reshape(-1),
            reduction="sum")
        # FSDP2 averages gradients over the ranks; the sum over the step's tokens is wanted.
        (total * world / count).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, steps.CLIP)
        norms.append(norm.full_tensor().item())
        total = total.detach()
        dist.all_reduce(total)
        losses.append((total / count).item())
        optimizer.step()
    if rank == 0:
        torch.save((losses, norms), out)
    dist.destroy_process_group()


def run(world):
    out = f"/tmp/fsdp2_{os.getpid()}_{world}.pt"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (world, port, out), nprocs=world)
    losses, norms = torch.load(out)
    os.remove(out)
    print(f"{world} processes: loss {losses[0]:.6f} to {losses[-1]:.6f}")
    return torch.tensor(losses), torch.tensor(norms)


def main():
    folder = steps.HERE / "steps_fsdp2"
    folder.mkdir(exist_ok=True)
    model, tokens, labels = made()
    save_file({n: p.detach().clone().contiguous() for n, p in model.named_parameters()},
              folder / "model.safetensors", metadata={"format": "pt"})
    steps.write_config(folder, model)
    data = {"tokens": tokens.int(), "labels": labels.int()}
    data["loss"], data["norm"] = run(2)
    data["loss.hsdp"], data["norm.hsdp"] = run(4)
    save_file(data, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
