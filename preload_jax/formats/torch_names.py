"""Names of a torch state dict as the bare network has them, whatever wrapped it when it was saved."""

from collections.abc import Iterable

# Parts of names that a wrapper adds, wherever they are: DataParallel, torch.compile, FSDP, checkpointed activations.
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Counters that no network needs to be applied.
_COUNTERS = ("num_batches_tracked", "n_averaged")
# Tensors of a network itself, not of a layer in it.
_OF_NETWORK = ("cls_token", "pos_embed", "class_token")
# The released code's two parts of PreLoad's network; the first is as the other methods'.
_FIRST, _SECOND = "network_part1", "network_part2"


def bare(names: Iterable[str]) -> dict[str, str]:
    """Name in the file → name in the bare network; counters are left out.

    Wrappers' parts are dropped in any order and depth, and then what all names begin with (a Lightning module's
    "model.").

    Example:
        >>> from preload_jax.formats import torch_names
        >>> torch_names.bare(["model.module._orig_mod.conv1.weight", "model.module._orig_mod.fc.weight"])
        {'model.module._orig_mod.conv1.weight': 'conv1.weight', 'model.module._orig_mod.fc.weight': 'fc.weight'}
    """
    parts = {name: [part for part in name.split(".") if part not in _WRAPPERS] for name in names}
    parts = {name: split for name, split in parts.items() if split and split[-1] not in _COUNTERS}
    begin = _common([split[: -1 if split[-1] in _OF_NETWORK else -2] for split in parts.values()])
    found = {}
    for name, split in parts.items():
        rest = split[begin:]
        found[name] = ".".join(rest[1:] if rest[0] == _FIRST else rest)
    return found


def _common(modules: list[list[str]]) -> int:
    """How many parts all begin with, beside a layer's own name; the two parts of PreLoad's network are kept."""
    if not modules:
        return 0
    count = 0
    for parts in zip(*modules, strict=False):
        if len(set(parts)) > 1 or parts[0] in (_FIRST, _SECOND):
            break
        count += 1
    return count
