"""Pictures as inputs of models: files that Pillow decodes, by one set of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinyai.errors import EnvironmentProblem, OptionError

ENDINGS = (".png", ".jpg", ".jpeg")


def is_picture(file: str | Path) -> bool:
    return str(file).lower().endswith(ENDINGS)


def pixels(
    file: str | Path, what: str, name: str, shape: tuple[int, ...], dtype: str, scaled: bool = False
) -> Any:
    """The picture ``file`` as the input ``name`` of a model takes it.

    Its height, width and channels (1 is grey) are those of ``shape``, whose channels are last or
    after the batch of 1. For float32, or if ``scaled``, bytes are divided by 255; int8 has them
    less 128, any other dtype as they are. ``what`` names the file's part in messages.
    Raises ``OptionError`` for another size or shape, ``EnvironmentProblem`` without Pillow, and
    what Pillow does for a file that is no picture.
    """
    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        raise EnvironmentProblem(
            "the package pillow, which reads pictures, is missing",
            found="no such module",
            allowed="an installed one",
            hint='pip install "tinyai[image]"',
        ) from None
    spec = f"{dtype}[{','.join(map(str, shape))}]"
    last, first = shape[-1:] in ((1,), (3,)), shape[1:2] in ((1,), (3,))
    if len(shape) != 4 or shape[0] != 1 or not (last or first):
        raise OptionError(f"input {name!r}", found="an image", allowed=spec, hint="*.npy or *.npz")
    channels = shape[-1] if last else shape[1]
    size = shape[1:3] if last else shape[2:4]
    with Image.open(file) as image:
        if (image.height, image.width) != size:
            raise OptionError(
                f"{what} {file}",
                found=f"{image.height} x {image.width} pixels",
                allowed=f"{size[0]} x {size[1]}, as {spec} says",
                hint="scale and crop it, as the model was trained",
            )
        values = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    values = values.reshape(*size, channels)[None]
    values = values if last else values.transpose(0, 3, 1, 2)
    if scaled or dtype == "float32":
        return np.ascontiguousarray(values.astype(np.float32) / np.float32(255))
    if dtype == "int8":
        return np.ascontiguousarray((values.astype(np.int16) - 128).astype(np.int8))
    return np.ascontiguousarray(values)
