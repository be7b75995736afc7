"""Options of networks on the command line: their names and types are those of the modules' fields."""

import pytest

from experiments.run import command as run
from experiments.runs import networks
from preload_jax import backbones
from preload_jax.errors import UserError


@pytest.mark.parametrize("name", backbones.BACKBONES)
def test_options_are_fields_that_the_module_takes(name):
    found = networks.options(name)
    assert found
    assert not {"dtype", "axis_name", "parent", "name"} & set(found)
    defaults = backbones.get(name).module()
    assert all(hasattr(defaults, option) for option in found)


def test_values_have_the_fields_types():
    assert networks.read("wide_resnet", {"depth": "28", "widen_factor": "2"}) == {"depth": 28, "widen_factor": 2}
    assert networks.read("resnet18", {"blocks": "1,1", "stem": "imagenet"}) == {"blocks": [1, 1], "stem": "imagenet"}
    given = {"mean": "0.5,0.5,0.4", "std": "0.2,0.2,0.2", "hidden": "none"}
    assert networks.read("vit", given) == {"mean": [0.5, 0.5, 0.4], "std": [0.2, 0.2, 0.2], "hidden": None}


@pytest.mark.parametrize(
    ("network", "given", "message"),
    [
        (
            "conv_net",
            {"depth": "3"},
            r"unknown option --backbone.depth of conv_net; expected one of channels, dropout",
        ),
        ("vit", {"depth": "x"}, "--backbone.depth must be an integer, got 'x'"),
        ("vit", {"mean": "a,b"}, "--backbone.mean must be numbers with commas between, or none, got 'a,b'"),
        ("mlp", {"widths": "8,,8"}, "--backbone.widths must be integers with commas between, got '8,,8'"),
        ("vit", {"width": "100"}, "--backbone.width=100: heads must divide the width 100, got 3"),
        ("lenet", {"channels": "4"}, "--backbone.channels must be 2 integers with commas between, got '4'"),
        ("lenet", {"width": "0"}, "--backbone.width=0: width must be at least 1, got 0"),
        ("wide_resnet", {"dropout": "0"}, "is an option of its own: give --dropout=0"),
    ],
)
def test_what_is_refused(network, given, message):
    with pytest.raises(UserError, match=message):
        networks.read(network, given)


def test_a_network_that_no_memory_holds_is_refused_before_anything_is_computed():
    args = run.Args(backbone_options={"widths": "200000000,4"})
    with pytest.raises(UserError, match=r"has [\d,]+ weights, whose training keeps at least .* GB: give another"):
        networks.check_size(run.resolve(args))
