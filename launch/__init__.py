"""In the allocation: gate, segment supervisor, node agents, rank shim, signals.

Started by ``orchestrator.segment`` on the batch host. Reads stage.json, journals and claims; imports
neither torch nor pydantic and nothing of ``orchestrator`` (contracts ``floors`` and ``light``).
"""
