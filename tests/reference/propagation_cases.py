"""The cases of set C: each is (group, op, attrs, inputs, mesh).

Inputs are written F(shape, spec) for float32, Q(shape, spec) for positive float32,
I(shape, spec, high) for int32 in [0, high), B(shape, spec) for bool. Specs are in the JSON
notation of README.md.
"""

MESHES = {
    "m2x4": [["x", 2], ["y", 4]],
    "m8": [["x", 8]],
    "m4x2": [["data", 4], ["model", 2]],
    "m2x2x2": [["a", 2], ["b", 2], ["c", 2]],
}

N = None
XY, YX = ["x", "y"], ["y", "x"]


def F(shape, spec=(), dtype="float32"):
    return {"shape": list(shape), "dtype": dtype, "spec": list(spec)}


def Q(shape, spec=()):
    """float32, all entries positive (a divisor)."""
    return {**F(shape, spec), "positive": True}


def I(shape, spec=(), high=8, init=None):
    r = {"shape": list(shape), "dtype": "int32", "spec": list(spec), "high": high}
    if init is not None:
        r["values"] = init
    return r


def B(shape, spec=()):
    return {"shape": list(shape), "dtype": "bool", "spec": list(spec)}


PUBLIC = []


def pub(group, op, inputs, mesh="m2x4", **attrs):
    PUBLIC.append((group, op, attrs, inputs, mesh))


def U(parts, *axes):
    """A spec with unreduced axes."""
    return {"parts": list(parts), "unreduced": list(axes)}


# ------------------------------------------------------------------- elementwise, unary
for _op, _spec in [("exp", ["x", "y"]), ("tanh", ["x"]), ("neg", [N, "y"]), ("sigmoid", ["y", "x"]),
                   ("relu", []), ("gelu_tanh", [XY]), ("silu", [N, XY]), ("two_sin_plus_one", ["x", "y"]),
                   ("square", ["y"]), ("isfinite", ["x", "y"])]:
    pub("unary", _op, [F((8, 8), _spec)])
pub("unary", "cast", [F((8, 8), ["x", "y"])], dtype="bfloat16")
pub("unary", "cast", [I((8, 8), ["x"], 16)], dtype="float32")
pub("unary", "add_scalar", [F((8, 8), ["x", N])], value=2.5)
pub("unary", "mul_scalar", [F((16,), ["x"])], mesh="m8", value=-0.5)
pub("unary", "clip", [F((8, 8), [N, "x"])], min=-0.25, max=0.25)

# ------------------------------------------------------------------ elementwise, binary
S = (8, 8)
pub("binary", "add", [F(S, ["x", "y"]), F(S, ["x", "y"])])
pub("binary", "add", [F(S, ["x", "y"]), F(S, [])])
pub("binary", "add", [F(S, ["x"]), F(S, [N, "y"])])
pub("binary", "add", [F(S, ["x"]), F(S, [N, "x"])])
pub("binary", "add", [F(S, ["x"]), F(S, ["y"])])
pub("binary", "mul", [F(S, ["x", "y"]), F(S, ["y", "x"])])
pub("binary", "sub", [F(S, ["x", "y"]), F(S, ["x"])])
pub("binary", "div", [F(S, []), Q(S, ["x", "y"])])
pub("binary", "maximum", [F(S, [N, "y"]), F(S, [N, "y"])])
pub("binary", "greater", [F(S, ["x", N]), F(S, [N, "y"])])
pub("broadcast", "add", [F(S, ["x", "y"]), F((8,), ["y"])])
pub("broadcast", "add", [F(S, ["x", "y"]), F((8,), [])])
pub("broadcast", "add", [F(S, ["x", N]), F((8,), ["y"])])
pub("broadcast", "add", [F(S, ["x", N]), F((8,), ["x"])])
pub("broadcast", "mul", [F((8, 1), ["x"]), F((1, 8), [N, "y"])])
pub("broadcast", "mul", [F((8, 1), ["x"]), F((8, 8), [])])
pub("broadcast", "add", [F((4, 8, 8), ["x", N, "y"]), F((8, 1), [])])
pub("broadcast", "add", [F((4, 8, 8), ["x", N, N]), F((1, 8), [N, "y"])])
pub("broadcast", "add", [F((8, 4), ["x", "y"]), F((), [])])

pub("where", "where", [B(S, ["x"]), F(S, ["x", "y"]), F(S, [])])
pub("where", "where", [B(S, ["x", "y"]), F(S, ["x", "y"]), F(S, ["x", "y"])])
pub("where", "where_scalar", [B(S, []), F(S, ["x", "y"])], value=-1e9)
pub("where", "where_scalar", [B((8,), ["y"]), F(S, ["x", N])], value=0.0)
pub("where", "where", [B(S, ["x"]), F(S, ["y"]), F(S, [])])

# --------------------------------------------------------------- matmul, all operand specs
# 8x8 @ 8x8 on the 2x4 mesh, most pairs of seven placements
SP = [[], ["x"], ["y"], [N, "x"], [N, "y"], ["x", "y"], ["y", "x"]]


def left_out(i, j):
    return (i >= 5 and j >= 5) or (i * 7 + j) % 3 == 2


for _i, _l in enumerate(SP):
    for _j, _r in enumerate(SP):
        if not left_out(_i, _j):
            pub("matmul", "matmul", [F(S, _l), F(S, _r)])
# the same with an explicit output sharding
for _l, _r, _o in [([N, "x"], ["x"], []), ([N, "x"], ["x"], ["x"]), ([N, "x"], ["x"], [N, "x"]),
                   ([N, "x"], ["x"], ["y"]), ([N, "x"], ["x"], U([N, N], "x")),
                   (["y", "x"], ["x"], ["y"]), (["y", "x"], ["x"], ["y", "x"]),
                   (["x"], [N, "y"], ["x"]), (["x"], [N, "y"], []), ([], [], ["x", "y"]),
                   ([N, "x"], [], ["x"]), (["x"], ["x"], ["x"])]:
    pub("matmul_out", "matmul", [F(S, _l), F(S, _r)], out_sharding=_o)
# 1-D operands, batches, tuples, uneven roles
pub("matmul", "matmul", [F((8,), ["x"]), F((8, 4), ["x"])])
pub("matmul_out", "matmul", [F((32,), ["x"]), F((32, 4), ["x"])], mesh="m8", out_sharding=[])
pub("matmul", "matmul", [F((8,), []), F((8, 4), [N, "y"])])
pub("matmul", "matmul", [F((4, 8, 8), ["x", N, N]), F((8, 8), [N, "y"])])
pub("matmul", "matmul", [F((4, 8, 8), ["x", N, N]), F((4, 8, 8), ["x", N, "y"])])
pub("matmul", "matmul", [F((4, 8, 8), ["x", N, N]), F((4, 8, 8), ["y", N, N])])
pub("matmul", "matmul", [F((4, 8, 8), ["x", N, N]), F((4, 8, 8), [])])
pub("linear", "linear", [F((8, 8), ["data"]), F((8, 16), [N, "model"]), F((16,), ["model"])], mesh="m4x2")
pub("linear", "linear", [F((8, 8), ["data"]), F((8, 16), [N, "model"]), F((16,), [])], mesh="m4x2")
pub("linear", "linear", [F((8, 8), ["data"]), F((8, 16), ["model"]), F((16,), [])], mesh="m4x2")
pub("linear", "linear", [F((8, 8), ["data"]), F((8, 16), ["data"]), F((16,), [])], mesh="m4x2")
pub("linear", "sigmoid_layer", [F((32,), ["x"]), F((32, 4), ["x"]), F((4,), [])], mesh="m8", out_sharding=[])
pub("linear", "sigmoid_layer", [F((32,), ["x"]), F((32, 4), ["x"]), F((4,), [])], mesh="m8")

# ------------------------------------------------------------------------ einsum, dot_general
pub("einsum", "einsum", [F((8, 4, 8), ["x", N, N]), F((8, 16), [N, "y"])], subscripts="bsd,df->bsf")
pub("einsum", "einsum", [F((8, 4, 16), ["x", N, "y"]), F((16, 8), ["y"])], subscripts="bsf,fd->bsd")
pub("einsum", "einsum", [F((8, 4, 16), ["x", N, "y"]), F((16, 8), ["y"])], subscripts="bsf,fd->bsd",
    out_sharding=["x", N, N])
pub("einsum", "einsum", [F((8, 4, 16), ["x", N, "y"]), F((16, 8), ["y"])], subscripts="bsf,fd->bsd",
    out_sharding=["x", N, "y"])
pub("einsum", "einsum", [F((8, 4, 16), ["x", N, "y"]), F((16, 8), ["y"])], subscripts="bsf,fd->bsd",
    out_sharding=U(["x", N, N], "y"))
pub("einsum", "einsum", [F((2, 4, 8, 4), ["x", "y", N, N]), F((2, 4, 8, 4), ["x", "y", N, N])],
    subscripts="bhqd,bhkd->bhqk")
pub("einsum", "einsum", [F((2, 4, 8, 4), ["x", N, "y", N]), F((2, 4, 8, 4), ["x", N, N, N])],
    subscripts="bhqd,bhkd->bhqk")
pub("einsum", "einsum", [F((8, 8), ["x", "y"])], subscripts="ij->ji")
pub("einsum", "einsum", [F((8,), ["x"]), F((8,), ["y"])], subscripts="i,j->ij")
pub("einsum", "einsum", [F((8,), ["x"]), F((8,), ["x"])], subscripts="i,j->ij")
pub("einsum", "einsum", [F((8,), ["x"]), F((8,), ["x"])], subscripts="i,i->")
pub("einsum", "einsum", [F((8,), ["x"]), F((8,), ["x"])], subscripts="i,i->", out_sharding=[])
pub("dot_general", "dot_general", [F((4, 8, 6), ["x", "y", N]), F((4, 6, 8), ["x", N, N])],
    contract=[[2], [1]], batch=[[0], [0]])
pub("dot_general", "dot_general", [F((4, 6, 8), ["x", N, "y"]), F((4, 6, 8), ["x", N, "y"])],
    contract=[[2], [2]], batch=[[0], [0]])

# ---------------------------------------------------------------------------- reductions
for _ax, _sp in [(0, ["x", "y"]), (1, ["x", "y"]), (0, [N, "y"]), (1, [N, "y"]), (N, ["x", "y"])]:
    pub("reduce", "sum", [F((8, 8), _sp)], axis=_ax)
pub("reduce", "sum", [F((8, 8), ["x", "y"])], axis=0, keepdims=True)
pub("reduce", "mean", [F((8, 8), ["x", "y"])], axis=1)
pub("reduce", "mean", [F((4, 8, 8), ["x", N, "y"])], axis=-1, keepdims=True)
pub("reduce", "max", [F((8, 8), ["x", "y"])], axis=0)
pub("reduce", "max", [F((8, 8), ["x", N])], axis=1)
pub("reduce", "min", [F((8, 8), [XY])], axis=0)
pub("reduce", "prod", [F((4, 8), [N, "y"])], axis=0)
pub("reduce", "var", [F((8, 8), ["x", "y"])], axis=-1)
pub("reduce", "logsumexp", [F((8, 8), ["x", N])], axis=-1)
pub("reduce", "logsumexp", [F((8, 8), ["x", "y"])], axis=-1)
pub("reduce", "any", [B((8, 8), ["x", "y"])], axis=1)
pub("reduce", "argmax", [F((8, 8), ["x", N])], axis=1)
pub("reduce", "argmax", [F((8, 8), ["x", "y"])], axis=1)
pub("reduce", "l2norm", [F((8, 8), ["x", "y"])])
pub("reduce", "sum_out_sharding", [F((8, 8), ["x", "y"])], axes=[0], out_sharding=["y"])
pub("reduce", "sum_out_sharding", [F((8, 8), ["x", "y"])], axes=[0], out_sharding=U(["y"], "x"))

# ------------------------------------------------------------------------------- reshape
for _in, _sp, _out in [((8, 8), ["x"], (2, 4, 8)), ((8, 8), ["y"], (2, 4, 8)), ((8, 8), ["y"], (4, 2, 8)),
                       ((8, 8), [N, "y"], (8, 4, 2)), ((8, 8), [N, "y"], (8, 2, 4)), ((8, 8), ["x", "y"], (64,)),
                       ((8, 8), ["x"], (64,)), ((8, 8), [N, "y"], (64,)), ((64,), ["x"], (8, 8)),
                       ((64,), [XY], (8, 8)), ((64,), [XY], (2, 4, 8)), ((4, 8, 4), ["x", N, "y"], (32, 4)),
                       ((4, 8, 4), ["x", "y", N], (32, 4)), ((4, 8, 4), [N, "y", N], (32, 4)),
                       ((8, 8), ["x", "y"], (8, 1, 8)), ((8, 8), ["x", "y"], (1, 8, 8, 1)),
                       ((8, 8), ["x", "y"], (4, 16)), ((8, 1, 8), ["x", N, "y"], (8, 8))]:
    pub("reshape", "reshape", [F(_in, _sp)], shape=list(_out))
for _in, _sp, _out, _o in [((8, 8), [N, "y"], (64,), ["y"]), ((8, 8), ["x", "y"], (64,), [XY]),
                           ((8, 8), ["x"], (64,), []), ((8, 8), ["y"], (2, 4, 8), [N, "y"]),
                           ((8, 8), ["x", "y"], (64,), ["x"])]:
    pub("reshape", "reshape", [F(_in, _sp)], shape=list(_out), out_sharding=_o)
pub("reshape", "split_heads", [F((4, 8, 16), ["x", N, "y"])], heads=4)
pub("reshape", "split_heads", [F((4, 8, 16), ["x", N, "y"])], heads=2)
pub("reshape", "merge_heads", [F((4, 4, 8, 4), ["x", "y", N, N])])

# ----------------------------------------------------- transpose, squeeze, expand, broadcast
pub("transpose", "transpose", [F((8, 4), ["x", "y"])], perm=[1, 0])
pub("transpose", "transpose", [F((2, 8, 4), ["x", N, "y"])], perm=[2, 0, 1])
pub("squeeze", "squeeze", [F((8, 1, 4), ["x", N, "y"])], axis=[1])
pub("squeeze", "expand_dims", [F((8, 4), ["x", "y"])], axis=[1])
pub("squeeze", "expand_dims", [F((8, 4), ["x", "y"])], axis=[0, 3])
pub("broadcast_to", "broadcast_to", [F((8,), ["y"])], shape=[4, 8])
pub("broadcast_to", "broadcast_to", [F((8, 1), ["x"])], shape=[8, 4])
pub("broadcast_to", "broadcast_to", [F((8,), ["y"])], shape=[4, 8], out_sharding=["x", "y"])
pub("broadcast_to", "broadcast_to", [F((), [])], shape=[4, 8], out_sharding=["x", "y"])

# ------------------------------------------------------------------- slicing and joining
pub("slice", "slice", [F((8, 8), ["x", N])], start=[0, 2], limit=[8, 6])
pub("slice", "slice", [F((8, 8), ["x", N])], start=[0, 2], limit=[4, 6])
pub("slice", "slice", [F((8, 8), ["x", N])], start=[0, 2], limit=[3, 6])
pub("slice", "slice", [F((8, 8), [N, "y"])], start=[1, 0], limit=[8, 8], strides=[2, 1])
pub("slice", "index", [F((4, 8), [N, "y"])], index=1, axis=0)
pub("slice", "index", [F((4, 8), ["x", "y"])], index=1, axis=0)
pub("slice", "getitem_int", [F((4, 8), [N, "y"])], index=2)
pub("slice", "getitem_int", [F((4, 8), ["x", "y"])], index=2)
pub("slice", "at_get", [F((4, 8), ["x", "y"])], index=2, out_sharding=["y"])
pub("slice", "getitem_slice", [F((8, 8), ["x", "y"])], start=0, stop=4)
pub("slice", "getitem_slice", [F((8, 8), [N, "y"])], start=2, stop=6)
pub("concat", "concatenate", [F((4, 8), ["x", "y"]), F((4, 8), ["x", "y"])], axis=0)
pub("concat", "concatenate", [F((4, 8), [N, "y"]), F((2, 8), [N, "y"])], axis=0)
pub("concat", "concatenate", [F((4, 8), [N, "y"]), F((4, 8), [])], axis=0)
pub("concat", "concatenate", [F((4, 8), ["x"]), F((4, 8), ["y"])], axis=1)
pub("concat", "stack", [F((4, 8), ["x", "y"]), F((4, 8), ["x", "y"])], axis=1)
pub("concat", "split", [F((8, 12), ["x", N])], sections=3, axis=1)
pub("concat", "split", [F((8, 16), ["x", "y"])], sections=2, axis=1)
pub("pad", "pad", [F((8, 8), ["x", N])], width=[[0, 0], [1, 3]])
pub("pad", "pad", [F((8, 8), ["x", N])], width=[[4, 4], [0, 0]])
pub("pad", "pad", [F((8, 8), ["x", N])], width=[[1, 0], [0, 0]])
pub("pad", "flip", [F((8, 8), ["x", "y"])], axis=1)
pub("pad", "roll", [F((8, 8), ["x", N])], shift=1, axis=1)
pub("pad", "roll", [F((8, 8), ["x", N])], shift=1, axis=0)
pub("pad", "tile", [F((8, 8), ["x", N])], reps=[1, 2])
pub("pad", "repeat", [F((8, 8), ["x", N])], repeats=2, axis=1)
pub("pad", "tril", [F((8, 8), ["x", "y"])])

# --------------------------------------------------------------------- gather and scatter
pub("gather", "take", [F((16, 8), []), I((4,), [], 16)], axis=0)
pub("gather", "take", [F((16, 8), [N, "y"]), I((4,), [], 16)], axis=0)
pub("gather", "take", [F((16, 8), []), I((4,), ["x"], 16)], axis=0)
pub("gather", "take", [F((16, 8), ["x"]), I((4,), [], 16)], axis=0)
pub("gather", "embedding", [F((16, 8), []), I((4, 6), ["data"], 16)], mesh="m4x2")
pub("gather", "embedding", [F((16, 8), []), I((4, 6), ["data"], 16)], mesh="m4x2", out_sharding=["data", N, N])
pub("gather", "embedding", [F((16, 8), [N, "model"]), I((4, 6), ["data"], 16)], mesh="m4x2",
    out_sharding=["data", N, "model"])
pub("gather", "embedding", [F((16, 8), ["model"]), I((4, 6), ["data"], 16)], mesh="m4x2",
    out_sharding=["data", N, N])
pub("gather", "embedding", [F((16, 8), ["model"]), I((4, 6), ["data"], 16)], mesh="m4x2")
pub("gather", "one_hot", [I((8, 4), ["data"], 10)], mesh="m4x2", classes=10)
pub("gather", "one_hot_matmul", [F((16, 8), ["model"]), I((4, 6), ["data"], 16)], mesh="m4x2",
    out_sharding=["data", N, N])
pub("gather", "take_along_axis", [F((8, 8), ["x"]), I((8, 2), ["x"], 8)], axis=1)
pub("gather", "take_along_axis", [F((8, 8), ["x", "y"]), I((8, 2), ["x"], 8)], axis=1)
pub("gather", "scatter_add", [F((16, 8), []), I((4,), [], 16), F((4, 8), [])])
pub("gather", "scatter_add", [F((16, 8), [N, "y"]), I((4,), [], 16), F((4, 8), [N, "y"])])

# ------------------------------------------------------------- scans, ordering, dynamic slice
pub("scan", "cumsum", [F((8, 8), ["x", N])], axis=1)
pub("scan", "cumsum", [F((8, 8), ["x", N])], axis=0)
pub("scan", "sort", [F((8, 8), ["x", N])], axis=1)
pub("scan", "sort", [F((8, 8), ["x", "y"])], axis=1)
pub("scan", "argsort", [F((8, 8), ["x", N])], axis=1)
pub("scan", "top_k", [F((8, 8), ["x", N])], k=3)
pub("dynamic", "dynamic_slice", [F((8, 8), ["x", N])], start=[0, 2], sizes=[8, 4])
pub("dynamic", "dynamic_slice", [F((8, 8), ["x", N])], start=[1, 2], sizes=[4, 4])
pub("dynamic", "dynamic_slice_traced", [F((8, 8), [N, "y"]), I((2,), [], 8, [3, 0])], sizes=[4, 8])
pub("dynamic", "dynamic_index", [F((8, 8), [N, "y"])], index=5, axis=0)
pub("dynamic", "dynamic_update_slice", [F((8, 8), ["x", N]), F((8, 2), ["x", N])], start=[0, 3])
pub("dynamic", "dynamic_update_slice", [F((8, 8), ["x", N]), F((8, 2), [])], start=[0, 3])

# --------------------------------------------------------------------------- compositions
LN = [F((16,), []), F((16,), [])]
pub("compose", "softmax", [F((8, 8), ["x", N])], axis=-1)
pub("compose", "softmax", [F((8, 8), ["x", "y"])], axis=-1)
pub("compose", "log_softmax", [F((4, 6, 8), ["x", N, "y"])], axis=-1)
pub("compose", "layer_norm", [F((8, 16), ["x", N])] + LN)
pub("compose", "layer_norm", [F((8, 16), ["x", "y"]), F((16,), ["y"]), F((16,), ["y"])])
pub("compose", "layer_norm", [F((8, 16), ["x", "y"])] + LN)
pub("compose", "rms_norm", [F((4, 6, 16), ["x", N, N]), F((16,), [])])
pub("compose", "mlp", [F((8, 4, 8), ["data"]), F((8, 16), [N, "model"]), F((16, 8), ["model"])], mesh="m4x2",
    out_sharding=["data", N, N])
pub("compose", "mlp", [F((8, 4, 8), ["data"]), F((8, 16), [N, "model"]), F((16, 8), ["model"])], mesh="m4x2")
pub("compose", "mlp", [F((8, 4, 8), ["data"]), F((8, 16), []), F((16, 8), [])], mesh="m4x2")
pub("compose", "attention", [F((2, 4, 8, 4), ["x", "y", N, N])] * 3)
pub("compose", "cross_entropy", [F((8, 6, 16), ["data", N, N]), I((8, 6), ["data"], 16)], mesh="m4x2")
pub("compose", "cross_entropy", [F((8, 6, 16), ["data", N, "model"]), I((8, 6), ["data"], 16)], mesh="m4x2")
pub("compose", "mse", [F((8, 16), ["x", "y"]), F((8, 16), ["x", "y"])])

# ------------------------------------------------------------------ convolution (NHWC, HWIO)
pub("conv", "conv2d", [F((8, 4, 4, 4), ["x", N, N, N]), F((3, 3, 4, 8), [])])
pub("conv", "conv2d", [F((8, 4, 4, 4), ["x", N, N, N]), F((3, 3, 4, 8), [N, N, N, "y"])])

# ---------------------------------------------------------------------- creation, resharding
pub("create", "zeros", [], shape=[8, 8], out_sharding=["x", "y"])
pub("create", "full", [], shape=[8, 8], value=0.5, out_sharding=["x"])
pub("create", "arange", [], n=32, out_sharding=[XY])
pub("create", "iota", [], shape=[8, 4], axis=0, out_sharding=["x", "y"])
pub("create", "zeros_like", [F((8, 8), ["x", "y"])])
for _a, _b in [(["x", "y"], []), ([], ["x", "y"]), (["x"], ["y"]), (["x"], [N, "x"]), (["y"], [N, "y"]),
               (["x", "y"], ["y", "x"]), ([XY], ["x"]), (["x"], [XY]), ([XY], ["x", "y"])]:
    pub("reshard", "reshard", [F((8, 8), _a)], out_sharding=_b)
pub("constraint", "constraint", [F((8, 8), ["x", "y"])], out_sharding=["x", "y"])
pub("constraint", "constraint", [F((8, 8), ["x", "y"])], out_sharding=["x"])
