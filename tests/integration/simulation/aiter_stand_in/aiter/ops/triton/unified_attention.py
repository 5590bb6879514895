"""Part of the stand-in for AITER: attention, which nothing calls here."""


def unified_attention(*_: object, **__: object) -> None:
    """Attention over a paged cache."""
    raise NotImplementedError("the stand-in for AITER has no attention")
