"""The last-layer Laplace approximation gives laplace-torch's numbers, of the same features and trained weights."""

import numpy as np
import pytest
import scipy.special

from preload_jax import bayes
from preload_jax.bayes import prior
from tests.torchvision_for_cpus import torchvision

N, D, K = 60, 5, 3


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    features = np.abs(rng.normal(size=(N, D)))
    return features, rng.integers(0, K, N), rng.normal(size=(D, K)), rng.normal(size=K), 3.0 * rng.normal(size=(7, D))


def theirs(problem, structure, precision):
    torchvision()
    laplace = pytest.importorskip("laplace", reason="needs laplace-torch, the extra 'parity'")
    import torch

    features, labels, kernel, bias, _ = problem
    layer = torch.nn.Linear(D, K).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(kernel.T.copy()))
        layer.bias.copy_(torch.from_numpy(bias))
    model = torch.nn.Sequential(torch.nn.Identity(), layer)
    data = torch.utils.data.TensorDataset(torch.from_numpy(features), torch.from_numpy(labels))
    found = laplace.Laplace(
        model,
        "classification",
        subset_of_weights="last_layer",
        hessian_structure=structure,
        prior_precision=precision,
    )
    found.fit(torch.utils.data.DataLoader(data, batch_size=N))
    return found, torch


@pytest.mark.parametrize("precision", [0.3, 20.0])
@pytest.mark.parametrize("structure", ["kron", "full"])
def test_predictive(problem, structure, precision):
    features, _, kernel, bias, asked = problem
    found, torch = theirs(problem, structure, precision)
    ours = bayes.posterior(features, head=(kernel, bias), structure=structure, prior_precision=precision)
    mean, covariance = found._glm_predictive_distribution(torch.from_numpy(asked))
    np.testing.assert_allclose(ours.mean(asked), mean.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours.covariance(asked), covariance.detach().numpy(), rtol=1e-5, atol=1e-8)
    probit = found(torch.from_numpy(asked), pred_type="glm", link_approx="probit").detach().numpy()
    np.testing.assert_allclose(ours.probabilities(asked), probit, rtol=1e-5)


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_marginal_likelihood(problem, structure):
    features, labels, kernel, bias, _ = problem
    found, torch = theirs(problem, structure, 1.0)
    log_p = scipy.special.log_softmax(features @ kernel + bias, axis=1)
    for precision in (0.1, 3.0):
        ours = bayes.posterior(features, head=(kernel, bias), structure=structure, prior_precision=precision)
        norm = np.sum(kernel**2) + np.sum(bias**2)
        evidence = prior.log_evidence(ours.curvature.eigenvalues, norm, precision)
        likelihood = log_p[np.arange(N), labels].sum()
        expected = float(found.log_marginal_likelihood(prior_precision=torch.tensor([precision]).double()))
        np.testing.assert_allclose(likelihood + evidence, expected, rtol=1e-5)
