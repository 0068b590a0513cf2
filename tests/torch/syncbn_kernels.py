# SPDX-License-Identifier: Apache-2.0
"""The five kernels of torch.nn.SyncBatchNorm, which torch has for accelerators alone, in plain torch:
with them its autograd function, and the communication in it, runs on CPU tensors.

Source of the formulas: Ioffe and Szegedy 2015, arXiv:1502.03167, with the sums over all ranks.
"""
import torch


def _others(x):
    """Every dimension but that of the channels."""
    return [0, *range(2, x.dim())]


def _over_channels(x, v):
    return v.view(1, -1, *[1] * (x.dim() - 2))


def stats(x, eps):
    return x.mean(_others(x)), (x.var(_others(x), unbiased=False) + eps).rsqrt()


def gather_stats_with_counts(x, means, invstds, running_mean, running_var, momentum, eps, counts):
    share = (counts / counts.sum()).view(-1, 1)
    mean = (share * means).sum(0)
    var = (share * (invstds**-2 - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None:
        n = counts.sum()
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(var * n / (n - 1), momentum)
    return mean, (var + eps).rsqrt()


def elemt(x, weight, bias, mean, invstd, eps):
    return (x - _over_channels(x, mean)) * _over_channels(x, invstd * weight) + _over_channels(x, bias)


def backward_reduce(grad, x, mean, invstd, weight, *needed):
    centred = x - _over_channels(x, mean)
    sum_dy, sum_dy_xmu = grad.sum(_others(x)), (grad * centred).sum(_others(x))
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy


def backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts):
    n = counts.sum()
    centred = (x - _over_channels(x, mean)) * _over_channels(x, invstd**2 * sum_dy_xmu / n)
    return (grad - _over_channels(x, sum_dy / n) - centred) * _over_channels(x, invstd * weight)


def install():
    """Give torch these functions, in this process."""
    for kernel in (stats, gather_stats_with_counts, elemt, backward_reduce, backward_elemt):
        setattr(torch, f"batch_norm_{kernel.__name__}", kernel)
