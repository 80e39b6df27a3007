"""Custom autograd function: a layer with its own kernels, swish with a learned slope per channel.

y = x * sigmoid(slope * x). One kernel computes y, another both gradients; `vk.autograd.Function` records them on the
tape. The gradients are compared with finite differences; then a model with this layer learns to classify two spirals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit import nn, optim


@vk.kernel(over="y")
def swish(x: vk.In[vk.f32, "N C"], slope: vk.In[vk.f32, "C"], y: vk.Out[vk.f32, "N C"]):
    n, c = vk.index()
    y[n, c] = x[n, c] * vk.sigmoid(slope[c] * x[n, c])


@vk.kernel(over="gx")
def swish_gradients(
    x: vk.In[vk.f32, "N C"],
    slope: vk.In[vk.f32, "C"],
    gy: vk.In[vk.f32, "N C"],
    gx: vk.Out[vk.f32, "N C"],
    gslope: vk.Out[vk.f32, "N C"],
):
    """Compute both gradients from one sigmoid; those of the slopes still have to be summed over the batch."""
    n, c = vk.index()
    value = x[n, c]
    s = vk.sigmoid(slope[c] * value)
    change = s * (1 - s) * value
    gx[n, c] = gy[n, c] * (s + slope[c] * change)
    gslope[n, c] = gy[n, c] * change * value


class Swish(vk.autograd.Function):
    """The operation, with its forward and backward pass."""

    @staticmethod
    def forward(ctx: Any, x: vk.Tensor, slope: vk.Tensor) -> Any:
        ctx.save_for_backward(x, slope)
        return swish(x, slope)

    @staticmethod
    def backward(ctx: Any, gradient: vk.Tensor) -> Any:
        x, slope = ctx.saved_tensors
        gx, gslope = swish_gradients(x, slope, gradient)
        return gx, gslope.sum(0)


class LearnedSwish(nn.Module):
    """The layer: (N, channels) -> (N, channels)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(vk.ones(channels))

    def forward(self, x: vk.Tensor) -> Any:
        return Swish.apply(x, self.slope)


def spirals(count: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return points on two spirals (2 count, 2) and their labels (2 count, 1)."""
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0.5, 3.0, count) * np.pi
    arm = np.stack([turn * np.cos(turn), turn * np.sin(turn)], 1) / 6
    points = np.concatenate([arm, -arm]) + rng.normal(0, 0.03, (2 * count, 2))
    return points.astype(np.float32), np.repeat([[0.0], [1.0]], count, 0).astype(np.float32)


def check_gradients(seed: int) -> None:
    """Compare with central differences, whose error is about step^2 plus the rounding error of the sum over the step."""
    rng = np.random.default_rng(seed)
    x, slope, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 3), (3,), (5, 3)))

    def value(x: Any, slope: Any) -> float:
        return float((np.asarray(x, np.float64) / (1 + np.exp(-np.asarray(slope, np.float64) * x)) * weights).sum())

    tensors = vk.tensor(x, requires_grad=True), vk.tensor(slope, requires_grad=True)
    (Swish.apply(*tensors) * vk.tensor(weights)).sum().backward()
    step, worst = 1e-4, 0.0
    for number, tensor in enumerate(tensors):
        assert tensor.grad is not None
        found = tensor.grad.numpy()
        for index in np.ndindex(tensor.shape):
            moved = []
            for sign in (step, -step):
                arrays = [x.astype(np.float64), slope.astype(np.float64)]
                arrays[number][index] += sign
                moved.append(value(*arrays))
            worst = max(worst, abs(found[index] - (moved[0] - moved[1]) / (2 * step)))
    print(f"gradients differ from differences by at most {worst:.1e}")
    assert worst < 1e-5


def main(steps: int = 60, hidden: int = 32, points: int = 64, seed: int = 0, fall: float = 20.0) -> float:
    """Train, and check that the loss has decreased by the factor `fall`."""
    vk.manual_seed(seed)
    check_gradients(seed)
    x, y = (vk.tensor(values) for values in spirals(points, seed))
    model = nn.Sequential(
        nn.Linear(2, hidden),
        LearnedSwish(hidden),
        nn.Linear(hidden, hidden),
        LearnedSwish(hidden),
        nn.Linear(hidden, 1),
    )
    optimizer = optim.AdamW(model.parameters(), lr=3e-2)
    loss_of = nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    curve = vk.stack(losses).numpy()
    slopes = model[1].slope.detach().numpy()
    print(
        f"loss {curve[0]:.4f} -> {curve[-1]:.4f} in {steps} steps; "
        f"learned slopes {slopes.min():.2f} to {slopes.max():.2f}"
    )
    assert curve[-1] * fall < curve[0], f"expected a fall by a factor of {fall}"
    return float(curve[-1])


if __name__ == "__main__":
    main(steps=200, points=256)
