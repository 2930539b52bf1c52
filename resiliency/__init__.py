"""The ground floor: what every other package may import.

Holds the contracts between login node, allocation and training process (events, exit codes,
environment names, run-directory layout) and the pure decisions. Imports no other package of this
project, no torch and no megatron (import-linter contract ``floors``).
"""
