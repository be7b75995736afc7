"""State dicts of small networks in the names of torchvision, timm and OpenOOD, and what they compute, in NumPy."""

import numpy as np
from scipy.special import erf, softmax


def _drawn(shapes, seed):
    rng = np.random.default_rng(seed)

    def draw(name, shape):
        if name.endswith("running_var"):
            return rng.uniform(0.2, 2.0, shape)
        if name.endswith("weight") and len(shape) == 1:
            return rng.uniform(0.5, 1.5, shape)
        return rng.normal(0, 0.3 if len(shape) < 2 else np.prod(shape[1:]) ** -0.5, shape)

    return {name: draw(name, shape).astype(np.float32) for name, shape in shapes.items()}


def _bn(name, width):
    return {f"{name}.{kind}": (width,) for kind in ("weight", "bias", "running_mean", "running_var")}


def resnet(blocks=(1, 1), *, bottleneck=False, width=4, stem=3, shortcut="downsample", final="fc", classes=3, seed=0):
    """A ResNet for images with three channels."""
    shapes = {"conv1.weight": (width, 3, stem, stem)} | _bn("bn1", width)
    before = width
    for group, number in enumerate(blocks):
        inner = width * 2**group
        outer = 4 * inner if bottleneck else inner
        for i in range(number):
            at = f"layer{group + 1}.{i}"
            sizes = [(inner, before, 1), (inner, inner, 3), (outer, inner, 1)]
            sizes = sizes if bottleneck else [(inner, before, 3), (inner, inner, 3)]
            for k, (out, into, size) in enumerate(sizes, start=1):
                shapes |= {f"{at}.conv{k}.weight": (out, into, size, size)} | _bn(f"{at}.bn{k}", out)
            if before != outer:
                shapes |= {f"{at}.{shortcut}.0.weight": (outer, before, 1, 1)} | _bn(f"{at}.{shortcut}.1", outer)
            before = outer
    return _drawn(shapes | {f"{final}.weight": (classes, before), f"{final}.bias": (classes,)}, seed)


TIMM = {
    "token": "cls_token",
    "positions": "pos_embed",
    "patches": "patch_embed.proj",
    "block": "blocks.",
    "parts": ("norm1.", "attn.qkv.", "attn.proj.", "norm2.", "mlp.fc1.", "mlp.fc2."),
    "norm": "norm.",
    "final": "head.",
}
TORCHVISION = {
    "token": "class_token",
    "positions": "encoder.pos_embedding",
    "patches": "conv_proj",
    "block": "encoder.layers.encoder_layer_",
    "parts": (
        "ln_1.",
        "self_attention.in_proj_",
        "self_attention.out_proj.",
        "ln_2.",
        "mlp.0.",
        "mlp.3.",
    ),
    "norm": "encoder.ln.",
    "final": "heads.head.",
}


def vit(names=TIMM, *, depth=2, width=8, hidden=12, patch=4, patches=4, classes=3, seed=0):
    """A ViT for square images with three channels."""
    shapes = {names["token"]: (1, 1, width), names["positions"]: (1, patches + 1, width)}
    shapes |= {f"{names['patches']}.weight": (width, 3, patch, patch), f"{names['patches']}.bias": (width,)}
    outputs = ((width,), (3 * width, width), (width, width), (width,), (hidden, width), (width, hidden))
    for i in range(depth):
        for part, shape in zip(names["parts"], outputs, strict=True):
            at = f"{names['block']}{i}.{part}"
            shapes |= {f"{at}weight": shape, f"{at}bias": shape[:1]}
    shapes |= {f"{names['norm']}weight": (width,), f"{names['norm']}bias": (width,)}
    shapes |= {f"{names['final']}weight": (classes, width), f"{names['final']}bias": (classes,)}
    return _drawn(shapes, seed)


def _conv(x, kernel, stride):
    """[n, c, h, w], padded alike on both sides."""
    size = kernel.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), *[(size // 2, size // 2)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, kernel)


def resnet_logits(state, images, *, blocks=(1, 1), shortcut="downsample", final="fc"):
    """Logits of images [n, 3, h, w]."""
    state = {name: value.astype(np.float64) for name, value in state.items()}

    def step(x, conv, bn, stride=1):
        x = _conv(x, state[f"{conv}.weight"], stride)
        weight, bias, mean, var = (
            state[f"{bn}.{kind}"][:, None, None] for kind in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(var + 1e-5) * weight + bias

    large = state["conv1.weight"].shape[-1] == 7
    x = np.maximum(step(images, "conv1", "bn1", 2 if large else 1), 0)
    if large:
        x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max(axis=(-1, -2))
    for group, number in enumerate(blocks, start=1):
        for i in range(number):
            at, stride, y = f"layer{group}.{i}", 2 if group > 1 and i == 0 else 1, x
            last = 3 if f"{at}.conv3.weight" in state else 2
            for k in range(1, last + 1):
                y = step(y, f"{at}.conv{k}", f"{at}.bn{k}", stride if k == last - 1 else 1)
                y = np.maximum(y, 0) if k < last else y
            if f"{at}.{shortcut}.0.weight" in state:
                x = step(x, f"{at}.{shortcut}.0", f"{at}.{shortcut}.1", stride)
            x = np.maximum(x + y, 0)
    return x.mean(axis=(2, 3)) @ state[f"{final}.weight"].T + state[f"{final}.bias"]


def vit_logits(state, images, *, heads, names=TIMM, depth=2):
    """Logits of images [n, 3, h, w]."""
    state = {name: value.astype(np.float64) for name, value in state.items()}

    def dense(x, at):
        return x @ state[f"{at}weight"].T + state[f"{at}bias"]

    def norm(x, at):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
        return scaled * state[f"{at}weight"] + state[f"{at}bias"]

    kernel = state[f"{names['patches']}.weight"]
    width, patch = len(kernel), kernel.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(images, (patch, patch), axis=(2, 3))[:, :, ::patch, ::patch]
    x = np.einsum("nchwij,ocij->nhwo", windows, kernel) + state[f"{names['patches']}.bias"]
    token = np.broadcast_to(state[names["token"]], (len(images), 1, width))
    x = np.concatenate([token, x.reshape(len(images), -1, width)], axis=1) + state[names["positions"]]
    for i in range(depth):
        norm1, qkv, projection, norm2, dense1, dense2 = (f"{names['block']}{i}.{part}" for part in names["parts"])
        y = dense(norm(x, norm1), qkv).reshape(len(images), -1, 3, heads, width // heads)
        q, k, v = y.transpose(2, 0, 3, 1, 4)
        y = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(width // heads), axis=-1) @ v
        x = x + dense(y.swapaxes(1, 2).reshape(len(images), -1, width), projection)
        y = dense(norm(x, norm2), dense1)
        x = x + dense(0.5 * y * (1 + erf(y / np.sqrt(2))), dense2)
    return dense(norm(x, names["norm"])[:, 0], names["final"])
