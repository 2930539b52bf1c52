"""What is shipped as files: sbatch templates (Jinja2) and starter experiments. No code.

``sbatch/`` is read by the schedulers (a site's own directory comes first), ``experiments/`` by ``init``.
``tests/orchestrator/test_spec_examples.py`` loads and plans every starter.
"""
