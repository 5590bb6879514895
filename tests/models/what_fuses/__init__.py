"""What fuses: every model class of vLLM's registry, as expected and as found.

`expected.py` says of each class what its attention layers should become, by what its source does.
`instances.py` makes small models of the classes, `look.py` compiles one as far as the end of vLLM's
passes and reads what its layers became, `table.py` compares and writes. `python -m what_fuses`
(`make fuses`) does it for all.
"""
