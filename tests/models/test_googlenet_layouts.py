"""Weights of GoogLeNet from torchvision: names, round trips, with and without auxiliary heads."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from tests.models.foreign import assert_keys, assert_there_and_back, assert_undone
from tests.models.keys import known_keys

KEYS = known_keys("googlenet")


def small(**settings):
    facts = {"num_classes": 5, "input_size": 64, "width": 8, "depths": (1, 3, 1)}
    return create("googlenet", **{**facts, **settings}).eval()


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    with torch.device("meta"):
        model = create("googlenet", auxiliary=name.endswith("_aux"))
    assert_keys(model, layout, KEYS[place])


@pytest.mark.parametrize("auxiliary", [False, True])
@pytest.mark.parametrize("layout", ["apoint", "torchvision"])
def test_there_and_back(layout, auxiliary, tmp_path):
    model, other = small(auxiliary=auxiliary), small(auxiliary=auxiliary)
    assert_there_and_back(model, other, layout, tmp_path, torch.randn(2, 3, 64, 64))


@pytest.mark.parametrize("auxiliary", [False, True])
def test_translation_is_undone_by_its_inverse(auxiliary):
    model = small(auxiliary=auxiliary)
    assert_undone(model)


class Layer(nn.Module):
    """A convolution as torchvision's network has it."""

    def __init__(self, before, after, size, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Block(nn.Module):
    """A block with torchvision's names; numbers as in the paper's table, divided by eight."""

    def __init__(self, before, one, three_in, three, five_in, five, pooled):
        super().__init__()
        self.branch1 = Layer(before, one, 1)
        self.branch2 = nn.Sequential(Layer(before, three_in, 1), Layer(three_in, three, 3))
        self.branch3 = nn.Sequential(Layer(before, five_in, 1), Layer(five_in, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), Layer(before, pooled, 1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class TorchvisionLike(nn.Module):
    """The network of `small` in torchvision's names and order."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = Layer(3, 8, 7, 2), Layer(8, 8, 1), Layer(8, 24, 3)
        self.inception3a = Block(24, 8, 12, 16, 2, 4, 4)
        self.inception4a = Block(32, 24, 12, 26, 2, 6, 8)
        self.inception4b = Block(64, 20, 14, 28, 3, 8, 8)
        self.inception4c = Block(64, 16, 16, 32, 3, 8, 8)
        self.inception5a = Block(64, 32, 20, 40, 4, 16, 16)
        self.fc = nn.Linear(104, 5)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.conv3(self.conv2(x)), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.inception3a(x), 3, 2, ceil_mode=True)
        x = self.inception4c(self.inception4b(self.inception4a(x)))
        x = self.inception5a(F.max_pool2d(x, 2, 2, ceil_mode=True))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def shaken(model):
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape))
    return model.eval()


def test_logits_of_a_converted_network_are_unchanged(tmp_path):
    torch.manual_seed(0)
    theirs, ours, images = shaken(TorchvisionLike()), small(), torch.randn(2, 3, 90, 90)
    torch.save(theirs.state_dict(), tmp_path / "googlenet.pth")
    report = load_weights(ours, tmp_path / "googlenet.pth")
    assert report.layout == "torchvision"
    assert theirs(images).std() > 0.1
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_public_weights_want_images_in_minus_one_to_one(tmp_path):
    """torchvision's network turns ImageNet's colours into these itself; so ours gets them directly."""
    save_weights(small(), tmp_path / "w.safetensors", "torchvision")
    found = load_weights(small(), tmp_path / "w.safetensors").preprocessing
    assert found is not None
    assert (found.mean, found.std, found.size, found.crop_share) == ((0.5,) * 3, (0.5,) * 3, 224, 0.875)
    # What theirs does to an image x in [0, 1] that was normalised with ImageNet's mean m and deviation s.
    x, m, s = torch.rand(3), torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    inside = (x - m) / s * (s / 0.5) + (m - 0.5) / 0.5
    torch.testing.assert_close(inside, (x - torch.tensor(found.mean)) / torch.tensor(found.std))


def test_a_file_for_inference_fits_a_network_with_auxiliary_heads(tmp_path):
    model, other = small(), small(auxiliary=True)
    before = {k: v.clone() for k, v in other.state_dict().items() if k.startswith("auxiliary")}
    save_weights(model, tmp_path / "w.safetensors", "torchvision")
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.left == list(before)
    assert all(torch.equal(other.state_dict()[k], v) for k, v in before.items())
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(model(images), other(images))


def test_a_file_with_auxiliary_heads_fits_a_network_without(tmp_path):
    model, other = small(auxiliary=True), small()
    save_weights(model, tmp_path / "w.safetensors", "torchvision")
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.matched == list(other.state_dict())
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(model(images), other(images))


def test_another_size_and_number_of_classes(tmp_path):
    save_weights(small(auxiliary=True), tmp_path / "w.safetensors", "torchvision")
    other = small(num_classes=3, input_size=100, auxiliary=True)
    report = load_weights(other, tmp_path / "w.safetensors")
    heads = ("auxiliary.0.head", "auxiliary.1.head", "head")
    assert report.left == [f"{head}.{kind}" for head in heads for kind in ("weight", "bias")]
    assert other(torch.randn(1, 3, 100, 100)).shape == (1, 3)


def test_true_filters_of_five_do_not_take_public_weights(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "torchvision")
    with pytest.raises(
        UsageError,
        match=r"stages\.0\.0\.large\.convolve\.convolution\.weight is 4×2×3×3 in the file and 4×2×5×5",
    ):
        load_weights(small(variant="paper"), tmp_path / "w.safetensors")


def test_what_torchvision_does_not_have_is_not_saved_in_its_layout(tmp_path):
    with pytest.raises(UsageError, match=r"'torchvision' has no place for stem\.layer1\.convolution\.bias"):
        save_weights(small(norm="none"), tmp_path / "w.safetensors", "torchvision")
    assert not list(tmp_path.iterdir())
