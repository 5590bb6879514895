"""What the models run on: attention in Triton's interpreter, and the driver's own promises."""

from simulation import simulated


@simulated()
def test_interpreted_attention_is_attention_in_bfloat16() -> None:
    from pathlib import Path

    import torch
    from e2e.catalogue import MODELS
    from e2e.engine import Engine, Query, config_of
    from vllm.v1.attention.backends.triton_attn import TritonAttentionImpl

    seen = []
    forward = TritonAttentionImpl.forward

    def recording(self, layer, query, key, value, cache, metadata, output=None, **kwargs):  # type: ignore[no-untyped-def]
        forward(self, layer, query, key, value, cache, metadata, output, **kwargs)
        seen.append((self.scale, query.clone(), key.clone(), value.clone(), output.clone()))
        return output

    config = config_of(
        MODELS["llama3.2"].hf_config,
        enforce_eager=True,
        model_loader_extra_config={"qk_norm_size": 1.0, "embedding_size": 1.0},
    )
    engine = Engine(config, 0, Path("meeting").resolve())
    TritonAttentionImpl.forward = recording
    try:
        engine.run([Query(list(range(1, 24)), 0, [[9, 5]], 23)])
    finally:
        TritonAttentionImpl.forward = forward
    assert len(seen) == 2
    for scale, query, key, value, output in seen:
        q, k, v = (x.float().transpose(0, 1) for x in (query, key, value))
        expected = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=True
        )
        torch.testing.assert_close(
            output.float().view(23, -1, 64), expected.transpose(0, 1), rtol=2e-2, atol=2e-2
        )
