"""Tries the series on another vLLM, patch by patch."""
