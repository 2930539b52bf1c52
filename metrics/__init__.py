"""Figures about runs: the ledger (an index over the journals) and, above it, what is computed from
it.

Imports only :mod:`resiliency` (import-linter contract ``floors``), neither torch nor megatron.
"""
