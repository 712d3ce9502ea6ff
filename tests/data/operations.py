"""Slow references of rand-augment's operations, in numpy: an image [C, H, W] in [0, 1] and a signed level."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage


def _warped(image: np.ndarray, matrix: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Each place of the result is read at matrix·place + shift, in (row, column) from the centre."""
    centre = (np.array(image.shape[1:]) - 1) / 2
    out = []
    for channel in image:
        wide = np.pad(channel, 30, constant_values=0.5)
        offset = centre + 30 - matrix @ (centre + 30) + shift
        whole = ndimage.affine_transform(wide, matrix, offset, order=1, mode="constant", cval=0.5)
        out.append(whole[30:-30, 30:-30])
    return np.stack(out)


def _rotate(image: np.ndarray, level: float) -> np.ndarray:
    angle = np.radians(30) * level
    return _warped(
        image, np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]), np.zeros(2)
    )


def _equalise(image: np.ndarray, level: float) -> np.ndarray:
    out = image.copy()
    for channel in out:
        levels = np.rint(channel * 255).astype(int)
        counts = [int((levels == value).sum()) for value in range(256)]
        step = (levels.size - counts[levels.max()]) // 255
        if step:
            table, total = [], step // 2
            for count in counts:
                table.append(min(total // step, 255))
                total += count
            channel[:] = np.array(table)[levels] / 255
    return out


def _stretch_contrast(image: np.ndarray, level: float) -> np.ndarray:
    least, most = image.min((1, 2), keepdims=True), image.max((1, 2), keepdims=True)
    return np.where(most > least, (image - least) / np.maximum(most - least, 1e-12), image)


def _posterise(image: np.ndarray, level: float) -> np.ndarray:
    step = 2 ** (8 - max(1, 4 - int(abs(level) * 4)))
    return np.rint(image * 255) // step * step / 255


def _grey(image: np.ndarray) -> np.ndarray:
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def _blend(image: np.ndarray, other: np.ndarray | float, level: float) -> np.ndarray:
    factor = 1 + 0.9 * level
    return factor * image + (1 - factor) * other


def _smooth(image: np.ndarray) -> np.ndarray:
    kernel = np.ones((3, 3))
    kernel[1, 1] = 5
    out = image.copy()
    for channel in range(len(image)):
        out[channel, 1:-1, 1:-1] = ndimage.convolve(image[channel], kernel / 13)[1:-1, 1:-1]
    return out


def _shift(image: np.ndarray, down: float, across: float) -> np.ndarray:
    return _warped(image, np.eye(2), 0.45 * np.array([down * image.shape[1], across * image.shape[2]]))


OPERATION_REFERENCES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "stretch-contrast": _stretch_contrast,
    "equalise": _equalise,
    "invert": lambda image, level: 1 - image,
    "rotate": _rotate,
    "posterise": _posterise,
    "solarise": lambda image, level: np.where(image >= 1 - abs(level), 1 - image, image),
    "brighten-dark": lambda image, level: np.where(
        image < 128 / 255, np.minimum(image + 110 / 255 * abs(level), 1), image
    ),
    "saturation": lambda image, level: _blend(image, _grey(image), level),
    "contrast": lambda image, level: _blend(image, _grey(image).mean(), level),
    "brightness": lambda image, level: _blend(image, 0.0, level),
    "sharpness": lambda image, level: _blend(image, _smooth(image), level),
    "shear-across": lambda image, level: _warped(image, np.array([[1, 0], [0.3 * level, 1]]), np.zeros(2)),
    "shear-along": lambda image, level: _warped(image, np.array([[1, 0.3 * level], [0, 1]]), np.zeros(2)),
    "move-across": lambda image, level: _shift(image, 0, level),
    "move-along": lambda image, level: _shift(image, level, 0),
}
