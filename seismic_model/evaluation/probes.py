"""A linear probe: how much a frozen encoder knows of labels that it was never told.

Features are standardised, then a logistic regression with balanced classes and a small L2 penalty says for each
patch whether it holds a labelled voxel (Alain and Bengio 2016, Understanding intermediate layers using linear
classifier probes). The probe is the same few numbers for every encoder, so that what differs is the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize

from seismic_model.data.store import BoolArray, FloatArray
from seismic_model.model.masking import TokenLayout, patchify

Float64Array = npt.NDArray[np.float64]

PENALTY = 1e-3  # times half the squared weights, beside the mean loss
_STEPS = 300  # of L-BFGS at most; a hundred are usual
_CONSTANT = 1e-6  # of a unit deviation: a feature that varies less tells nothing


@dataclass(frozen=True)
class LinearProbe:
    """A fitted probe."""

    mean_F: Float64Array
    scale_F: Float64Array
    weight_F: Float64Array  # of standardised features
    bias: float

    def logits(self, features_NF: FloatArray) -> Float64Array:
        """Log odds (N,) of a label, in classes of equal size."""
        logits_N: Float64Array = _standard(features_NF, self.mean_F, self.scale_F) @ self.weight_F + self.bias
        return logits_N


def fit_probe(features_NF: FloatArray, labels_N: BoolArray, penalty: float = PENALTY) -> LinearProbe:
    """Fit a probe to patches; the two classes weigh the same, however rare one is.

    Raises ``ValueError`` when all labels are alike or a feature is not finite.
    """
    positive = int(labels_N.sum())
    if not 0 < positive < len(labels_N):
        raise ValueError(
            f"{positive} of {len(labels_N)} patches are labelled; a probe needs some that are and some not"
        )
    mean_F, scale_F = features_NF.mean(axis=0, dtype=np.float64), features_NF.std(axis=0, dtype=np.float64)
    if not np.isfinite(scale_F).all():
        raise ValueError(f"{int((~np.isfinite(scale_F)).sum())} features are not finite; train the encoder again")
    scale_F = np.maximum(scale_F, _CONSTANT)
    x_NF = _standard(features_NF, mean_F, scale_F)
    sign_N = np.where(labels_N, 1.0, -1.0)
    share_N = np.where(labels_N, 0.5 / positive, 0.5 / (len(labels_N) - positive))

    def objective(parameters: Float64Array) -> tuple[float, Float64Array]:
        weight_F, bias = parameters[:-1], parameters[-1]
        margin_N = sign_N * (x_NF @ weight_F + bias)
        slope_N = -share_N * sign_N * np.exp(-np.logaddexp(0, margin_N))
        loss = share_N @ np.logaddexp(0, -margin_N) + penalty / 2 * weight_F @ weight_F
        return float(loss), np.append(slope_N @ x_NF + penalty * weight_F, slope_N.sum())

    start = np.zeros(features_NF.shape[1] + 1)
    fitted = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}).x
    return LinearProbe(mean_F, scale_F, fitted[:-1], float(fitted[-1]))


def patch_labels(label_BIXZ: BoolArray, layout: TokenLayout) -> BoolArray:
    """Bool (B, L): whether a patch of the whole crop holds a labelled voxel."""
    labels_BL: BoolArray = patchify(torch.from_numpy(label_BIXZ), layout, range(layout.tokens)).any(dim=2).numpy()
    return labels_BL


def average_precision(logits_N: Float64Array, labels_N: BoolArray, draws_DN: Float64Array) -> Float64Array:
    """Mean precision at each labelled patch (D,), from the highest logit down; equal logits are taken together.

    ``draws_DN`` says how often each patch counts; NaN where no labelled one does.
    """
    hit_DG, all_DG, _ = _ranked(logits_N, labels_N, draws_DN)
    precision_DG = np.divide(hit_DG, all_DG, out=np.zeros_like(hit_DG), where=all_DG > 0)
    with np.errstate(invalid="ignore"):
        mean_D: Float64Array = (np.diff(hit_DG, axis=1, prepend=0) * precision_DG).sum(axis=1) / hit_DG[:, -1]
    return mean_D


def roc_auc(logits_N: Float64Array, labels_N: BoolArray, draws_DN: Float64Array) -> Float64Array:
    """Share of pairs (D,) in which the labelled patch has the higher logit; equal ones count half.

    ``draws_DN`` says how often each patch counts; NaN where there is no pair.
    """
    hit_DG, _, miss_DG = _ranked(logits_N, labels_N, draws_DN)
    above_DG = hit_DG - np.diff(hit_DG, axis=1, prepend=0) / 2
    with np.errstate(invalid="ignore"):
        share_D: Float64Array = (np.diff(miss_DG, axis=1, prepend=0) * above_DG).sum(axis=1) / (
            hit_DG[:, -1] * miss_DG[:, -1]
        )
    return share_D


def _ranked(
    logits_N: Float64Array, labels_N: BoolArray, draws_DN: Float64Array
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Labelled, all and other patches (D, G) down to each of G distinct logits, from the highest."""
    order_N = np.argsort(-logits_N, kind="stable")
    last_G = np.flatnonzero(np.append(np.diff(logits_N[order_N]) != 0, True))
    sorted_DN, labelled_N = draws_DN[:, order_N], labels_N[order_N]
    all_DG = sorted_DN.cumsum(axis=1)[:, last_G]
    hit_DG = (sorted_DN * labelled_N).cumsum(axis=1)[:, last_G]
    return hit_DG, all_DG, all_DG - hit_DG


def _standard(features_NF: FloatArray, mean_F: Float64Array, scale_F: Float64Array) -> Float64Array:
    return (features_NF - mean_F) / scale_F
