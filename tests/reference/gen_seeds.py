"""Set A: seeds_examples.json + seeds_examples.safetensors - the examples of the four seed documents.

Each function below is one example: the document's code, fixed where it no longer runs on
jax 0.10 / flax 0.12 (`fixes`). Everything that the document inspects is recorded. Examples
that the documents only sketch ("model = MyTransformer(...)") get a small substitute, noted in
`fixes`. Weights that affect a number come from a formula, not from a random generator.

The Equinox document uses two devices; its examples run in a second process with REF_NDEV=2.

Run:  python gen_seeds.py
"""

import inspect
import subprocess
import tempfile
import textwrap

from refcommon import *

from seeds_examples import EXAMPLES, TENSORS, Rec


# ------------------------------------------------------------------------------------- run

def run_here():
    """Runs the examples of this process's device count -> [record]."""
    out = []
    for e in EXAMPLES:
        if e["ndev"] != NDEV:
            continue
        r = Rec(e["name"])
        e["f"](r)
        code = textwrap.dedent(inspect.getsource(e["f"]))
        code = code[code.index("def _(r):"):]
        out.append({"id": e["name"], "seed": e["seed"], "section": e["section"], "devices": NDEV,
                    "fixes": e["fixes"], **r.d, "code": code})
        print("  ", e["name"], {k: len(v) for k, v in r.d.items()})
    return out


def main():
    if len(sys.argv) > 1:                       # the two-device child: hand the results over
        recs = run_here()
        Path(sys.argv[1]).write_text(json.dumps(recs))
        np.savez(f"{sys.argv[1]}.npz", **TENSORS)
        return
    with tempfile.TemporaryDirectory() as tmp:
        f = f"{tmp}/two.json"
        subprocess.run([sys.executable, __file__, f], check=True, env={**os.environ, "REF_NDEV": "2"})
        recs = json.loads(Path(f).read_text())
        with np.load(f"{f}.npz") as z:
            TENSORS.update({k: z[k] for k in z.files})
    recs += run_here()
    write_json(HERE / "seeds_examples.json",
               {"meta": {**meta("the seed documents' examples"), "virtual_devices": "8; 2 for the eqx examples that say so"}},
               {"examples": recs})
    save_tensors(HERE / "seeds_examples.safetensors", TENSORS)


if __name__ == "__main__":
    main()
