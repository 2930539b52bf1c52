"""How others bring a training run back on Slurm, and how we do: one work, one fault each, one clock.

``work.py`` is what is trained, ``contestants.py`` the ways to keep it going, ``contest.py`` one run of one of
them with one fault, ``table.py`` what came of it. ``scripts/bench/bench_faults.py`` drives them.
"""
