"""Draws the pictures of the manual: python3 docs/pictures/draw.py [OUT]   (OUT: docs/pictures)

Writes one SVG file per picture. The files follow the reader's light or dark color scheme and are the same on each run.
"""
import sys
from html import escape
from pathlib import Path

WIDTH = 800
# The CSS properties of each style in the light scheme, and those that change in the dark one.
STYLES = {
    ".paper": ("fill: #ffffff", "fill: #0d1117"),
    "text": ("font: 13px system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #1f2328",
             "fill: #e6edf3"),
    ".mono": ("font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 12px", ""),
    ".small": ("font-size: 12px", ""),
    ".head": ("font-size: 14px; font-weight: 600", ""),
    ".bold": ("font-weight: 600", ""),
    ".muted": ("fill: #59636e", "fill: #9198a1"),
    ".middle": ("text-anchor: middle", ""),
    ".end": ("text-anchor: end", ""),
    ".box": ("fill: #f6f8fa; stroke: #d1d9e0", "fill: #161b22; stroke: #3d444d"),
    ".frame": ("fill: none; stroke: #59636e; stroke-width: 1.5", "stroke: #9198a1"),
    ".chosen": ("fill: #fff8c5; stroke: #9a6700", "fill: #341a00; stroke: #d29922"),
    ".cell": ("stroke: #ffffff; stroke-width: 0.5", "stroke: #0d1117"),
    ".line": ("fill: none; stroke: #59636e; stroke-width: 1.5", "stroke: #9198a1"),
    ".thick": ("fill: none; stroke: #0969da; stroke-width: 2.5", "stroke: #58a6ff"),
    ".dashed": ("fill: none; stroke: #bc4c00; stroke-width: 2; stroke-dasharray: 6 4", "stroke: #f0883e"),
    ".area": ("fill: #ddf4ff", "fill: #051d4d"),
    ".tip": ("fill: #59636e", "fill: #9198a1"),
    ".all_gather": ("fill: #0969da", "fill: #58a6ff"),
    ".reduce_scatter": ("fill: #bc4c00", "fill: #f0883e"),
    ".all_reduce": ("fill: #8250df", "fill: #bc8cff"),
    ".all_to_all": ("fill: #1a7f37", "fill: #3fb950"),
    ".permute": ("fill: #bf3989", "fill: #f778ba"),
    ".inverse": ("fill: #ffffff", "fill: #0d1117"),
    # Tints: blue, green, orange and purple, each light and strong.
    ".t0": ("fill: #ddf4ff", "fill: #051d4d"), ".t4": ("fill: #b6e3ff", "fill: #0d419d"),
    ".t1": ("fill: #dafbe1", "fill: #04260f"), ".t5": ("fill: #aceebb", "fill: #0f5323"),
    ".t2": ("fill: #fff1e5", "fill: #3d1300"), ".t6": ("fill: #ffd8b5", "fill: #762d0a"),
    ".t3": ("fill: #fbefff", "fill: #271052"), ".t7": ("fill: #ecd8ff", "fill: #553098"),
}


class Picture:
    """The parts of one SVG file, in drawing order."""

    def __init__(self, height, title, description):
        self.height, self.title, self.description, self.parts = height, title, description, []

    def text(self, x, y, words, style=""):
        kind = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{kind} xml:space="preserve">{escape(words, False)}</text>')

    def lines(self, x, y, lines, style="", step=18):
        for i, words in enumerate(lines):
            self.text(x, y + i * step, words, style)

    def box(self, x, y, w, h, style="box", radius=4):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" class="{style}"/>')

    def labeled(self, x, y, w, h, words, style="box", text="middle"):
        self.box(x, y, w, h, style)
        self.text(x + w / 2, y + h / 2 + 4.5, words, text)

    def grid(self, x, y, w, h, rows, columns, style, label=lambda r, c: "", text="middle small"):
        """A box of rows and columns; style and label are functions of a cell's row and column."""
        for r in range(rows):
            for c in range(columns):
                at = x + c * w / columns, y + r * h / rows
                self.box(*at, w / columns, h / rows, style(r, c) + " cell", 0)
                if label(r, c):
                    self.text(at[0] + w / columns / 2, at[1] + h / rows / 2 + 4.5, label(r, c), text)
        self.box(x, y, w, h, "frame", 0)

    def path(self, points, style="line", arrow=False):
        tip = ' marker-end="url(#tip)"' if arrow else ""
        data = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="{data}" class="{style}"{tip}/>')

    def dot(self, x, y, style, radius=5):
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" class="{style}"/>')

    def svg(self):
        light = "\n".join(f"  {name} {{ {style}; }}" for name, (style, _) in STYLES.items())
        dark = "\n".join(f"    {name} {{ {style}; }}" for name, (_, style) in STYLES.items() if style)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            'aria-labelledby="title text">',
            f'<title id="title">{escape(self.title, False)}</title>',
            f'<desc id="text">{escape(self.description, False)}</desc>',
            f"<style>\n{light}\n  @media (prefers-color-scheme: dark) {{\n{dark}\n  }}\n</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L10 5L0 10z" class="tip"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" class="paper"/>', *self.parts, "</svg>", ""])


def tint(number):
    return f"t{number % 8}"


def mesh():
    p = Picture(346, "An array of shape (8, 16) on a mesh of 2 x 4 devices",
                "The spec P(data, model) splits dimension 0 over data and dimension 1 over model. Each of the eight "
                "devices stores one block of 4 rows and 4 columns.")
    p.text(24, 32, "The array", "head")
    p.text(24, 52, "float32[8@data,16@model]", "mono")
    x, y, cell = 84, 104, 18
    p.text(x + 8 * cell, y - 12, "dimension 1 = 16, over model", "middle small")
    p.lines(24, y + 60, ["dim. 0", "= 8,", "over", "data"], "small", 16)
    p.grid(x, y, 16 * cell, 8 * cell, 8, 16, lambda r, c: tint(r // 4 * 4 + c // 4))
    for r in range(2):
        for c in range(4):
            p.box(x + c * 4 * cell, y + r * 4 * cell, 4 * cell, 4 * cell, "frame", 0)
            p.text(x + (c * 4 + 2) * cell, y + (r * 4 + 2) * cell + 5, f"CPU {r * 4 + c}", "middle bold")
    p.path([(386, 176), (430, 176)], arrow=True)
    left, top, w, h = 488, 104, 72, 72
    p.text(440, 32, "The mesh", "head")
    p.text(440, 52, 'make_mesh({{"data", 2}, {"model", 4}})', "mono")
    for c in range(4):
        p.text(left + (c + 0.5) * w, top - 12, f"model {c}", "middle small")
    for r in range(2):
        p.text(left - 8, top + (r + 0.5) * h + 4, f"data {r}", "end small")
        for c in range(4):
            at = left + c * w, top + r * h
            p.box(at[0] + 2, at[1] + 2, w - 4, h - 4, tint(r * 4 + c))
            p.text(at[0] + w / 2, at[1] + 24, f"CPU {r * 4 + c}", "middle bold")
            p.text(at[0] + w / 2, at[1] + 42, f"rows {4 * r}:{4 * r + 4}", "middle small")
            p.text(at[0] + w / 2, at[1] + 58, f"cols {4 * c}:{4 * c + 4}", "middle small")
    p.box(24, 276, 752, 54)
    p.text(40, 298, 'P("data", "model")', "mono bold")
    p.text(196, 298, "splits the rows over data, 8 / 2 = 4, and the columns over model, 16 / 4 = 4.")
    p.text(196, 318, "Each device stores one local shard of shape (4, 4): 64 of the 512 bytes.")
    return p


def rules():
    p = Picture(424, "Mesh rules turn logical axis names into shardings",
                "The rule for hidden shards that dimension of both kernels over model; the rule for embed replicates "
                "the other dimension. Each half of a kernel is on four devices.")
    p.text(24, 32, "Mesh rules: a mesh and a table", "head")
    p.labeled(24, 46, 186, 30, "mesh data=4, model=2", "box", "middle mono")
    table = {"batch": ('{"batch", "data"}', "box"), "hidden": ('{"hidden", "model"}', "chosen"),
             "embed": ('{"embed", replicated}', "t1")}
    for i, (words, style) in enumerate(table.values()):
        p.labeled(222 + i * 186, 46, 178, 30, words, style, "middle mono")
    p.text(232, 92, "for the names of a batch", "small muted")
    p.path([(24, 106), (776, 106)])
    for x, words in ((24, "Names and sizes"), (222, "Rule"), (408, "On a device"), (554, "Sharding")):
        p.text(x, 134, words, "bold")
    parameters = [("up.kernel", ("embed", "hidden"), (512, 2048), "P(None, 'model')", 1, 2, (200, 64)),
                  ("down.kernel", ("hidden", "embed"), (2048, 512), "P('model')", 2, 1, (100, 84))]
    for i, (path, names, shape, spec, rows, columns, size) in enumerate(parameters):
        y = 164 + i * 128
        p.text(24, y, path, "mono bold")
        p.text(554, y, spec, "mono bold")
        for d, (name, whole) in enumerate(zip(names, shape)):
            at, (words, style) = y + 14 + d * 38, table[name]
            p.labeled(24, at, 150, 28, f'{{"{name}", {whole}}}', "box", "middle mono")
            p.path([(174, at + 14), (218, at + 14)], arrow=True)
            p.labeled(222, at, 170, 28, words, style, "middle mono")
            p.path([(392, at + 14), (404, at + 14)], arrow=True)
            p.text(412, at + 18.5, f"{whole} / 2 = {whole // 2}" if name == "hidden" else f"{whole}", "mono")
        p.grid(554, y + 14, *size, rows, columns, lambda r, c: tint((r + c) * 2),
               lambda r, c: f"CPU {','.join(str(2 * d + r + c) for d in range(4))}", "middle small")
    p.text(554, 410, "each block on 4 devices, along data", "small muted")
    return p


COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")
# A strategy's name, mesh and sharded dimensions, and its collectives in the forward pass, the backward pass and the
# update: kind, mesh axes, arrays, and positions in units of a layer. The tables of tests/docs/placements.cpp have them.
STEPS = [
    ("Data parallelism", "data=8", "batch", [
        [], [("all_reduce", "data", "gradients", [1.95])], []]),
    ("ZeRO-1", "data=8", "batch, optimizer state", [
        [], [("reduce_scatter", "data", "gradients", [1.95])], [("all_gather", "data", "weights", [0.95])]]),
    ("FSDP", "data=8", "batch, weights", [
        [("all_gather", "data", "weights", [0.08, 1.08])],
        [("all_gather", "data", "weights", [0.08, 1.08]), ("reduce_scatter", "data", "gradients", [0.8, 1.7]),
         ("all_reduce", "data", "the rest", [1.95])], []]),
    ("Tensor parallelism", "model=8", "heads, hidden units, vocabulary", [
        [("all_reduce", "model", "outputs", [0.45, 0.9, 1.45, 1.9])],
        [("all_reduce", "model", "inputs", [0.45, 0.9, 1.45, 1.9])], []]),
    ("Sequence parallelism (Ulysses)", "data=2, seq=4", "batch, sequence", [
        [("all_to_all", "seq", "q, k, v", [0.15, 1.15]), ("reduce_scatter", "seq", "attention", [0.5, 1.5])],
        [("all_gather", "seq", "attention", [0.5, 1.5]), ("all_to_all", "seq", "q, k, v", [0.8, 1.75]),
         ("all_reduce", "data, seq", "gradients", [1.95])], []]),
    ("Context parallelism (ring)", "data=2, seq=4", "batch, sequence", [
        [("permute", "seq", "k, v", [0.15, 0.3, 0.45, 1.15, 1.3, 1.45])],
        [("permute", "seq", "k, v", [0.5, 0.65, 0.8, 1.45, 1.6, 1.75]),
         ("all_reduce", "data, seq", "gradients", [1.95])], []]),
    ("Expert parallelism (no capacity)", "data=8", "batch, experts", [
        [("all_gather", "data", "tokens", [0.5, 1.5]), ("reduce_scatter", "data", "outputs", [0.9, 1.9])],
        [("all_gather", "data", "outputs", [0.1, 1.1]), ("reduce_scatter", "data", "tokens", [0.5, 1.5]),
         ("all_reduce", "data", "the rest", [1.95])], []]),
    ("Pipeline parallelism", "pipe=2, data=4", "batch, layers", [
        [("permute", "pipe", "activations", [1])],
        [("permute", "pipe", "gradients", [1]), ("all_reduce", "data", "of a stage", [1.78]),
         ("all_reduce", "pipe, data", "the rest", [1.97])], []]),
]


def step_panel(p, x, y, height, strategy):
    """The time axis of one step: layers 0 and 1 forward, then backward, then the update; dots are collectives."""
    name, axes, sharded, parts = strategy
    p.box(x, y, 382, height)
    p.text(x + 12, y + 22, name, "head")
    p.text(x + 370, y + 22, axes, "mono end")
    p.text(x + 12, y + 40, f"sharded: {sharded}", "small muted")
    layer = 56
    for part, (words, layers, left) in enumerate([("forward", "01", 12), ("backward", "10", 146),
                                                    ("update", " ", 278)]):
        p.text(x + left, y + 66, words, "small bold")
        for i, number in enumerate(layers):
            p.labeled(x + left + i * layer, y + 84, layer - 4, 20, number.strip() and f"layer {number}", "paper",
                      "middle small muted")
            p.box(x + left + i * layer, y + 84, layer - 4, 20, "frame")
        for row, (kind, over, arrays, places) in enumerate(parts[part]):
            for place in places:
                p.dot(x + left + place * layer - 2, y + 78, kind, 4)
            p.dot(x + left + 4, y + 121 + row * 19, kind, 4)
            p.text(x + left + 13, y + 125 + row * 19, f"{over}: {arrays}", "small")
        if not parts[part]:
            p.text(x + left, y + 125, "none", "small muted")


def strategies():
    say = lambda calls: ", ".join(f"{kind} over {over} ({arrays})" for kind, over, arrays, _ in calls) or "none"
    p = Picture(806, "The collectives of a training step under eight strategies",
                " ".join(f"{name}: forward {say(parts[0])}; backward {say(parts[1])}; update {say(parts[2])}."
                         for name, _, _, parts in STEPS))
    for i, kind in enumerate(COLLECTIVES):
        p.dot(24 + i * 150, 24, kind)
        p.text(36 + i * 150, 28.5, kind, "mono")
    y = 46
    for pair in zip(STEPS[::2], STEPS[1::2]):
        height = 120 + 19 * max(len(calls) for strategy in pair for calls in strategy[3])
        for i, strategy in enumerate(pair):
            step_panel(p, 12 + i * 394, y, height, strategy)
        y += height + 8
    p.lines(24, y + 14, ["In the backward pass, a name of activations means their gradients; a ring also passes k, v.",
                         "Not drawn: the sum of the loss, and under tensor parallelism the reductions of embedding and "
                         "cross-entropy."], "small muted")
    return p


def matrix(p, x, y, width, blocks, type_string, down, right, device):
    """A matrix on a mesh data=4, model=2: its type, the mesh axes of its dimensions, and the devices of each block."""
    p.text(x, y - 28, type_string, "mono bold")
    p.text(x + width / 2, y - 9, right, "middle small")
    p.text(x - 8, y + 52, down, "end small")
    style = lambda r, c: tint((2 * c if blocks[1] == 2 else 1) + r % 2 * 4)
    p.grid(x, y, width, 96, *blocks, style, lambda r, c: "CPU " + device(r, c), "middle small")


def conflict():
    p = Picture(564, "Two operands with conflicting shardings",
                "The product of float32[16@data,32@model] and float32[32,64@model] needs the mesh axis model for two "
                "dimensions. Rule 2 keeps it for the dimension of the output, so the first operand is all-gathered.")
    p.text(24, 32, "matmul (i k, k j -> i j): k and j both need the mesh axis model", "head")
    p.text(776, 32, "mesh data=4, model=2", "end mono")
    one, half = lambda r, c: f"{2 * r + c}", lambda r, c: ",".join(str(2 * d + c) for d in range(4))
    matrix(p, 84, 98, 104, (4, 2), "float32[16@data,32@model]", "i: data", "k: model", one)
    p.text(250, 150, "@", "middle bold")
    matrix(p, 310, 98, 168, (1, 2), "float32[32,64@model]", "k", "j: model", half)
    p.box(532, 58, 244, 136, "chosen")
    p.text(546, 80, "Rule 2 decides", "bold")
    p.lines(546, 102, ["The output's dimension j keeps", "model before k, which is summed.", "So k gives up model.",
                       "(Rule 1 does not decide: both", "choices leave the work divided.)"], "small", 17)
    p.path([(136, 200), (136, 282)], "line", True)
    p.dot(160, 234, "all_gather")
    p.text(172, 238.5, "all_gather over model, along k", "bold")
    p.text(172, 257, "from sharded to replicated, 512 bytes on each device", "small muted")
    matrix(p, 84, 338, 104, (4, 1), "float32[16@data,32]", "i: data", "k", lambda r, c: f"{2 * r},{2 * r + 1}")
    p.text(250, 390, "@", "middle bold")
    matrix(p, 310, 338, 168, (1, 2), "float32[32,64@model]", "k", "j: model", half)
    p.text(512, 390, "=", "middle bold")
    matrix(p, 590, 338, 168, (4, 2), "float32[16@data,64@model]", "i: data", "j: model", one)
    p.box(24, 466, 752, 80)
    p.text(40, 488, "The line in the ledger", "bold")
    p.text(40, 512, "collective     mesh axes      devices  count  bytes/device  pass      caused by", "mono muted")
    p.text(40, 532, "all_gather     model                2      1           512  forward   matmul", "mono")
    return p


def gathers():
    p = Picture(462, "Gathers and frees of block weights in a step under FSDP",
                "While a block computes, the weights of the next one are gathered; each weight is freed after its use. "
                "At most two of the three blocks are in memory, in the forward and in the backward pass.")
    p.text(24, 32, "FSDP: one step of a model with three blocks", "head")
    p.text(24, 52, "reshard_after_forward = true, prefetch_groups = 1, several processes, from the second step on",
           "small muted")
    start, unit, top = 132, 35, 92
    at = lambda time: start + unit * time
    lanes = {"compute": top, "all_gather": top + 42, "reduce_scatter": top + 84}
    for words, y in lanes.items():
        p.text(24, y + 18, words, "mono" if words in COLLECTIVES else "small bold")
    # (begin, end, block) of each computation; gathers begin with the computation before, and reduce-scatters after.
    forward, backward = [(1, 3, 0), (3, 5, 1), (5, 7, 2)], [(7, 10, 2), (10, 13, 1), (13, 16, 0)]
    begin_of_gather = [0, 1, 3, 5, 7, 10]
    freed, kept = [(0, 0)], [(0, 0)]
    for i, (begin, end, block) in enumerate(forward + backward):
        p.box(at(begin) + 1, lanes["compute"], unit * (end - begin) - 2, 28, tint(block))
        p.text(at((begin + end) / 2), lanes["compute"] + 18.5, f"block {block}", "middle small")
        p.labeled(at(begin_of_gather[i]) + 1, lanes["all_gather"], unit - 2, 28, f"{block}", "all_gather",
                  "middle small bold inverse")
        if i >= len(forward):
            p.labeled(at(end) + 1, lanes["reduce_scatter"], unit - 2, 28, f"{block}", "reduce_scatter",
                      "middle small bold inverse")
    p.labeled(at(17) + 1, lanes["compute"], 1.3 * unit, 28, "update", "box", "middle small")
    for words, left in (("forward", 1), ("backward", 7)):
        p.text(at(left) + 1, top - 8, words, "small bold")
    changes = [(time, 1) for time in begin_of_gather]
    changes += [(t, -0.5) for begin, end, _ in forward + backward for t in ((begin + end) / 2, end)]
    memory = 0
    for time in sorted({time for time, _ in changes}):
        freed += [(time, memory), (time, memory := memory + sum(change for when, change in changes if when == time))]
    for count, time in enumerate(begin_of_gather[:3]):
        kept += [(time, count), (time, count + 1)]
    kept += [(17, 3), (17, 0)]
    base, block = 406, 48
    scaled = lambda points: [(at(t), base - block * m) for t, m in points]
    p.path(scaled(freed), "area")
    p.path(scaled(kept), "dashed")
    p.path(scaled(freed), "thick")
    p.path([(at(0), base), (at(18) + 10, base)], arrow=True)
    p.path([(at(0), base), (at(0), base - 3.5 * block)], arrow=True)
    for count in range(4):
        p.text(at(0) - 10, base - block * count + 4, f"{count}", "end small")
    p.lines(24, base - 3 * block + 4, ["gathered", "weights,", "in blocks"], "small", 16)
    p.text(at(18) + 8, base + 18, "time", "end small")
    p.path([(at(0), 440), (at(0) + 28, 440)], "thick")
    p.text(at(0) + 36, 444, "each weight is freed after its use", "small")
    p.path([(at(7), 440), (at(7) + 28, 440)], "dashed")
    p.text(at(7) + 36, 444, "reshard_after_forward = false: kept until the step ends", "small")
    return p


def device_grid(p, x, y, axes, size, device_of):
    """A mesh of two axes as a grid; a device has the tint of its machine."""
    (rows, columns), (w, h) = axes, size
    for r in range(rows[1]):
        p.text(x - 10, y + (r + 0.5) * h + 4, f"{rows[0]} {r}", "end small")
        for c in range(columns[1]):
            device = device_of(r, c)
            p.labeled(x + c * w + 8, y + r * h + 7, w - 16, h - 14, f"CPU {device}", tint(device // 4 * 2),
                      "middle small")
    for c in range(columns[1]):
        p.text(x + (c + 0.5) * w, y - 8, f"{columns[0]} {c}", "middle small")


def processes():
    p = Picture(554, "Machines, processes, devices and mesh axes",
                "Two machines run two processes each; each process has two devices. Without a mark, the axis named "
                "last is within a process and data spans all processes. With across, adjacent coordinates of data are "
                "on different machines.")
    p.text(24, 32, "Two machines, four processes, eight devices", "head")
    for machine in range(2):
        x = 24 + machine * 384
        p.box(x, 48, 368, 116, "box")
        p.text(x + 14, 70, f"machine {machine}: node{machine + 1}", "bold")
        for local in range(2):
            process, left = machine * 2 + local, x + 14 + local * 174
            p.box(left, 82, 166, 68, "frame")
            p.text(left + 10, 100, f"process {process}", "small bold")
            for i in range(2):
                p.labeled(left + 10 + i * 76, 110, 70, 30, f"CPU {process * 2 + i}", tint(machine * 2), "middle small")
    p.text(24, 200, 'make_mesh({{"data", 4}, {"model", 2}})', "mono bold")
    device_grid(p, 84, 240, [("data", 4), ("model", 2)], (76, 44), lambda r, c: r * 2 + c)
    for process in range(4):
        p.box(87, 242 + process * 44, 146, 40, "frame")
        p.text(244, 266 + process * 44, f"process {process}", "small")
    p.lines(24, 446, ["The axis model, named last, is within a process.",
                      "The axis data is across processes: 0 and 1 are on", "machine 0, 2 and 3 on machine 1."])
    p.text(408, 200, 'make_mesh({{"model", 2}, {"data", 4, across}})', "mono bold")
    device_grid(p, 468, 240, [("model", 2), ("data", 4)], (76, 44), lambda r, c: c % 2 * 4 + c // 2 * 2 + r)
    for c in range(4):
        p.box(470 + c * 76, 242, 72, 84, "frame")
        p.text(468 + (c + 0.5) * 76, 344, f"process {c % 2 * 2 + c // 2}", "middle small")
    p.lines(408, 446, ["The axis data is marked across: its coordinate i", "is on machine i % 2.",
                       "The axis model is still within a process."])
    p.lines(24, 518, ["Color: machine. Frame: process. Each process has a box of the mesh; all boxes are equal.",
                      "A collective runs first among the devices of each process, then among the processes."],
            "small muted")
    return p


PICTURES = {"mesh": mesh, "rules": rules, "strategies": strategies, "conflict": conflict, "gathers": gathers,
            "processes": processes}


def main(out=Path(__file__).parent):
    for name, draw in PICTURES.items():
        (Path(out) / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
