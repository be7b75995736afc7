import pytest

from tests import published_files


@pytest.fixture(scope="session")
def make():
    """Functions that write tiny files in the publishers' formats and return what is in them."""
    return published_files


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"
