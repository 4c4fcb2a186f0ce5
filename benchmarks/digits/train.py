"""Train the digits network anew and write ``digits.onnx`` and ``digits.json`` beside this file.

The only program here that needs PyTorch, in an environment of its own; it takes half a minute:

    pip install torch==2.13.0 numpy scikit-learn "onnx<1.19"
    python -m benchmarks.digits.train

Every seed, and the number of threads, is fixed, so that the same versions on the same kind of
machine write the same bytes. The held-out third is looked at once, after the last epoch.
"""

import argparse
import hashlib
import io
import json
import os
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.digits.data import CLASSES, Digits, load_split

SEED = 0
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 5e-2
LABEL_SMOOTHING = 0.05
OPSET = 13  # what the ONNX importers of all TVM versions with Relay read


class ConvNorm(nn.Module):
    """Convolution, batch norm and, if asked for, ReLU: [n, c_in, h, w] to [n, c_out, h', w']."""

    def __init__(
        self, c_in: int, c_out: int, *, kernel: int, stride: int = 1, groups: int = 1, relu: bool
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            c_in, c_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        self.norm = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU() if relu else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return x if self.relu is None else self.relu(x)


class Separable(nn.Module):
    """Depthwise 3x3, then pointwise 1x1: [n, c_in, h, w] to [n, c_out, h/stride, w/stride]."""

    def __init__(self, c_in: int, c_out: int, *, stride: int = 1, last_relu: bool = True) -> None:
        super().__init__()
        self.depthwise = ConvNorm(c_in, c_in, kernel=3, stride=stride, groups=c_in, relu=True)
        self.pointwise = ConvNorm(c_in, c_out, kernel=1, relu=last_relu)

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


class Residual(nn.Module):
    """relu(x + separable(x)): [n, c, h, w] to the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = Separable(channels, channels, last_relu=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.branch(x))


class DigitsNet(nn.Module):
    """Images [n, 1, 8, 8] in 0..1 to logits [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, 16, kernel=3, relu=True)
        self.widen = Separable(16, 32)
        self.residual1 = Residual(32)
        self.shrink = Separable(32, 64, stride=2)
        self.residual2 = Residual(64)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dense = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.residual1(self.widen(self.stem(x)))
        x = self.residual2(self.shrink(x))
        return self.dense(self.flatten(self.pool(x)))


def main() -> None:
    """Train, measure, and write both files, each whole or not at all."""
    parser = argparse.ArgumentParser(description="Train the digits network anew.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="existing directory to write into"
    )
    out: Path = parser.parse_args().out
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the order of float sums depends on the number of threads
    torch.use_deterministic_algorithms(True)

    split = load_split()
    model = train(DigitsNet(), split.train)
    file = export(model)
    facts = {
        "seed": SEED,
        "epochs": EPOCHS,
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "macs": count_macs(model),
        "train_images": len(split.train),
        "train_correct": count_correct(model, split.train),
        "held_out_images": len(split.held_out),
        "held_out_correct": (correct := count_correct(model, split.held_out)),
        "held_out_accuracy": round(correct / len(split.held_out), 6),
        "onnx_bytes": len(file),
        "onnx_sha256": hashlib.sha256(file).hexdigest(),
    }
    text = json.dumps(facts, indent=2) + "\n"
    write_whole(out / "digits.onnx", file)
    write_whole(out / "digits.json", text.encode())
    print(text, end="")


def train(model: DigitsNet, data: Digits) -> DigitsNet:
    """Fit the model to shifted copies of the images, in place; return it in eval mode."""
    shifted = all_shifts(torch.from_numpy(data.images))
    labels = torch.from_numpy(data.labels)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
    steps = EPOCHS * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for epoch in range(EPOCHS):
        losses = []
        # The rest that does not fill a batch waits for the next epoch's shuffle.
        for rows in torch.randperm(len(labels)).split(BATCH)[: len(labels) // BATCH]:
            shift = torch.randint(len(shifted), rows.shape)
            loss = functional.cross_entropy(
                model(shifted[shift, rows]), labels[rows], label_smoothing=LABEL_SMOOTHING
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1:2} of {EPOCHS}  mean loss {np.mean(losses):.4f}", flush=True)
    return model.eval()


def all_shifts(images: Tensor) -> Tensor:
    """Return [9, n, 1, 8, 8]: images [n, 1, 8, 8] moved by -1, 0, 1 pixels each way."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (1, 1, 1, 1))
    moved = [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return torch.stack(moved)


@torch.no_grad()
def count_correct(model: DigitsNet, data: Digits) -> int:
    """Return how many of the images the model names rightly."""
    guesses = model(torch.from_numpy(data.images)).argmax(dim=1).numpy()
    return int(np.count_nonzero(guesses == data.labels))


@torch.no_grad()
def count_macs(model: DigitsNet) -> int:
    """Return the multiply-accumulates of the convolutions and the dense layer for one image."""
    macs = 0

    def add(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal macs
        # Each output element takes as many MACs as one output channel has weights.
        macs += output.numel() * module.weight[0].numel()

    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    model(torch.zeros(1, 1, 8, 8))
    for hook in hooks:
        hook.remove()
    return macs


def export(model: DigitsNet) -> bytes:
    """Return the model as an ONNX file: ``image`` [1, 1, 8, 8] to ``logits`` [1, 10]."""
    buffer = io.BytesIO()
    torch.onnx.export(
        model,
        (torch.zeros(1, 1, 8, 8),),
        buffer,
        input_names=["image"],
        output_names=["logits"],
        opset_version=OPSET,
        # PRESERVE (the model is in eval mode) keeps batch norms as nodes, for TVM to fold.
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        dynamo=False,  # the newer exporter writes opset 18 and later only
    )
    onnx.checker.check_model(onnx.load_from_string(buffer.getvalue()), full_check=True)
    return buffer.getvalue()


def write_whole(path: Path, content: bytes) -> None:
    """Write the file whole or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(content)
    os.replace(beside, path)


if __name__ == "__main__":
    main()
