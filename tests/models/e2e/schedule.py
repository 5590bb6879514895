"""The steps that every model runs, and what is kept of them. Imported on the machine.

Three sequences of different lengths are prefilled, one of them in chunks, together with others'
decoding; they decode in batches of their own size and padded like a captured graph's. Then the
same prompts are served again as a second set of sequences, which take whole blocks over from the
first, as prefix caching does, and check drafts of three and seven tokens, some of them wrong.
Sampling is greedy. A sequence's blocks lie anywhere in the cache.
"""

import math
import random
from dataclasses import dataclass, field

import torch

from e2e.catalogue import VOCABULARY
from e2e.engine import BLOCKS, Engine, Padding, Query

PROMPT_LENGTHS = (23, 37, 5)
NEW_TOKENS = 6  # a sequence
_BLOCKS_EACH = 4


@dataclass
class Text:
    """A sequence's tokens, and the distribution after each that was computed.

    prompt: how many of the tokens are the prompt. log_probs: position -> fp32 [vocabulary].
    """

    tokens: list[int]
    prompt: int
    log_probs: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def new(self) -> list[int]:
        return self.tokens[self.prompt :]


@dataclass
class Record:
    """What a configuration made of the schedule.

    drafted, accepted: draft tokens of the second set.
    """

    first: list[Text]
    second: list[Text] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0

    @property
    def texts(self) -> list[Text]:
        return [*self.first, *self.second]


class Sequence:
    """A text being made, with its blocks in the cache."""

    def __init__(self, text: Text, blocks: list[list[int]], computed: int = 0) -> None:
        self.text = text
        self.blocks = blocks
        self.computed = computed

    def query(self, count: int, drafts: list[int] | None = None) -> Query:
        """The next `count` tokens, then the drafts."""
        tokens = self.text.tokens[self.computed : self.computed + count]
        assert len(tokens) == count, (len(self.text.tokens), self.computed, count)
        return Query([*tokens, *(drafts or [])], self.computed, self.blocks, self.text.prompt)

    def take(self, query: Query, log_probs: torch.Tensor) -> int:
        """Keeps a step's results; the number of drafts that were right."""
        known = len(self.text.tokens) - self.computed
        drafts = list(query.tokens[known:])
        right = 0
        for row in log_probs:
            self.text.log_probs[self.computed] = row.clone()
            self.computed += 1
            if self.computed == len(self.text.tokens):
                token = int(row[:VOCABULARY].argmax())
                self.text.tokens.append(token)
                if right == len(drafts) or drafts[right] != token:
                    break
                right += 1
        return right


def play(engine: Engine, prompts_only: bool = False) -> Record:
    """Run the schedule; with `prompts_only`, up to the first token after each prompt."""
    choose = random.Random(5)
    prompts = [[choose.randrange(1, VOCABULARY) for _ in range(n)] for n in PROMPT_LENGTHS]
    free = list(range(1, BLOCKS))  # block 0 is vLLM's null block
    choose.shuffle(free)

    def sequence(prompt: list[int], like: Sequence | None = None) -> Sequence:
        """With new blocks, but those that `like` has for the same tokens."""
        common = math.lcm(*engine.block_sizes)
        shared = (len(prompt) - 1) // common * common if like else 0
        blocks = []
        for group, size in enumerate(engine.block_sizes):
            blocks.append(like.blocks[group][: shared // size] if like else [])
            blocks[-1] += [free.pop() for _ in range(_BLOCKS_EACH - len(blocks[-1]))]
        return Sequence(Text(list(prompt), len(prompt)), blocks, shared)

    if not engine.generates:
        return _encode(engine, prompts)

    first = [sequence(prompt) for prompt in prompts]
    short, long, last = first
    record = Record([each.text for each in first])
    _step(engine, [(short, 23, []), (long, 16, [])])
    _step(engine, [(short, 1, []), (long, 21, []), (last, 5, [])])
    if prompts_only:
        return record
    paddings = [None, Padding(4, 4), Padding(8, 8), Padding(8, None)]
    for step in range(NEW_TOKENS - 1):
        _step(
            engine,
            [(each, 1, []) for each in first if len(each.text.new) < NEW_TOKENS],
            paddings[step % 4],
        )
    if not engine.can_share_blocks:
        return record

    second = [sequence(each.text.tokens[: each.text.prompt], each) for each in first]
    record.second = [each.text for each in second]
    _step(engine, [(each, each.text.prompt - each.computed, []) for each in second])
    step = 0
    while any(len(text.new) < NEW_TOKENS for text in record.second):
        parts = []
        for index, each in enumerate(second):
            if len(each.text.new) >= NEW_TOKENS:
                continue
            count = (3, 7, 0)[(index + step) % 3]
            drafts = _drafts(record.first[index], each.text, count)
            if (index + step) % 2:
                drafts[1:2] = [drafts[1] % (VOCABULARY - 1) + 1] if count else []
            record.drafted += count
            parts.append((each, 1, drafts))
        tokens = sum(1 + len(drafts) for _, _, drafts in parts)
        padding = Padding(-(-tokens // 8) * 8, 4 if step % 2 == 0 else None)
        record.accepted += _step(engine, parts, padding)
        step += 1
    return record


def _encode(engine: Engine, prompts: list[list[int]]) -> Record:
    """All prompts at once, as they are and padded."""
    null = [[0] * _BLOCKS_EACH]
    record = Record([], [])
    queries = [Query(prompt, 0, null, len(prompt)) for prompt in prompts]
    for texts, padding in ((record.first, None), (record.second, Padding(72, 4))):
        rows = engine.run(queries, padding).split([len(prompt) for prompt in prompts])
        for prompt, own in zip(prompts, rows, strict=True):
            texts.append(Text(list(prompt), len(prompt), dict(enumerate(own))))
    return record


def _drafts(text: Text, so_far: Text, count: int) -> list[int]:
    """What the first set's text says comes next; past its end, some token."""
    at = len(so_far.tokens)
    known = text.tokens[at : at + count]
    return [*known, *(1 + (at + i) % (VOCABULARY - 1) for i in range(count - len(known)))]


def _step(
    engine: Engine,
    parts: list[tuple[Sequence, int, list[int]]],
    padding: Padding | None = None,
) -> int:
    """Runs a batch of (sequence, tokens, drafts); the number of drafts that were right."""
    queries = [sequence.query(count, drafts) for sequence, count, drafts in parts]
    rows = engine.run(queries, padding).split([len(query.tokens) for query in queries])
    return sum(
        sequence.take(query, own)
        for (sequence, _, _), query, own in zip(parts, queries, rows, strict=True)
    )
