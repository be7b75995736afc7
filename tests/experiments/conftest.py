"""What the tests of runs share: a folder, plain pictures, and what an undisturbed run leaves."""

import pytest
from matplotlib.figure import Figure

from experiments.evaluate import report
from tests.experiments.runs_for_tests import SHORT, command, outcome


def _plain(scores, ood, *, title):
    return Figure((1, 1))


@pytest.fixture
def plain_pictures():
    """Drawing the real ones would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "score_histograms", _plain)
        yield


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """What an undisturbed run leaves."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "score_histograms", _plain)
        assert command(folder, *SHORT, "--quiet") == 0
    return outcome(folder)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"
