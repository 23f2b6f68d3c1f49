"""Further cases of set C: every operation on meshes of one to three axes, tuples in both orders, other element types."""

import random

from propagation_cases import F, Q, I, B, U, N, XY, YX, SP, S, left_out

MORE = []


def add(group, op, inputs, mesh="m2x4", **attrs):
    MORE.append((group, op, attrs, inputs, mesh))


D, M = ("data", "model")


def BF(shape, spec=()):
    return F(shape, spec, "bfloat16")


names = [
    "neg",
    "exp",
    "tanh",
    "sigmoid",
    "relu",
    "silu",
    "abs",
    "square",
    "sin",
    "cos",
    "erf",
    "sign",
    "gelu_tanh",
    "gelu_erf",
    "softplus",
    "log1p_abs",
    "sqrt_abs",
    "rsqrt_1p_sq",
    "isfinite",
    "two_sin_plus_one",
    "stop_gradient",
]
specs = [["x", "y"], ["y"], [N, XY], [YX], ["y", "x"], []]
for i, n in enumerate(names):
    if n != "sqrt_abs":  # its gradient at 0 is infinite
        add("unary", n, [F((8, 8), specs[i % 6])])
    if i % 3 == 0:
        add("unary", n, [F((4, 8, 2), ["a", ["b", "c"]])], mesh="m2x2x2")
    if i % 3 == 1:
        add("unary", n, [F((16,), ["x"])], mesh="m8")
    if i % 3 == 2:
        add("unary", n, [F((4, 4, 8), [D, N, M])], mesh="m4x2")
for a, b in [
    ("float32", "bfloat16"),
    ("int32", "float32"),
    ("float32", "int32"),
    ("bool", "float32"),
    ("bool", "int32"),
    ("int32", "bool"),
    ("float32", "float16"),
]:
    mk = {"float32": F, "int32": lambda s, p: I(s, p, 16), "bool": B}[a]
    add("unary", "cast", [mk((8, 8), ["x", "y"])], dtype=b)
add("unary", "abs", [BF((8, 8), ["x", "y"])])
add("unary", "exp", [BF((8, 8), ["x", "y"])])
add("unary", "relu", [BF((8, 8), [])])
add("unary", "neg", [I((8, 8), ["y"], 16)])
add("unary", "abs", [I((8, 8), ["y"], 16)])
add("unary", "sign", [I((8, 8), ["y", "x"], 16)])
add("unary", "square", [I((8,), ["y"], 16)])
add("unary", "add_scalar", [I((8, 8), ["x"], 16)], value=2)
add("unary", "mul_scalar", [BF((8, 8), ["x"])], value=0.5)
add("unary", "add_scalar", [I((8,), ["x"], 16)], value=0.5)
add("unary", "clip", [F((8, 8), ["x", "y"])], min=-0.5, max=0.1)
add("unary", "clip", [I((8, 8), ["x", "y"], 16)], min=2, max=9)
add("unary", "clip", [F((4, 8, 2), [["a", "b"], "c"])], mesh="m2x2x2", min=0.0, max=1.0)
for op in ["add", "sub", "mul", "div", "maximum", "minimum", "greater", "equal"]:
    mk = Q if op == "div" else F
    for l, r in [
        (["x", "y"], ["x", "y"]),
        ([], ["x", "y"]),
        (["x"], [N, "y"]),
        ([N, "x"], ["x"]),
        (["x", "y"], ["y", "x"]),
        ([XY], ["x"]),
        ([XY], [YX]),
        (["x"], ["y"]),
        ([XY], ["y"]),
        (["x", "y"], [XY]),
    ]:
        if op in ("add", "mul", "sub") or random.Random(op + str(l) + str(r)).random() < 0.35:
            add("binary", op, [F(S, l), mk(S, r)])
add("binary", "logical_and", [B(S, ["x", "y"]), B(S, ["x"])])
add("binary", "logical_and", [B(S, ["x"]), B(S, ["y"])])
add("binary", "logical_and", [B(S, []), B((8,), ["y"])])
add("binary", "equal", [I(S, ["x"], 4), I(S, ["x"], 5)])
add("binary", "greater", [I(S, ["x"], 4), I(S, [N, "x"], 5)])
add("binary", "add", [I(S, ["x"], 4), I(S, ["x", "y"], 5)])
add("binary", "mul", [I(S, ["x"], 4), I((8,), ["y"], 5)])
add("binary", "maximum", [I(S, ["x"], 4), I(S, ["y"], 5)])
add("binary", "add", [BF(S, ["x"]), BF(S, ["x"])])
add("binary", "mul", [BF(S, ["x"]), BF(S, [N, "y"])])
add("binary", "add", [BF(S, ["x"]), F(S, ["x", "y"])])
add("binary", "add", [I(S, ["x"], 8), F(S, ["x", "y"])])
add("binary", "mul", [B(S, ["x"]), F(S, ["x", "y"])])
T3 = (4, 4, 8)
for l, r in [
    ([D, N, M], [D]),
    ([D, N, M], [N, N, M]),
    ([D], [N, D]),
    ([[D, M]], [D, M]),
    ([M, D], [D, M]),
    ([D, M], [M, D]),
    ([N, [D, M]], [N, D, M]),
    ([N, N, [M, D]], []),
]:
    add("binary", "add", [F(T3, l), F(T3, r)], mesh="m4x2")
    add("binary", "mul", [F(T3, l), F(T3, r)], mesh="m4x2")
for l, r in [
    (["a", "b", "c"], ["a"]),
    (["a", "b"], ["b", "a"]),
    ([["a", "b", "c"]], ["a", "b", "c"]),
    ([["a", "b"], "c"], ["a", ["b", "c"]]),
    (["c", "b", "a"], ["c"]),
    ([["c", "a"]], [["a", "c"]]),
]:
    add("binary", "add", [F((8, 8, 8), l), F((8, 8, 8), r)], mesh="m2x2x2")
    add("binary", "sub", [F((8, 8, 8), l), F((8, 8, 8), r)], mesh="m2x2x2")
for a, l, b, r, m in [
    ((8, 8), ["x", "y"], (8,), ["x"], "m2x4"),
    ((8, 8), ["x", "y"], (1, 8), [N, "y"], "m2x4"),
    ((8, 8), ["x", "y"], (8, 1), ["x"], "m2x4"),
    ((8, 8), [N, "y"], (8, 1), ["x"], "m2x4"),
    ((8, 8), ["y"], (8, 1), ["x"], "m2x4"),
    ((8, 1), ["x"], (8,), ["x"], "m2x4"),
    ((8, 1), ["x"], (1, 8), [N, "x"], "m2x4"),
    ((8, 1), [XY], (1, 8), [], "m2x4"),
    ((4, 1, 8), ["x", N, "y"], (8, 1), [], "m2x4"),
    ((4, 1, 8), ["x", N, "y"], (8, 1), ["x"], "m2x4"),
    ((4, 1, 8), ["x", N, "y"], (8, 8), ["x", "y"], "m2x4"),
    ((8,), ["x"], (), [], "m8"),
    ((8, 8), ["x"], (8,), ["x"], "m8"),
    ((1, 8), [N, "x"], (8, 8), [], "m8"),
    ((4, 6, 8), [D, N, M], (8,), [M], "m4x2"),
    ((4, 6, 8), [D, N, N], (8,), [M], "m4x2"),
    ((4, 6, 8), [D], (8,), [D], "m4x2"),
    ((4, 6, 8), [D, M], (6, 1), [M], "m4x2"),
    ((4, 6, 8), [D], (6, 1), [M], "m4x2"),
    ((2, 1), ["a"], (1, 2), [N, "b"], "m2x2x2"),
    ((2, 8, 1), ["a", "b"], (1, 4), [N, "c"], "m2x2x2"),
]:
    for op in ["add", "mul"]:
        add("broadcast", op, [F(a, l), F(b, r)], mesh=m)
add("broadcast", "sub", [F((8, 8), ["x", "y"]), F((), [])])
add("broadcast", "div", [F((8, 8), ["x", "y"]), Q((8,), ["y"])])
add("broadcast", "maximum", [F((8, 8), ["x", "y"]), F((8, 1), ["x"])])
add("broadcast", "greater", [F((8, 1), ["x"]), F((8,), ["y"])])
for l, r, t in [
    (["x", "y"], ["x"], []),
    ([], ["x", "y"], []),
    ([], ["x"], [N, "y"]),
    (["x"], [], ["y"]),
    ([XY], ["x"], ["y"]),
    ([N, "y"], [N, "y"], [N, "y"]),
]:
    add("where", "where", [B(S, l), F(S, r), F(S, t)])
    add("ternary", "fma", [F(S, l), F(S, r), F(S, t)])
    add("ternary", "lerp", [F(S, l), F(S, r)], t=0.25)
add("where", "where", [B((8, 1), ["x"]), F((8,), ["y"]), F((), [])])
add("where", "where", [B((8,), ["y"]), F(S, ["x"]), F(S, ["x", "y"])])
add("where", "where_scalar", [B(S, ["x"]), F(S, ["x", "y"])], value=0.0)
add("where", "where_scalar", [B(S, ["x"]), F(S, ["y"])], value=-1.0)
add("where", "where_scalar", [B((8, 8), ["x"]), F((4, 8, 8), ["y"])], value=-1.0)
for i, l in enumerate(SP):
    for j, r in enumerate(SP):
        if left_out(i, j):
            add("matmul", "matmul", [F(S, l), F(S, r)])
for l in [[XY], [YX], [N, XY], [N, YX]]:
    for r in [[], ["x"], [N, "y"], [XY], [N, XY], [YX], ["x", "y"], ["y", "x"]]:
        add("matmul", "matmul", [F(S, l), F(S, r)])
for l, r, o in [
    (["x", "y"], ["y"], ["x"]),
    (["x", "y"], ["y"], ["x", "y"]),
    (["x", "y"], ["y"], []),
    (["x", "y"], ["y", "x"], ["x"]),
    (["x", "y"], ["y", "x"], [XY]),
    (["x", "y"], ["y", "x"], U(["x"], "y")),
    (["x"], ["y"], ["x"]),
    ([N, "y"], ["y"], ["x", "y"]),
    ([N, "y"], ["y"], U(["x"], "y")),
    ([N, XY], [XY], []),
    ([N, XY], [XY], ["x"]),
    ([N, XY], [XY], ["x", "y"]),
    ([N, XY], [XY], [XY]),
    ([N, XY], [XY], U([], "x", "y")),
    (["x"], ["y", "x"], ["x"]),
    ([], ["x"], []),
    (["x"], [], [N, "x"]),
    (["x", "y"], ["x", "y"], ["x", "y"]),
    (["y"], ["y"], ["y"]),
    ([N, "y"], ["x"], []),
    ([N, "y"], ["x"], ["x", "y"]),
    (["x"], [N, "y"], ["y", "x"]),
    (["x"], [N, "x"], ["x"]),
    (["x"], [N, "x"], [N, "x"]),
]:
    add("matmul_out", "matmul", [F(S, l), F(S, r)], out_sharding=o)
for l, r, m in [
    ([["a", "b"], "c"], ["c"], "m2x2x2"),
    (["a", ["b", "c"]], [["b", "c"]], "m2x2x2"),
    (["a", "b"], ["b", "c"], "m2x2x2"),
    (["a", "b"], ["c"], "m2x2x2"),
    (["a", ["b", "c"]], [["c", "b"]], "m2x2x2"),
    (["a", ["b", "c"]], ["b"], "m2x2x2"),
    ([["a", "b"]], [N, "c"], "m2x2x2"),
    ([["a", "b"]], ["a", "c"], "m2x2x2"),
    (["x"], [N, "x"], "m8"),
    ([N, "x"], ["x"], "m8"),
    (["x"], ["x"], "m8"),
    ([N, "x"], [N, "x"], "m8"),
    (["x"], [], "m8"),
    ([], ["x"], "m8"),
    ([], [N, "x"], "m8"),
    ([N, "x"], [], "m8"),
    ([D], [N, M], "m4x2"),
    ([D, M], [M], "m4x2"),
    ([D], [D], "m4x2"),
    ([D], [D, M], "m4x2"),
    ([D], [M, D], "m4x2"),
    ([D, M], [M, D], "m4x2"),
    ([[D, M]], [[D, M]], "m4x2"),
    ([[D, M]], [D], "m4x2"),
    ([[D, M]], [M], "m4x2"),
    ([D], [[D, M]], "m4x2"),
]:
    add("matmul", "matmul", [F((16, 8), l), F((8, 32), r)], mesh=m)
    add("matmul", "matmul", [F((8, 8), l), F((8, 8), r)], mesh=m)
for l, r in [
    ([D], [N, M]),
    ([D, N, M], [M]),
    ([D], [M]),
    ([D], [D]),
    ([N, D], [N, M]),
    ([D, M], [N, M]),
    ([D, M], []),
    ([D, N, M], []),
    ([D, N, M], [M, D]),
]:
    add("matmul", "matmul", [F((4, 8, 16), l), F((16, 8), r)], mesh="m4x2")
    add("einsum", "einsum", [F((4, 8, 16), l), F((16, 8), r)], mesh="m4x2", subscripts="bsd,df->bsf")
for l, r in [
    (["x"], ["x"]),
    (["x"], ["x", "y"]),
    (["x", N, "y"], ["x", "y"]),
    ([N, N, "y"], [N, "y"]),
    (["x", "y"], ["x", "y"]),
    (["x"], ["y"]),
    ([], ["x", N, "y"]),
    ([XY], [XY]),
    ([XY], ["x"]),
    (["x", N, "y"], ["x"]),
    (["x", "y"], [N, N, "y"]),
]:
    add("matmul", "matmul", [F((8, 4, 8), l), F((8, 8, 4), r)])
    add("dot_general", "dot_general", [F((8, 4, 8), l), F((8, 8, 4), r)], contract=[[2], [1]], batch=[[0], [0]])
add("matmul", "matmul", [F((1, 4, 8), []), F((8, 8, 4), ["x"])])
add("matmul", "matmul", [F((2, 1, 4, 8), ["x"]), F((8, 8, 4), ["y"])])
add("matmul", "matmul", [F((8,), ["x"]), F((8,), ["x"])])
add("matmul", "matmul", [F((8,), ["x"]), F((8,), ["y"])])
add("matmul", "matmul", [F((8, 8), ["x", "y"]), F((8,), ["y"])])
add("matmul", "matmul", [F((8, 8), ["x", "y"]), F((8,), ["x"])])
add("matmul", "matmul", [F((8, 8), ["x"]), F((8,), [])])
add("matmul", "matmul", [F((8, 8), ["x", "y"]), F((8,), [])])
add("matmul", "matmul", [F((8,), ["x"]), F((4, 8, 8), ["y"])])
add("matmul", "matmul", [BF((8, 8), ["x", "y"]), BF((8, 8), ["y"])])
add("matmul", "matmul", [BF((8, 8), ["x"]), BF((8, 8), [N, "y"])])
add("matmul", "matmul", [I((8, 8), ["x", "y"], 5), I((8, 8), ["y"], 5)])
add("dot_general", "dot_general", [F((8, 8), ["x", "y"]), F((8, 4), ["x"])], contract=[[0], [0]], batch=[[], []])
add(
    "dot_general",
    "dot_general",
    [F((8, 4, 6), ["x", N]), F((4, 6, 8), [N, N, "y"])],
    contract=[[1, 2], [0, 1]],
    batch=[[], []],
)
add(
    "dot_general",
    "dot_general",
    [F((8, 4, 6), ["x", "y"]), F((4, 6, 8), ["y"])],
    contract=[[1, 2], [0, 1]],
    batch=[[], []],
    out_sharding=["x"],
)
add(
    "dot_general",
    "dot_general",
    [F((8, 4, 6), ["x", "y"]), F((8, 4, 6), ["x", "y"])],
    contract=[[1, 2], [1, 2]],
    batch=[[0], [0]],
)
add(
    "dot_general",
    "dot_general",
    [F((6, 4, 8), [N, "y", "x"]), F((8, 4, 6), ["x", "y"])],
    contract=[[0], [2]],
    batch=[[2, 1], [0, 1]],
)
E = lambda sub, *ins, **k: add("einsum", "einsum", list(ins), subscripts=sub, **k)
E("bqhd,bkhd->bhqk", F((4, 8, 2, 4), [D, N, M]), F((4, 8, 2, 4), [D, N, M]), mesh="m4x2")
E("bhqk,bkhd->bqhd", F((4, 2, 8, 8), [D, M]), F((4, 8, 2, 4), [D, N, M]), mesh="m4x2")
E("bhqk,bkhd->bqhd", F((4, 2, 8, 8), [D, M]), F((4, 8, 2, 4), [D, M]), mesh="m4x2")
E("bqhd,bkhd->bhqk", F((4, 8, 2, 4), [D, M]), F((4, 8, 2, 4), [D]), mesh="m4x2")
E("ij,jk,kl->il", F((8, 8), ["x"]), F((8, 8), [N, "y"]), F((8, 8), ["y"]))
E("ij,jk,kl->il", F((8, 8), ["x"]), F((8, 8), []), F((8, 8), [N, "y"]))
E("ij->i", F((8, 8), ["x", "y"]))
E("ij->", F((8, 8), ["x", "y"]))
E("ij->j", F((8, 8), ["x", "y"]), out_sharding=["y"])
E("ii->i", F((8, 8), ["x"]))
E("ii->", F((8, 8), []))
E("ij,ij->ij", F(S, ["x"]), F(S, [N, "y"]))
E("ij,ij->", F(S, ["x", "y"]), F(S, ["x", "y"]))
E("ij,ji->", F(S, ["x", "y"]), F(S, ["y", "x"]))
E("i,ij->ij", F((8,), ["x"]), F(S, ["x", "y"]))
E("i,ij->j", F((8,), ["x"]), F(S, ["x", "y"]))
E("...i,ij->...j", F((4, 6, 8), ["x", N, "y"]), F((8, 8), ["y"]))
E("bij,bjk->bik", F((4, 8, 8), ["x"]), F((4, 8, 8), ["x", N, "y"]))
E("abc->cab", F((2, 8, 4), ["x", N, "y"]))
E("abc->ac", F((2, 8, 4), ["x", "y"]))
E("abc->ac", F((2, 8, 4), ["x", "y"]), out_sharding=["x"])
E("abc->ac", F((2, 8, 4), ["x", "y"]), out_sharding=U(["x"], "y"))
E("i,j,k->ijk", F((8,), ["a"]), F((4,), ["b"]), F((2,), ["c"]), mesh="m2x2x2")
E("ebd,edf->ebf", F((4, 8, 8), [D]), F((4, 8, 16), [D, N, M]), mesh="m4x2")
E("ebf,efd->ebd", F((4, 8, 16), [D, N, M]), F((4, 16, 8), [D, M]), mesh="m4x2")
E("ebf,efd->ebd", F((4, 8, 16), [D, N, M]), F((4, 16, 8), [D, M]), mesh="m4x2", out_sharding=[D])
E("ebf,efd->ebd", F((4, 8, 16), [D, N, M]), F((4, 16, 8), [D, M]), mesh="m4x2", out_sharding=[D, M])
E("bte,ehd->bthd", F((4, 4, 8), [D]), F((8, 2, 4), [N, M]), mesh="m4x2")
E("bthd,hde->bte", F((4, 4, 2, 4), [D, N, M]), F((2, 4, 8), [M]), mesh="m4x2")
E("bthd,hde->bte", F((4, 4, 2, 4), [D, N, M]), F((2, 4, 8), [M]), mesh="m4x2", out_sharding=[D, N, N])
E("bthd,hde->bte", F((4, 4, 2, 4), [D, N, M]), F((2, 4, 8), [M]), mesh="m4x2", out_sharding=[D, M])
for l, w, b in [
    ([D], [N, M], [M]),
    ([D, M], [M], []),
    ([D], [M], []),
    ([D], [D, M], [M]),
    ([], [N, M], []),
    ([D], [N, [D, M]], [[D, M]]),
    ([[D, M]], [], []),
    ([D], [], [M]),
    ([D], [N, M], [D]),
]:
    add("linear", "linear", [F((8, 8), l), F((8, 16), w), F((16,), b)], mesh="m4x2")
    add("linear", "sigmoid_layer", [F((8, 8), l), F((8, 16), w), F((16,), b)], mesh="m4x2")
    add("linear", "linear", [F((4, 6, 8), l), F((8, 16), w), F((16,), b)], mesh="m4x2") if l != [[D, M]] else None
add("linear", "linear", [F((8, 8), [D, M]), F((8, 16), [M]), F((16,), [])], mesh="m4x2", out_sharding=[D])
add("linear", "linear", [F((8, 8), [D, M]), F((8, 16), [M]), F((16,), [M])], mesh="m4x2", out_sharding=[D, M])
add("linear", "sigmoid_layer", [F((32,), ["x"]), F((32, 4), ["x"]), F((4,), [])], mesh="m8")
add("linear", "sigmoid_layer", [F((32,), []), F((32, 8), [N, "x"]), F((8,), ["x"])], mesh="m8")
add("linear", "sigmoid_layer", [F((8, 32), ["x"]), F((32, 4), []), F((4,), [])], mesh="m8")
for x, g, d in [
    ([D], [N, M], [M]),
    ([D], [], []),
    ([D], [D, M], [M, D]),
    ([D, N, M], [N, M], [M]),
    ([], [N, M], [M]),
    ([D], [N, M], []),
]:
    for o in [None, [D, N, N]]:
        k = {} if o is None else {"out_sharding": o}
        add("compose", "mlp", [F((8, 4, 8), x), F((8, 16), g), F((16, 8), d)], mesh="m4x2", **k)
        add("compose", "swiglu", [F((8, 4, 8), x), F((8, 16), g), F((8, 16), g), F((16, 8), d)], mesh="m4x2", **k)
RS = [["x", "y"], [N, "y"], ["y"], [XY], [N, XY], []]
i = 0
for op in ["sum", "mean", "max", "min", "prod", "var", "std"]:
    for ax in [0, 1, None, [0, 1], -1]:
        for sp in RS:
            i += 1
            if i % 3 == 0 or op in ("sum",):
                add("reduce", op, [F((8, 8), sp)], axis=ax, keepdims=bool(i % 2))
for op in ["any", "all"]:
    for ax in [0, 1, None]:
        for sp in RS[:4]:
            add("reduce", op, [B((8, 8), sp)], axis=ax)
for op in ["argmax", "argmin"]:
    for ax in [0, 1, -1]:
        for sp in RS:
            add("reduce", op, [F((8, 8), sp)], axis=ax)
add("reduce", "argmax", [F((8, 8), ["x"])], axis=None)
add("reduce", "argmax", [I((8, 8), ["x", "y"], 5)], axis=1)
add("reduce", "argmax", [F((8, 8), ["x", "y"])], axis=1, keepdims=True)
for ax in [0, 1, -1, None]:
    for sp in RS:
        add("reduce", "logsumexp", [F((8, 8), sp)], axis=ax)
        add("reduce", "l2norm", [F((8, 8), sp)], axis=ax)
for sp in [[D, N, M], [D, M], [[D, M]], [N, N, [M, D]], [N, D, M]]:
    for ax in [[0, 2], 1, -1, [1, 2]]:
        for op in ["sum", "max", "mean", "var"]:
            add("reduce", op, [F((8, 4, 8), sp)], axis=ax, mesh="m4x2")
for sp in [["a", "b", "c"], [["a", "c"], N, "b"], [["a", "b", "c"]]]:
    for ax in [0, [0, 2], None]:
        for op in ["sum", "max", "std"]:
            add("reduce", op, [F((8, 4, 8), sp)], axis=ax, mesh="m2x2x2")
add("reduce", "sum", [I((8, 8), ["x", "y"], 9)], axis=1)
add("reduce", "sum", [B((8, 8), ["x", "y"])], axis=1)
add("reduce", "sum", [BF((8, 8), ["x", "y"])], axis=1)
add("reduce", "mean", [I((8, 8), ["x", "y"], 9)], axis=0)
add("reduce", "max", [I((8, 8), ["x", "y"], 9)], axis=0)
add("reduce", "prod", [I((4, 8), ["x", "y"], 4)], axis=0)
add("reduce", "prod", [F((4, 8), ["x", "y"])], axis=0)
add("reduce", "prod", [F((4, 8), ["x", "y"])], axis=1)
add("reduce", "mean", [BF((8, 8), ["x", "y"])], axis=1)
add("reduce", "max", [F((16,), ["x"])], axis=0, mesh="m8")
add("reduce", "sum", [F((16,), ["x"])], axis=0, mesh="m8")
add("reduce", "argmax", [F((16,), ["x"])], axis=0, mesh="m8")
for axs, o in [
    ([0], ["y"]),
    ([0], []),
    ([1], ["x"]),
    ([1], U(["x"], "y")),
    ([0, 1], []),
    ([0, 1], U([], "x", "y")),
    ([0], U(["y"], "x")),
    ([0, 1], U([], "x")),
]:
    add("reduce", "sum_out_sharding", [F((8, 8), ["x", "y"])], axes=axs, out_sharding=o)
add("reduce", "sum_out_sharding", [F((8, 8, 8), ["x", "y"])], axes=[1], out_sharding=["x", "y"])
add("reduce", "sum_out_sharding", [F((8, 8), ["x", "y"])], axes=[0])
for i_, sp, o in [
    ((8, 8), ["x"], (4, 2, 8)),
    ((8, 8), ["x"], (8, 2, 4)),
    ((8, 8), ["y"], (8, 8, 1)),
    ((8, 8), [XY], (2, 4, 8)),
    ((8, 8), [XY], (4, 2, 8)),
    ((8, 8), [YX], (2, 4, 8)),
    ((8, 8), [YX], (4, 2, 8)),
    ((8, 8), [XY], (64,)),
    ((8, 8), [XY], (16, 4)),
    ((8, 8), ["y"], (16, 4)),
    ((8, 8), ["x"], (4, 16)),
    ((8, 8), ["x", "y"], (16, 4)),
    ((8, 8), ["x", "y"], (2, 32)),
    ((8, 8), [N, "y"], (4, 2, 8)),
    ((8, 8), [N, "y"], (8, 2, 2, 2)),
    ((8, 8), ["x", "y"], (2, 4, 4, 2)),
    ((8, 8), ["x", "y"], (2, 4, 2, 4)),
    ((64,), ["y"], (8, 8)),
    ((64,), ["y"], (2, 32)),
    ((64,), [YX], (8, 8)),
    ((64,), [YX], (4, 2, 8)),
    ((64,), [YX], (2, 4, 8)),
    ((64,), [XY], (4, 16)),
    ((64,), [XY], (2, 32)),
    ((4, 8, 4), ["y", "x"], (32, 4)),
    ((4, 8, 4), ["x", "y"], (4, 32)),
    ((4, 8, 4), ["x", N, "y"], (4, 32)),
    ((4, 8, 4), ["x", "y", N], (128,)),
    ((4, 8, 4), ["y"], (128,)),
    ((4, 8, 4), [N, "y"], (128,)),
    ((4, 8, 4), ["x", "y"], (2, 2, 8, 4)),
    ((1, 8), [N, "x"], (8,)),
    ((1, 8), [N, "x"], (8, 1)),
    ((8,), ["x"], (1, 8, 1)),
    ((8, 1, 8), ["x", N, "y"], (64,)),
    ((2, 4, 8), ["x", "y"], (8, 8)),
    ((2, 4, 8), ["x", "y"], (64,)),
    ((2, 4, 8), [N, "y"], (8, 8)),
    ((2, 4, 8), ["x"], (8, 8)),
    ((2, 4, 8), ["x", N, "y"], (8, 8)),
    ((4, 2, 8), ["y", "x"], (8, 8)),
    ((4, 2, 8), ["y"], (8, 8)),
    ((8, 6), ["x"], (48,)),
    ((6, 8), [N, "y"], (48,)),
    ((48,), ["x"], (6, 8)),
    ((48,), ["y"], (6, 8)),
    ((8, 0), ["x"], (0,)),
]:
    add("reshape", "reshape", [F(i_, sp)], shape=list(o))
for i_, sp, o, os in [
    ((8, 8), ["x", "y"], (64,), []),
    ((8, 8), [XY], (64,), [XY]),
    ((64,), ["x"], (8, 8), ["x", "y"]),
    ((64,), ["y"], (2, 32), ["x", "y"]),
    ((64,), ["y"], (2, 32), [N, "y"]),
    ((8, 8), [N, "y"], (8, 2, 4), ["x"]),
    ((8, 8), [N, "y"], (8, 2, 4), [N, N, "y"]),
    ((4, 8, 4), ["x", N, "y"], (32, 4), ["x", "y"]),
    ((4, 8, 4), ["x", "y"], (32, 4), [XY]),
    ((4, 8, 4), ["x", "y"], (32, 4), ["x"]),
    ((8, 8), ["x"], (2, 4, 8), ["x"]),
    ((8, 8), ["y"], (4, 16), ["y"]),
    ((8, 8), ["y"], (4, 16), ["x", "y"]),
]:
    add("reshape", "reshape", [F(i_, sp)], shape=list(o), out_sharding=os)
for i_, sp, o in [
    ((8, 8), [["a", "b"]], (4, 2, 8)),
    ((8, 8), [["a", "b"], "c"], (2, 4, 8)),
    ((8, 8), [["a", "b"], "c"], (2, 2, 2, 8)),
    ((8, 8), [["a", "b", "c"]], (4, 2, 8)),
    ((64,), [["a", "b", "c"]], (2, 2, 16)),
    ((4, 4, 4), ["a", "b", "c"], (16, 4)),
    ((4, 4, 4), ["a", "b", "c"], (64,)),
    ((2, 2, 2), ["a", "b", "c"], (8,)),
    ((2, 2, 2), ["a", "b", "c"], (4, 2)),
    ((2, 2, 2), ["c", "b", "a"], (8,)),
    ((16, 4), [["a", "b"], "c"], (4, 4, 4)),
    ((16, 4), [["b", "a"], "c"], (2, 2, 4, 4)),
]:
    add("reshape", "reshape", [F(i_, sp)], shape=list(o), mesh="m2x2x2")
for sp in [["x", "y"], ["x"], ["y"], [XY], [N, "y"], [N, XY]]:
    add("reshape", "flatten", [F((8, 8), sp)])
add("reshape", "flatten", [F((4, 8, 2), ["a", "b", "c"])], mesh="m2x2x2")
add("reshape", "flatten", [F((2, 2, 2), ["a", "b", "c"])], mesh="m2x2x2")
add("reshape", "flatten", [F((8,), ["x"])], mesh="m8")
for sp, h in [
    ([D, N, M], 4),
    ([D, N, M], 2),
    ([D, M], 4),
    ([D, N, M], 1),
    ([D], 8),
    ([N, N, [D, M]], 8),
    ([N, N, [D, M]], 4),
    ([N, N, D], 2),
]:
    add("reshape", "split_heads", [F((4, 8, 16), sp)], heads=h, mesh="m4x2")
for sp in [[D, M], [D], [D, N, M], [D, N, N, M], [N, [D, M]], [N, M, D], [N, D]]:
    add("reshape", "merge_heads", [F((4, 8, 4, 2), sp)], mesh="m4x2")
for sh, sp, p in [
    ((8, 4, 2), ["x", "y"], [1, 0, 2]),
    ((8, 4, 2), [XY], [2, 1, 0]),
    ((8, 4), [N, "y"], [1, 0]),
    ((8, 8), [YX], [1, 0]),
    ((8,), ["x"], [0]),
    ((2, 4, 8, 4), ["x", "y"], [0, 2, 1, 3]),
]:
    add("transpose", "transpose", [F(sh, sp)], perm=p)
add("transpose", "transpose", [F((4, 8, 2), ["a", ["b", "c"]])], perm=[1, 2, 0], mesh="m2x2x2")
add("transpose", "transpose", [B((8, 4), ["x", "y"])], perm=[1, 0])
add("transpose", "transpose", [I((8, 4), ["x", "y"], 9)], perm=[1, 0])
add("squeeze", "squeeze", [F((1, 8, 1), [N, "x"])], axis=[0, 2])
add("squeeze", "squeeze", [F((8, 1), [XY])], axis=[-1])
add("squeeze", "squeeze", [F((1, 8), [])], axis=[0])
add("squeeze", "expand_dims", [F((8,), [XY])], axis=[0, 1])
add("squeeze", "expand_dims", [F((8, 4), ["x", "y"])], axis=[-1])
add("squeeze", "expand_dims", [F((8, 4), [N, "y"])], axis=[0, -1])
add("squeeze", "expand_dims", [F((), [])], axis=[0])
for sh, sp, o, os in [
    ((8,), ["y"], [4, 8], None),
    ((8,), ["x"], [4, 8], ["y", "x"]),
    ((8, 1), ["x"], [8, 8], None),
    ((8, 1), ["x"], [8, 8], ["x", "y"]),
    ((1, 8), [N, "y"], [8, 8], None),
    ((1, 8), [], [8, 8], ["x"]),
    ((8, 8), ["x"], [2, 8, 8], None),
    ((8, 8), ["x"], [8, 8, 8], ["y", "x"]),
    ((), [], [8], None),
    ((), [], [8], [XY]),
    ((1,), [], [8], ["x"]),
    ((8, 8), ["x", "y"], [8, 8], None),
    ((8, 8), ["x"], [8, 8], []),
    ((8, 8), ["x"], [8, 8], ["y"]),
]:
    add("broadcast_to", "broadcast_to", [F(sh, sp)], shape=o, **{} if os is None else {"out_sharding": os})
for sh, sp, o, d, os in [
    ((8,), ["x"], [8, 4], [0], None),
    ((8,), ["x"], [4, 8], [1], None),
    ((8,), ["x"], [8, 4], [0], ["x", "y"]),
    ((8, 4), ["x", "y"], [8, 2, 4], [0, 2], None),
    ((8, 4), ["x", "y"], [2, 8, 4], [1, 2], None),
    ((8, 4), ["x"], [2, 8, 4], [1, 2], [N, "x", "y"]),
    ((), [], [8, 8], [], ["x"]),
    ((8, 1), ["x"], [8, 4], [0, 1], None),
    ((8,), [], [8, 8], [0], ["x", "y"]),
]:
    add("broadcast_to", "broadcast_in_dim", [F(sh, sp)], shape=o, dims=d, **{} if os is None else {"out_sharding": os})
for sp, st, li, sr in [
    (["x"], [0, 2], [8, 6], None),
    (["x"], [2, 0], [6, 8], None),
    (["x"], [0, 0], [8, 8], None),
    (["x"], [0, 0], [8, 8], [2, 1]),
    (["y"], [0, 0], [4, 8], None),
    (["y"], [0, 0], [8, 4], [1, 2]),
    (["x", "y"], [0, 0], [4, 4], None),
    (["x", "y"], [0, 0], [8, 4], None),
    (["x", "y"], [1, 1], [5, 5], None),
    ([XY], [0, 0], [8, 4], None),
    ([XY], [0, 1], [8, 5], [1, 2]),
    ([XY], [0, 0], [4, 8], None),
    ([N, "y"], [0, 1], [8, 5], None),
    ([N, "y"], [2, 0], [8, 8], [3, 1]),
    ([N, "y"], [0, 0], [8, 8], [1, 2]),
    ([], [1, 1], [3, 3], None),
    (["x"], [0, 0], [1, 8], None),
    (["x"], [4, 0], [8, 8], None),
]:
    add("slice", "slice", [F((8, 8), sp)], start=st, limit=li, **{} if sr is None else {"strides": sr})
for sp, ix, ax in [
    (["x", "y"], 1, 0),
    (["x", "y"], 1, 1),
    ([N, "y"], 0, 0),
    ([N, "y"], 3, 1),
    (["x"], 2, 1),
    ([XY], 0, 0),
    ([XY], 0, 1),
    (["x", "y"], -1, 0),
]:
    add("slice", "index", [F((8, 8), sp)], index=ix, axis=ax)
for sp, ix in [(["x"], 0), ([N, "y"], 1), ([], 3), ([XY], 7), ([N, XY], 2), (["x", "y"], -1)]:
    add("slice", "getitem_int", [F((8, 8), sp)], index=ix)
for sp, ix, o in [
    (["x", "y"], 2, ["y"]),
    ([N, "y"], 2, ["y"]),
    (["x"], 0, ["y"]),
    (["x"], 1, []),
    ([N, "y"], 1, []),
    ([XY], 3, []),
    (["x", "y"], 0, ["x"]),
]:
    add("slice", "at_get", [F((8, 8), sp)], index=ix, out_sharding=o)
for sp, a, b in [
    (["x"], 0, 4),
    (["x"], 0, 8),
    (["x"], 4, 8),
    (["x"], 2, 5),
    ([N, "y"], 1, 3),
    ([XY], 0, 4),
    ([XY], 0, 8),
    (["y"], 0, 4),
    (["x", "y"], 2, 6),
]:
    add("slice", "getitem_slice", [F((8, 8), sp)], start=a, stop=b)
add("slice", "getitem_slice", [F((8, 4, 8), [D, M])], start=0, stop=4, mesh="m4x2")
add("slice", "getitem_int", [F((8, 4, 8), [D, M])], index=1, mesh="m4x2")
add("slice", "index", [F((8, 4, 8), [D, N, M])], index=1, axis=1, mesh="m4x2")
C = lambda op, ax, *ins, **k: add("concat", op, list(ins), axis=ax, **k)
for l, r in [
    (["x", "y"], ["x", "y"]),
    (["x"], []),
    ([N, "y"], []),
    (["x"], [N, "y"]),
    ([XY], ["x"]),
    ([], []),
    (["y"], ["x"]),
    ([N, "x"], ["x"]),
]:
    for ax in [0, 1]:
        C("concatenate", ax, F((8, 8), l), F((8, 8), r))
        C("stack", ax, F((8, 8), l), F((8, 8), r))
C("stack", 2, F((8, 8), ["x", "y"]), F((8, 8), ["x", "y"]))
C("stack", -1, F((8, 8), ["x", "y"]), F((8, 8), ["x"]))
C("stack", 0, F((8,), ["x"]), F((8,), ["x"]), F((8,), ["x"]), mesh="m8")
C("concatenate", 0, F((8,), ["x"]), F((8,), ["x"]), mesh="m8")
C("concatenate", 0, F((8,), ["x"]), F((16,), ["x"]), F((8,), []), mesh="m8")
C("concatenate", -1, F((4, 4, 8), [D, N, M]), F((4, 4, 4), [D, N, M]), mesh="m4x2")
C("concatenate", 1, F((4, 4, 8), [D, N, M]), F((4, 2, 8), [D, N, M]), mesh="m4x2")
C("concatenate", 0, I((8, 8), ["x"], 5), I((8, 8), ["x"], 6))
C("concatenate", 0, BF((8, 8), [N, "y"]), BF((8, 8), [N, "y"]))
C("concatenate", 1, F((8, 2), ["x"]), F((8, 3), ["x"]), F((8, 3), ["x"]))
for sh, sp, n, ax in [
    ((8, 8), ["x"], 2, 0),
    ((8, 8), ["x"], 4, 1),
    ((8, 8), [N, "y"], 2, 1),
    ((8, 8), ["x", "y"], 4, 0),
    ((8, 8), ["x", "y"], 2, 0),
    ((16, 8), ["y"], 2, 0),
    ((8, 16), [N, XY], 2, 1),
    ((8, 12), ["x"], 3, 1),
    ((8, 8), [], 2, 0),
]:
    C("split", ax, F(sh, sp), sections=n)
for sp, w in [
    (["x"], [[0, 0], [2, 2]]),
    (["x"], [[0, 8], [0, 0]]),
    (["x"], [[2, 0], [0, 0]]),
    (["x", "y"], [[0, 0], [0, 8]]),
    (["x", "y"], [[1, 1], [0, 0]]),
    ([N, "y"], [[1, 2], [0, 0]]),
    ([XY], [[0, 0], [1, 0]]),
    ([XY], [[4, 4], [0, 0]]),
    (["x", "y"], [[0, 0], [0, 0]]),
    ([], [[1, 1], [1, 1]]),
    (["y"], [[0, 4], [1, 1]]),
]:
    add("pad", "pad", [F((8, 8), sp)], width=w)
for sp in [["x", "y"], ["x"], [N, "y"], [XY], []]:
    for ax in [0, 1]:
        add("pad", "flip", [F((8, 8), sp)], axis=ax)
        add("pad", "roll", [F((8, 8), sp)], shift=2, axis=ax)
        add("pad", "roll", [F((8, 8), sp)], shift=-3, axis=ax)
    add("pad", "tril", [F((8, 8), sp)])
    add("pad", "tile", [F((8, 8), sp)], reps=[2, 1])
    add("pad", "tile", [F((8, 8), sp)], reps=[2, 2])
    add("pad", "tile", [F((8, 8), sp)], reps=[1, 1])
    for ax in [0, 1]:
        add("pad", "repeat", [F((8, 8), sp)], repeats=2, axis=ax)
add("pad", "repeat", [F((8, 8), ["x", "y"])], repeats=3, axis=0, out_sharding=["x", "y"])
add("pad", "repeat", [F((8, 8), ["x"])], repeats=2, axis=1, out_sharding=["x", "y"])
add("pad", "repeat", [F((8, 8), ["x"])], repeats=2, axis=1, out_sharding=[])
add("pad", "tril", [F((4, 8, 8), ["x", "y"])])
add("pad", "tril", [F((8, 4), ["x"])])
add("pad", "roll", [F((16,), ["x"])], shift=2, axis=0, mesh="m8")
add("pad", "roll", [F((16,), ["x"])], shift=1, axis=0, mesh="m8")
add("pad", "tile", [F((8,), ["x"])], reps=[2], mesh="m8")
add("pad", "tile", [F((8,), ["x"])], reps=[2, 1], mesh="m8")
add("pad", "flip", [F((8,), ["x"])], axis=0, mesh="m8")
add("pad", "tile", [F((8, 8), ["x"])], reps=[2, 1, 1])
for t, ix, ax in [
    (["x"], ["y"], 0),
    (["x", "y"], [], 0),
    ([XY], [], 0),
    ([], ["x"], 1),
    ([], [], 1),
    (["x"], ["x"], 0),
    (["x"], ["x"], 1),
    ([N, "y"], ["x"], 0),
    ([N, "y"], ["y"], 0),
    ([N, "y"], [], 1),
    (["x", "y"], ["x"], 1),
    (["x"], [], 1),
    ([], [XY], 0),
    ([N, XY], [], 0),
]:
    add("gather", "take", [F((16, 8), t), I((8,), ix, 8)], axis=ax)
add("gather", "take", [F((16, 8), []), I((4, 2), ["x", "y"], 16)], axis=0)
add("gather", "take", [F((16, 8), [N, "y"]), I((4, 2), ["x"], 16)], axis=0)
add("gather", "take", [F((4, 16, 8), ["x"]), I((4,), [], 16)], axis=1)
add("gather", "take", [F((4, 16, 8), ["x", N, "y"]), I((4, 2), [], 16)], axis=1)
add("gather", "take", [F((16,), ["x"]), I((8,), ["x"], 16)], axis=0, mesh="m8")
add("gather", "take", [I((16, 8), ["x"], 9), I((4,), [], 16)], axis=0)
for t, ix, o in [
    ([M], [D], None),
    ([M], [D], [D]),
    ([M], [D], [D, N, M]),
    ([M], [D], [D, M]),
    ([M], [D], [D, N, N]),
    ([N, M], [D], None),
    ([N, M], [D], [D, N, M]),
    ([N, M], [D], [D]),
    ([M, D], [], None),
    ([M, D], [D], None),
    ([M, D], [D], [D]),
    ([D], [D], None),
    ([D], [D], [D]),
    ([[D, M]], [], None),
    ([[D, M]], [], []),
    ([[D, M]], [D], [D]),
    ([], [D, M], None),
    ([], [[D, M]], None),
    ([], [N, M], None),
    ([N, D], [D], None),
    ([N, D], [D], [D]),
    ([M], [], U([], "model")),
]:
    add(
        "gather",
        "embedding",
        [F((16, 8), t), I((8, 4), ix, 16)],
        mesh="m4x2",
        **{} if o is None else {"out_sharding": o}
    )
    if o is None or not isinstance(o, dict):
        add(
            "gather",
            "one_hot_matmul",
            [F((16, 8), t), I((8, 4), ix, 16)],
            mesh="m4x2",
            **{} if o is None else {"out_sharding": o}
        )
add("gather", "one_hot", [I((8, 4), [D, M], 10)], mesh="m4x2", classes=16)
add("gather", "one_hot", [I((8,), [[D, M]], 10)], mesh="m4x2", classes=5)
add("gather", "one_hot", [I((8, 4), [], 10)], mesh="m4x2", classes=10)
for t, ix, ax in [
    (["x"], ["x"], 0),
    (["x"], [], 1),
    ([], ["x"], 1),
    ([N, "y"], [], 0),
    ([N, "y"], [N, "y"], 0),
    ([N, "y"], [], 1),
    (["x", "y"], ["x", "y"], 0),
    (["x", "y"], ["x", "y"], 1),
    (["x", "y"], [], 1),
    ([XY], [XY], 1),
    (["x"], ["y"], 1),
]:
    add("gather", "take_along_axis", [F((8, 8), t), I((8, 8), ix, 8)], axis=ax)
for x, ix, u in [
    ([N, "y"], [], []),
    ([], [], [N, "y"]),
    (["x"], [], []),
    (["x"], ["x"], ["x"]),
    ([], ["x"], ["x"]),
    ([], ["x"], []),
    (["x", "y"], [], [N, "y"]),
    (["x"], [], ["x"]),
    ([N, "y"], ["x"], ["x", "y"]),
    ([XY], [], []),
    ([N, XY], [], [N, XY]),
]:
    add("gather", "scatter_add", [F((16, 8), x), I((4,), ix, 16), F((4, 8), u)])
for x, ix, u in [
    ([], 2, []),
    ([N, "y"], 2, ["y"]),
    ([N, "y"], 2, []),
    ([], 2, ["y"]),
    (["x"], 2, []),
    (["x", "y"], 5, ["y"]),
    ([XY], 0, []),
]:
    add("gather", "scatter_set_row", [F((8, 8), x), F((8,), u)], index=ix)
for sp in [["x", "y"], ["x"], [N, "y"], [XY], [N, XY]]:
    for ax in [0, 1, -1]:
        for op in ["cumsum", "cumprod", "sort", "argsort", "softmax", "log_softmax"]:
            if ax == -1 and op in ("cumprod", "argsort"):
                continue
            add("scan", op, [F((8, 8), sp)], axis=ax)
    for k in [1, 2, 3]:
        add("scan", "top_k", [F((8, 8), sp)], k=k)
add("scan", "cumsum", [I((8, 8), ["x", "y"], 9)], axis=0)
add("scan", "sort", [I((8, 8), ["x", "y"], 30)], axis=0)
add("scan", "argsort", [I((8, 8), ["x"], 5)], axis=0)
add("scan", "sort", [F((16,), ["x"])], axis=0, mesh="m8")
add("scan", "argsort", [F((16,), ["x"])], axis=0, mesh="m8")
add("scan", "cumsum", [F((16,), ["x"])], axis=0, mesh="m8")
add("scan", "top_k", [F((16,), ["x"])], k=2, mesh="m8")
add("scan", "cumsum", [F((4, 8, 2), ["a", ["b", "c"]])], axis=1, mesh="m2x2x2")
add("scan", "sort", [F((4, 8, 2), ["a", ["b", "c"]])], axis=1, mesh="m2x2x2")
add("scan", "top_k", [F((4, 6, 8), [D, N, M])], k=2, mesh="m4x2")
add("scan", "softmax", [F((4, 6, 8), [D, N, M])], axis=-1, mesh="m4x2")
add("scan", "softmax", [F((4, 8, 8), [D, M])], axis=1, mesh="m4x2")
add("scan", "softmax", [F((16,), ["x"])], axis=0, mesh="m8")
for sp, st, sz in [
    (["x"], [0, 0], [8, 8]),
    (["x"], [0, 0], [4, 8]),
    (["x", "y"], [0, 0], [8, 4]),
    ([N, "y"], [3, 0], [2, 8]),
    ([XY], [0, 1], [8, 3]),
    (["x"], [6, 6], [4, 4]),
    ([], [1, 2], [2, 2]),
]:
    add("dynamic", "dynamic_slice", [F((8, 8), sp)], start=st, sizes=sz)
    add("dynamic", "dynamic_slice_traced", [F((8, 8), sp), I((2,), [], 8, st)], sizes=sz)
for sp, ix, ax in [(["x"], 1, 0), (["x"], 1, 1), (["x", "y"], 0, 1), ([N, "y"], 7, 0), ([XY], 3, 0)]:
    add("dynamic", "dynamic_index", [F((8, 8), sp)], index=ix, axis=ax)
for x, u, sh, st in [
    (["x"], ["x"], (8, 2), [0, 1]),
    (["x"], ["x"], (4, 8), [0, 0]),
    ([N, "y"], [N, "y"], (2, 8), [3, 0]),
    ([N, "y"], [], (2, 8), [3, 0]),
    ([], [], (2, 2), [1, 1]),
    (["x", "y"], ["x"], (8, 2), [0, 2]),
    (["x", "y"], ["x", "y"], (8, 8), [0, 0]),
    ([], ["x"], (8, 2), [0, 0]),
    ([XY], [XY], (8, 3), [0, 7]),
]:
    add("dynamic", "dynamic_update_slice", [F((8, 8), x), F(sh, u)], start=st)
for sp in [[D], [D, N, M], [N, N, M], [D, M], [], [N, N, [D, M]]]:
    for g in [[], [M]]:
        add("compose", "layer_norm", [F((4, 4, 16), sp), F((16,), g), F((16,), g)], mesh="m4x2")
        add("compose", "rms_norm", [F((4, 4, 16), sp), F((16,), g)], mesh="m4x2")
    add("compose", "layer_norm", [F((4, 4, 16), sp)], mesh="m4x2")
    add("compose", "cross_entropy", [F((8, 4, 16), sp), I((8, 4), [D] if sp and sp[0] == D else [], 16)], mesh="m4x2")
    add("compose", "cross_entropy", [F((8, 4, 16), sp), I((8, 4), [], 16)], mesh="m4x2")
    add("compose", "mse", [F((8, 4, 16), sp), F((8, 4, 16), [D])], mesh="m4x2")
    add("compose", "mse", [F((8, 4, 16), sp), F((8, 4, 16), sp)], mesh="m4x2")
for q, k, v in [
    ([D, M],) * 3,
    ([D],) * 3,
    ([D, N, M],) * 3,
    ([D, M], [D], [D]),
    ([D], [D, M], [D, M]),
    ([D, N, M], [D], [D]),
    ([D, N, N, M],) * 3,
    ([N, [D, M]],) * 3,
    ([],) * 3,
    ([D, N, M], [D, N, M], [D]),
]:
    add("compose", "attention", [F((4, 8, 4, 2), q), F((4, 8, 4, 2), k), F((4, 8, 4, 2), v)], mesh="m4x2")
for x, k, o in [
    ([D], [N, N, N, M], None),
    ([D], [N, N, M], None),
    ([D, N, N, M], [N, N, M], None),
    ([D, N, N, M], [], None),
    ([[D, M]], [], None),
    ([D, M], [], None),
    ([D], [], [D]),
    ([D], [N, N, N, M], [D, N, N, M]),
    ([D], [N, N, N, D], None),
    ([], [N, N, N, [D, M]], None),
]:
    add(
        "conv",
        "conv2d",
        [F((8, 4, 4, 4), x), F((3, 3, 4, 8), k)],
        mesh="m4x2",
        **{} if o is None else {"out_sharding": o}
    )
add("conv", "conv2d", [F((8, 4, 4, 4), [D]), F((1, 1, 4, 8), [])], mesh="m4x2")
add("conv", "conv2d", [F((8, 5, 6, 4), [D]), F((2, 3, 4, 8), [])], mesh="m4x2")
for op, a in [
    ("zeros", dict(shape=[8, 8])),
    ("full", dict(shape=[8, 8], value=-2.0)),
    ("random_normal", dict(shape=[8, 8], seed=3)),
    ("iota", dict(shape=[8, 8], axis=1)),
    ("iota", dict(shape=[8, 8], axis=0)),
]:
    for o in [["x", "y"], ["y"], [XY], [N, YX], []]:
        add("create", op, [], out_sharding=o, **a)
    add("create", op, [], **a)
for o in [["x"], [YX], []]:
    add("create", "arange", [], n=16, out_sharding=o)
add("create", "arange", [], n=16)
add("create", "zeros", [], shape=[], out_sharding=[])
add("create", "full", [], shape=[4, 8, 2], value=1.5, out_sharding=["a", ["c", "b"]], mesh="m2x2x2")
for sp in [["x", "y"], [XY], []]:
    add("create", "zeros_like", [F((8, 8), sp)])
    add("create", "ones_like_mul", [F((8, 8), sp)])
    add("create", "zeros_like", [I((8, 8), sp, 5)])
RP = [[], ["x"], ["y"], [N, "x"], [N, "y"], ["x", "y"], ["y", "x"], [XY], [YX], [N, XY], [N, YX]]
for i, a in enumerate(RP):
    for j, b in enumerate(RP):
        if (i * 5 + j) % 2 == 0:
            add("reshard", "reshard", [F((8, 8), a)], out_sharding=b)
R3 = [
    ["a", "b", "c"],
    ["c", "b", "a"],
    [["a", "b"], "c"],
    ["a", ["b", "c"]],
    [["a", "b", "c"]],
    [["c", "b", "a"]],
    [N, ["a", "c"], "b"],
    ["b"],
    [],
]
for i, a in enumerate(R3):
    for j, b in enumerate(R3):
        if (i + j) % 2:
            add("reshard", "reshard", [F((8, 8, 8), a)], out_sharding=b, mesh="m2x2x2")
for a, b in [(["x"], ["x"]), (["x"], ["y"]), ([], ["x"]), ([XY], [XY]), (["x", "y"], []), ([N, "y"], ["y"])]:
    add("constraint", "constraint", [F((8, 8), a)], out_sharding=b)
