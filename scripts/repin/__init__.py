"""Moves the pin to another release of vLLM."""
