# SPDX-License-Identifier: Apache-2.0
"""The communicator that vLLM's platform for CPUs takes where kolo serves gloo (KOLO_TORCH_AS=gloo).

vLLM's own sends what ranks of one host share through an operation of shared memory, and all else to
torch.distributed; it has no all_gatherv() and no reduce_scatterv(), which experts need that lie on
several ranks. Here all goes to torch.distributed, which is kolo, and both are there.
"""
import functools
import inspect

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


@functools.cache  # once a process
def split_experts():
    """Makes vLLM's experts for CPUs heed which of them lie on this rank. They hand a kernel the numbers that experts
    have in the whole model, which lie beyond the end of a rank's weights (seen in 0.32: a segmentation fault)."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts as Experts

    apply = Experts.apply
    signature = inspect.signature(apply)

    @functools.wraps(apply)
    def apply_own(*given, **named):
        bound = signature.bind(*given, **named)
        call = bound.arguments
        elsewhere = None
        if call["expert_map"] is not None:
            own = call["expert_map"][call["topk_ids"].long()]
            elsewhere = own < 0
            call["topk_ids"] = own.clamp(min=0).to(call["topk_ids"].dtype)
            call["topk_weights"] = call["topk_weights"].masked_fill(elsewhere, 0)
            call["expert_map"] = None
        apply(*bound.args, **bound.kwargs)
        if elsewhere is not None and call["apply_router_weight_on_input"]:  # then the kernel applies no weight
            call["output"].masked_fill_(elsewhere, 0)  # of the only expert of each token

    Experts.apply = apply_own


class Communicator(CpuCommunicator):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        split_experts()
        self._backend = self.device_group._get_backend(torch.device("cpu"))
        self._in_order = dist.AllreduceOptions()
        self._in_order.asyncOp = False

    def all_reduce(self, input_):
        """The sum over ranks, in place. Straight to the backend: dist.all_reduce() takes longer than the call."""
        self._backend.allreduce([input_], self._in_order).wait()
        return input_

    def _all_group_ranks_share_shm_group_name(self):
        return False  # no group takes vLLM's operation

    def all_gatherv(self, input_, dim=0, sizes=None):
        """One tensor of each rank, or several, with `sizes[r]` rows of rank r (None: as many of each), one
        below the other: the same on all ranks."""
        if dim != 0:
            raise ValueError(f"all_gatherv() joins rows: dim is {dim}, not 0")
        if isinstance(input_, list):
            return [self.all_gatherv(tensor, dim, sizes) for tensor in input_]
        rows = sizes or [input_.shape[0]] * self.world_size
        if rows[self.rank_in_group] != input_.shape[0]:
            raise ValueError(f"all_gatherv() of {input_.shape[0]} rows where sizes tell {rows[self.rank_in_group]}")
        output = input_.new_empty((sum(rows), *input_.shape[1:]))
        dist.all_gather(list(output.split(rows)), input_.contiguous(), group=self.device_group)
        return output

    def reduce_scatterv(self, input_, dim=-1, sizes=None):
        """The sum over ranks of `input_`, of which rank r gets `sizes[r]` rows of dimension `dim` (None: an
        equal part)."""
        dim %= input_.dim()
        blocks = input_.movedim(dim, 0).contiguous()
        if sizes is None and blocks.shape[0] % self.world_size != 0:
            raise ValueError(f"reduce_scatterv() of {blocks.shape[0]} rows over {self.world_size} ranks without sizes")
        rows = sizes or [blocks.shape[0] // self.world_size] * self.world_size
        output = blocks.new_empty((rows[self.rank_in_group], *blocks.shape[1:]))
        dist.reduce_scatter(output, list(blocks.split(rows)), group=self.device_group)
        return output.movedim(0, dim).contiguous()
