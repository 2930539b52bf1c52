"""The gamma distribution and what hangs on it: chi-square and Poisson. Standard library only.

P and Q are the regularised incomplete gamma functions (DLMF 8.2.4): by their series (DLMF 8.7.1) below
``shape + 1``, by Legendre's continued fraction (DLMF 8.9.2, evaluated after Lentz) above. Quantiles by
Newton's method on the logarithm, kept within a bracket. ``tests/metrics/stats/test_gamma.py`` compares with
scipy.
"""

from __future__ import annotations

import math
from typing import Final

#: Work grows with the root of the shape, and the promised accuracy ends here.
MAX_SHAPE: Final = 1e8
_EPS: Final = 2.0**-53
_TINY: Final = 1e-300
_UNDERFLOW: Final = -745.0  # exp() of less is 0
#: Coefficients of 1/a, 1/a³, … in ln Γ(a) - Stirling's formula (DLMF 5.11.1).
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def _check(shape: float, x: float) -> None:
    if not 0.0 < shape <= MAX_SHAPE:
        raise ValueError(f"shape must be over 0 and at most {MAX_SHAPE:g}: {shape}")
    if math.isnan(x) or x < 0.0:
        raise ValueError(f"x must not be negative: {x}")


def _log_power(shape: float, x: float) -> float:
    """ln(x^a e^-x / Γ(a)), without the loss of digits of its parts where ``shape`` is large (Temme)."""
    if shape < 20.0:
        return shape * math.log(x) - x - math.lgamma(shape)
    off = (x - shape) / shape
    far = off - math.log1p(off) if off > -0.5 else off - math.log(x) + math.log(shape)
    correction = sum(c / shape ** (2 * i + 1) for i, c in enumerate(_STIRLING))
    return -shape * far + 0.5 * math.log(shape / (2.0 * math.pi)) - correction


def _series(shape: float, x: float) -> float:
    """P / (x^a e^-x / Γ(a))."""
    term = total = 1.0 / shape
    at = shape
    while term > total * _EPS:
        at += 1.0
        term *= x / at
        total += term
    return total


def _fraction(shape: float, x: float) -> float:
    """Q / (x^a e^-x / Γ(a))."""
    b = x + 1.0 - shape
    c = 1.0 / _TINY
    d = 1.0 / b
    value = d
    i = 0
    while True:
        i += 1
        a = -i * (i - shape)
        b += 2.0
        d = a * d + b
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = b + a / c
        c = c if abs(c) > _TINY else _TINY
        change = d * c
        value *= change
        if abs(change - 1.0) <= 8.0 * _EPS:  # what rounding alone can make of 1
            return value


def _both(shape: float, x: float) -> tuple[float, float]:
    """(P, Q), the smaller of them to full relative accuracy."""
    _check(shape, x)
    if x == 0.0:
        return 0.0, 1.0
    if math.isinf(x):
        return 1.0, 0.0
    log_power = _log_power(shape, x)
    if x < shape + 1.0:
        lower = math.exp(log_power) * _series(shape, x) if log_power > _UNDERFLOW else 0.0
        return lower, 1.0 - lower
    upper = math.exp(log_power) * _fraction(shape, x) if log_power > _UNDERFLOW else 0.0
    return 1.0 - upper, upper


def lower(shape: float, x: float) -> float:
    """P(a, x): that a gamma variable of this shape and rate 1 is at most ``x``.

    Also that a Poisson variable of mean ``x`` is ``shape`` or more. Raises ValueError for a shape out of
    (0, 1e8] or a negative x.
    """
    return _both(shape, x)[0]


def upper(shape: float, x: float) -> float:
    """Q(a, x) = 1 - P(a, x), accurate where it is small. Errors as :func:`lower`."""
    return _both(shape, x)[1]


def _guess(p: float, shape: float) -> float:
    """Logarithm of a first guess: Wilson and Hilferty's cube, or the first term of the series near 0."""
    small = (math.log(p) + math.lgamma(shape + 1.0)) / shape
    t = math.sqrt(-2.0 * math.log(min(p, 1.0 - p)))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (
        1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3
    )
    z = z if p > 0.5 else -z  # Abramowitz and Stegun 26.2.23: a guess needs no more
    cube = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return small if shape < 0.5 or cube <= 0.1 else math.log(shape) + 3.0 * math.log(cube)


def gamma_quantile(p: float, shape: float, rate: float = 1.0) -> float:
    """The x with P(shape, rate · x) = ``p``. Raises ValueError unless 0 < p < 1 and rate > 0."""
    if not 0.0 < p < 1.0:
        raise ValueError(f"a probability must lie between 0 and 1, both left out: {p}")
    if not (rate > 0.0 and math.isfinite(rate)):
        raise ValueError(f"rate must be over 0: {rate}")
    _check(shape, 0.0)
    at = _guess(p, shape)
    if at < -700.0:  # the series' first term is exact there
        return math.exp(at) / rate if at > _UNDERFLOW else 0.0
    low, high = -746.0, 720.0
    for _ in range(200):
        x = math.exp(at)
        below, above = _both(shape, x)
        value, target, sign = (below, p, 1.0) if p <= 0.5 else (above, 1.0 - p, -1.0)
        gap = sign * (math.log(value / target) if value > 0.0 else -800.0)
        if gap > 0.0:
            high = at
        else:
            low = at
        slope = math.exp(_log_power(shape, x)) / value if value > 0.0 else 0.0
        step = gap / slope if slope > 0.0 else math.inf
        if abs(step) <= 1e-15 * max(1.0, abs(at)):
            break
        at = at - step if low < at - step < high else (low + high) / 2.0
        if high - low <= 1e-15 * max(1.0, abs(at)):
            break
    return math.exp(at) / rate


def chi_square_quantile(p: float, degrees: float) -> float:
    """The x that a chi-square variable with ``degrees`` of freedom is under with probability ``p``."""
    return 2.0 * gamma_quantile(p, degrees / 2.0)
