"""models.pretrain as a program that says which modules it loaded after what is imported ahead."""

from __future__ import annotations

import sys

from models import pretrain
from models.stage import main

if __name__ == "__main__":
    ahead = set(sys.modules)
    code = main(pretrain.run, "Pre-train a GPT.")
    print("LATE", *sorted(set(sys.modules) - ahead), flush=True)
    sys.exit(code)
