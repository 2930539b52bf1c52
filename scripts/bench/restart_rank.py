"""models.pretrain, and where the time to its first step went: the program that bench_restart.py starts."""

from __future__ import annotations

import json
import os
import sys

from models import pretrain, runtime
from models.stage import main

if __name__ == "__main__":
    code = main(pretrain.run, "Pre-train a GPT.")
    print("PHASES", json.dumps({"rank": int(os.environ["RANK"]), **runtime.TIMING.phases}), flush=True)
    sys.exit(code)
