# ruff: noqa: E501
"""What a person on call would say about small made-up jobs: a row per rule, traps included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from resiliency.triage.api import triage_paths
from tests.resiliency.triage.variants import START, Job, glog, iso

A, B, C, D = "gpu-011", "gpu-012", "gpu-013", "gpu-014"
REQ = {"requeue_excluding"}
AGAIN = {"restart_in_job", "requeue"}
Case = tuple[str, Callable[[], Job], set[str], set[str], str | None]
CASES: list[Case] = []


def case(categories: str, actions: str | set[str], node: str | None = None):
    def add(build: Callable[[], Job]) -> Callable[[], Job]:
        wanted = {actions} if isinstance(actions, str) else actions
        CASES.append((build.__name__, build, set(categories.split()), wanted, node))
        return build

    return add


def run(steps: int = 30, **kwargs) -> Job:
    return Job(**kwargs).start().steps(steps)


# -- application -------------------------------------------------------------------------------------------


@case("code_error", "stop")
def type_error_on_every_rank():
    job = run(0)
    for r in range(16):
        job.trace("TypeError: forward() got an unexpected keyword argument 'pos_ids'", r, inner="forward")
    return job.summary(0).srun_end()


@case("code_error", "stop")
def shapes_do_not_fit_on_one_rank_others_lose_it():
    job = run(12).trace("RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x4096 and 5120x32)", 9)
    return job.nccl_remote([0, 1, 2], B).summary(9).srun_end(B)


@case("code_error config_error", "stop")
def import_error_without_prefix():
    return run(0).trace("ModuleNotFoundError: No module named 'flash_attn_3'").summary(0).srun_end()


@case("config_error", "stop")
def argparse_refuses():
    return (
        run(0)
        .say(
            "usage: pretrain_gpt.py [-h] [--num-layers NUM_LAYERS]",
            "pretrain_gpt.py: error: unrecognized arguments: --num-layer 4",
        )
        .srun_end(code=2)
    )


@case("config_error", "stop")
def hydra_key():
    return (
        run(0)
        .trace(
            "omegaconf.errors.ConfigAttributeError: Key 'optimzer' is not in struct\n    full_key: optimzer\n    object_type=dict"
        )
        .srun_end()
    )


@case("config_error", "stop")
def command_not_found():
    return (
        run(0)
        .say("/var/spool/slurmd/job71001/slurm_script: line 22: torchrun: command not found")
        .srun_end(code=127)
    )


@case("data_error", "stop")
def index_file_is_gone():
    return (
        run(0)
        .trace(
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus/part3_text_document.idx'",
            3,
            where="/opt/megatron/core/datasets/indexed_dataset.py",
            inner="__init__",
        )
        .summary(3)
        .srun_end()
    )


@case("data_error", "stop")
def parquet_is_broken():
    return (
        run(20)
        .trace(
            "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
            2,
        )
        .summary(2)
        .srun_end()
    )


@case("data_error code_error", "stop")
def label_out_of_range_asserts():
    job = run(8)
    job.say(
        *[
            "[rank4]: ../aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed."
        ]
        * 3
    )
    job.trace(
        "RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call.",
        4,
    )
    return job.nccl_remote([0, 1], A).summary(4).srun_end()


@case("gpu_oom", "stop")
def oom_old_wording():
    return (
        run(5)
        .trace(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 77.60 GiB already allocated)",
            0,
        )
        .nccl_remote([8, 9], A)
        .summary(0)
        .srun_end()
    )


@case("gpu_oom", "stop")
def oom_seen_by_nccl_first():
    return (
        run(0)
        .say(f"{B}:4242:4300 [3] include/alloc.h:205 NCCL WARN Cuda failure 2 'out of memory'")
        .trace(
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled cuda error, NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            11,
        )
        .summary(11)
        .srun_end(B)
    )


@case("gpu_oom", "stop")
def oom_after_ooms_that_were_skipped():
    job = run(5).say("WARNING: CUDA out of memory. Tried to allocate 2.00 GiB, skipping batch and retrying")
    job.steps(40)
    return (
        job.trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
            2,
        )
        .nccl_remote([5], A)
        .summary(2)
        .srun_end()
    )


@case("gpu_oom", "stop")
def the_last_of_many_ooms_is_not_got_over():
    job = run(5)
    for _ in range(90):
        job.trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
            2,
        ).steps(5)
    return (
        job.trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
            2,
        )
        .summary(2)
        .srun_end()
    )


@case("numeric", "stop")
def loss_turns_nan_and_a_check_stops():
    return (
        run(30)
        .steps(3, loss="nan")
        .trace(
            "AssertionError: Rank 3: found NaN in local forward loss calculation. Device: 3, node: gpu-011", 3
        )
        .summary(3)
        .srun_end()
    )


@case("numeric", "stop")
def loss_scale_gone():
    return (
        run(30)
        .trace(
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
            0,
        )
        .summary(0)
        .srun_end()
    )


@case("sdc_suspected", REQ, C)
def rerun_differs():
    p = "ERROR:megatron.core.rerun_state_machine:"
    return (
        run(30)
        .say(
            f"{p}Unexpected result 1.34 on rank 17 at iteration #30 invocation #1 (message='spiky loss')",
            "WARNING:megatron.core.rerun_state_machine:Need to rerun step to check reproducibility of initial result",
            f"{p}Rank 17, node {C}, device 1, iteration #30: First rerun: unexpected result is reproducible within the tolerance (1.34 = 1.34). Need to rerun on a different GPU to verify correctness.",
        )
        .summary(17, 16)
        .srun_end(C, 16)
    )


@case("checkpoint_mismatch config_error", "stop")
def other_number_of_layers():
    return (
        run(0)
        .trace(
            "AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).",
            0,
        )
        .summary(0)
        .srun_end()
    )


@case("checkpoint_mismatch config_error", "stop")
def dist_checkpoint_shapes():
    job = run(0)
    for r in range(8):
        job.trace(
            "megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for loaded (torch.Size([32000, 4096])) and expected ((128256, 4096)) tensor for key embedding.word_embeddings.weight",
            r,
        )
    return job.summary(0).srun_end()


# -- framework ---------------------------------------------------------------------------------------------


@case("framework_crash", AGAIN | {"stop"})
def segfault_without_kernel_log():
    return run(40).summary(9, -11).nccl_remote([0, 1, 2], B).srun_end(B)


@case("framework_crash", AGAIN | {"stop"})
def fatal_python_error():
    job = run(20).say(
        "[rank5]: Fatal Python error: Segmentation fault",
        "[rank5]: ",
        "[rank5]: Thread 0x00007f (most recent call first):",
        '[rank5]:   File "/workspace/train.py", line 3 in main',
    )
    return job.summary(5, -11).srun_end()


@case("framework_crash", AGAIN | {"stop"})
def heap_is_corrupt():
    return run(20).say("[rank2]: double free or corruption (!prev)").summary(2, -6).srun_end()


@case("code_desync", "stop")
def one_rank_broadcasts():
    return run(20).timeouts(range(16), odd={7: "BROADCAST"}).summary(0, -6).srun_end()


@case("comm_timeout hang", AGAIN)
def everyone_times_out():
    return run(20).timeouts(range(32)).summary(0, -6).srun_end()


@case("comm_timeout hang", AGAIN)
def gloo_times_out():
    return (
        run(20)
        .wait(1800)
        .trace(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
            0,
        )
        .summary(0)
        .srun_end()
    )


@case("code_error", "stop")
def exception_first_timeouts_ten_minutes_later():
    job = run(20).trace("KeyError: 'image_embeds'", 13).steps(0)
    return job.timeouts([r for r in range(32) if r != 13]).summary(0, -6).srun_end()


@case("rendezvous", AGAIN)
def rendezvous_times_out():
    return (
        run(0).wait(900).trace("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError").srun_end()
    )


@case("rendezvous", AGAIN)
def port_is_taken():
    return (
        run(0)
        .trace(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"
        )
        .srun_end()
    )


@case("rendezvous net_other", AGAIN)
def master_cannot_be_reached():
    return (
        run(0)
        .wait(60)
        .trace(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (gpu-011, 29500).",
            None,
        )
        .srun_end(B)
    )


# -- gpu ---------------------------------------------------------------------------------------------------


def _xid(code: int, text: str, pci: str = "0000:9d:00", pid: int = 4242) -> str:
    return f"NVRM: Xid (PCI:{pci}): {code}, pid={pid}, name=python, {text}"


@case("gpu_ecc", REQ, B)
def contained_ecc():
    job = run(40).dmesg(B, _xid(94, "Contained: SM (0x1). RST: No, D-RST: No"), style="boot")
    return (
        job.trace("RuntimeError: CUDA error: uncorrectable ECC error encountered", 12)
        .nccl_remote([0, 1], B)
        .summary(12)
        .srun_end(B)
    )


@case("gpu_ecc", REQ, B)
def ecc_only_in_the_program_with_a_summary():
    return (
        run(40)
        .trace("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", 12)
        .nccl_remote([0, 1], B)
        .summary(12)
        .srun_end(B)
    )


@case("gpu_off_bus", REQ, C)
def off_the_bus_without_xid():
    job = run(40).dmesg(C, "NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.", style="iso")
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("gpu_off_bus", REQ, C)
def off_the_bus_kernel_clock_is_a_minute_behind():
    job = run(40).trace("RuntimeError: CUDA error: unknown error", 18)
    job.dmesg(C, _xid(79, "GPU has fallen off the bus."), at=job.t - 60, style="T")
    return job.nccl_remote([0, 1], C).summary(18).srun_end(C)


@case("gpu_off_bus", REQ, C)
def uncorrected_pcie_error_then_lost():
    job = run(40).dmesg(
        C,
        "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0",
        _xid(79, "GPU has fallen off the bus."),
    )
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("gpu_nvlink", REQ, A)
def nvswitch_fatal():
    job = run(40).dmesg(
        A,
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
        _xid(45, "Ch 00000008"),
    )
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("gpu_nvlink", REQ, A)
def nvlink5_fatal():
    job = run(40).dmesg(
        A, "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)"
    )
    return job.trace("RuntimeError: CUDA error: unspecified launch failure", 2).summary(2).srun_end()


@case("comm_timeout hang", AGAIN)
def nvlink5_nonfatal_means_nothing():
    job = run(40).dmesg(
        A, "NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 01 (0x021425c6 0x00000000)"
    )
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("gpu_firmware", REQ, D)
def gsp_error_120():
    job = run(40).dmesg(D, _xid(120, "GSP task panic: cause:0x7 @ pc:0x18ca08"))
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("gpu_fault", AGAIN | {"stop"}, B)
def mmu_fault_is_code_first():
    job = run(40).dmesg(B, _xid(31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"))
    return (
        job.trace("RuntimeError: CUDA error: an illegal memory access was encountered", 9)
        .nccl_remote([0], B)
        .summary(9)
        .srun_end(B)
    )


@case("gpu_fault", AGAIN | {"stop"})
def illegal_access_without_kernel_log():
    return (
        run(40)
        .trace("RuntimeError: CUDA error: an illegal memory access was encountered", 9)
        .nccl_remote([0], B)
        .summary(9)
        .srun_end(B)
    )


@case("code_error", "stop")
def xid_of_yesterday_is_not_it():
    job = run(40).dmesg(B, _xid(79, "GPU has fallen off the bus.", pid=999), at=START - 40000)
    return (
        job.trace("ValueError: too many values to unpack (expected 2)", 9)
        .nccl_remote([0], B)
        .summary(9)
        .srun_end(B)
    )


@case("comm_timeout hang", AGAIN)
def xid_of_yesterday_on_a_boot_clock():
    job = run(40)
    end = job.t
    job.dmesg(B, _xid(79, "GPU has fallen off the bus.", pid=999), at=START - 40000, style="boot")
    job.timeouts(range(32)).summary(0, -6).srun_end()
    job.dmesg(B, "perf: interrupt took too long (2513 > 2500)", at=end + 700, style="boot")
    return job


@case("comm_timeout hang", AGAIN)
def xid_on_a_node_that_is_not_ours():
    job = run(40).dmesg("gpu-099", _xid(79, "GPU has fallen off the bus."))
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("code_error", "stop")
def xid_43_and_45_follow_a_python_error():
    job = run(40).trace("IndexError: list index out of range", 9)
    job.wait(3).dmesg(B, _xid(45, "Ch 00000008"), _xid(43, "Ch 00000009"))
    return job.nccl_remote([0], B).summary(9).srun_end(B)


@case("gpu_oom", "stop")
def row_remap_is_no_reason():
    job = run(40).dmesg(
        A, _xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."), at=START + 100
    )
    return (
        job.trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
            2,
        )
        .summary(2)
        .srun_end()
    )


# -- network -----------------------------------------------------------------------------------------------


@case("ib_link", REQ, B)
def link_flaps_and_retries_exceed():
    job = run(60)
    for k in (3, 2, 1):
        job.dmesg(B, "mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN", at=job.t - 60 * k)
        job.dmesg(B, "mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link ACTIVE", at=job.t - 60 * k + 7)
    return (
        job.say(
            f"{C}:1:2 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer {B}<48102> with error 12, opcode 0, len 0, vendor err 129 (Recv)"
        )
        .nccl_remote([16], B)
        .summary(16, -6)
        .srun_end(C)
    )


@case("ib_link", REQ, B)
def link_goes_down_and_stays_down():
    job = run(60).dmesg(B, "mlx5_core 0000:5e:00.0 ibp94s0: Link down")
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("ib_transport", AGAIN)
def one_blip_of_a_link_an_hour_ago():
    job = run(5)
    job.dmesg(B, "mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN", at=job.t)
    job.dmesg(B, "mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link ACTIVE", at=job.t + 6)
    job.steps(900)
    return (
        job.say(
            f"{C}:1:2 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<48102> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
        )
        .nccl_remote([16], D)
        .summary(16, -6)
        .srun_end(C)
    )


@case("hca_failure ib_link", REQ, B)
def adapter_health():
    job = run(60).dmesg(
        B, "mlx5_core 0000:5e:00.0: poll_health:803:(pid 0): device's health compromised - reached miss count"
    )
    return job.timeouts(range(32)).summary(0, -6).srun_end()


@case("net_other rendezvous comm_timeout", AGAIN)
def bootstrap_times_out():
    return (
        run(0)
        .say(
            f"{B}:1:2 [1] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.7<45763> failed : Connection timed out"
        )
        .trace(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:268, unhandled system error, NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            9,
        )
        .summary(9)
        .srun_end(B)
    )


@case("code_error", "stop")
def connection_refused_follows_an_exception():
    job = run(3).trace("AttributeError: 'NoneType' object has no attribute 'shape'", 1)
    return (
        job.say(
            f"{B}:1:2 [1] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.7<45763> failed : Connection refused"
        )
        .summary(1)
        .srun_end()
    )


# -- storage -----------------------------------------------------------------------------------------------


@case("storage_full", "hold")
def writer_of_a_checkpoint_has_no_space():
    job = run(20).trace("RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0", 0)
    return (
        job.say("[rank0]: During handling of the above exception, another exception occurred:", "[rank0]: ")
        .trace("OSError: [Errno 28] No space left on device", 0)
        .summary(0)
        .srun_end()
    )


@case("storage_full", "hold")
def background_writer_fails_training_stops_later():
    job = run(20).trace(
        "OSError: [Errno 28] No space left on device: '/data/ckpt/iter_0000020/__1_0.distcp'", 1
    )
    return (
        job.steps(6).trace("RuntimeError: async checkpoint of iteration 20 failed", 0).summary(0).srun_end()
    )


@case("storage_quota storage_full", "hold")
def quota():
    return run(20).trace("OSError: [Errno 122] Disk quota exceeded: '/home/u/out'", 0).summary(0).srun_end()


@case("storage_io", "hold")
def permission():
    return (
        run(20)
        .trace("PermissionError: [Errno 13] Permission denied: '/data/run/ckpt/iter_0000020'", 0)
        .summary(0)
        .srun_end()
    )


@case("storage_io", {"hold", "requeue", "restart_in_job"})
def all_clients_evicted():
    job = run(40)
    for node in (A, B, C, D):
        job.dmesg(
            node,
            "LustreError: 167-0: scratch-OST0011-osc-ffff9c1: This client was evicted by scratch-OST0011; in progress operations using this service will fail.",
        )
    for r in (0, 9, 17, 25):
        job.trace(
            "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/scratch/corpus.bin'", r
        )
    return job.summary(0).srun_end()


@case("storage_io", "hold")
def eio_on_shared():
    return (
        run(40)
        .trace("OSError: [Errno 5] Input/output error: '/data/corpus/x.bin'", 3)
        .nccl_remote([0], A)
        .summary(3)
        .srun_end()
    )


@case("storage_stale", AGAIN | {"hold"})
def stale():
    return run(40).trace("OSError: [Errno 116] Stale file handle", 3).summary(3).srun_end()


@case("checkpoint_corrupt", "rollback_checkpoint")
def part_of_a_checkpoint_is_missing():
    return (
        run(0)
        .trace(
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/ckpt/iter_0018500/__3_1.distcp'",
            3,
        )
        .summary(3)
        .srun_end()
    )


@case("checkpoint_corrupt", "rollback_checkpoint")
def pickle_ends_early():
    return run(0).trace("_pickle.UnpicklingError: pickle data was truncated", 0).summary(0).srun_end()


# -- host --------------------------------------------------------------------------------------------------


@case("host_oom", "stop", B)
def oom_seen_by_slurm():
    job = run(40, state="OUT_OF_MEMORY", exit="0:125").trace(
        "RuntimeError: DataLoader worker (pid 48311) is killed by signal: Killed. ", 9
    )
    return job.say(
        f"slurmstepd: error: Detected 1 oom_kill event in StepId={job.job}.0. Some of the step tasks have been OOM Killed.",
        f"srun: error: {B}: task 1: Out Of Memory",
    )


@case("host_oom", "stop", B)
def oom_only_in_the_kernel_log():
    job = run(40).dmesg(
        B,
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:2kB",
    )
    return job.summary(9, -9).nccl_remote([0], B).srun_end(B, 137)


@case("code_error", "stop")
def oom_of_another_job_on_the_node():
    job = run(40).dmesg(
        B,
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/uid_7/job_70999,task_memcg=/slurm/uid_7/job_70999/step_0,task=python,pid=77,uid=7",
    )
    return job.wait(2).trace("KeyError: 'x'", 9).summary(9).srun_end(B)


@case("shm_exhausted", {"stop", "hold"})
def shm_for_nccl():
    return (
        run(0)
        .say(
            f"{A}:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-aX8s to 9637892 bytes"
        )
        .trace(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            0,
        )
        .summary(0)
        .srun_end()
    )


@case("node_down", REQ | {"requeue"}, C)
def node_failure_after_comm_errors():
    job = run(40, state="NODE_FAIL", exit="0:0").wait(30)
    job.say(
        f"{A}:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer {C}<50472>"
    )
    return job.wait(280).say(
        f"srun: error: Node failure on {C}",
        f"slurmstepd: error: *** STEP {job.job}.0 ON {A} CANCELLED AT {iso(job.t)} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )


@case("node_down", REQ | {"requeue"}, C)
def machine_check_takes_a_node():
    job = run(40, state="NODE_FAIL", exit="0:0").dmesg(
        C,
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 6: be00000000800400",
        "Kernel panic - not syncing: Fatal machine check",
    )
    return job.wait(300).say(f"srun: error: Node failure on {C}")


@case("node_down", {"requeue", "restart_in_job"})
def node_fail_and_nobody_says_which():
    return run(40, state="NODE_FAIL", exit="0:0").wait(300)


@case("node_unkillable hang", REQ | {"requeue"}, B)
def kill_task_failed():
    job = (
        run(40)
        .wait(900)
        .say(f"slurmstepd: error: *** STEP {Job().job}.0 ON {A} CANCELLED AT {iso(START + 1200)} ***")
    )
    job.files["sinfo.txt"] = (
        f"REASON               USER      TIMESTAMP           NODELIST\nKill task failed     root      {iso(job.t)} {B}\n"
    )
    return job.say(
        f"slurmstepd: error: *** STEP {job.job}.0 STEPD TERMINATED ON {B} AT {iso(job.t)} DUE TO JOB NOT ENDING WITH SIGNALS ***"
    )


@case("time_limit", "requeue")
def drained_nodes_of_others_do_not_matter():
    job = run(400, state="TIMEOUT", exit="0:0")
    job.files["sinfo.txt"] = (
        f"REASON               USER      TIMESTAMP           NODELIST\nNot responding       slurm     {iso(START)} gpu-099\nKill task failed     root      {iso(START - 90000)} {B}\n"
    )
    return job.say(
        f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO TIME LIMIT ***"
    )


@case("node_prolog launch_failed", REQ | {"requeue"}, B)
def prolog_on_one_node():
    return (
        Job()
        .say(
            f"srun: error: Task launch for StepId=71001.0 failed on node {B}: Prolog failed",
            "srun: error: Application launch failed: Prolog failed",
        )
        .wait(5)
    )


@case("container_image", {"stop", "hold"})
def no_such_tag():
    job = Job()
    for n in job.nodes:
        job.say(
            "slurmstepd: error: pyxis:     [ERROR] URL https://registry.example.net/v2/x/manifests/25.99 returned error code: 404 Not Found",
            "slurmstepd: error: pyxis: couldn't start container",
            f"srun: error: {n}: task 0: Exited with exit code 1",
        )
    return job.wait(5)


@case("container_node", REQ | {"requeue"}, B)
def container_toolkit_on_one_node():
    job = Job().say(
        f"{B}: slurmstepd: error: pyxis:     nvidia-container-cli: initialization error: nvml error: driver not loaded",
        f"{B}: slurmstepd: error: pyxis: couldn't start container",
    )
    return job.wait(5).srun_end(B)


@case("driver_mismatch", {"stop", "hold"})
def driver_is_old_everywhere():
    job = Job().start()
    for n in job.nodes:
        job.say(
            f"{n}: RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver"
        )
    return job.wait(5).srun_end()


@case("driver_mismatch", REQ, B)
def driver_is_old_on_one_node():
    return (
        Job()
        .start()
        .say(
            f"{B}: RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver"
        )
        .wait(5)
        .srun_end(B)
    )


@case("fabric_manager", REQ, B)
def fabric_manager_on_one_node():
    return (
        Job()
        .start()
        .trace(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            12,
        )
        .summary(12)
        .srun_end(B)
    )


@case("container_node", REQ | {"requeue"}, B)
def container_lines_name_no_node_but_srun_does():
    job = (
        Job()
        .start()
        .say(
            "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device",
            "slurmstepd: error: pyxis: couldn't start container",
            "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
        )
    )
    return job.wait(5).srun_end(B)


@case("driver_mismatch", {"stop", "hold"})
def driver_lines_name_no_node_and_all_tasks_exit():
    job = Job().start()
    for n in job.nodes:
        job.trace("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).")
        job.say(f"srun: error: {n}: task 0: Exited with exit code 1")
    return job.wait(5)


@case("node_down", REQ | {"requeue"}, C)
def node_fail_and_sinfo_says_which():
    job = run(40, state="NODE_FAIL", exit="0:0").wait(300)
    job.files["sinfo.txt"] = (
        f"REASON               USER      TIMESTAMP           NODELIST\nNot responding       slurm     {iso(job.t)} {C}\n"
    )
    return job


@case("gpu_off_bus", REQ | {"requeue"}, C)
def slurm_counts_seven_gpus():
    job = run(40).trace("RuntimeError: CUDA error: unknown error", 18).summary(18).srun_end(C)
    job.files["sinfo.txt"] = (
        f"REASON               USER      TIMESTAMP           NODELIST\ngres/gpu count repor slurm     {iso(job.t)} {C}\n"
    )
    return job


# -- scheduler ---------------------------------------------------------------------------------------------


@case("preempted", "requeue")
def preempted_with_noise_after():
    job = run(90, state="PREEMPTED", exit="0:0")
    job.say(f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO PREEMPTION ***")
    return job.trace(
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15"
    ).nccl_remote([3], B)


@case("preempted", "requeue")
def preempted_and_saved_in_time():
    job = run(90, state="PREEMPTED", exit="0:15")
    job.say(
        f"slurmstepd: error: *** STEP {job.job}.0 ON {A} CANCELLED AT {iso(job.t)} DUE TO PREEMPTION ***",
        "saving checkpoint at iteration 90 to /data/ckpt",
        "  successfully saved checkpoint from iteration 90 to /data/ckpt",
    )
    return job.wait(40).say(f"[exiting program after receiving SIGTERM.] datetime: {iso(job.t, ' ')} ")


@case("user_cancelled", "none")
def scancel_with_noise_after():
    job = run(90, state="CANCELLED by 20114", exit="0:0")
    job.say(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} ***",
    )
    return (
        job.trace("RuntimeError: DataLoader worker (pid 3) is killed by signal: Terminated.", 4)
        .trace("KeyboardInterrupt", 5)
        .nccl_remote([3], B)
    )


@case("user_cancelled", "none")
def scancel_without_sacct():
    job = run(90, no_sacct=True)
    return job.say(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} ***",
        f"W{glog(job.t)} 4 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 5 closing signal SIGTERM",
    )


@case("time_limit", "requeue")
def time_limit_with_noise_after():
    job = run(500, state="TIMEOUT", exit="0:0")
    job.say(f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO TIME LIMIT ***")
    return job.nccl_remote([3, 4, 5], B)


@case("hang", AGAIN)
def stands_still_until_the_time_limit():
    job = run(500, state="TIMEOUT", exit="0:0").wait(7200)
    return job.say(
        f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO TIME LIMIT ***"
    )


@case("gpu_oom", "stop")
def oom_then_stands_still_until_the_time_limit():
    job = run(500, state="TIMEOUT", exit="0:0").trace(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
        2,
    )
    job.wait(7200)
    return job.say(
        f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO TIME LIMIT ***"
    )


@case("planned_rollover", "requeue")
def exit_interval():
    job = run(50, state="COMPLETED", exit="0:0")
    return job.say(
        "  successfully saved checkpoint from iteration      50 to /data/ckpt",
        f"[exiting program after 50.01 minutes] datetime: {iso(job.t, ' ')} ",
    )


@case("launch_failed", "requeue")
def output_directory_is_missing():
    return Job(exit="0:53").wait(1)


@case("submit_uncertain", "hold")
def sbatch_timed_out():
    job = Job(no_sacct=True)
    return job.say("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")


@case("requeued", "requeue")
def requeued_by_an_administrator():
    job = run(90)
    job.say(f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO JOB REQUEUE ***")
    job.rows = [
        f"{job.job}|train|REQUEUED|0:0|0:0|{iso(START - 900)}|{iso(START)}|{iso(job.t)}|{job.nodelist}|None",
        f"{job.job}|train|PENDING|0:0|0:0|{iso(job.t)}|Unknown|Unknown|None assigned|BeginTime",
    ]
    return job


# -- performance, healthy, unknown -----------------------------------------------------------------------------


@case("hang", AGAIN)
def heartbeats_stop():
    job = run(90).wait(1800)
    return (
        job.say(
            *[
                f"[{iso(job.t, ' ')},360] [WARNING] [RankMonitorServer:{r}] Did not get subsequent heartbeat. Waited 1800.00 seconds."
                for r in range(8)
            ]
        )
        .summary(0, -9)
        .srun_end()
    )


@case("straggler", AGAIN)
def stragglers_stop_the_run():
    job = run(90)
    return (
        job.say(
            "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {7}",
            "Detected stragglers. Terminating training...",
        )
        .summary(0, 1)
        .srun_end()
    )


@case("healthy", "none")
def healthy_with_noise():
    job = run(20, state="COMPLETED", exit="0:0").say(
        f"{A}:1:2 [0] transport/net_ib.cc:118 NCCL WARN NET/IB : mlx5_0:1 Got async error event: client reregistration"
    )
    job.trace("TimeoutError: reading s3://x timed out, retrying", 2).steps(30)
    job.dmesg(
        A, _xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."), at=START + 50
    )
    return job.say(
        f"[after training is done] datetime: {iso(job.t, ' ')} ",
        "Exception ignored in: <function Pool.__del__ at 0x7f>",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/multiprocessing/pool.py", line 271, in __del__',
        "    self._change_notifier.put(None)",
        "OSError: [Errno 9] Bad file descriptor",
    )


@case("healthy", "none")
def healthy_although_a_side_step_failed():
    job = run(20, state="COMPLETED", exit="0:0", step_state="FAILED")
    job.rows = [
        f"{job.job}|train|COMPLETED|0:0|0:0|{iso(START - 900)}|{iso(START)}|{iso(job.t + 5)}|{job.nodelist}|None",
        f"{job.job}.0|python|COMPLETED|0:0||{iso(START)}|{iso(START)}|{iso(job.t)}|{job.nodelist}|",
        f"{job.job}.1|nvidia-smi|FAILED|1:0||{iso(START)}|{iso(START)}|{iso(START + 9)}|{A}|",
    ]
    return job.say(f"[after training is done] datetime: {iso(job.t, ' ')} ")


@case("healthy", "none")
def healthy_second_cycle():
    job = (
        run(20, state="COMPLETED", exit="0:0")
        .trace("RuntimeError: CUDA error: an illegal memory access was encountered", 2)
        .summary(2)
    )
    job.say("[default] Worker group FAILED. 3/3 attempts left; will restart worker group").steps(50)
    return job.say(f"[after training is done] datetime: {iso(job.t, ' ')} ")


@case("code_error", "stop")
def batch_script_swallows_the_exit_code():
    return (
        run(10, state="COMPLETED", exit="0:0", step_state="FAILED")
        .trace("ZeroDivisionError: division by zero", 0)
        .summary(0)
        .srun_end()
    )


@case("unknown", AGAIN | {"hold"})
def nothing_but_exit_code_one():
    return run(33).srun_end(B)


@case("unknown", AGAIN | {"hold"})
def sigterm_from_nowhere_hours_before_the_limit():
    job = run(90, exit="0:15").say(
        *[
            f"W{glog(START + 430)} 4 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {p} closing signal SIGTERM"
            for p in range(5, 9)
        ]
    )
    return job.summary(0, -15).srun_end(A, 143)


@case("unknown", AGAIN | {"hold"})
def advice_and_settings_only():
    return (
        run(9)
        .say(
            "export NCCL_DEBUG=INFO",
            "+ echo 'CUDA out of memory? lower the batch size'",
            "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid CUDA out of memory. Tried to allocate",
            "Hint: Xid 79 means that the GPU has fallen off the bus",
            "  nan_policy ...................................... raise",
            '"error_handler": "No space left on device",',
        )
        .srun_end(B)
    )


@case("code_error", "stop")
def only_the_current_attempt_counts():
    job = (
        Job()
        .start()
        .steps(20)
        .trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 2 has a total capacity of 79.15 GiB",
            2,
        )
        .summary(2)
        .srun_end()
    )
    job.say(f"slurmstepd: error: *** JOB {job.job} ON {A} CANCELLED AT {iso(job.t)} DUE TO JOB REQUEUE ***")
    first_end = job.t
    job.wait(600).start(restart=1).steps(5).trace("NameError: name 'optimzer' is not defined", 0).summary(
        0
    ).srun_end()
    job.rows = [
        f"{job.job}|train|REQUEUED|1:0|0:0|{iso(START - 900)}|{iso(START)}|{iso(first_end)}|{job.nodelist}|None",
        f"{job.job}|train|FAILED|1:0|0:0|{iso(first_end)}|{iso(job.begun)}|{iso(job.t)}|{job.nodelist}|None",
    ]
    return job


@case("code_error", "stop")
def only_the_current_cycle_counts():
    job = run(20).trace("RuntimeError: CUDA error: an illegal memory access was encountered", 2).summary(2)
    job.say("[default] Worker group FAILED. 3/3 attempts left; will restart worker group").steps(50)
    return job.trace("KeyError: 'lr_scheduler'", 1).summary(1).srun_end()


@case("gpu_oom", "stop")
def ray_actors_die_of_one_cause():
    job = Job(nodes=(A,)).start().say(f"INFO {iso(START + 60, ' ')[5:]} [engine.py:99] step 12")
    p = "(RolloutWorker pid=8842, ip=10.0.0.1) "
    job.wait(70).say(
        *(
            p + t
            for t in (
                "Traceback (most recent call last):",
                '  File "/workspace/rollout.py", line 3, in generate',
                "    out = self.llm.generate(x)",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.11 GiB",
            )
        )
    )
    return job.trace(
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."
    ).srun_end(A)


@case("code_error config_error", "stop")
def vllm_engine_names_no_cause_but_the_trace_above_does():
    job = Job(nodes=(A,)).start()
    p = f"(EngineCore_DP0 pid=77) ERROR {iso(job.t, ' ')[5:]} [core.py:718] "
    for text in (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/usr/lib/vllm/v1/engine/core.py", line 3, in __init__',
        "    self.model = load(x)",
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens in KV cache (40960).",
    ):
        job.say(p + text)
    return job.trace("RuntimeError: Engine core initialization failed. See root cause above.").srun_end(A)


@pytest.mark.parametrize(("name", "build", "categories", "actions", "node"), CASES, ids=[c[0] for c in CASES])
def test_variant(name, build, categories, actions, node, tmp_path: Path):
    verdict = triage_paths([build().write(tmp_path / "case")])
    said = f"{verdict.category}/{verdict.action}/{verdict.node}: {verdict.reason} {verdict.evidence[:2]}"
    assert verdict.category in categories, said
    assert verdict.action in actions, said
    if node is not None:
        assert verdict.node == node, said
    if verdict.action == "requeue_excluding":
        assert node is not None and verdict.node == node, said
