"""Part of the stand-in for AITER."""
