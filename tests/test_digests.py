"""Digests: whatever differs, they differ; however it is ordered, they do not."""

import json

import numpy as np
import pytest

from preload_jax import digests


def test_the_digest_sees_everything():
    base = {"a": np.arange(4.0), "b": {"c": np.int32(1)}}
    others = [
        {"a": np.arange(4.0, dtype=np.float32), "b": {"c": np.int32(1)}},
        {"a": np.arange(4.0).reshape(2, 2), "b": {"c": np.int32(1)}},
        {"a": np.arange(4.0), "b": {"c": np.int32(2)}},
        {"a": np.arange(4.0), "b": {"d": np.int32(1)}},
        {"a": np.nextafter(np.arange(4.0), 9), "b": {"c": np.int32(1)}},
    ]
    found = {digests.of_tree(tree) for tree in [base, *others]} | {digests.of_tree(base, notes={"x": 1})}
    assert len(found) == 7
    assert digests.of_tree(base) == digests.of_tree({"b": base["b"], "a": base["a"]})


def test_a_documents_digest_is_that_of_what_is_read_back():
    document = {"b": [1.0, 1e300, -0.0, 0.1], "a": {"c": None, "é": "\udcff", "1": True}}
    assert digests.of_json(document) == digests.of_json(json.loads(json.dumps(document)))
    assert digests.of_json(document) == digests.of_json(dict(reversed(document.items())))
    assert digests.of_json(document) != digests.of_json({**document, "b": [1.0, 1e300, 0.0, 0.1]})
    with pytest.raises(ValueError, match="JSON"):
        digests.of_json([float("nan")])
