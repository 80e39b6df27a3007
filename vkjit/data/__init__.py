"""Training data: datasets, file readers, transforms, samplers, and data loaders.

Everything is NumPy on the host until a loader yields a batch. Randomness depends only on seeds, not on the number of
workers.
"""

from ..tensor.argument_errors import explain_all as _explain_all
from . import transforms
from .dataset import ArrayDataset, ConcatDataset, Dataset, Subset, Transformed, split
from .files import cifar10, csv, digits, mnist, raw
from .images import ImageFolder, read_image
from .loader import DataLoader
from .samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .summary import DatasetInfo, describe
from .transforms import one_hot

__all__ = [
    "ArrayDataset", "BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "DatasetInfo", "ImageFolder", "RandomSampler",
    "Sampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "Transformed", "WeightedRandomSampler", "cifar10", "csv",
    "describe", "digits", "mnist", "one_hot", "raw", "read_image", "split", "transforms",
]  # fmt: skip

_explain_all(globals(), __all__)
