"""Real Megatron-Core training over two nodes of a real Slurm: text, pre-training, evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.harness import SlurmPerson, attempts, environment, stage

EXPERIMENT = {
    "name": "train",
    "defaults": {"resources": {"time": "00:10:00"}, "chain": {"startup": "30s", "save_time": "5s"}},
    "stages": {
        "data": {"kind": "text", "vocab_size": 384, "max_bytes": 400_000},
        "pretrain": {
            "kind": "pretrain",
            "needs": "data",
            "resources": {"nodes": 2, "ranks_per_node": 1, "cpus_per_node": 1},
            "model": {
                "num_layers": 2,
                "hidden_size": 64,
                "ffn_hidden_size": 128,
                "num_attention_heads": 4,
                "num_query_groups": 2,
            },
            "train": {
                "steps": 20,
                "global_batch_size": 4,
                "micro_batch_size": 2,
                "seq_length": 64,
                "lr": 3e-3,
                "warmup_steps": 2,
                "precision": "fp32",
                "log_interval": 5,
            },
            "checkpoint": {"interval": 10},
        },
        "eval": {"kind": "eval", "needs": "pretrain"},
    },
}


@pytest.mark.slow
def test_the_three_stages_run_over_two_nodes_and_report_their_figures(
    slurm_cluster, slurm_env: dict[str, str], slurm_workdir: Path
) -> None:
    person = SlurmPerson(slurm_workdir, environment(slurm_env))
    run = person.submit(EXPERIMENT)
    done = person.finish(run, timeout_s=480)
    assert done["status"] == "complete", person.story(run)
    trained = next(a for a in attempts(done, "pretrain") if a["category"] == "healthy")
    assert trained["step"] == 20 and "[" in trained["nodes"]  # a1, a2 as Slurm writes it: a[1-2]
    metrics = stage(done, "eval")["results"]["eval.result"]["metrics"]
    bits = metrics["bits_per_byte"]
    assert set(bits) == {"model", "unigram", "order3"} and all(0 < value < 16 for value in bits.values())
    assert f"bits per byte: unigram {bits['unigram']:.4g}" in person.run("status", run).stdout
    run_dir = Path(done["run_dir"])
    manifest = json.loads((run_dir / "stages/pretrain/artifact/manifest.json").read_text())
    assert manifest["kind"] == "checkpoint"
    shown = person.run("logs", run, "--stage", "pretrain").stdout
    assert "lm loss" in shown
