#!/usr/bin/env python3
"""Losses against PyTorch: python3 tests/golden/ops/loss.py. What the file holds: golden.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("loss")
REDUCTIONS = ("mean", "sum", "none")


def case(name, op, *inputs):
    """op(reduction, *inputs) with every reduction: three results of one case."""
    f.case(name, lambda *a: [op(r, *a) for r in REDUCTIONS], *inputs)


def points(op, x_range, t_range, name=None, **options):
    """A loss of elements on a matrix, a scalar and nothing."""
    for kind, shape in {"matrix": (3, 4), "scalar": (), "empty": (0, 3)}.items():
        case(f"{name or op}/{kind}", lambda r, x, t: getattr(F, op)(x, t, reduction=r, **options),
             f.rand(*shape, lo=x_range[0], hi=x_range[1]), f.rand(*shape, lo=t_range[0], hi=t_range[1]))


def signs(mask, x):
    return mask.to(x.dtype) * 2 - 1


BOTH = ((-3, 3), (-3, 3))
points("mse_loss", *BOTH)
points("l1_loss", *BOTH)
for beta in (1.0, 0.5, 4.0, 0.0):
    points("smooth_l1_loss", *BOTH, name=f"smooth_l1_loss/{beta}", beta=beta)
for delta in (1.0, 0.5, 4.0):
    points("huber_loss", *BOTH, name=f"huber_loss/{delta}", delta=delta)
points("binary_cross_entropy", (0.05, 0.95), (0, 1))
points("binary_cross_entropy_with_logits", (-6, 6), (0, 1))
points("kl_div", (-4, 0), (0.05, 1))
points("kl_div", (-4, 0), (-3, 0), name="kl_div/log_target", log_target=True)
f.case("kl_div/batchmean", lambda x, t: F.kl_div(x, t, reduction="batchmean"), f.rand(3, 4, lo=-4, hi=0), f.rand(3, 4, lo=0.05, hi=1))
f.case("kl_div/batchmean_log", lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True),
       f.rand(3, 4, lo=-4, hi=0), f.rand(3, 4, lo=-3, hi=0))
case("kl_div/no_target", lambda r, x, m: F.kl_div(x, m.to(x.dtype) * 0.5, reduction=r), f.rand(3, 4, lo=-4, hi=0), f.mask(3, 4))
for full in (False, True):
    kind = "full" if full else "plain"
    for log_input in (True, False):
        points("poisson_nll_loss", (0.1, 3), (0.1, 5), name=f"poisson_nll_loss/{kind}_{'log' if log_input else 'rate'}",
               log_input=log_input, full=full)
    for variant, shape in {"": (3, 4), "_rows": (3,), "_kept": (3, 1)}.items():
        case(f"gaussian_nll_loss/{kind}{variant}", lambda r, x, t, v: F.gaussian_nll_loss(x, t, v, full=full, reduction=r),
             f.rand(3, 4), f.rand(3, 4), f.rand(*shape, lo=0.2, hi=2))
case("gaussian_nll_loss/least", lambda r, x, t, v: F.gaussian_nll_loss(x, t, v, eps=0.5, reduction=r),
     f.rand(3, 4), f.rand(3, 4), f.rand(3, 4, lo=0.1, hi=1))

case("binary_cross_entropy/weight", lambda r, x, t, w: F.binary_cross_entropy(x, t, w.to(x.dtype), reduction=r),
     f.rand(3, 4, lo=0.05, hi=0.95), f.rand(3, 4, lo=0, hi=1), f.ints(4, below=5))
case("binary_cross_entropy_with_logits/weight",
     lambda r, x, t, w: F.binary_cross_entropy_with_logits(x, t, w.to(x.dtype), reduction=r),
     f.rand(3, 4, lo=-6, hi=6), f.rand(3, 4, lo=0, hi=1), f.ints(3, 1, below=5))
case("binary_cross_entropy_with_logits/pos_weight",
     lambda r, x, t, p: F.binary_cross_entropy_with_logits(x, t, pos_weight=p.to(x.dtype), reduction=r),
     f.rand(3, 4, lo=-6, hi=6), f.rand(3, 4, lo=0, hi=1), f.ints(4, below=5))
case("binary_cross_entropy_with_logits/both",
     lambda r, x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w.to(x.dtype), pos_weight=p.to(x.dtype), reduction=r),
     f.rand(3, 4, lo=-6, hi=6), f.rand(3, 4, lo=0, hi=1), f.ints(3, 1, below=5), f.ints(4, below=5))
case("binary_cross_entropy/ends", lambda r, x, t: F.binary_cross_entropy(x.to(torch.float64), t.to(torch.float64), reduction=r),
     f.mask(3, 4), f.mask(3, 4))
case("soft_margin_loss", lambda r, x, m: F.soft_margin_loss(x, signs(m, x), reduction=r), f.rand(3, 4), f.mask(3, 4))
for margin in (1.0, 0.5):
    case(f"hinge_embedding_loss/{margin}", lambda r, x, m: F.hinge_embedding_loss(x, signs(m, x), margin=margin, reduction=r),
         f.rand(3, 4, lo=0, hi=2), f.mask(3, 4))
for margin in (0.0, 0.5):
    case(f"margin_ranking_loss/{margin}", lambda r, a, b, m: F.margin_ranking_loss(a, b, signs(m, a), margin=margin, reduction=r),
         f.rand(7), f.rand(7), f.mask(7))
for margin in (0.0, -0.5):
    case(f"cosine_embedding_loss/{margin}", lambda r, a, b, m: F.cosine_embedding_loss(a, b, signs(m, a), margin=margin, reduction=r),
         f.rand(6, 4), f.rand(6, 4), f.mask(6))
case("cosine_embedding_loss/one", lambda r, a, b, m: F.cosine_embedding_loss(a, b, signs(m, a), reduction=r), f.rand(4), f.rand(4), f.mask())
for swap in (False, True):
    s = "_swap" if swap else ""
    for p in (1.0, 2.0, 3.0):
        case(f"triplet_margin_loss/{p}{s}", lambda r, a, b, c: F.triplet_margin_loss(a, b, c, margin=0.75, p=p, swap=swap, reduction=r),
             f.rand(5, 4), f.rand(5, 4), f.rand(5, 4))
    case(f"triplet_margin_with_distance_loss/l1{s}",
         lambda r, a, b, c: F.triplet_margin_with_distance_loss(
             a, b, c, distance_function=lambda u, v: (u - v).abs().sum(-1), margin=0.75, swap=swap, reduction=r),
         f.rand(5, 4), f.rand(5, 4), f.rand(5, 4))
for weight in (False, True):
    w = "_weight" if weight else ""
    case(f"multilabel_soft_margin_loss/rows{w}",
         lambda r, x, t, v: F.multilabel_soft_margin_loss(x, t.to(x.dtype), weight=v.to(x.dtype) if weight else None, reduction=r),
         f.rand(3, 5), f.mask(3, 5), f.ints(5, below=4))
    for p in (1, 2):
        case(f"multi_margin_loss/{p}{w}",
             lambda r, x, t, v: F.multi_margin_loss(x, t, p=p, margin=0.75, weight=v.to(x.dtype) if weight else None, reduction=r),
             f.rand(4, 5), f.ints(4, below=5), f.ints(5, below=4, low=1))
case("multi_margin_loss/one", lambda r, x, t: F.multi_margin_loss(x, t, reduction=r), f.rand(5), f.ints(below=5))

# Cross-entropy: class numbers, some of them ignored, and probabilities. The weights come as integers: constants.
for kind, shape in {"rows": (6, 5), "one": (5,), "image": (2, 5, 2, 3)}.items():
    target = shape[:1] + shape[2:] if len(shape) > 1 else ()
    for weight in (False, True):
        given = lambda v, x: v.to(x.dtype) / 2 if weight else None
        name = kind + ("_weight" if weight else "")
        for ignored in (-100, 2):
            i = "_ignore" if ignored == 2 else ""
            if i and kind == "one":
                continue  # everything may be ignored
            for smoothing in (0.0, 0.25):
                s = "_smooth" if smoothing else ""
                case(f"cross_entropy/{name}{i}{s}",
                     lambda r, x, t, v: F.cross_entropy(x, t, given(v, x), ignore_index=ignored, reduction=r, label_smoothing=smoothing),
                     f.rand(*shape, lo=-3, hi=3), f.ints(*target, below=5), f.ints(5, below=5, low=1))
            case(f"nll_loss/{name}{i}", lambda r, x, t, v: F.nll_loss(x, t, given(v, x), ignore_index=ignored, reduction=r),
                 f.rand(*shape, lo=-3, hi=0), f.ints(*target, below=5), f.ints(5, below=5, low=1))
        for smoothing in (0.0, 0.25):
            case(f"cross_entropy/probabilities_{name}{'_smooth' if smoothing else ''}",
                 lambda r, x, t, v: F.cross_entropy(x, t, given(v, x), reduction=r, label_smoothing=smoothing),
                 f.rand(*shape, lo=-3, hi=3), f.rand(*shape, lo=0, hi=1), f.ints(5, below=5, low=1))
case("cross_entropy/empty", lambda r, x, t: F.cross_entropy(x, t, reduction=r), f.rand(0, 5), f.ints(0, below=5))
case("nll_loss/empty", lambda r, x, t: F.nll_loss(x, t, reduction=r), f.rand(0, 5), f.ints(0, below=5))
case("cross_entropy/all_ignored", lambda r, x, t: F.cross_entropy(x, t * 0 - 100, reduction=r), f.rand(2, 5), f.ints(2, below=5))
f.case("cross_entropy/far_apart", lambda x, t: F.cross_entropy(x * 100, t, reduction="none"), f.rand(4, 5), f.ints(4, below=5))

for p in (1.0, 2.0, 3.0, float("inf")):
    f.case(f"pairwise_distance/{p}", lambda a, b: F.pairwise_distance(a, b, p=p), f.rand(3, 5), f.rand(3, 5))
f.case("pairwise_distance/keepdim", lambda a, b: F.pairwise_distance(a, b, keepdim=True), f.rand(3, 5), f.rand(1, 5))
f.case("cosine_similarity/rows", lambda a, b: F.cosine_similarity(a, b), f.rand(3, 5), f.rand(3, 5))
f.case("cosine_similarity/last", lambda a, b: F.cosine_similarity(a, b, dim=-1), f.rand(2, 3, 5), f.rand(2, 3, 5))
f.case("cosine_similarity/broadcast", lambda a, b: F.cosine_similarity(a, b, dim=-1), f.rand(2, 3, 5), f.rand(3, 5))
f.case("cosine_similarity/first", lambda a, b: F.cosine_similarity(a, b, dim=0), f.rand(4), f.rand(4))
f.save()
