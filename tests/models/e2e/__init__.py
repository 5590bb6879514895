"""Whole models of vLLM on a simulated gfx1151: the same text with the fusion on and off.

`catalogue.py` lists the models, `measure.py` runs one on the machine, `verdict.py` says what its
row must show, `report.py` makes the table. `python -m e2e` (`make e2e`) runs them all.
"""
