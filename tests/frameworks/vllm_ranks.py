# SPDX-License-Identifier: Apache-2.0
"""vLLM on CPUs: two engines at once, each with its model split over two workers. Over kolo they then serve a model
with experts, which vLLM alone cannot: half of the experts on each worker, and as two data-parallel ranks. The weights
are random."""
import json
import os
import pathlib
import sys

from told import tell

RANK = int(os.environ["RANK"])
OVER_KOLO = os.environ["SERVED_BY"] == "kolo"
SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
         "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
           "num_experts_per_tok": 2}


def write_model(name, kind):
    """A model with random weights, the same however vLLM splits it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = pathlib.Path(name)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SMALL, **kind}))
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


def generate(name, kind, prompts, **more):
    """The tokens that a model of this kind continues the prompts with."""
    from vllm import LLM, SamplingParams

    if not pathlib.Path(name).exists():
        write_model(name, kind)
    model = LLM(name, skip_tokenizer_init=True, dtype="float32", max_model_len=64, seed=3,
                enforce_eager=True, disable_log_stats=True, **more)
    asked = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    answers = model.generate([{"prompt_token_ids": prompt} for prompt in prompts], asked, use_tqdm=False)
    model.llm_engine.engine_core.shutdown()
    return [list(answer.outputs[0].token_ids) for answer in answers]


def main():
    prompts = [[3, 5, 7], [11, 13 + RANK, 17, 19]]
    tell("split over two workers", generate("llama", LLAMA, prompts, tensor_parallel_size=2))
    if OVER_KOLO:
        alone = generate("mixtral", MIXTRAL, prompts)
        split = generate("mixtral", MIXTRAL, prompts, tensor_parallel_size=2, enable_expert_parallel=True)
        assert split == alone, "half of the experts on each of two workers tell what all on one do"
        os.environ.update(VLLM_DP_RANK=str(RANK), VLLM_DP_SIZE="2", VLLM_DP_MASTER_IP="127.0.0.1",
                          VLLM_DP_MASTER_PORT=os.environ["FREE_PORTS"].split(",")[0])
        assert generate("mixtral", MIXTRAL, prompts) == alone, "two data-parallel ranks tell what one does"


if __name__ == "__main__":
    sys.exit(main())
