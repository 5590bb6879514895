"""One run of `make bench-e2e`: a model in vLLM, and the time of each of its output tokens.

    python -m scripts.bench.e2e_run MODEL on|off BATCH INPUT_TOKENS OUTPUT_TOKENS REPEATS

Needs the patched vLLM. Prints one line of JSON last: milliseconds an output token, one a repeat.
A step's time is that of a long answer less that of a one-token answer, so that the prompt's does
not count.
"""

import json
import random
import sys
import time

FUSIONS = ("fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache")


def main() -> None:
    """Loads the model, warms it up, measures, prints."""
    model, fusion, *numbers = sys.argv[1:]
    batch, input_tokens, output_tokens, repeats = map(int, numbers)
    from vllm import LLM, SamplingParams, TokensPrompt

    # On is the default, which leaves the choice between the two to vLLM.
    off = {"pass_config": dict.fromkeys(FUSIONS, False)}
    llm = LLM(
        model=model,
        max_num_seqs=batch,
        max_model_len=input_tokens + output_tokens,
        enable_prefix_caching=False,
        compilation_config={} if fusion == "on" else off,
    )
    passes = llm.llm_engine.vllm_config.compilation_config.pass_config
    if fusion == "on" and not any(getattr(passes, name) for name in FUSIONS):
        sys.exit(f"bench-e2e: this vLLM fuses neither way for {model}; there is nothing to compare")
    choose = random.Random(20)
    prompts = [
        TokensPrompt(prompt_token_ids=[choose.randrange(100, 1000) for _ in range(input_tokens)])
        for _ in range(batch)
    ]

    def seconds(tokens: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        begun = time.perf_counter()
        llm.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - begun

    seconds(output_tokens)
    seconds(1)
    steps = output_tokens - 1
    times = [1e3 * (seconds(output_tokens) - seconds(1)) / steps for _ in range(repeats)]
    print(json.dumps({"milliseconds": times}), flush=True)


if __name__ == "__main__":
    main()
