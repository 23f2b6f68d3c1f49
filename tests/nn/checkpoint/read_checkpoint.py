"""Reads a folder of safetensors files with another library's reader, and prints each tensor: name, shape, type, sum.

The exit status is 77 if this Python has no such reader.
"""
import pathlib, sys


def show(name, values, dtype):
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    print(f"{name} {list(values.shape)} {dtype} {values.sum():.6f} {values.flat[0]:.6f} {values.flat[-1]:.6f}")


def with_safetensors(folder):
    from safetensors import safe_open

    try:
        import jax  # noqa: F401  (numpy alone has no bfloat16)

        framework = "flax"
    except ImportError:
        framework = "pt"
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework=framework) as tensors:
            for name in tensors.keys():
                x = tensors.get_tensor(name)
                show(name, x.float() if framework == "pt" else x.astype("float32"), str(x.dtype).split(".")[-1])


def with_torch_dcp(folder):
    import torch
    import torch.distributed.checkpoint as dcp

    reader = dcp.HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(m.size, dtype=m.properties.dtype) for name, m in metadata.items()}
    dcp.load(state, storage_reader=reader, no_dist=True)
    for name in sorted(state):
        show(name, state[name].float().numpy(), str(state[name].dtype).split(".")[-1])


def with_orbax(folder):
    import orbax.checkpoint.experimental.v1 as ocp

    with ocp.Context(checkpoint_layout=ocp.options.CheckpointLayout.SAFETENSORS):
        state = ocp.load(folder)
    for name in sorted(state):
        show(name, state[name].astype("float32"), state[name].dtype)


READERS = {"safetensors": with_safetensors, "torch_dcp": with_torch_dcp, "orbax": with_orbax}

if __name__ == "__main__":
    try:
        READERS[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve())
    except ImportError as error:
        print(error)
        sys.exit(77)
