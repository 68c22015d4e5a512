"""The probe is a convex fit with one answer, and its two scores are what their definitions say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seismic_model.data.store import BoolArray, FloatArray
from seismic_model.evaluation.probes import PENALTY, average_precision, fit_probe, patch_labels, roc_auc
from seismic_model.model.masking import TokenLayout

Float64Array = npt.NDArray[np.float64]


def once(labels_N: BoolArray) -> Float64Array:
    return np.ones((1, len(labels_N)))


def labelled_features(patches: int, share: float, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    """Features of very different sizes, the second of which is higher for labelled patches; the last is constant."""
    random = np.random.default_rng(seed)
    labels_N = random.random(patches) < share
    features_NF = random.standard_normal((patches, 4))
    features_NF[:, 1] += 2.0 * labels_N
    features_NF = features_NF * [1.0, 1e3, 1e-3, 0.0] + [0.0, -5e3, 7.0, 3.0]
    return features_NF.astype(np.float32), labels_N


def test_a_probe_finds_the_feature_that_tells_whatever_its_size() -> None:
    probe = fit_probe(*labelled_features(4000, share=0.1))
    features_NF, labels_N = labelled_features(4000, share=0.1, seed=1)
    logits_N = probe.logits(features_NF)
    assert np.argmax(np.abs(probe.weight_F)) == 1
    assert roc_auc(logits_N, labels_N, once(labels_N))[0] > 0.9  # Φ(2 / √2) = 0.921
    caught, false_alarms = (logits_N[labels_N] > 0).mean(), (logits_N[~labels_N] > 0).mean()
    assert caught == pytest.approx(1 - false_alarms, abs=0.05), "a rare class has to weigh as much as the other"


def test_a_probe_lies_where_the_objective_is_flat() -> None:
    features_NF, labels_N = labelled_features(500, share=0.3)
    probe = fit_probe(features_NF, labels_N)
    x_NF = torch.from_numpy((features_NF - probe.mean_F) / probe.scale_F)
    weight_F, bias = torch.from_numpy(probe.weight_F), torch.tensor(probe.bias, dtype=torch.float64)
    weight_F.requires_grad_(), bias.requires_grad_()
    target_N = torch.from_numpy(labels_N).double()
    each_N = torch.nn.functional.binary_cross_entropy_with_logits(x_NF @ weight_F + bias, target_N, reduction="none")
    loss = (each_N[target_N == 1].mean() + each_N[target_N == 0].mean()) / 2 + PENALTY / 2 * weight_F.square().sum()
    gradients = torch.autograd.grad(loss, (weight_F, bias))
    assert max(each.abs().max().item() for each in gradients) < 1e-4


@pytest.mark.parametrize("labels", [[False] * 6, [True] * 6])
def test_labels_that_are_all_alike_teach_nothing(labels: list[bool]) -> None:
    with pytest.raises(ValueError, match="some that are and some not"):
        fit_probe(np.zeros((6, 2), np.float32), np.array(labels))


def test_features_that_are_not_finite_are_refused() -> None:
    features_NF, labels_N = labelled_features(50, share=0.5)
    features_NF[3, 2] = np.nan
    with pytest.raises(ValueError, match="1 features are not finite"):
        fit_probe(features_NF, labels_N)


def test_one_labelled_voxel_labels_its_patch_and_no_other() -> None:
    layout = TokenLayout(window=(8, 8, 8), patch=(4, 4, 2))
    label_BIXZ = np.zeros((2, 8, 8, 8), dtype=bool)
    label_BIXZ[1, 5, 2, 7] = True  # patch (1, 0, 3) of a grid of (2, 2, 4)
    assert np.argwhere(patch_labels(label_BIXZ, layout)).tolist() == [[1, 1 * 8 + 0 * 4 + 3]]


def test_average_precision_of_a_ranking_done_by_hand() -> None:
    logits_N, labels_N = np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, False, True, False])
    assert average_precision(logits_N, labels_N, once(labels_N)) == pytest.approx([(1 + 2 / 3) / 2])


def test_equal_logits_say_nothing_whatever_their_order() -> None:
    logits_N = np.zeros(8)
    for labels_N in (np.arange(8) < 2, np.arange(8) >= 6):
        assert average_precision(logits_N, labels_N, once(labels_N)) == pytest.approx([0.25])
        assert roc_auc(logits_N, labels_N, once(labels_N)) == pytest.approx([0.5])


ranked_patches = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), min_size=2, max_size=20)


@settings(max_examples=80, deadline=None)
@given(ranked_patches)
def test_a_patch_that_counts_twice_is_two_patches(patches: list[tuple[int, bool, int]]) -> None:
    logits_N, labels_N, times_N = (np.array(column) for column in zip(*patches, strict=True))
    repeated, repeated_labels = np.repeat(logits_N, times_N).astype(float), np.repeat(labels_N, times_N)
    if not 0 < repeated_labels.sum() < len(repeated_labels):
        return
    pairs = repeated[repeated_labels][:, None] - repeated[~repeated_labels][None]
    weighted = logits_N.astype(float), labels_N, times_N[None].astype(float)
    assert roc_auc(*weighted) == pytest.approx([((pairs > 0) + (pairs == 0) / 2).mean()])
    precisions = [repeated_labels[repeated >= logit].mean() for logit in repeated[repeated_labels]]
    assert average_precision(*weighted) == pytest.approx([np.mean(precisions)])


def test_without_a_labelled_patch_there_is_no_score() -> None:
    logits_N, labels_N = np.array([1.0, 2.0]), np.array([True, False])
    unlabelled_DN = np.array([[0.0, 1.0]])
    assert np.isnan(average_precision(logits_N, labels_N, unlabelled_DN)).all()
    assert np.isnan(roc_auc(logits_N, labels_N, unlabelled_DN)).all()
