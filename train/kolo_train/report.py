# SPDX-License-Identifier: Apache-2.0
"""What a run came to, as text."""

from __future__ import annotations

import os

from kolo_train import communication, timeline
from kolo_train.config import WAYS
from kolo_train.memory import formula
from kolo_train.train import Report

UNITS = ("B", "KiB", "MiB", "GiB")


def headline(report: Report) -> str:
    """What is trained, and how."""
    config = report.config
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks"
    return (
        f"{config.model}, {report.parameters:,} parameters, {config.precision}, batch {config.batch}, on {ranks} "
        f"over {config.backend}{_codec(report)}\n{config.parallel}: {WAYS[config.parallel]}"
    )


def _codec(report: Report) -> str:
    """How float32 travels, and what decides that a call is compressed."""
    codecs = report.config.codecs
    if codecs == "none":
        return ""
    rule = os.environ.get("KOLO_CODEC", "price")
    return f", codec {codecs} ({'by price' if rule == 'price' else f'KOLO_CODEC={rule}'})"


def summary(report: Report) -> str:
    """Loss, speed, communication, memory, and the check where there was one."""
    lines = [
        headline(report),
        "",
        _loss(report),
        _speed(report),
        _communication(report),
        *_pipeline(report),
        *_prediction(report),
        *_memory(report),
    ]
    lines += [f"  {note}" for note in report.notes]
    if report.check:
        lines += _check(report)
    return "\n".join(lines)


def _loss(report: Report) -> str:
    losses = report.losses
    if not losses:
        return "loss            none"
    tail = losses[-max(1, len(losses) // 10) :]
    fall = f"{losses[0]:.4f} -> {sum(tail) / len(tail):.4f}"
    return f"loss            {fall} in {len(losses)} steps (mean of the last tenth)"


def _speed(report: Report) -> str:
    return f"speed           {report.samples_per_s:,.0f} samples/s, {report.step_seconds * 1e3:.2f} ms a step"


def _communication(report: Report) -> str:
    if not report.communication:
        return "communication   none" if report.ranks == 1 else "communication   not measured"
    parts = {name: share for name, share in report.communication.items() if name != "all"}
    shown = ", ".join(f"{name} {share:.1%}" for name, share in sorted(parts.items(), key=lambda part: -part[1]))
    handed = f"; {report.handed_bytes / 2**20:.2f} MiB a step" if report.handed_bytes else ""
    rule = communication.formula(report.config, report.ranks, report.parameters)
    if handed and rule:
        handed += f", by the formula {rule[0]}: {rule[1] / 2**20:.2f}"
    return f"communication   {report.communication.get('all', 0):.1%} of a step: {shown or 'nothing seen'}{handed}"


def _pipeline(report: Report) -> list[str]:
    if not report.windows:
        return []
    text = f"pipeline        {timeline.bubbles(report.windows):.0%} of the time a rank does not compute"
    rule = timeline.formula(report.config, report.ranks)
    return [f"{text}; by the formula {rule[0]}: {rule[1]:.0%}" if rule else text]


def _prediction(report: Report) -> list[str]:
    told = report.prediction
    if told is None:
        return []
    machine = "this machine" if told.machine == "live" else told.machine
    return [
        f"prediction      {told.predicted * 1e3:.2f} ms a step on {machine}; measured here: "
        f"{told.measured * 1e3:.2f} ms, in {told.steps} steps",
        f"                a rank computes {told.computation * 1e3:.2f} ms, and is in calls for {told.calls * 1e3:.2f} ms",
    ]


def _memory(report: Report) -> list[str]:
    lines = [f"memory          {'parameters':>12} {'gradients':>12} {'optimizer':>12} {'together':>12}"]
    for rank, memory in enumerate(report.memory):
        values = (memory.parameters, memory.gradients, memory.optimizer, memory.together)
        lines.append(f"  rank {rank:<9}{' '.join(f'{size(value):>12}' for value in values)}")
    largest = max(memory.together for memory in report.memory)
    line = f"  largest: {largest / report.parameters:.2f} bytes a parameter"
    rule = formula(report.config, report.ranks)
    if rule:
        line += f"; by the formula {rule[0]} with N = {report.ranks}: {rule[1]:.2f}"
    return [*lines, line]


def _check(report: Report) -> list[str]:
    check = report.check
    assert check is not None
    part = f"{check.relative:.2g} of the {check.moved:.3g} that they moved"
    distance = f"{check.distance:.3g} from those of one rank, {part}"
    if not check.exact:
        why = "this way is not synchronous" if report.config.codec == "none" else "the codec rounds"
        verdict = f"not meant to be equal: {why}"
    else:
        verdict = f"{'EQUAL' if check.passed else 'NOT EQUAL'}: the tolerance is {check.tolerance:g}"
    last = f"the loss of one rank: {check.single_losses[0]:.4f} -> {check.single_losses[-1]:.4f}"
    return [
        f"check           weights {distance}",
        f"                {verdict}",
        f"                {last}",
    ]


def size(value: float) -> str:
    """Bytes in the largest unit that leaves a number of 1 or more."""
    unit = 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.2f} {UNITS[unit]}"
