# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts in place of a block's two linear layers (Shazeer et al. 2017, arXiv:1701.06538).

A router gives every token to the `top_k` of E small networks that it scores highest; the token's output is
the sum of theirs, weighted by the softmax of these scores. With ranks that hold E/N experts each (Lepikhin
et al. 2020, arXiv:2006.16668), tokens travel: `dispatch` sends a row for each token and expert to the
expert's rank by an all-to-all of unequal parts, `combine` sends the results back.

Nothing depends on the number of ranks, so the layer gives what one rank gives to the last bit: rows
reach an expert in the order of the ranks, which is that of the tokens in the whole batch; a token's
results are added in float32 in the order of the experts; and capacity is counted per sample, which is
never divided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Route:
    """Where the tokens of this rank go. Rows are pairs of token and expert, by expert, then by token."""

    token: Tensor  # [rows]: of each row
    per_expert: Tensor  # [E]: rows of each expert
    row: Tensor  # [tokens, top_k]: a token's rows in the order of experts; `rows`, one too many, if dropped
    weight: Tensor  # [tokens, top_k] in float32, in the same order


def route_of(scores: Tensor, top_k: int, capacity: float) -> Route:
    """The route of tokens [samples, time] by their scores [samples, time, E].

    With a capacity c > 0, an expert takes c * top_k * time / E tokens of a sample at most, the first
    ones; the others go without it.
    """
    samples, time, experts = scores.shape
    best, chosen = scores.float().topk(top_k, dim=-1)
    chosen, order = chosen.sort(dim=-1)
    weight = F.softmax(best, dim=-1).gather(-1, order).view(-1, top_k)
    # [samples, time, E]: 1 where the token goes to the expert.
    taken = torch.zeros(scores.shape, dtype=torch.long, device=scores.device).scatter_(-1, chosen, 1)
    if capacity > 0:
        most = max(1, math.ceil(capacity * top_k * time / experts))
        taken *= taken.cumsum(1) <= most
    by_expert = taken.view(-1, experts).t()
    token = by_expert.nonzero()[:, 1]
    number = by_expert.flatten().cumsum(0).view(experts, -1).t() - 1  # [tokens, E]: the row, where taken
    chosen = chosen.view(-1, top_k)
    row = torch.where(taken.view(-1, experts).gather(1, chosen) > 0, number.gather(1, chosen), len(token))
    return Route(token, by_expert.sum(1), row, weight)


class _Exchange(torch.autograd.Function):
    """Rows to ranks: the first `sent[0]` to rank 0, and so on. Gradients go the other way."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: Any, rows: Tensor, sent: list[int], came: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        context.sent, context.came, context.group = sent, came, group
        result = rows.new_empty(sum(came), *rows.shape[1:])
        dist.all_to_all_single(result, rows.contiguous(), came, sent, group=group)
        return result

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        result = gradient.new_empty(sum(context.sent), *gradient.shape[1:])
        dist.all_to_all_single(result, gradient.contiguous(), context.sent, context.came, group=context.group)
        return result, None, None, None


def _with_zeros(rows: Tensor, row: Tensor) -> Tensor:
    """The rows, and one more of zeros where routes were dropped."""
    return rows if row.numel() == len(rows) else F.pad(rows, (0, 0, 0, 1))


class _Combine(torch.autograd.Function):
    """Tokens [tokens, width] from rows [rows, width]: sums in float32 in the order of experts."""

    @staticmethod
    def forward(context: Any, rows: Tensor, weight: Tensor, row: Tensor) -> Tensor:  # type: ignore[override]
        context.rows = len(rows)
        padded = _with_zeros(rows, row)
        context.save_for_backward(padded, weight, row)
        result = padded.index_select(0, row[:, 0]).float().mul_(weight[:, :1])
        for i in range(1, row.shape[1]):
            result += padded.index_select(0, row[:, i]).float().mul_(weight[:, i : i + 1])
        return result.to(rows.dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        padded, weight, row = context.saved_tensors
        gradient = gradient.float()
        for_rows = torch.empty_like(padded)
        for_weight = torch.empty_like(weight)
        for i in range(row.shape[1]):
            for_rows[row[:, i]] = (weight[:, i : i + 1] * gradient).to(padded.dtype)
            for_weight[:, i] = padded.index_select(0, row[:, i]).float().mul_(gradient).sum(1)
        return for_rows[: context.rows], for_weight, None


class _Dispatch(torch.autograd.Function):
    """Rows from tokens. Backward adds in the order of experts, too."""

    @staticmethod
    def forward(context: Any, tokens: Tensor, token: Tensor, row: Tensor) -> Tensor:  # type: ignore[override]
        context.save_for_backward(row)
        return tokens.index_select(0, token)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (row,) = context.saved_tensors
        padded = _with_zeros(gradient, row)
        result = padded.index_select(0, row[:, 0]).float()
        for i in range(1, row.shape[1]):
            result += padded.index_select(0, row[:, i])
        return result.to(gradient.dtype), None, None


class Expert(nn.Module):
    """Linear, GELU, linear, on rows [rows, width]."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(rows)))


class Experts(nn.Module):
    """Router and experts, [samples, time, width] to the same; divided by divide()."""

    def __init__(self, width: int, experts: int, top_k: int, capacity: float) -> None:
        super().__init__()
        self.count, self.top_k, self.capacity = experts, top_k, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleDict({str(number): Expert(width, 2 * width) for number in range(experts)})
        self.group: dist.ProcessGroup | None = None
        self.ranks = 1
        self.load = torch.zeros(experts, dtype=torch.long)
        self.dropped = 0

    def divide(self, group: dist.ProcessGroup) -> None:
        """Keep the experts that are this rank's of the group: E/N neighbours."""
        self.group, self.ranks = group, dist.get_world_size(group)
        share = self.count // self.ranks
        first = dist.get_rank(group) * share
        for number in range(self.count):
            if not first <= number < first + share:
                del self.experts[str(number)]

    def forward(self, x: Tensor) -> Tensor:
        route = route_of(self.router(x), self.top_k, self.capacity)
        tokens = x.reshape(-1, x.shape[-1])
        rows = _Dispatch.apply(tokens, route.token, route.row)
        if self.training:
            self.load += route.per_expert.cpu()
            self.dropped += route.row.numel() - len(route.token)
        results = self._by_experts(rows, route.per_expert)
        return _Combine.apply(results, route.weight, route.row).view_as(x)

    def _by_experts(self, rows: Tensor, per_expert: Tensor) -> Tensor:
        """What the experts make of rows, which are in the order of experts, wherever these are."""
        if self.group is None:
            return torch.cat(self._by_mine(rows, per_expert.tolist()))
        # [N, E/N]: how many rows go to each expert; then how many come from each rank for each here.
        counts = per_expert.view(self.ranks, -1).contiguous()
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self.group)
        sent, came = counts.sum(1).tolist(), coming.sum(1).tolist()
        arrived = _Exchange.apply(rows, sent, came, self.group)
        # By rank, then by expert; an expert wants its rows together, in the order of ranks.
        pieces = arrived.split(coming.flatten().tolist())
        share = counts.shape[1]
        ordered = torch.cat([pieces[rank * share + e] for e in range(share) for rank in range(self.ranks)])
        results = self._by_mine(ordered, coming.sum(0).tolist())
        parts = [result.split(sizes) for result, sizes in zip(results, coming.t().tolist(), strict=True)]
        back = torch.cat([parts[e][rank] for rank in range(self.ranks) for e in range(share)])
        return _Exchange.apply(back, came, sent, self.group)

    def _by_mine(self, rows: Tensor, per_expert: list[int]) -> list[Tensor]:
        """Each expert on its rows. One without rows runs, too: its gradient is then zero, not missing."""
        parts = zip(self.experts.values(), rows.split(per_expert), strict=True)
        return [expert(part) for expert, part in parts]
