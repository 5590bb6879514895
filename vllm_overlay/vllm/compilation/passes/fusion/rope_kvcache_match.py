# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a match of the RoPE + KV cache fusions has to be before it is replaced.

A pattern fixes which ops follow each other. Sizes, the layer behind the layer
name and arguments that the pattern does not mention are left open by the pattern
matcher, so they are checked here, on the nodes that matched.
"""

import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch._inductor.pattern_matcher as pm
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._ops import OpOverload

import vllm.ir.ops  # noqa: F401  registers vllm_ir
from vllm.config import VllmConfig, get_layers_from_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention.attention import Attention
from vllm.platforms import current_platform
from vllm.utils.torch_utils import LayerName
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.rope_kvcache_traits import RopeKVCacheTraits

from ..fx_utils import is_func

if TYPE_CHECKING:
    from .matcher_utils import MatcherCustomOp

logger = init_logger(__name__)

RMS_NORM = torch.ops.vllm_ir.rms_norm.default
COPY = torch.ops.aten.clone.default


@dataclass(frozen=True)
class FusableLayer:
    """Facts about an attention layer. Passes are cached: they must not hold layers."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int
    traits: RopeKVCacheTraits

    @property
    def split_sizes(self) -> list[int]:
        return [
            self.num_heads * self.head_size,
            self.num_kv_heads * self.head_size,
            self.num_kv_heads * self.head_size_v,
        ]


class NotFusable(Exception):
    """A match that must stay as it is, with the reason."""


class FusableLayers:
    """The layers of a model, and of its draft, that a fused op may serve."""

    def __init__(
        self, config: VllmConfig, is_supported: Callable[[Attention], bool]
    ) -> None:
        """Collect them.

        Args:
            config: Its static forward context has the layers.
            is_supported: Whether a layer's implementation has the fused op.

        """
        self._layers: dict[str, FusableLayer] = {}
        self._reasons: dict[str, str] = {}
        for name, layer in get_layers_from_vllm_config(config, Attention).items():
            # Other kinds have no KV cache of their own tokens to write.
            if (
                layer.attn_type == AttentionType.DECODER
                and layer.kv_sharing_target_layer_name is None
                and is_supported(layer)
            ):
                self._layers[name] = FusableLayer(
                    layer.num_heads,
                    layer.num_kv_heads,
                    layer.head_size,
                    layer.head_size_v,
                    layer.impl.rope_kvcache_traits,
                )
            elif reason := layer.impl.rope_kvcache_unfused_reason():
                self._reasons[name] = reason
                logger.info_once("RoPE and the KV cache write stay apart: %s", reason)

    def __contains__(self, name: str) -> bool:
        return name in self._layers

    @staticmethod
    def name_of(argument: fx.Node | LayerName | str) -> str:
        """The layer name in an argument; the graph's input if names are hoisted."""
        if isinstance(argument, fx.Node):
            value = argument.meta["val"]
            argument = getattr(value, "real_obj", value)
        return argument.value if isinstance(argument, LayerName) else str(argument)

    def get(self, name: fx.Node | LayerName | str) -> FusableLayer | None:
        """The layer that an argument `layer_name` in a graph stands for."""
        return self._layers.get(self.name_of(name))

    def declare(self, trait: str) -> bool:
        """Whether any layer has this trait."""
        return any(getattr(layer.traits, trait) for layer in self._layers.values())

    def fingerprint(self) -> str:
        """What compiled graphs depend on here: this module's source and the layers."""
        return inspect.getsource(sys.modules[__name__]) + repr(self._layers)

    @property
    def explained(self) -> bool:
        """Whether a layer is there whose implementation explains what it does."""
        return bool(self._reasons) or self.declare("checks_head_size")

    def reason(self, name: str) -> str | None:
        """Why the layer of this name was not fused so far, if that is known."""
        return self._reasons.get(name)

    def of(self, match: pm.Match) -> FusableLayer | None:
        """The layer of a match, once all that the pattern leaves open is checked.

        Args:
            match: Its outputs begin with the KV cache update, the query and the key.

        Returns:
            The layer, or None if the match must not be replaced.

        """
        try:
            return self._verified(match)
        except NotFusable as e:
            name = self.name_of(match.output_nodes()[0].args[2])
            self._reasons[name] = str(e)
            logger.debug("RoPE + KV cache fusion leaves %s alone: %s", name, e)
            return None

    def _verified(self, match: pm.Match) -> FusableLayer:
        update, query = match.output_nodes()[:2]
        key, value, name = update.args
        layer = self.get(name)
        if layer is None:
            raise NotFusable(f"{self.name_of(name)} has no fused op")
        _check_heads("K", key, layer.num_kv_heads, layer.head_size)
        _check_heads("V", value, layer.num_kv_heads, layer.head_size_v)
        if _val(query).dim() == 3:  # a quantized query may be flat
            _check_heads("Q", query, layer.num_heads, layer.head_size)

        for node in match.nodes:
            if is_func(node, auto_functionalized) and "head_size" in node.kwargs:
                self._check_rotation(node, layer)
        norms = [n for n in match.nodes if is_func(n, RMS_NORM)]
        for norm in norms:
            self._check_norm(norm, layer)
        if value in norms:
            norms.remove(value)
            _check("norm of V", value.args[1], None)
            _check("implementation that norms V", layer.traits.v_norm, True)
        self._check_weights(norms, layer)
        if "q_factor" in match.kwargs:
            llama_4_scaling(match)
            _check("implementation that scales Q", layer.traits.llama_4_scaling, True)

        split, sizes = _source(value).args[0], layer.split_sizes
        for copy in (n.args[0] for n in norms if is_func(n.args[0], COPY)):
            # Of the first part of a split; what is normed has head_size elements.
            q_gate = copy.args[0].args[0].args[0]
            _check_heads("Q and gate", q_gate, layer.num_heads, 2 * layer.head_size)
            _check("implementation that takes gated Q", layer.traits.gated_query, True)
            sizes[0] *= 2
        _check("qkv split into", list(split.args[1]), sizes)
        qkv = _val(split.args[0])
        if qkv.dim() != 2 or split.args[2:] not in ((-1,), (1,)) or split.kwargs:
            raise NotFusable("qkv is not split along the last of two dimensions")
        dtypes = {qkv.dtype, _val(query).dtype, _val(key).dtype, _val(value).dtype}
        if len(dtypes - {current_platform.fp8_dtype()}) > 1:
            raise NotFusable(f"Q, K and V have several dtypes: {dtypes}")
        return layer

    @staticmethod
    def _check_rotation(rotation: fx.Node, layer: FusableLayer) -> None:
        _check("RoPE's head size", rotation.kwargs["head_size"], layer.head_size)
        q, k = (_val(rotation.kwargs[x]) for x in ("query", "key"))
        by_head = layer.traits.rope_by_head and q.dim() == 3
        wanted = [3, 3] if by_head else [2, 2]
        _check("dimensions of RoPE's inputs", [q.dim(), k.dim()], wanted)
        if by_head:  # with two, the op would take heads for a sequence
            positions = _val(rotation.kwargs["positions"])
            _check("dimensions of RoPE's positions", positions.dim(), 1)
        # A pattern names no argument that has a default in the op's schema.
        for argument in rotation.args[0]._schema.arguments:
            if argument.has_default_value():
                value = rotation.kwargs.get(argument.name, argument.default_value)
                _check(f"RoPE's {argument.name}", value, argument.default_value)
        cos_sin_cache = _val(rotation.kwargs["cos_sin_cache"])
        if layer.traits.mrope and (section := _mrope_section(rotation)):
            rotary_dim = rotation.kwargs["rotary_dim"]
            _check("width of cos_sin_cache", cos_sin_cache.shape[-1], rotary_dim)
            _check(f"pairs in sections {section}", sum(section), rotary_dim // 2)
            positions = list(_val(rotation.kwargs["positions"]).shape[:-1])
            _check("rows of M-RoPE's positions", positions, [3])
        if not layer.traits.mixed_dtypes:
            _check("dtype of cos_sin_cache", cos_sin_cache.dtype, q.dtype)

    @staticmethod
    def _check_norm(norm: fx.Node, layer: FusableLayer) -> None:
        _check("size that is normed", _val(norm.args[0]).shape[-1], layer.head_size)
        if len(norm.args) > 3 or norm.kwargs:
            raise NotFusable("the norm has more arguments than a weight and an epsilon")

    @staticmethod
    def _check_weights(norms: list[fx.Node], layer: FusableLayer) -> None:
        dtypes = set()
        for norm in norms:
            if not isinstance(norm.args[1], fx.Node):
                raise NotFusable("a norm of Q or K has no weight")
            weight = _val(norm.args[1])
            _check("norm weight", list(weight.shape), [layer.head_size])
            dtypes.add(weight.dtype)
            if not layer.traits.mixed_dtypes and (
                len(dtypes) > 1 or weight.dtype not in (_val(norm).dtype, torch.float32)
            ):
                raise NotFusable(f"norm weights of {dtypes} for {_val(norm).dtype}")


def _check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise NotFusable(f"{what}: {found}, which should be {wanted}")


def _check_heads(what: str, node: fx.Node, num_heads: int, head_size: int) -> None:
    _check(f"heads of {what}", list(_val(node).shape[1:]), [num_heads, head_size])


def _source(node: fx.Node) -> fx.Node:
    """The part of a split that views and a norm of it start from."""
    while is_func(node, torch.ops.aten.reshape.default) or is_func(node, RMS_NORM):
        node = node.args[0]
    return node


def _val(node: fx.Node) -> torch.Tensor:
    return node.meta["val"]


def _mrope_section(rotation: fx.Node) -> tuple[int, int, int] | None:
    """How many pairs M-RoPE turns by time, height and width, if that is the op."""
    if "mrope_section_t" not in rotation.kwargs:
        return None
    t, h, w = (rotation.kwargs[f"mrope_section_{x}"] for x in "thw")
    return t, h, w


def query_groups(match: pm.Match) -> tuple[int, int] | None:
    """What the scales of the native op that quantizes a match's query are for.

    None if no such op is in the match.
    """
    for node in match.nodes:
        if is_func(node, auto_functionalized) and "group_shape" in node.kwargs:
            rows, columns = node.kwargs["group_shape"]
            return rows, columns
    return None


# From the factor back to the positions: the ops of 1 + beta * log(1 + floor(
# positions / orig_max)) with a dimension for Q's elements, and their second argument.
_LLAMA_4_SCALING = (
    (torch.ops.aten.unsqueeze.default, -1),
    (torch.ops.aten.add.Tensor, 1),
    (torch.ops.aten.mul.Tensor, "beta"),
    (torch.ops.aten.log.default, None),
    (torch.ops.aten.add.Tensor, 1),
    (torch.ops.aten.floor.default, None),
    (torch.ops.aten.div.Tensor, "orig_max"),
)


def llama_4_scaling(match: pm.Match) -> tuple[float, int]:
    """Beta and the original context of Llama 4's scaling of a match's query.

    Args:
        match: Its pattern has inputs `q_factor`, which Q is multiplied by, and
            `positions`, of RoPE.

    Raises:
        NotFusable: The factor is not made of these positions, or otherwise.

    """
    node, positions = match.kwargs["q_factor"], match.kwargs["positions"]
    _check("dimensions of RoPE's positions", _val(positions).dim(), 1)
    _check("dtype of what Q is multiplied by", _val(node).dtype, torch.float32)
    numbers = {}
    for op, wanted in _LLAMA_4_SCALING:
        if not isinstance(node, fx.Node) or not is_func(node, op) or node.kwargs:
            raise NotFusable("Q is multiplied by what is not Llama 4's scaling")
        node, *second = node.args
        if isinstance(wanted, str):
            (numbers[wanted],) = second
        else:
            _check(f"Q's scaling, {op}", second, [] if wanted is None else [wanted])
    _check("positions that Q is scaled by", node, positions)
    beta, orig_max = numbers["beta"], numbers["orig_max"]
    if not isinstance(beta, (int, float)) or not isinstance(orig_max, (int, float)):
        raise NotFusable("Q's scaling has numbers that are not constants")
    if orig_max < 1 or not float(orig_max).is_integer():
        raise NotFusable(f"Q's scaling starts from a context of {orig_max} tokens")
    return float(beta), int(orig_max)


class SizedByMatch:
    """A pattern that serves layers of every size, one match at a time.

    Its attributes are the sizes of one layer. Tracing its pattern and replacement
    takes them from there, so they are set for each match before it is replaced.
    """

    layers: FusableLayers
    rope_matcher: "MatcherCustomOp"
    traits = RopeKVCacheTraits()
    left_open: tuple[type, ...] = (int, torch.SymInt)
    """Types of constants that a match may have others of than the pattern."""
    mrope_section: tuple[int, int, int]
    rotary_dim: int
    is_interleaved: bool

    def take_sizes(self, match: pm.Match) -> bool:
        """Take the sizes of a match's layer, if the match may be replaced."""
        layer = self.layers.of(match)
        if layer is None:
            return False
        self.num_heads = layer.num_heads
        self.num_kv_heads = layer.num_kv_heads
        self.head_size = layer.head_size
        self.head_size_v = layer.head_size_v
        self.q_size, self.k_size, self.v_size = layer.split_sizes
        self.traits = layer.traits
        for node in match.nodes:
            if is_func(node, auto_functionalized) and (section := _mrope_section(node)):
                self.mrope_section = section
                self.rotary_dim = node.kwargs["rotary_dim"]
                self.is_interleaved = node.kwargs["mrope_interleaved"]
        return True

    def has_sizes(self, match: pm.Match) -> bool:
        """Whether the match may be replaced with the sizes as they are."""
        layer = self.layers.of(match)
        return layer is not None and (
            (layer.num_heads, layer.num_kv_heads, layer.head_size, layer.head_size_v)
            == (self.num_heads, self.num_kv_heads, self.head_size, self.head_size_v)
        )

    def register_any_size(
        self,
        pattern: Callable,
        replacement: Callable,
        inputs: list,
        trace_fn: Callable,
        pm_pass: pm.PatternMatcherPass,
    ) -> None:
        """As torch's `register_replacement`, with every integer left open.

        Torch by itself traces the pattern again with a match's inputs, which fails
        for another layer's sizes.
        """
        search = None
        if self.rope_matcher.enabled:
            search = pm.fx_to_pattern(
                trace_fn(pattern, inputs),
                ignore_types=self.left_open,
                argnames=[*inspect.signature(pattern).parameters],
            )
        # Rotation in plain ops has sizes inside that only tracing can compare.
        pm.register_replacement(
            pattern,
            replacement,
            inputs,
            trace_fn,
            pm_pass,
            extra_check=self.take_sizes if search else self.has_sizes,
            search_fn_pattern=search,
        )


def fold_weight_offset(
    graph: fx.Graph, layers: FusableLayers, fused_ops: Collection[OpOverload]
) -> None:
    """Pass raw norm weights and what is added to them, instead of the sum in fp32.

    GemmaRMSNorm adds 1 in the graph: without this, a kernel of its own for Q and
    one for K would be left.

    Args:
        graph: After the fusion.
        layers: Only those that declare the trait `weight_offset` are changed.
        fused_ops: Ops with arguments q_weight, k_weight and weight_offset.

    """
    for node in graph.find_nodes(op="call_function", target=auto_functionalized):
        if node.args[0] not in fused_ops:
            continue
        layer = layers.get(node.kwargs["layer_name"])
        q_sum = _offset_weight(node.kwargs["q_weight"])
        k_sum = _offset_weight(node.kwargs["k_weight"])
        if layer is None or not layer.traits.weight_offset or not (q_sum and k_sum):
            continue
        (q_weight, q_offset), (k_weight, k_offset) = q_sum, k_sum
        dtypes = {_val(q_weight).dtype, _val(k_weight).dtype}
        taken = ({_val(node.kwargs["qkv"]).dtype}, {torch.float32})
        if q_offset == k_offset and dtypes in taken:
            new = dict(q_weight=q_weight, k_weight=k_weight, weight_offset=q_offset)
            node.kwargs = {**node.kwargs, **new}
            # Inductor keeps the inputs' strides by what is noted here.
            args, kwargs = node.meta["eager_input_vals"]
            vals = fx.map_arg(new, lambda n: n.meta["val"])
            node.meta["eager_input_vals"] = (args, {**kwargs, **vals})


def _offset_weight(node: fx.Node) -> tuple[fx.Node, float] | None:
    """The weight and the number, if the node is a weight in fp32 plus a number."""
    if not is_func(node, torch.ops.aten.add.Tensor) or node.kwargs:
        return None
    weight, offset = node.args
    if not isinstance(offset, (int, float)) or _val(weight).dtype != torch.float32:
        return None
    if is_func(weight, torch.ops.prims.convert_element_type.default):
        weight = weight.args[0]
    return weight, float(offset)
