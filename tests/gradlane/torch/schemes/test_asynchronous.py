# SPDX-License-Identifier: Apache-2.0
"""Training by schemes in which nobody waits for another one's computation."""

import copy
import math
from collections.abc import Iterable

import pytest
import torch
from torch import nn

from gradlane.sync import AdPsgd, RFast, Ringmaster, Scheme
from tests.gradlane.torch.schemes.synchronised_workers import Workers


@pytest.mark.parametrize("scheme", [AdPsgd(), Ringmaster(8), RFast()], ids=repr)
def test_asynchronous_workers_learn_with_statistics_schedules_and_skipped_steps(pair: Workers, scheme: Scheme) -> None:
    """They take different numbers of steps, and end with the same model, of which the loss is small."""
    pair.use(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)))
    pair.synchronise(scheme, bucket_bytes=16)

    def act(rank: int) -> tuple[float, float, list[torch.Tensor]]:
        model, optimizer = pair.models[rank], pair.optimizers[rank]
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        random = torch.Generator().manual_seed(rank)
        losses: list[float] = []
        for step in range(60 + 20 * rank):
            inputs = torch.randn(16, 4, generator=random)
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            losses.append(float(loss.detach()))
            scaler.scale(loss * (math.inf if step == 7 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        optimizer.average()
        state = [value.clone() for value in model.state_dict().values() if value.is_floating_point()]
        optimizer.close()
        return losses[0], sum(losses[-5:]) / 5, state

    (first, last, state), (_, other, same) = pair.all(act)
    assert max(last, other) < 0.7 * first
    for own, others in zip(state, same, strict=True):
        torch.testing.assert_close(own, others)
    assert all(bool(torch.isfinite(value).all()) for value in state)


def test_ringmaster_has_one_version_of_parameters_of_both_types_and_adds_up_their_changes(pair: Workers) -> None:
    """Layers of bfloat16 with norms of float32 between them."""
    layers = (nn.Linear(9, 9).bfloat16(), nn.LayerNorm(9), nn.Linear(9, 9).bfloat16())
    pair.use(lambda: copy.deepcopy(nn.Sequential(*layers)))
    pair.synchronise(Ringmaster(99), lr=1.0)
    assert [len(optimizer._parcels) for optimizer in pair.optimizers] == [1, 1]
    random = torch.Generator().manual_seed(1)
    narrow = torch.cat([torch.full((p.numel(),), p.dtype == torch.bfloat16) for p in pair.models[0].parameters()])

    def flat(values: Iterable[torch.Tensor]) -> torch.Tensor:
        return torch.cat([value.detach().float().flatten() for value in values])

    def rounded(values: torch.Tensor) -> torch.Tensor:
        return torch.where(narrow, values.bfloat16().float(), values)

    def step(rank: int) -> None:
        pair.optimizers[rank].param_groups[0]["momentum"] = 0.0
        pair.optimizers[rank].step()
        pair.optimizers[rank].synchronize()

    pair.all(step)  # the first compares the workers
    server = flat(pair.models[0].parameters())
    for turn in range(10):
        parameters = list(pair.models[turn % 2].parameters())
        before = flat(parameters)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=random).to(parameter.dtype)
        server += rounded(before - flat(p.grad for p in parameters)) - before
        step(turn % 2)
        torch.testing.assert_close(flat(parameters), rounded(server))
    held = pair.optimizers[0].state_dict()["synchronisation"]["arrays"]["float32"]["server"]
    torch.testing.assert_close(held, server, rtol=0, atol=1e-5)
