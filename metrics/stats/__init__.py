"""What can be said from counts of failures: rates with their bounds, lemon nodes, advice.

Pure functions over plain values, standard library only; the ledger is not known here. ``gamma`` has the
distributions, ``rates`` the figures, ``prior`` and ``lemons`` the nodes that are worse than their fleet,
``signals`` what else is known of a node, ``repairs`` what came of mending it, ``advice`` what to change.
``docs/statistics.md``, ``tests/metrics/stats/``.
"""
