"""Shared helpers of the reference generators (gen_*.py).

Import this module before anything that imports jax: it pins the platform to CPU and
asks XLA for virtual devices (8, or the number in the environment variable REF_NDEV).

Contents
  * det()                deterministic, formula-defined inputs, exact in float32
  * spec/mesh <-> JSON   one notation used in every file (see README.md, "Notation")
  * array_record()       the sharding of one jax.Array
  * checksum()           sums and samples that identify an array without storing it
  * collectives()        the collective instructions of a compiled HLO module
  * error_record()       a rejected case: exception type, normalized kind, short message
  * write_json()         stable, one-case-per-line JSON
"""

import os

NDEV = int(os.environ.get("REF_NDEV", "8"))
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count={NDEV}"
    # use one thread: the machine is shared
    " --xla_cpu_multi_thread_eigen=false"
)

import contextlib
import io
import json
import math
import platform
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HERE = Path(__file__).resolve().parent



# ----------------------------------------------------------------------------- inputs

# Every formula-defined input is  value[i] = (((i*k + c) mod m) - s) / d  with i the
# row-major flat index. With d a power of two the values are exact in float32, so
# sums and products of a few of them are exact as well.
FLOAT_INIT = dict(kind="affine_mod", k=37, c=11, m=101, s=50, d=64)


def det(shape, k=37, c=11, m=101, s=50, d=64, dtype="float32"):
    """The deterministic array of `shape`; see FLOAT_INIT for the formula."""
    n = math.prod(shape)
    i = np.arange(n, dtype=np.int64)
    v = ((i * k + c) % m) - s
    v = v.astype(np.float64) / d if d != 1 else v
    return np.asarray(v).astype(dtype).reshape(shape)


def det_from_init(shape, dtype, init):
    if init["kind"] == "affine_mod":
        return det(shape, init["k"], init["c"], init["m"], init["s"], init["d"], dtype)
    if init["kind"] == "values":
        return np.asarray(init["values"], dtype=dtype).reshape(shape)
    raise ValueError(init)


# ------------------------------------------------------------------------- mesh / spec

def make_mesh(axes, mode="auto", device_ids=None):
    """axes: [["x", 2], ["y", 4]]; mode: auto | explicit | manual, or a list per axis.

    Devices are taken in id order (row-major) unless device_ids gives the flat order.
    """
    names = tuple(a for a, _ in axes)
    sizes = tuple(n for _, n in axes)
    n = math.prod(sizes)
    by_id = {d.id: d for d in jax.devices()}
    ids = list(range(n)) if device_ids is None else list(device_ids)
    devs = np.array([by_id[i] for i in ids], dtype=object).reshape(sizes)
    modes = [mode] * len(names) if isinstance(mode, str) else mode
    kinds = {"auto": AxisType.Auto, "explicit": AxisType.Explicit, "manual": AxisType.Manual}
    return Mesh(devs, names, axis_types=tuple(kinds[m] for m in modes))


def mesh_json(mesh):
    return {
        "axes": [[a, int(n)] for a, n in mesh.shape.items()],
        "device_ids": [int(d.id) for d in mesh.devices.flat],
    }


def _entry(e):
    if e is None or isinstance(e, str):
        return e
    if e is P.UNCONSTRAINED:
        return "?"
    return list(e)


def spec_json(spec):
    """PartitionSpec -> list. null: not sharded; "x": one axis; ["x","y"]: both, x major.

    A spec with unreduced axes becomes {"parts": [...], "unreduced": [...]}.
    """
    parts = [_entry(e) for e in spec.partitions]
    unreduced = sorted(getattr(spec, "unreduced", ()) or ())
    reduced = sorted(getattr(spec, "reduced", ()) or ())
    if unreduced or reduced:
        r = {"parts": parts}
        if unreduced:
            r["unreduced"] = unreduced
        if reduced:
            r["reduced"] = reduced
        return r
    return parts


def to_spec(j):
    """The inverse of spec_json."""
    if j is None:
        return P()
    if isinstance(j, dict):
        return P(*[tuple(e) if isinstance(e, list) else e for e in j["parts"]],
                 unreduced=frozenset(j.get("unreduced", ())),
                 reduced=frozenset(j.get("reduced", ())))
    return P(*[tuple(e) if isinstance(e, list) else (P.UNCONSTRAINED if e == "?" else e)
               for e in j])


def norm_spec(spec, ndim):
    """Normal form for comparison: rank-long, () and [] entries -> null, 1-tuples unwrapped."""
    j = spec_json(spec) if isinstance(spec, P) else spec
    parts = j["parts"] if isinstance(j, dict) else j
    out = []
    for e in list(parts) + [None] * (ndim - len(parts)):
        if isinstance(e, list):
            e = None if not e else e[0] if len(e) == 1 else e
        out.append(e)
    if isinstance(j, dict):
        return {**j, "parts": out}
    return out


def ranges(index, shape):
    """(slice(0,2), slice(None)) -> [[0,2],[0,n]]"""
    return [list(s.indices(n)[:2]) for s, n in zip(index, shape)]


# ----------------------------------------------------------------------------- records

def array_record(a, values=False, device_map=True):
    """Placement of a jax.Array: shape, dtype, sharding, per-device ranges, replica ids."""
    sh = a.sharding
    r = {"shape": list(a.shape), "dtype": str(a.dtype), "sharding": type(sh).__name__}
    if isinstance(sh, NamedSharding):
        r["mesh"] = mesh_json(sh.mesh)
        r["spec"] = spec_json(sh.spec)
    r["local_shape"] = list(sh.shard_shape(a.shape))
    r["is_fully_replicated"] = bool(sh.is_fully_replicated)
    r["num_devices"] = len(sh.device_set)
    if device_map:
        rep = {s.device.id: s.replica_id for s in a.addressable_shards}
        m = sh.devices_indices_map(a.shape)
        r["devices"] = [
            {"id": int(d.id), "index": ranges(ix, a.shape), "replica_id": int(rep[d.id])}
            for d, ix in sorted(m.items(), key=lambda t: t[0].id)
        ]
    r["bytes_per_device"] = int(math.prod(r["local_shape"]) * a.dtype.itemsize)
    if values:
        r["values"] = to_list(a)
    return r


def to_list(a):
    """Array -> nested lists; floats as the shortest decimal that reads back to the same
    float32 (bfloat16/float16 are widened first)."""
    a = np.asarray(a)
    if a.dtype == jnp.bfloat16 or a.dtype == np.float16:
        a = a.astype(np.float32)
    if a.dtype == np.float32:
        flat = [fnum(v) for v in a.reshape(-1)]
        return np.array(flat, dtype=object).reshape(a.shape).tolist()
    return a.tolist()


def fnum(v):
    v = np.float32(v)
    if not np.isfinite(v):
        return "nan" if np.isnan(v) else ("inf" if v > 0 else "-inf")
    return float(str(v))


def d64(v):
    """A float64 rounded to 10 significant digits (checksums)."""
    v = float(v)
    return "nan" if math.isnan(v) else ("inf" if v > 0 else "-inf") if math.isinf(v) \
        else float(f"{v:.10g}")


CHECK_W = dict(k=13, c=5, m=17, s=8, d=16)


def checksum(a, full_upto=16, nsamples=6):
    """sum, sum of magnitudes, position-weighted sum, and samples of an array.

    wsum = sum_i a[i] * w[i] with w = det(k=13,c=5,m=17,s=8,d=16): it catches
    permuted elements, which plain sums do not. All sums are taken in float64.
    """
    a = np.asarray(a)
    flat = a.reshape(-1)
    f = flat.astype(np.float64)
    w = det(flat.shape, dtype="float64", **CHECK_W)
    r = {"shape": list(a.shape), "dtype": str(a.dtype),
         "sum": d64(f.sum()), "abs_sum": d64(np.abs(f).sum()), "wsum": d64((f * w).sum())}
    if flat.size <= full_upto:
        r["values"] = to_list(flat) if a.dtype != bool else flat.astype(int).tolist()
    else:
        n = flat.size
        idx = sorted({0, 1, n // 3, n // 2, (2 * n) // 3 + 1, n - 1})[:nsamples]
        vals = flat[idx]
        vals = to_list(vals) if a.dtype != bool else vals.astype(int).tolist()
        r["samples"] = [[int(i), v] for i, v in zip(idx, vals)]
    return r


# --------------------------------------------------------------------------- HLO parse

_DT = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4,
       "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
         "collective-broadcast", "ragged-all-to-all")
_INSTR = re.compile(
    r"=\s*(?P<out>\([^=]*?\)|\S+)\s+(?P<kind>" + "|".join(KINDS) + r")(?P<start>-start)?\(")
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")


def _bytes(shape_text):
    total = 0
    for dt, dims in _SHAPE.findall(shape_text):
        if dt in _DT:
            total += _DT[dt] * math.prod(int(d) for d in dims.split(",") if d)
    return total


def _groups(line):
    """(number of groups, size of a group) from the replica_groups attribute.

    Three notations occur: {{0,1},{2,3}}, the iota form [4,2]<=[8], and the mesh form
    mesh['axis_0'=2,'axis_1'=4], device_ids=(...) {'axis_1'} (the axes that form a group;
    'axis_1':(1)2 is a part of an axis, of size 2).
    """
    m = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line)
    if m:
        sizes = {k: int(v) for k, v in re.findall(r"'(\w+)'=(\d+)", m.group(1))}
        size = 1
        for name, sub in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", m.group(2)):
            size *= int(sub) if sub else sizes[name]
        return math.prod(sizes.values()) // size, size
    m = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if m:
        return int(m.group(1)), int(m.group(2))
    m = re.search(r"replica_groups=\{(\{[^=]*?\})\}", line)
    if m:
        g = re.findall(r"\{([\d,]*)\}", m.group(1))
        return len(g), max(len(x.split(",")) for x in g)
    return None


def collectives(hlo_text, detail=True):
    """Collective instructions of one compiled (per-device) HLO module.

    bytes = size of the instruction's result on one device (all tuple elements together).
    """
    ops = []
    for line in hlo_text.splitlines():
        line = re.sub(r"/\*.*?\*/", "", line)     # /*index=5*/ inside long tuples
        m = _INSTR.search(line)
        if not m:
            continue
        kind = m.group("kind")
        shapes = _SHAPE.findall(m.group("out"))
        rec = {"kind": kind, "result": [f"{a}[{b}]" for a, b in shapes],
               "bytes": _bytes(m.group("out"))}
        g = _groups(line)
        if g:
            rec["groups"], rec["group_size"] = g
        if kind == "collective-permute":
            pm = re.search(r"source_target_pairs=\{(\{.*?\})\}", line)
            if pm:
                rec["pairs"] = len(re.findall(r"\{\d+,\d+\}", pm.group(1)))
        ops.append(rec)
    summary = {}
    for o in ops:
        s = summary.setdefault(o["kind"], {"count": 0, "bytes": 0})
        s["count"] += 1
        s["bytes"] += o["bytes"]
    r = {"summary": summary}
    if detail and ops:
        r["ops"] = ops
    return r


# ------------------------------------------------------------------------------ errors

_ERR_KINDS = [
    ("duplicate_axis", r"[Dd]uplicate|at most one positional dimension|mapped to same"),
    ("unknown_axis", r"not found in mesh|is not found in|axis .* of .* not in mesh|not bound|not present in|unbound axis name|must refer to an axis marked as manual"),
    ("uneven", r"divisible|evenly|should be divisible"),
    ("rank_mismatch", r"only valid for values of rank|rank at least|longer than|length of the PartitionSpec|too long to be compatible"),
    ("size_mismatch", r"must match shard count"),
    ("duplicate_pair", r"destinations must be unique"),
    ("illegal_result", r"illegally sharded result"),
    ("contracting_ambiguous", r"Contracting dimensions are sharded and it is ambiguous"),
    ("contracting_inconsistent", r"contracting dimensions to have consistent sharding"),
    ("batch_inconsistent", r"batch dimensions to have (consistent|the same) sharding|batch dimensions"),
    ("operands_inconsistent", r"must have (the same|consistent) sharding|incompatible sharding|consistent sharding|(should|must) be equal|to be equal|with incompatible shardings|same shardings?|Incompatible types for (matmul|broadcasting)"),
    ("needs_unsharded_dim", r"unsharded|cannot be sharded on dimension"),
    ("gather_ambiguous", r"at\[\.\.\.\]\.get\(out_sharding"),
    ("constraint_assert", r"acts as an assert"),
    ("out_ambiguous", r"ambiguous|[Uu]se .*out_sharding|specify .*out_sharding|via .out_sharding|reshard"),
    ("vma", r"varying manual axes|vma|replication|check_vma|pcast from="),
    ("no_mesh", r"non-empty mesh in context|auto mesh context"),
    ("not_implemented", r"not implemented"),
]


def error_record(e, limit=260):
    """{"type", "kind", "message"}; the message has addresses and file paths removed."""
    msg = " ".join(str(e).split())
    msg = re.sub(r"0x[0-9a-f]+", "0x..", msg)
    msg = re.sub(r", device_kind=cpu, num_cores=None, platform=cpu", "", msg)
    msg = re.sub(r"/\S+?\.py(:\d+)?", "<file>", msg)
    kind = next((k for k, rx in _ERR_KINDS if re.search(rx, msg)), "other")
    if len(msg) > limit:
        msg = msg[:limit].rstrip() + " ..."
    return {"type": type(e).__name__, "kind": kind, "message": msg}


# --------------------------------------------------------- declarative optax expressions

def T(name, **kw):
    """A transformation, optimizer or schedule of optax: {"name": ..., arguments}."""
    return {"name": name, **kw}


# ------------------------------------------------------------------------------ output

def visualize(a):
    """The text jax.debug.visualize_array_sharding prints (no colour, width 80)."""
    buf = io.StringIO()
    with contextlib.redirect_stdout(buf):
        jax.debug.visualize_array_sharding(a, use_color=False)
    return buf.getvalue().rstrip("\n").split("\n")


def meta(what, **extra):
    import importlib.metadata as im
    vers = {}
    for p in ("jax", "jaxlib", "numpy", "optax", "flax", "equinox", "grain", "safetensors"):
        with contextlib.suppress(im.PackageNotFoundError):
            vers[p] = im.version(p)
    return {"what": what, "schema": 1,
            "versions": {"python": platform.python_version(), **vers},
            "platform": "cpu", "virtual_devices": NDEV,
            "generator": Path(sys.argv[0]).name, **extra}


def write_json(path, head, lists):
    """{**head, name: [one item per line]} for each list in `lists`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)

    def dump(v):
        return json.dumps(v, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    rows = [f"{json.dumps(k)}: {dump(v)}" for k, v in head.items()]
    for k, items in lists.items():
        if isinstance(items, dict):
            body = ",\n".join(f"  {json.dumps(n)}: {dump(v)}" for n, v in items.items())
            rows.append(f"{json.dumps(k)}: {{\n{body}\n}}")
        else:
            body = ",\n".join("  " + dump(v) for v in items)
            rows.append(f"{json.dumps(k)}: [\n{body}\n]")
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    json.loads(path.read_text())  # must be valid JSON
    print(f"{path.name}: "
          + ", ".join(f"{len(v)} {k}" for k, v in lists.items())
          + f", {path.stat().st_size / 1024:.0f} KiB")


def save_tensors(path, tensors):
    from safetensors.numpy import save_file
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, str(path),
              metadata={"generator": Path(sys.argv[0]).name})
    path.chmod(0o644)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size / 1024:.0f} KiB")
