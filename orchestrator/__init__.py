"""The control plane on the login node: from an experiment file to chains of jobs, and back to a status."""

__version__ = "0.1.0"
