#!/usr/bin/env python3
"""Matrix products and sums by equation against PyTorch: python3 tests/golden/ops/linalg.py. What the file holds: golden.py."""
import torch
import torch.nn.functional as F

from golden import Family

f = Family("linalg")
r = f.rand
for name, a, b in [("matrices", (3, 5), (5, 4)), ("vectors", (6,), (6,)), ("matrix_vector", (3, 6), (6,)),
                   ("vector_matrix", (6,), (6, 3)), ("batches", (2, 3, 4), (2, 4, 5)), ("broadcast", (2, 1, 3, 4), (5, 4, 2)),
                   ("batch_vector", (2, 3, 4), (4,)), ("matrix_batch", (3, 4), (2, 4, 2)), ("one", (1, 1), (1, 1)),
                   ("empty", (0, 3), (3, 2)), ("no_terms", (2, 0), (0, 3)), ("large", (33, 40), (40, 35))]:
    f.case(f"matmul/{name}", torch.matmul, r(*a), r(*b))
f.case("linear/plain", F.linear, r(4, 6), r(3, 6), r(3))
f.case("linear/no_bias", F.linear, r(4, 6), r(3, 6))
f.case("linear/rows", F.linear, r(2, 2, 6), r(3, 6), r(3))
f.case("linear/vector", F.linear, r(6), r(3, 6), r(3))
f.case("linear/empty", F.linear, r(0, 6), r(3, 6), r(3))
f.case("mm", torch.mm, r(3, 4), r(4, 2))
f.case("mm/one", torch.mm, r(1, 1), r(1, 1))
f.case("bmm", torch.bmm, r(2, 3, 4), r(2, 4, 2))
f.case("bmm/empty", torch.bmm, r(0, 3, 4), r(0, 4, 2))
f.case("mv", torch.mv, r(3, 4), r(4))
f.case("dot", torch.dot, r(7), r(7))
f.case("dot/empty", torch.dot, r(0), r(0))
f.case("inner", torch.inner, r(2, 3, 4), r(5, 4))
f.case("inner/scalar", torch.inner, r(), r(2, 3))
f.case("outer", torch.outer, r(3), r(4))
for name, c in [("matrix", (3, 2)), ("row", (2,)), ("column", (3, 1)), ("scalar", ())]:
    f.case(f"addmm/{name}", torch.addmm, r(*c), r(3, 4), r(4, 2))
    f.case(f"addmm/{name}_weighted", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), r(*c), r(3, 4), r(4, 2))
f.case("addmm/beta_0", lambda c, a, b: torch.addmm(c, a, b, beta=0), r(3, 2), r(3, 4), r(4, 2))
f.case("addmv", torch.addmv, r(3), r(3, 4), r(4))
f.case("addmv/weighted", lambda c, a, b: torch.addmv(c, a, b, beta=2, alpha=0.25), r(1), r(3, 4), r(4))
f.case("baddbmm", torch.baddbmm, r(2, 3, 2), r(2, 3, 4), r(2, 4, 2))
f.case("baddbmm/weighted", lambda c, a, b: torch.baddbmm(c, a, b, beta=-1, alpha=3), r(3, 1), r(2, 3, 4), r(2, 4, 2))
f.case("bilinear", F.bilinear, r(2, 3), r(2, 4), r(5, 3, 4), r(5))
f.case("bilinear/rows", F.bilinear, r(2, 2, 3), r(2, 2, 4), r(5, 3, 4))
f.case("tensordot", lambda a, b: torch.tensordot(a, b, 2), r(2, 3, 4), r(3, 4, 2))
f.case("tensordot/dims", lambda a, b: torch.tensordot(a, b, ([0, 2], [2, 1])), r(2, 3, 4), r(5, 4, 2))
f.case("tensordot/none", lambda a, b: torch.tensordot(a, b, 0), r(2, 3), r(2))
f.case("kron", torch.kron, r(2, 3), r(4, 2))
f.case("kron/fewer_dims", torch.kron, r(3), r(2, 2, 2))
f.case("chain_matmul", lambda *m: torch.linalg.multi_dot(m), r(2, 5), r(5, 3), r(3, 4), r(4, 2))
for n in [0, 1, 2, 5]:
    f.case(f"matrix_power/{n}", lambda x, n=n: torch.linalg.matrix_power(x, n) + 0 * x, r(2, 3, 3))
f.case("cross", torch.linalg.cross, r(2, 3), r(2, 3))
f.case("cross/dim", lambda a, b: torch.linalg.cross(a, b, dim=1), r(2, 3, 4), r(2, 3, 4))
f.case("cross/broadcast", torch.linalg.cross, r(2, 1, 3), r(1, 4, 3))
for equation, *shapes in [
        ("ij,jk->ik", (3, 4), (4, 2)), ("ij,jk", (3, 4), (4, 2)), ("ba", (3, 4)), ("ij->", (3, 4)), ("ii", (3, 3)),
        ("ii->i", (3, 3)), ("ijij->ji", (2, 3, 2, 3)), ("i,i->", (5,), (5,)), ("i,j->ij", (3,), (4,)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("bthd,bshd->bhts", (2, 3, 2, 4), (2, 5, 2, 4)),
        ("bi,oij,bj->bo", (2, 3), (4, 3, 2), (2, 2)), ("ab,bc,cd,de->ae", (2, 3), (3, 2), (2, 4), (4, 3)),
        ("...ij,...jk->...ik", (2, 3, 2, 4), (3, 4, 2)), ("i...j->...", (2, 3, 2, 4)), ("...,...", (2, 3), (3,)),
        ("B...a, A...a", (2, 3, 2), (4, 3, 2)), ("b...,b...->b", (2, 3, 2), (2, 3, 2)), ("ij,ij->i", (1, 4), (3, 4)),
        ("ij,jk->ik", (0, 4), (4, 2)), ("ij,jk->ik", (3, 0), (0, 2)), ("iji,j->i", (2, 3, 2), (3,))]:
    name = f"einsum/{equation} " + " ".join("x".join(map(str, s)) for s in shapes)
    f.case(name, lambda *x, e=equation: torch.einsum(e, *x), *[r(*s) for s in shapes])
f.save()
