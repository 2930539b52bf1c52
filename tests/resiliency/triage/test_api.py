"""The function that the supervisor calls: light, quick on small logs, and told what the caller knows."""

from __future__ import annotations

import subprocess
import sys

from resiliency.triage.api import triage_paths
from resiliency.triage.slurmtext import Place

TRACE = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/w/t.py", line 3, in main\n'
    "[rank3]:     f()\n"
    "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
)


def test_it_loads_neither_rich_nor_pydantic_nor_hyperscan(tmp_path):
    (tmp_path / "n1.log").write_text(TRACE)
    code = (
        "import sys; from resiliency.triage.api import triage_paths; triage_paths([sys.argv[1]]);"
        "print(sorted({'rich', 'pydantic', 'omegaconf', 'hyperscan', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_places_that_the_caller_knows_name_the_node(tmp_path):
    (tmp_path / "out.log").write_text(TRACE)
    told = triage_paths([tmp_path], nodes=["n1", "n2"], places={3: Place("n2", 3)})
    assert (told.category, told.node, told.gpu, told.action) == ("gpu_ecc", "n2", 3, "requeue_excluding")
    untold = triage_paths([tmp_path])
    assert (untold.node, untold.action) == (None, "requeue")


def test_a_node_that_is_not_the_job_s_is_not_excluded(tmp_path):
    (tmp_path / "out.log").write_text(TRACE)
    told = triage_paths([tmp_path], nodes=["n1", "n2"], places={3: Place("elsewhere", 3)})
    assert told.action != "requeue_excluding"


def test_nothing_at_all_is_unknown(tmp_path):
    verdict = triage_paths([tmp_path])
    assert (verdict.category, verdict.action, verdict.evidence) == ("unknown", "restart_in_job", [])
    assert triage_paths([tmp_path / "gone"]).notes[0].endswith("not there")


def test_a_log_named_for_a_node_speaks_for_it(tmp_path):
    (tmp_path / "n2.log").write_text(TRACE.replace("[rank3]: ", ""))
    (tmp_path / "n1.log").write_text("all is well\n")
    told = triage_paths([tmp_path], nodes=["n1", "n2"])
    assert (told.category, told.node, told.action) == ("gpu_ecc", "n2", "requeue_excluding")
