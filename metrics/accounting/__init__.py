"""Where the time of every attempt went, and the figures that follow from it.

``kinds`` names what a moment can be spent on, ``tiling`` cuts attempts into such intervals, ``figures``
defines each number, ``summary`` computes them from the ledger. ``docs/accounting.md``,
``tests/metrics/accounting/``.
"""
