"""Muon and its combination with AdamW: hand-computed steps, disjoint parameters, state, schedulers."""

import copy
import math
import threading

import pytest
import torch
from tiny_models import same_weights, small_model, weights_of
from torch import Tensor, nn
from transformers import get_cosine_schedule_with_warmup

from training.learner.ranks import ONE_RANK, Ranks
from training.models import optimizers
from training.models.optimizers import (
    CombinedOptimizer,
    Muon,
    muon_with_adamw,
    orthogonalize,
)


def random_matrices(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 40), (2, 40, 8), (1, 1, 5)])
def test_orthogonalized_singular_values_lie_around_one(shape: tuple[int, int, int]) -> None:
    result = orthogonalize(random_matrices(*shape))
    values = torch.linalg.svdvals(result)
    assert result.shape == shape
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3


def test_orthogonalizing_keeps_the_singular_vectors_and_ignores_the_scale() -> None:
    """U S V' becomes about U V', whatever the size of the gradient."""
    matrix = random_matrices(1, 12, 7)
    u, _, vh = torch.linalg.svd(matrix[0], full_matrices=False)
    inner = u.T @ orthogonalize(matrix)[0] @ vh.T
    assert torch.allclose(inner, torch.diag(torch.diagonal(inner)), atol=1e-4)
    assert torch.allclose(orthogonalize(matrix * 1e4), orthogonalize(matrix), atol=1e-4)


def newton_schulz(value: float, steps: int = 5) -> float:
    """What the quintic iteration makes of one singular value, in plain Python."""
    for _ in range(steps):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


def test_two_muon_steps_by_hand() -> None:
    """Diagonal gradients: every matrix product is a product of numbers. Shape (4, 1) scales by sqrt(4)."""
    weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    column = nn.Parameter(torch.tensor([[1.0], [0.0], [0.0], [0.0]]))
    optimizer = Muon([weight, column], lr=0.1, momentum=0.9)
    weight.grad, column.grad = (
        torch.diag(torch.tensor([3.0, 4.0])),
        torch.tensor([[2.0], [0.0], [0.0], [0.0]]),
    )
    optimizer.step()
    # momentum 0 -> 0.1 g; Nesterov 0.1 g + 0.9 * 0.1 g = 0.19 g; scaled to norm 1: (0.6, 0.8)
    first = [1.0 - 0.1 * newton_schulz(0.6), 2.0 - 0.1 * newton_schulz(0.8)]
    assert torch.diagonal(weight.detach()).tolist() == pytest.approx(first, abs=1e-6)
    assert float(column.detach()[0, 0]) == pytest.approx(1.0 - 0.1 * 2 * newton_schulz(1.0), abs=1e-6)
    weight.grad, column.grad = torch.diag(torch.tensor([0.0, 5.0])), None
    before = column.detach().clone()
    optimizer.step()
    # momentum 0.9 * (0.3, 0.4) + 0.1 * (0, 5) = (0.27, 0.86); Nesterov (0.243, 0.5 + 0.774)
    x, y = 0.9 * 0.27, 0.1 * 5 + 0.9 * 0.86
    norm = math.hypot(x, y)
    second = [first[0] - 0.1 * newton_schulz(x / norm), first[1] - 0.1 * newton_schulz(y / norm)]
    assert torch.diagonal(weight.detach()).tolist() == pytest.approx(second, abs=1e-6)
    assert float(weight.detach()[0, 1]) == 0.0
    assert torch.equal(column.detach(), before)  # no gradient, no step


@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (4, 12)])
def test_muon_agrees_with_torch_within_bfloat16(shape: tuple[int, int]) -> None:
    """torch.optim.Muon iterates in bfloat16 and has the same scale under its "original" rule."""
    ours, theirs = (nn.Parameter(random_matrices(*shape, seed=1)) for _ in range(2))
    mine = Muon([ours], lr=0.05, momentum=0.95)
    reference = torch.optim.Muon(
        [theirs], lr=0.05, momentum=0.95, weight_decay=0.0, nesterov=True, adjust_lr_fn="original"
    )
    start = ours.detach().clone()
    for step in range(3):
        ours.grad = random_matrices(*shape, seed=10 + step)
        theirs.grad = ours.grad.clone()
        mine.step()
        reference.step()  # type: ignore[no-untyped-call]
    moved = (ours - start).detach()
    assert (moved - (theirs - start).detach()).norm() < 0.02 * moved.norm()


def test_matrices_of_equal_shape_do_not_mix() -> None:
    together = [nn.Parameter(random_matrices(5, 5, seed=seed)) for seed in (1, 2)]
    alone = [nn.Parameter(parameter.detach().clone()) for parameter in together]
    joint, single = Muon(together, lr=0.1), [Muon([parameter], lr=0.1) for parameter in alone]
    for one, other, seed in zip(together, alone, (3, 4), strict=True):
        one.grad = random_matrices(5, 5, seed=seed)
        other.grad = one.grad.clone()
    joint.step()
    for optimizer in single:
        optimizer.step()
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(together, alone, strict=True))


def make_optimizer(model: nn.Module) -> CombinedOptimizer:
    return muon_with_adamw(model, muon_learning_rate=0.02, learning_rate=0.002)


def test_every_parameter_belongs_to_exactly_one_part() -> None:
    model = small_model()
    frozen = model.model.layers[0].mlp.down_proj.weight.requires_grad_(False)
    muon, adamw = make_optimizer(model).optimizers
    matrices, rest = ([p for group in part.param_groups for p in group["params"]] for part in (muon, adamw))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert isinstance(muon, Muon)
    assert {names[id(p)].rpartition(".")[0].rpartition(".")[2] for p in matrices} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
    }  # fmt: skip
    assert all("norm" in names[id(p)] or "embed" in names[id(p)] for p in rest)
    everybody = [id(p) for p in (*matrices, *rest)]
    assert len(everybody) == len(set(everybody))
    assert set(everybody) == set(names) - {id(frozen)}


def train(model: nn.Module, optimizer: CombinedOptimizer, steps: range) -> None:
    for step in steps:
        ids = torch.randint(2, 200, (4, 12), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


def test_state_that_is_saved_and_loaded_goes_on_identically() -> None:
    straight, stopped = small_model(), small_model()
    optimizer = make_optimizer(straight)
    train(straight, optimizer, range(6))
    first = make_optimizer(stopped)
    train(stopped, first, range(3))
    state = copy.deepcopy(first.state_dict())
    resumed = make_optimizer(stopped)
    resumed.load_state_dict(state)
    train(stopped, resumed, range(3, 6))
    assert same_weights(weights_of(straight), weights_of(stopped))
    forgetful = small_model()
    train(forgetful, make_optimizer(forgetful), range(3))
    train(forgetful, make_optimizer(forgetful), range(3, 6))
    assert not same_weights(weights_of(straight), weights_of(forgetful))


@pytest.mark.parametrize("loaded", [False, True])
def test_a_scheduler_reaches_both_parts(loaded: bool) -> None:
    """Also after the state was loaded, which gives each part new groups (trainers do that at the start)."""
    model = small_model()
    optimizer = make_optimizer(model)
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=10)
    if loaded:
        optimizer.load_state_dict(optimizer.state_dict())
    rates = []
    for step in range(10):
        train(model, optimizer, range(step, step + 1))
        scheduler.step()
        rates.append([part.param_groups[0]["lr"] for part in optimizer.optimizers])
    shares = [0.5, 1.0, *((1 + math.cos(math.pi * step / 8)) / 2 for step in range(1, 9))]
    assert [rate for rate, _ in rates] == pytest.approx([0.02 * share for share in shares], abs=1e-9)
    assert [rate for _, rate in rates] == pytest.approx([0.002 * share for share in shares], abs=1e-9)
    before = weights_of(model)
    train(model, optimizer, range(1))  # at rate 0
    assert same_weights(before, weights_of(model))


def test_training_with_both_parts_lowers_the_loss() -> None:
    model = small_model()
    optimizer = make_optimizer(model)
    ids = torch.randint(2, 200, (4, 12), generator=torch.Generator().manual_seed(0))

    def loss() -> float:
        with torch.no_grad():
            return float(model(input_ids=ids, labels=ids).loss)

    before = loss()
    train(model, optimizer, range(0, 1))
    for _ in range(20):
        train(model, optimizer, range(0, 1))
    assert loss() < before - 1


def test_two_ranks_orthogonalise_their_halves_and_step_as_one_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads stand for ranks; of one shape there are three matrices, and of the other one alone."""
    counts: dict[str, list[int]] = {"MainThread": [], "0": [], "1": []}
    parts: dict[str, Tensor] = {}
    barrier = threading.Barrier(2, timeout=60)

    def gather(gathered: list[Tensor], part: Tensor) -> None:
        parts[threading.current_thread().name] = part
        barrier.wait()
        gathered[:] = parts["0"], parts["1"]
        barrier.wait()

    def count(matrices: Tensor) -> Tensor:
        counts[threading.current_thread().name].append(len(matrices))
        return orthogonalize(matrices)

    monkeypatch.setattr("training.learner.ranks.dist.all_gather", gather)
    monkeypatch.setattr(optimizers, "orthogonalize", count)

    def train(ranks: Ranks) -> list[Tensor]:
        shapes = [(24, 24), (24, 24), (60, 24), (24, 24)]
        weights = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
        optimizer = Muon(weights, lr=0.1, ranks=ranks)
        for step in range(2):
            for place, weight in enumerate(weights):
                weight.grad = random_matrices(*weight.shape, seed=10 * step + place)
            optimizer.step()
        return [weight.detach() for weight in weights]

    found: dict[str, list[Tensor]] = {}

    def be_rank(rank: int) -> None:
        found[str(rank)] = train(Ranks(rank=rank, size=2))

    threads = [threading.Thread(target=be_rank, args=(rank,), name=str(rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = train(ONE_RANK)
    assert counts == {"MainThread": [3, 1] * 2, "0": [2, 1] * 2, "1": [1] * 2}
    for rank in ("0", "1"):
        assert all(torch.equal(mine, one) for mine, one in zip(found[rank], alone, strict=True))
