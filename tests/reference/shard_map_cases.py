"""The cases of set D: per-shard functions. See gen_shard_map.py."""

import textwrap

N = None
XY = ["x", "y"]
MESHES = {
    "m8": ([["x", 8]], None),
    "m4": ([["x", 4]], None),
    "m2x4": ([["x", 2], ["y", 4]], None),
    "m4x2": ([["data", 4], ["model", 2]], None),
}


def F(*shape):
    return {"shape": list(shape), "dtype": "float32"}


def I(high, *shape):
    return {"shape": list(shape), "dtype": "int32", "high": high}


CASES = {"shard_map": [], "shard_map_more": []}


def case(dst, name, mesh, inputs, in_specs, out_specs, body, **kw):
    """kw: check_vma=False; axis_names=[...] (the other axes stay automatic); eps (of the check)."""
    dst.append({"name": name, "mesh": mesh, "inputs": inputs, "in_specs": in_specs, "out_specs": out_specs,
                "body": textwrap.dedent(body).strip(), **kw})


def pub(*a, **k):
    case(CASES["shard_map"], *a, **k)


def more(*a, **k):
    case(CASES["shard_map_more"], *a, **k)


# ------------------------------------------------------------------------ one mesh axis
pub("elementwise", "m8", [F(32)], [["x"]], [["x"]], "return 2 * jnp.sin(a) + 1", eps=2**-6)
pub("times_two_int", "m8", [I(32, 32)], [["x"]], [["x"]], "return a * 2")
pub("local_sum_keepdims", "m8", [F(32)], [["x"]], [["x"]], "return jnp.sum(a, keepdims=True)")
pub("psum_scalar", "m8", [F(32)], [["x"]], [[]], "return lax.psum(a.sum(), 'x')")
pub("psum_int", "m8", [I(32, 32)], [["x"]], [[]], "return lax.psum(a.sum(), 'x')")
pub("psum_array", "m8", [F(16, 3)], [["x"]], [[]], "return lax.psum(a, 'x')")
pub("pmean_array", "m8", [F(16, 3)], [["x"]], [[]], "return lax.pmean(a, 'x')")
pub("pmax_array", "m8", [F(16, 3)], [["x"]], [[]], "return lax.pmax(a, 'x')", eps=2**-10)
pub("pmin_array", "m8", [F(16, 3)], [["x"]], [[]], "return lax.pmin(a, 'x')", eps=2**-10)
pub("psum_kept_sharded", "m8", [F(16, 3)], [["x"]], [["x"]], "return a - lax.psum(a, 'x')")
pub("psum_of_replicated", "m8", [F(3)], [[]], [[]], "return lax.psum(a, 'x')")
pub("psum_of_one", "m8", [F(8)], [["x"]], [["x"]], "return a * lax.psum(1, 'x')")
pub("all_gather_stacked", "m4", [F(8, 2)], [["x"]], [["x"]], "return lax.all_gather(a, 'x')")
pub("all_gather_stacked_axis1", "m4", [F(8, 2)], [["x"]], [["x"]], "return lax.all_gather(a, 'x', axis=1)")
pub("all_gather_tiled", "m4", [F(8, 2)], [["x"]], [["x"]], "return lax.all_gather(a, 'x', tiled=True)")
pub("all_gather_tiled_axis1", "m4", [F(8, 2)], [["x"]], [["x"]],
    "return lax.all_gather(a, 'x', axis=1, tiled=True)")
pub("all_gather_replicated", "m4", [F(8, 2)], [["x"]], [[]],
    "return lax.all_gather(a, 'x', tiled=True, to='invarying')")
pub("all_gather_out_replicated_rejected", "m4", [F(8, 2)], [["x"]], [[]],
    "return lax.all_gather(a, 'x', tiled=True)")
pub("all_gather_out_replicated_unchecked", "m4", [F(8, 2)], [["x"]], [[]],
    "return lax.all_gather(a, 'x', tiled=True)", check_vma=False)
pub("psum_scatter_tiled", "m4", [F(16, 8)], [["x"]], [["x"]], "return lax.psum_scatter(a, 'x', tiled=True)")
pub("psum_scatter_tiled_dim1", "m4", [F(16, 8)], [["x"]], [[N, "x"]],
    "return lax.psum_scatter(a, 'x', scatter_dimension=1, tiled=True)")
pub("psum_scatter_untiled", "m4", [F(16, 3)], [["x"]], [["x"]], "return lax.psum_scatter(a, 'x')")
pub("psum_scatter_bad_size_rejected", "m4", [F(32, 3)], [["x"]], [["x"]], "return lax.psum_scatter(a, 'x')")
pub("ppermute_ring", "m8", [F(16, 2)], [["x"]], [["x"]],
    "return lax.ppermute(a, 'x', [(i, (i + 1) % 8) for i in range(8)])")
pub("ppermute_shift_no_wrap", "m8", [F(16, 2)], [["x"]], [["x"]],
    "return lax.ppermute(a, 'x', [(i, i + 1) for i in range(7)])")
pub("ppermute_swap_pairs", "m8", [F(8, 3)], [["x"]], [["x"]],
    "return lax.ppermute(a, 'x', [(i, i ^ 1) for i in range(8)])")
pub("all_to_all_tiled", "m4", [F(16, 8)], [["x"]], [[N, "x"]],
    "return lax.all_to_all(a, 'x', split_axis=1, concat_axis=0, tiled=True)")
pub("all_to_all_untiled", "m4", [F(16, 4, 3)], [["x"]], [["x"]],
    "return lax.all_to_all(a, 'x', split_axis=1, concat_axis=0)")
pub("axis_index", "m8", [F(16)], [["x"]], [["x"]], "return a * lax.axis_index('x')")
pub("axis_size", "m8", [F(16)], [["x"]], [["x"]], "return a / lax.axis_size('x')")
pub("sigmoid_layer", "m8", [F(32), F(32, 4), F(4)], [["x"], ["x", N], [N]], [[]],
    "return jax.nn.sigmoid(lax.psum(a @ b, 'x') + c)", eps=2**-6)
pub("linear_contracting_sharded", "m8", [F(4, 16), F(16, 8)], [[N, "x"], ["x"]], [[]],
    "return lax.psum(a @ b, 'x')")
pub("linear_reduce_scatter", "m4", [F(8, 16), F(16, 8)], [[N, "x"], ["x"]], [["x"]],
    "return lax.psum_scatter(a @ b, 'x', scatter_dimension=0, tiled=True)")
pub("out_replicated_but_varying_rejected", "m8", [F(16)], [["x"]], [[]], "return a")
pub("uneven_input_rejected", "m8", [F(12)], [["x"]], [["x"]], "return a")
pub("in_spec_too_long_rejected", "m8", [F(16)], [["x", N]], [["x"]], "return a")
pub("unknown_axis_rejected", "m8", [F(16)], [["z"]], [["x"]], "return a")

# ----------------------------------------------------------------------- two mesh axes
pub("psum_x_of_xy", "m2x4", [F(4, 8)], [["x", "y"]], [[N, "y"]], "return lax.psum(a, 'x')")
pub("psum_y_of_xy", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]], "return lax.psum(a, 'y')")
pub("psum_both", "m2x4", [F(4, 8)], [["x", "y"]], [[]], "return lax.psum(a, ('x', 'y'))")
pub("pmean_y", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]], "return lax.pmean(a, 'y')")
pub("pmax_both", "m2x4", [F(4, 8)], [["x", "y"]], [[]], "return lax.pmax(a, ('x', 'y'))", eps=2**-10)
pub("psum_x_of_x_only", "m2x4", [F(4, 8)], [["x"]], [[]], "return lax.psum(a, 'x')")
pub("psum_y_of_x_only", "m2x4", [F(4, 8)], [["x"]], [["x"]], "return lax.psum(a, 'y')")
pub("all_gather_y", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]],
    "return lax.all_gather(a, 'y', axis=1, tiled=True, to='invarying')")
pub("all_gather_both_tuple", "m2x4", [F(16, 2)], [[XY]], [[]],
    "return lax.all_gather(a, ('x', 'y'), tiled=True, to='invarying')")
pub("psum_scatter_y", "m2x4", [F(4, 32)], [["x", "y"]], [["x", "y"]],
    "return lax.psum_scatter(a, 'y', scatter_dimension=1, tiled=True)")
pub("ppermute_y", "m2x4", [F(4, 8)], [["x", "y"]], [["x", "y"]],
    "return lax.ppermute(a, 'y', [(i, (i + 1) % 4) for i in range(4)])")
pub("axis_index_both", "m2x4", [F(4, 8)], [["x", "y"]], [["x", "y"]],
    "return a + 10 * lax.axis_index('x') + lax.axis_index('y')")
pub("spec_tuple_in", "m2x4", [F(16, 2)], [[XY]], [[XY]],
    "return a + lax.axis_index(('x', 'y'))")
pub("out_missing_axis_rejected", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]], "return lax.psum(a, 'x')")
pub("dp_gradient_mean", "m4x2", [F(8, 4), F(4, 2)], [["data"], []], [[]], """
    # every replica differentiates its own rows; pmean over the data axis averages
    def loss(w):
        return (jnp.tanh(a @ w) ** 2).mean()
    g = jax.grad(loss)(lax.pcast(b, 'data', to='varying'))
    return lax.pmean(g, 'data')""", eps=2**-7)
pub("tp_mlp", "m4x2", [F(8, 4), F(4, 8), F(8, 4)], [["data"], [N, "model"], ["model"]], [["data"]],
    "return lax.psum(jnp.tanh(a @ b) @ c, 'model')", eps=2**-6)
pub("two_outputs", "m2x4", [F(4, 8)], [["x", "y"]], [["x", "y"], []],
    "return a * 2, lax.psum(a.sum(), ('x', 'y'))")

# ------------------------------------------------------------- more: cases that the first file does not have
more("mixed_replicated_operand", "m8", [F(16, 3), F(3)], [["x"], []], [["x"]], "return jnp.tanh(a * b) + b", eps=2**-6)
more("psum_mixed", "m8", [F(16, 3), F(3)], [["x"], []], [[]], "return lax.psum((a * b).sum(0), 'x') * b", eps=2**-6)
more("pmax_kept", "m4", [F(8, 3)], [["x"]], [["x"]], "return jnp.exp(a - lax.pmax(a, 'x'))", eps=2**-10)
more("sharded_softmax", "m4", [F(3, 8)], [[N, "x"]], [[N, "x"]], """
    top = lax.stop_gradient(lax.pmax(lax.stop_gradient(a[:, :1]), 'x'))
    e = jnp.exp(a - top)
    return e / lax.psum(e.sum(1, keepdims=True), 'x')""", eps=2**-6)
more("pmean_scalar", "m2x4", [F(4, 8)], [["x", "y"]], [[]], "return lax.pmean(a.mean(), ('x', 'y'))")
more("pmean_int", "m8", [I(32, 32)], [["x"]], [[]], "return lax.pmean(a, 'x')")
more("pmin_int", "m8", [I(32, 32)], [["x"]], [[]], "return lax.pmin(a, 'x')")
more("all_to_all_same_axis", "m4", [F(32, 3)], [["x"]], [["x"]],
     "return lax.all_to_all(a, 'x', split_axis=0, concat_axis=0, tiled=True)")
more("all_to_all_untiled_same_axis", "m4", [F(16, 3)], [["x"]], [["x"]],
     "return lax.all_to_all(a, 'x', split_axis=0, concat_axis=0)")
more("all_to_all_untiled_end", "m4", [F(16, 2, 3)], [["x"]], [[N, "x"]],
     "return lax.all_to_all(a, 'x', split_axis=0, concat_axis=2)")
more("all_to_all_both", "m2x4", [F(16, 8)], [[XY]], [[N, XY]],
     "return lax.all_to_all(a, ('x', 'y'), split_axis=1, concat_axis=0, tiled=True)")
more("all_to_all_bad_size_rejected", "m4", [F(16, 6)], [["x"]], [["x"]],
     "return lax.all_to_all(a, 'x', split_axis=1, concat_axis=0, tiled=True)")
more("all_gather_reversed_axes", "m2x4", [F(16, 2)], [[XY]], [[]],
     "return lax.all_gather(a, ('y', 'x'), tiled=True, to='invarying')")
more("all_gather_used", "m4", [F(8, 2)], [["x"]], [["x"]],
     "return a * lax.all_gather(a, 'x', tiled=True).sum(0)")
more("all_gather_of_replicated", "m4", [F(3)], [[]], [["x"]], "return lax.all_gather(a, 'x')")
more("psum_scatter_both", "m2x4", [F(8, 16)], [[N, []]], [[XY]],
     "return lax.psum_scatter(a * (1 + lax.axis_index(('x', 'y'))), ('x', 'y'), tiled=True)")
more("psum_scatter_uneven_rejected", "m4", [F(24, 3)], [["x"]], [["x"]],
     "return lax.psum_scatter(a, 'x', tiled=True)")
more("ppermute_partial", "m8", [F(16)], [["x"]], [["x"]], "return a + lax.ppermute(a, 'x', [(0, 3), (5, 1)])")
more("ppermute_both", "m2x4", [F(16)], [[XY]], [[XY]],
     "return lax.ppermute(a, ('x', 'y'), [(i, (i + 3) % 8) for i in range(8)])")
more("ppermute_duplicate_rejected", "m8", [F(16)], [["x"]], [["x"]],
     "return lax.ppermute(a, 'x', [(0, 1), (2, 1)])")
more("axis_index_unknown_rejected", "m8", [F(16)], [["x"]], [["x"]], "return a + lax.axis_index('y')")
more("out_spec_too_long_rejected", "m8", [F(16)], [["x"]], [["x", N]], "return a")
more("out_unknown_axis_rejected", "m8", [F(16)], [["x"]], [["z"]], "return a")
more("in_spec_twice_rejected", "m2x4", [F(16, 16)], [["x", "x"]], [["x"]], "return a")
more("out_sharded_of_replicated", "m4", [F(3)], [[]], [["x"]], "return 2 * a")
more("out_scalar_sum_minor", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]], "return lax.psum(a.sum(1), 'y')")
more("unchecked_first", "m4", [F(8, 2)], [["x"]], [[]],
     "return lax.all_gather(jnp.tanh(a), 'x', tiled=True)", check_vma=False, eps=2**-6)
more("subset_manual", "m2x4", [F(4, 8)], [["x"]], [["x"]], "return a - lax.pmean(a, 'x')", axis_names=["x"])
more("subset_matmul", "m4x2", [F(8, 4), F(4, 2)], [["data"], []], [[]], "return lax.psum((a @ b).sum(0), 'data')",
     axis_names=["data"])
more("subset_other_axis_rejected", "m2x4", [F(4, 8)], [["x", "y"]], [["x"]], "return a", axis_names=["x"])
more("subset_psum_other_axis_rejected", "m2x4", [F(4, 8)], [["x"]], [["x"]], "return lax.psum(a, 'y')",
     axis_names=["x"])
more("value_and_grad_inside", "m8", [F(16, 3), F(3)], [["x"], []], [[]], """
    g = jax.grad(lambda w: (jnp.tanh(a @ w) ** 2).sum())(b)
    return g""", eps=2**-7)
more("gradient_of_psum_inside", "m8", [F(16, 3), F(3)], [["x"], []], [[]], """
    v, g = jax.value_and_grad(lambda w: lax.psum((jnp.tanh(a * w) ** 2).sum(), 'x'))(b)
    return v * g""", eps=2**-7)
more("halo_exchange", "m8", [F(16, 3)], [["x"]], [["x"]], """
    before = lax.ppermute(a[-1:], 'x', [(i, i + 1) for i in range(7)])
    after = lax.ppermute(a[:1], 'x', [(i, i - 1) for i in range(1, 8)])
    p = jnp.concatenate([before, a, after])
    return (p[:-2] + p[1:-1] + p[2:]) / 3""")
more("column_then_row", "m4x2", [F(8, 4), F(4, 8), F(8, 4)], [["data"], [N, "model"], ["model"]], [["data", "model"]],
     "return lax.psum_scatter(jax.nn.relu(a @ b) @ c, 'model', scatter_dimension=1, tiled=True)", eps=2**-9)
more("gathered_weight", "m8", [F(16, 4), F(8, 4)], [["x"], ["x"]], [["x"]],
     "return a @ lax.all_gather(b, 'x', tiled=True).T")
more("bfloat16_psum", "m4", [F(8, 2)], [["x"]], [[]], "return lax.psum(a.astype(jnp.bfloat16), 'x').astype(jnp.float32)")
