"""The Slurm backend: one module per Slurm command, pure parsers, one place that runs commands.

Read ``backend.py`` first. ``sbatch``, ``squeue``, ``sacct``, ``scontrol``, ``sinfo`` and
``sacctmgr`` each hold one command's arguments and what its answers mean, without running it;
``history`` joins queue and accounting; ``commands`` runs. Nothing outside this package knows
Slurm's syntax. ``tests/orchestrator/test_slurm_*.py`` (recorded answers of 22.05 and 24.11) and
``tests/slurm/test_scheduler_slurm.py`` (the real thing) hold it to that.
"""

from .backend import SlurmScheduler

__all__ = ["SlurmScheduler"]
