"""Lines as the programs print them."""

from __future__ import annotations

import pytest

from orchestrator.importing.loglines import Line, job_of, read, stamp_of
from orchestrator.importing.times import zone_of

MEGATRON = (
    " [2026-04-06 02:59:36] iteration       43/     100 | consumed samples:         5504 | elapsed time per"
    " iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate: 8.600000E-06 | global"
    " batch size:   128 | lm loss: 1.825991E+00 | loss scale: 1.0 | grad norm: 1.426 |"
)
TITAN = (
    "[rank0]:[titan] 2026-05-18 16:07:39,051 - root - INFO - \x1b[31mstep: 22  \x1b[32mloss:  2.91027"
    "  \x1b[34mmemory:  9.46GiB(64.99%)  tps: 7,094  \x1b[36mtflops: 1,000.51  mfu: 0.16%\x1b[39m"
)
NEMO = (
    "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 |"
    " global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106"
)
BAR = (
    "Epoch 0:   1%|  | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.090,"
    " global_step=794.0, consumed_samples=1.63e+6]"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MEGATRON, Line("step", "Megatron-LM", 43, 100, 1.825991, None, 5.4449, 239.8)),
        (
            " iteration 5/infinity | consumed samples: 8 | consumed tokens: 16384 | lm loss: nan |",
            Line("step", "Megatron-LM", 5, None, "nan", 16384),
        ),
        (TITAN, Line("step", "torchtitan", 22, loss=2.91027, tflops=1000.51)),
        (NEMO, Line("step", "NeMo", 121, 150, 1.233, None, 0.03146)),
        (BAR, Line("step", "NeMo", 795, loss=3.09)),
        (
            "  successfully saved checkpoint from iteration     100 to /ckpt [ t 1/2, p 1/1 ]",
            Line("saved", "Megatron-LM", 100, path="/ckpt"),
        ),
        (
            "  successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 100",
            Line("loaded", "Megatron-LM", 100, path="/ckpt"),
        ),
        ("saving checkpoint at iteration     100 to /ckpt", Line("saving", "Megatron-LM", 100, path="/ckpt")),
        (
            "[NeMo I 2026-04-11 14:48:45 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 49 :"
            " Start time: 1744408121.151s : Save duration: 4.389s",
            Line("saved", "NeMo", 50, took_s=4.389),
        ),
        (
            "[titan] 2026-05-18 16:07:39,051 - root - INFO - Finished saving the checkpoint in 0.60 seconds.",
            Line("saved", "torchtitan", took_s=0.6),
        ),
        ("[titan] - root - INFO - Training starts at step 21", Line("start", "torchtitan", 20)),
        ("validation loss at iteration 10 on validation set | lm loss value: 2 |", None),
        ("loading checkpoint from /ckpt", None),
        ("", None),
    ],
)
def test_what_a_line_says(text: str, told: Line | None) -> None:
    assert read(text) == told


def test_time_and_job_of_a_line() -> None:
    utc = zone_of("UTC")
    assert stamp_of(TITAN, utc) == 1779120459.051
    assert stamp_of("iteration 3", utc) is None and stamp_of("2026-99-99 00:00:00", utc) is None
    assert job_of("SLURM_JOB_ID=12345") == job_of("export SLURM_JOBID: '12345'") == "12345"
    assert job_of("SLURM_JOB_NAME=77") is None
