"""What vLLM logs during a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from vllm import logger as vllm_logger


@contextmanager
def messages(level: int = logging.WARNING) -> Iterator[list[str]]:
    """The messages of vLLM's loggers at this level or above, in order.

    What vLLM logs once only counts as not yet logged.
    """
    for once in (
        vllm_logger._print_debug_once,
        vllm_logger._print_info_once,
        vllm_logger._print_warning_once,
    ):
        once.cache_clear()
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    collector = Collector(level)
    root = logging.getLogger("vllm")
    root.addHandler(collector)
    before = root.level
    root.setLevel(min(level, before or level))
    try:
        yield found
    finally:
        root.setLevel(before)
        root.removeHandler(collector)
