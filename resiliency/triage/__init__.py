"""Root-cause triage of an ended (or hung) training job: from files to one verdict.

``api.triage_paths`` is the entry. Everything here reads; nothing writes, runs a command, asks a network
or keeps state. What a line means is data (``resiliency/signatures/*.yaml``), what follows from several
lines together is code (``decide`` and the modules it calls). ``tests/resiliency/triage/`` holds it to the
labelled cases, to the samples in the data and to hostile input.
"""
