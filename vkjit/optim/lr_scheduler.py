"""Learning-rate schedulers under PyTorch's names, collected from `lr_schedules` and `lr_schedules_composite`."""

from ..tensor.argument_errors import explain_all as _explain_all
from .lr_schedules import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    ReduceLROnPlateau,
    StepLR,
)
from .lr_schedules_composite import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    MultiplicativeLR,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
    "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
    "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

_explain_all(globals(), __all__)
