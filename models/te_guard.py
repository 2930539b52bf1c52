"""Decides whether Transformer Engine is used, before megatron-core is imported.

``import transformer_engine`` may raise RuntimeError (the plain PyPI package is an empty meta
package), which megatron-core does not expect: its import then dies. Without CUDA it could not run
anyway, and Megatron would still choose its CUDA-only optimizer. So: import megatron only after
``choose()``. ``tests/models/test_cpu_shim.py`` runs it against a package that raises.
"""

from __future__ import annotations

import sys
from typing import Any

_choice: tuple[bool, str] | None = None


def choose() -> tuple[bool, str]:
    """(whether Transformer Engine works here, one phrase saying why or why not)."""
    global _choice
    if _choice is None:
        _choice = _decide()
        if not _choice[0]:
            _hide("transformer_engine")
    return _choice


def _decide() -> tuple[bool, str]:
    import torch

    if not torch.cuda.is_available():
        _hide("apex")  # its fused kernels need CUDA as well
        return False, "no CUDA: local layers with torch attention on CPU and gloo"
    try:
        import transformer_engine.pytorch as te
    except ImportError:
        return False, "Transformer Engine is not installed: local layers with torch attention"
    except Exception as error:
        first = str(error).strip().splitlines() or [""]
        return False, (
            f"Transformer Engine does not import ({type(error).__name__}: {first[0]}): "
            "local layers with torch attention"
        )
    return True, f"Transformer Engine {getattr(te, '__version__', '')}".strip()


def _hide(name: str) -> None:
    # None makes Python answer ModuleNotFoundError, which every importer understands.
    modules: dict[str, Any] = sys.modules
    for loaded in [key for key in modules if key == name or key.startswith(name + ".")]:
        del modules[loaded]
    modules[name] = None
