"""The pretrain program with one thing made to go wrong: ``FAULT --config stage.json``. Not a test itself.

Each fault is a hook named Faulty…, put in where the real thing would go wrong.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

AT_STEP = 30


class FaultyDisk:
    """Rank 1 finds the file system full when it writes its second checkpoint."""

    def install(self) -> None:
        from models import dcp_files

        write, calls = dcp_files.write_rank, []

        def faulty(*arguments: Any, **named: Any) -> int:
            calls.append(1)
            if os.environ.get("RANK") == "1" and len(calls) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
            return write(*arguments, **named)

        dcp_files.write_rank = faulty


class FaultySlowDisk:
    """Each checkpoint takes a second to write."""

    def install(self) -> None:
        from models import dcp_files

        write = dcp_files.write_rank

        def faulty(*arguments: Any, **named: Any) -> int:
            time.sleep(1.0)
            return write(*arguments, **named)

        dcp_files.write_rank = faulty


class FaultySuccessor:
    """A later link claims the stage while the second checkpoint is written."""

    def install(self) -> None:
        from models import dcp_files

        finish, calls = dcp_files.finish, []

        def faulty(*arguments: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                claims = Path(os.environ["TRAINMASTER_RUN_DIR"]) / "claims"
                claims.mkdir(exist_ok=True)
                (claims / "test.pretrain.002.json").touch()
            return finish(*arguments, **named)

        dcp_files.finish = faulty


class FaultyArithmetic:
    """Rank 1 gets one loss wrong, once; the same computed again is right."""

    def install(self) -> None:
        from models import compute

        real, calls = compute._loss, []

        def faulty(mask: Any, output: Any) -> Any:
            calls.append(1)
            loss, told = real(mask, output)
            if os.environ.get("RANK") == "1" and len(calls) == AT_STEP:
                told = {"loss": told["loss"] * float("inf")}
            return loss, told

        compute._loss = faulty


class FaultyGradient:
    """One gradient is infinite, once; all losses are right."""

    def install(self) -> None:
        from models import optim

        real, calls = optim.step, []

        def faulty(optimizer: Any) -> float:
            calls.append(1)
            if len(calls) == AT_STEP:
                group = next(group for group in optimizer.param_groups if group["params"])
                group["params"][0].main_grad.view(-1)[0] = float("inf")
            return real(optimizer)

        optim.step = faulty


FAULTS = {
    "disk": FaultyDisk,
    "slow-disk": FaultySlowDisk,
    "successor": FaultySuccessor,
    "arithmetic": FaultyArithmetic,
    "gradient": FaultyGradient,
}


def main() -> int:
    fault = sys.argv.pop(1)
    from models import pretrain, stage

    class Lazy:
        """Installed once the program has prepared its libraries."""

        def __call__(self, given: stage.Stage) -> int:
            from models import runtime

            split = runtime.split

            def then(*arguments: Any) -> None:
                split(*arguments)
                FAULTS[fault]().install()

            runtime.split = then
            return pretrain.run(given)

    return stage.main(Lazy(), "Pre-train a GPT, with a fault.")


if __name__ == "__main__":
    sys.exit(main())
