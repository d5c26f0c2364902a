"""The data of handmoji.ini and product_rating.ini.

``python examples/nntrainer/data.py [FOLDER]`` writes it next to the model files, or into a folder, in NNTrainer's
formats: samples and one-hot labels in turn, and weights layer after layer, both as 32-bit floats.

HandMoji: scikit-learn's handwritten digits, 8 × 8. The backbone is trained on 0 to 6; the user has 15 drawings each of
7, 8 and 9, which are the symbols here.

Ratings: made up. 60 users and 40 products have two tastes each, drawn at random; a rating is 3 plus how well the tastes
agree, with noise of deviation 0.2. Three of four pairs are rated.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from tuner_nntrainer.torch import from_ini, weight_bytes

HERE = Path(__file__).parent
KNOWN, DRAWN = 7, 15
EPOCHS = 10
USERS, PRODUCTS, TASTES, NOISE = 60, 40, 2, 0.2


def write_samples(path: Path, samples: np.ndarray, labels: np.ndarray, outputs: int) -> None:
    """Write samples [n, values] and the labels int [n] of so many classes."""
    np.hstack([samples, np.eye(outputs)[labels]]).astype("<f4").tofile(path)


def pretrain(samples: np.ndarray, labels: np.ndarray) -> bytes:
    """Return the weights of drawings.ini, trained to tell the digits that are known apart."""
    torch.manual_seed(0)
    backbone = from_ini(str(HERE / "drawings.ini"))
    model = nn.Sequential(backbone, nn.Linear(32, KNOWN))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y = torch.tensor(samples, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return weight_bytes(backbone)


def write_ratings(folder: Path) -> None:
    """Write made-up ratings: the numbers of user and product, and the rating."""
    generator = np.random.default_rng(0)
    tastes = generator.normal(size=(USERS + PRODUCTS, TASTES)) / TASTES**0.5
    user, product = np.divmod(generator.permutation(USERS * PRODUCTS)[: USERS * PRODUCTS * 3 // 4], PRODUCTS)
    product += USERS
    rating = 3 + (tastes[user] * tastes[product]).sum(axis=1) + generator.normal(size=len(user)) * NOISE
    table = np.column_stack([user, product, rating]).astype("<f4")
    table[:1400].tofile(folder / "ratings_train.dat")
    table[1400:].tofile(folder / "ratings_valid.dat")


def main(folder: Path) -> None:
    """Write the files."""
    write_ratings(folder)
    pixels, digits = load_digits(return_X_y=True)
    pixels = pixels / 16
    (folder / "drawings.bin").write_bytes(pretrain(pixels[digits < KNOWN], digits[digits < KNOWN]))
    order = np.random.default_rng(0).permutation(len(digits))
    own = [order[digits[order] == digit] for digit in range(KNOWN, 10)]
    for name, part in (("train", slice(DRAWN)), ("valid", slice(DRAWN, None))):
        rows = np.concatenate([of_digit[part] for of_digit in own])
        write_samples(folder / f"handmoji_{name}.dat", pixels[rows], digits[rows] - KNOWN, 10 - KNOWN)


if __name__ == "__main__":
    torch.set_num_threads(1)  # quicker for so small a network
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
