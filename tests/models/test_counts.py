"""Exact numbers of parameters of every public network, built without memory.

Measured on timm 1.0.30 and torchvision 0.28.0, or made from the papers' tables where neither has the network.
"""

from typing import Any

import pytest
import torch

from apoint.models import count_parameters, create

COUNTS: list[tuple[str, dict[str, Any], int]] = [
    ("resnet18", {}, 11_689_512),
    ("resnet34", {}, 21_797_672),
    ("resnet50", {}, 25_557_032),
    ("resnet101", {}, 44_549_160),
    ("resnet152", {}, 60_192_808),
    ("vit_tiny_patch16_224", {}, 5_717_416),
    ("vit_tiny_patch16_384", {}, 5_790_376),
    ("vit_small_patch16_224", {}, 22_050_664),
    ("vit_base_patch16_224", {}, 86_567_656),
    ("vit_base_patch16_384", {}, 86_859_496),
    ("vit_base_patch32_224", {}, 88_224_232),
    ("vit_large_patch16_224", {}, 304_326_632),
    ("vit_large_patch16_384", {}, 304_715_752),
    ("vit_l_16", {"input_size": 512}, 305_174_504),
    ("swin_tiny_patch4_window7_224", {}, 28_288_354),
    ("swin_small_patch4_window7_224", {}, 49_606_258),
    ("swin_base_patch4_window7_224", {}, 87_768_224),
    ("swin_large_patch4_window7_224", {}, 196_532_476),
    ("swin_base_patch4_window12_384", {}, 87_903_584),
    ("swin_large_patch4_window12_384", {}, 196_735_516),
    ("convnext_tiny", {}, 28_589_128),
    ("convnext_small", {}, 50_223_688),
    ("convnext_base", {}, 88_591_464),
    ("convnext_large", {}, 197_767_336),
    ("convnext_xlarge", {}, 350_196_968),
    ("vgg11", {}, 132_863_336),
    ("vgg11_bn", {}, 132_868_840),
    ("vgg13", {}, 133_047_848),
    ("vgg13_bn", {}, 133_053_736),
    ("vgg16", {}, 138_357_544),
    ("vgg16_bn", {}, 138_365_992),
    ("vgg19", {}, 143_667_240),
    ("vgg19_bn", {}, 143_678_248),
    ("alexnet", {}, 61_100_840),
    ("alexnet_2012", {}, 60_965_224),
    ("alexnet_2012", {"towers": 1}, 62_378_344),
    ("googlenet", {}, 6_624_904),
    ("googlenet", {"auxiliary": True}, 13_004_888),
    ("googlenet_paper", {}, 6_998_552),
    ("googlenet_paper", {"auxiliary": True}, 13_378_280),
    ("googlenet_5x5", {}, 7_005_832),
    ("googlenet_5x5", {"auxiliary": True}, 13_385_816),
    ("inception_v3", {}, 23_834_568),
    ("inception_v3", {"auxiliary": True}, 27_161_264),
    *((f"resnet{depth}", {}, count) for depth, count in (
        (20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962), (1202, 19_421_274),
    )),
    *((f"resnet{depth}", {"shortcut": "B"}, count) for depth, count in (
        (20, 272_474), (32, 466_906), (44, 661_338), (56, 855_770), (110, 1_730_714), (1202, 19_424_026),
    )),
    *((f"resnet{depth}", {"num_classes": 100}, count) for depth, count in (
        (20, 275_572), (32, 470_004), (44, 664_436), (56, 858_868), (110, 1_733_812), (1202, 19_427_124),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "count"), COUNTS)
def test_parameters(name: str, settings: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        assert count_parameters(create(name, **settings)) == count
