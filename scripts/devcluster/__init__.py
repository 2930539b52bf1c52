"""A real Slurm on one machine, to rehearse and test on: the package behind `scripts/dev-cluster`.

Standard library only, and nothing from the rest of the repository: it must run with the system's
`python3` before any virtual environment exists. `tests/slurm/test_dev_cluster.py` holds it to that.
"""
