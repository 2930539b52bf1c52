"""History that Trainmaster did not make: accounting dumps and training logs, written as journals.

``sacct`` and ``logs`` are the two ways in; what they write is read by the ordinary fold and ingest.
"""
