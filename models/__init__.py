"""Stage programs on Megatron-Core: text data, GPT pre-training, evaluation.

Each program is ``python -m models.<program> --config <stage.json>``. Importing this package, or
``models.presets`` and ``models.layout``, loads neither torch nor megatron.
"""
