# SPDX-License-Identifier: Apache-2.0
"""What a pipeline without flushes computes, in one process, one batch after the other."""
from torch.func import functional_call

from kolo_train.data import make_data
from kolo_train.models import loss_of, make_model
from kolo_train.optim import Optimizer, optimizer_arguments
from kolo_train.ways.pp import cuts


def weights_by_delayed_gradients(config, delays, parts):
    """The weights after config.steps updates, each by the mean gradient of a batch's `parts` micro-batches at
    the weights of `delays[s]` updates before, for the layers of stage s."""
    data = make_data(config)
    model = make_model(config, data.classes)
    model.recompute = False  # it would compute again with the newest weights
    named = dict(model.named_parameters())
    delay = {}
    for (first, end), late in zip(cuts(len(model), len(delays)), delays, strict=True):
        names = [f"{layer}." for layer, _ in list(model.named_children())[first:end]]
        delay |= {name: late for name in named if name.startswith(tuple(names))}
    optimizer = Optimizer(list(named.values()), **optimizer_arguments(config))
    history = []
    for number in range(config.steps):
        history.append({name: param.detach().clone() for name, param in named.items()})
        at = {name: history[max(0, number - late)][name].requires_grad_() for name, late in delay.items()}
        x, y = data.batch(number)
        for part_x, part_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (loss_of(functional_call(model, at, (part_x,)), part_y) / parts).backward()
        for name, param in named.items():
            param.grad, at[name].grad = at[name].grad, None
        optimizer.step()
    return {name: param.detach() for name, param in named.items()}
