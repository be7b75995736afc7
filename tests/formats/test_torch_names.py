"""Names in torch state dicts: wrappers in any order and depth, and names that only look like them."""

import itertools

import pytest

from preload_jax.errors import UserError
from preload_jax.formats import torch_import, torch_names
from tests import torch_files

WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "model.", "net.backbone.")
PREFIXES = ["".join(order) for count in (0, 1, 2) for order in itertools.permutations(WRAPPERS, count)] + [
    "module.module.",
    "_orig_mod._orig_mod.module.",
    "a.b.c.d.",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("square_logit", [False, True])
def test_prefixes_in_any_order_and_depth(prefix, square_logit):
    names = torch_files.lenet(square_logit=square_logit)
    expected = sorted(name.removeprefix("network_part1.") for name in names)
    assert sorted(torch_names.bare(prefix + name for name in names).values()) == expected


@pytest.mark.parametrize(
    "wrapped",
    [
        "network_part1.module.conv1.weight",
        "module.network_part1._orig_mod.conv1.weight",
        "_orig_mod.module.network_part1.conv1._orig_mod.weight",
        "network_part1.conv1.module.weight",
    ],
)
def test_wrappers_within(wrapped):
    names = [wrapped, wrapped.split("network_part1")[0] + "network_part2.fc.weight"]
    assert list(torch_names.bare(names).values()) == ["conv1.weight", "network_part2.fc.weight"]


def test_counters_are_left_out():
    names = ["n_averaged", "module.bn1.weight", "module.bn1.num_batches_tracked", "module.fc.weight"]
    assert list(torch_names.bare(names).values()) == ["bn1.weight", "fc.weight"]


def test_what_is_no_wrapper_stays():
    assert list(torch_names.bare(["fc.weight", "fc.bias"]).values()) == ["fc.weight", "fc.bias"]
    assert list(torch_names.bare(["network_part2.fc.weight"]).values()) == ["network_part2.fc.weight"]
    assert list(torch_names.bare(["modules.a.weight", "b.weight"]).values()) == ["modules.a.weight", "b.weight"]
    assert torch_names.bare([]) == {}


def test_two_networks_are_not_taken_for_one():
    arrays = torch_files.lenet()
    both = {**{f"module.{name}": array for name, array in arrays.items()}, **arrays}
    with pytest.raises(UserError, match=r"two tensors for conv1\.weight"):
        torch_import.load(both)
