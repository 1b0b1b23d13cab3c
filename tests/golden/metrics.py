#!/usr/bin/env python3
"""Makes metrics.safetensors with PyTorch, in f64:

    python3 tests/golden/metrics.py          # needs python3-torch; the test itself does not

scores [N,C], target [N], masks/scores [N,C,H,W], masks/target [N,H,W] (255: ignored), binary/scores, binary/target [N], and
what the metrics are over all of them.
"""
import torch
import torch.nn.functional as F

from make_golden import formula, save

torch.set_default_dtype(torch.float64)


def confusion(predicted, target, classes, ignore=None):
    keep = torch.ones_like(target, dtype=torch.bool) if ignore is None else target != ignore
    return torch.bincount(target[keep] * classes + predicted[keep], minlength=classes**2).reshape(classes, classes)


def main():
    out = {}
    n, classes = 60, 7
    target = (formula((n,), 1, 3.5) + 3.5).long()
    scores = formula((n, classes), 2, 3) + 1.5 * F.one_hot(target, classes)
    out.update({"scores": scores, "target": target})
    for k in (1, 3, 7):
        right = (scores.topk(k, dim=1).indices == target[:, None]).any(dim=1)
        out[f"top{k}"] = right.double().mean()
    out["confusion"] = confusion(scores.argmax(1), target, classes)
    ignored = torch.where(torch.arange(n) % 5 == 0, -100, target)
    out["ignored"] = ignored
    out["perplexity"] = F.cross_entropy(scores, target).exp()
    out["perplexity_ignored"] = F.cross_entropy(scores, ignored).exp()

    # Class 4 occurs in neither, class 3 as a prediction alone.
    mask = (formula((6, 8, 5), 3, 1.5) + 1.5).long()
    maps = formula((6, 5, 8, 5), 4, 2) + 2 * F.one_hot(mask, 5).movedim(-1, 1)
    maps[:, 4] = -9
    mask[formula(mask.shape, 5) > 0.8] = 255
    c = confusion(maps.argmax(1), mask, 5, ignore=255)
    hits = c.diagonal().double()
    iou = hits / (c.sum(0) + c.sum(1) - hits)
    assert iou.isnan().tolist() == [False] * 4 + [True]
    out.update({"masks/scores": maps, "masks/target": mask, "masks/confusion": c, "masks/iou": iou, "masks/mean_iou": iou.nanmean()})

    n = 120
    target = (formula((n,), 6) > 0.2).long()
    scores = ((formula((n,), 7) + 1) / 2 + 0.3 * target).clamp(0, 1)
    out.update({"binary/scores": scores, "binary/target": target})
    ones, zeros = scores[target == 1], scores[target == 0]

    def area(ones, zeros):
        return ((ones[:, None] > zeros).double() + (ones[:, None] == zeros).double() / 2).mean()

    out["binary/area"] = area(ones, zeros)
    for bins in (10, 1000):
        edges = torch.arange(1, bins) / bins
        out[f"binary/area{bins}"] = area(torch.bucketize(ones, edges, right=True), torch.bucketize(zeros, edges, right=True))
    save("metrics.safetensors", out)


main()
