#!/usr/bin/env python3
"""Makes ops.safetensors, torchvision's values of the ops of vision/ in f64:

    python3 tests/golden/vision/ops.py              # needs torch and torchvision; the tests themselves do not

case/x0, x1, ...  arguments
case/y            result
case/grad0, ...   gradients of sum(y * dy) with respect to the arguments
draw/...          an image with boxes, u8 as i64
case/hvp0, ...    gradients of sum(grad0 * v0) + sum(grad1 * v1) + ..., where dy and v are uniform(case/dy), (case/v0), ...
"""
import os
import sys

import numpy as np
import torch
import torchvision
from torchvision import ops

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "resnet"))
from make_golden import uniform, write_safetensors

OUT = {}


def number(name, *shape):
    return torch.from_numpy(uniform(name, int(np.prod(shape)))).reshape(shape)


def case(name, f, *xs, hvp=True):
    xs = [x.clone().requires_grad_() for x in xs]
    y = f(*xs)
    OUT.update({f"{name}/x{i}": x.detach() for i, x in enumerate(xs)})
    OUT[f"{name}/y"] = y.detach()
    grads = torch.autograd.grad((y * number(f"{name}/dy", *y.shape)).sum(), xs, create_graph=hvp)
    OUT.update({f"{name}/grad{i}": g.detach() for i, g in enumerate(grads)})
    if hvp:
        s = sum((g * number(f"{name}/v{i}", *g.shape)).sum() for i, g in enumerate(grads))
        hvps = torch.autograd.grad(s, xs, allow_unused=True, materialize_grads=True)
        OUT.update({f"{name}/hvp{i}": h for i, h in enumerate(hvps)})


def boxes(name, *shape):
    """Boxes from about (0, 0) to (12, 12), of sides from 1 to 9."""
    start = number(name + "/start", *shape, 2) * 3 + 3
    return torch.cat([start, start + number(name + "/sides", *shape, 2) * 4 + 5], -1)


def linear(name, f, *xs):
    """A case whose torchvision op has no second derivative."""
    case(name, f, *xs, hvp=False)


def main():
    a, b = boxes("a", 5), boxes("b", 3)
    formats = ("xyxy", "xywh", "cxcywh")
    for fmt in formats:
        x, y = (ops.box_convert(t, "xyxy", fmt) for t in (a, b))
        case(f"area_{fmt}", lambda t: ops.box_area(t, fmt), x)
        case(f"iou_{fmt}", lambda s, t: ops.box_iou(s, t, fmt), x, y)
        for other in formats:
            linear(f"{fmt}_to_{other}", lambda t: ops.box_convert(t, fmt, other), x)
    case("iou_batches", ops.box_iou, boxes("c", 2, 3), boxes("d", 2, 4))
    case("generalized_iou", ops.generalized_box_iou, a, b)
    linear("clip", lambda t: ops.clip_boxes_to_image(t, (6, 5)), a)

    crowd, scores = boxes("crowd", 60), (number("scores", 60) * 8).round()  # with equal scores
    idxs = torch.arange(60) % 3
    OUT.update({"nms/boxes": crowd, "nms/scores": scores, "nms/idxs": idxs})
    for threshold in (0.2, 0.5, 0.7):
        OUT[f"nms/{threshold}"] = ops.nms(crowd, scores, threshold)
        OUT[f"nms_f32/{threshold}"] = ops.nms(crowd.float(), scores.float(), threshold)
        OUT[f"batched_nms/{threshold}"] = ops.batched_nms(crowd, scores, idxs, threshold)

    # Boxes inside, across each border, far outside, small, and of negative size.
    rois = torch.tensor([[0, 2.1, 1.3, 9.7, 8.2], [1, -3, -2, 6.5, 4], [1, 10, 8, 21, 17.5], [0, 40, 40, 50, 60],
                         [1, 5, 5, 5.25, 5.5], [0, 8, 8, 6, 7]], dtype=torch.float64)
    OUT["rois"] = rois
    x = number("x", 2, 3, 7, 9)
    for ratio in (-1, 1, 2):
        for aligned in (False, True):
            linear(f"roi_align_{ratio}_{int(aligned)}",
                   lambda t: ops.roi_align(t, rois, (3, 2), 0.5, ratio, aligned), x)
    linear("roi_align_pixel", lambda t: ops.roi_align(t, rois, 2, 1.0, 2, True), number("pixel", 2, 3, 1, 1))

    logits = number("logits", 4, 5) * 5
    hard, soft = (number("targets", 4, 5) > 0).double(), (number("soft", 4, 5) + 1) / 2
    for name, targets, options in (("default", hard, {}), ("soft", soft, {"alpha": 0.6, "gamma": 1.5}),
                                   ("mean", hard, {"alpha": -1, "reduction": "mean"}),
                                   ("sum", hard, {"gamma": 0, "reduction": "sum"})):
        case(f"focal_{name}", lambda s, t: ops.sigmoid_focal_loss(s, t, **options), logits, targets)

    # Boxes inside, across borders, outside, low, narrow, of one pixel, over each other.
    image = ((number("image", 3, 20, 30) + 1) * 127.5).to(torch.uint8)
    drawn = torch.tensor([[3.9, 2, 12, 9.5], [5, 5, 25, 18], [-4, -3, 6, 5], [20, 10, 40, 30], [50, 2, 60, 4],
                          [14, 1, 28, 2], [1, 12, 2, 19], [10, 10, 10, 10]], dtype=torch.float64)
    colors = [(255, 0, 0), (0, 128, 7), (1, 2, 3), (9, 250, 100), (0, 0, 0), (255, 255, 255), (77, 0, 9), (8, 8, 200)]
    OUT.update({"draw/image": image.long(), "draw/boxes": drawn, "draw/colors": torch.tensor(colors)})
    for width in (1, 2, 5):
        for fill in (False, True):
            draw = torchvision.utils.draw_bounding_boxes
            OUT[f"draw/{width}_{int(fill)}"] = draw(image, drawn, colors=colors, fill=fill, width=width).long()
    OUT["draw/palette"] = draw(image, drawn).long()
    OUT["draw/one"] = draw(image, drawn, colors=(5, 6, 7)).long()

    path = os.path.join(HERE, "ops.safetensors")
    print(path, write_safetensors(path, OUT, {"torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    main()
