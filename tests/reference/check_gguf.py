"""Checks files of save_gguf by the Python packages of llama.cpp.

  python check_gguf.py FILE FOLDER [FILE FOLDER...]        (gguf 0.19, safetensors 0.8)

FOLDER has the same model as save_pretrained writes it. Reads each file by llama.cpp's package `gguf`, and compares all
values with those of the folder under llama.cpp's own map of names. If the package llama_cpp_py_sync is installed, runs
llama.cpp and compares with the files of FOLDER, if they are there:
  expected.json of gen_hf.py     the logits at the last position, and the greedy tokens
  tokens.json of gen_gguf.py     the tokens of texts
"""
import glob
import importlib.util
import json
import math
import os
import sys

import gguf
import numpy
from safetensors import safe_open


def load(path):
    with open(path) as file:
        return json.load(file)


def theirs(folder):
    """The folder's tensors, as float32 of numpy."""
    tensors = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            tensors |= {name: file.get_tensor(name).astype(numpy.float32) for name in file.keys()}
    return tensors


def converted(arch, name, values, config):
    """The values as llama.cpp's convert_hf_to_gguf.py stores them."""
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return values.T
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    for part, key in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if arch == "llama" and part in name:
            heads = config[key]
            halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
            return halves.swapaxes(1, 2).reshape(values.shape)
    return values


def stored(tensor):
    """The tensor's values in the file, as float32."""
    if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return tensor.data.astype(numpy.float32)


def factors(config):
    rope, dim = config["rope_parameters"], config["head_dim"]
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / dim)
        old, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
        if wavelength < old / high:
            yield 1
        elif wavelength > old / low:
            yield rope["factor"]
        else:
            smooth = (old / wavelength - low) / (high - low)
            yield 1 / ((1 - smooth) / rope["factor"] + smooth)


def check_tensors(reader, arch, folder, config):
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = gguf.get_tensor_name_map({name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}[arch], layers)
    ours = {tensor.name: tensor for tensor in reader.tensors}
    if (rope := config.get("rope_parameters", {})).get("rope_type") == "llama3":
        assert numpy.allclose(stored(ours.pop("rope_freqs.weight")), list(factors(config)), rtol=1e-6, atol=0), rope
    for name, values in theirs(folder).items():
        tensor = ours.pop(names.get_name(name, try_suffixes=(".weight", ".bias")))
        expected = converted(arch, name, values, config)
        if tensor.tensor_type != gguf.GGMLQuantizationType.F32:
            expected = gguf.quants.dequantize(gguf.quants.quantize(expected, tensor.tensor_type), tensor.tensor_type)
        assert values.ndim > 1 or tensor.tensor_type == gguf.GGMLQuantizationType.F32, name
        numpy.testing.assert_array_equal(stored(tensor), expected, err_msg=name)
    assert not ours, f"not in the folder: {list(ours)}"


def check_by_llama(path, folder):
    from llama_cpp_py_sync import Llama
    from llama_cpp_py_sync._cffi_bindings import get_lib
    lib = get_lib()
    llama = Llama(path, n_ctx=128, n_gpu_layers=0, verbose=False, type_k="f32", type_v="f32", flash_attn_type=0)
    report = []
    if os.path.exists(path := os.path.join(folder, "expected.json")):
        expected = load(path)
        largest = 0
        for row, logits in zip(expected["ids"], expected["logits_last"]):
            llama._clear_context_state()
            llama._eval_tokens(row, 0)
            found = lib.llama_get_logits_ith(llama._ctx, -1)
            largest = max(largest, *(abs(found[i] - logit) for i, logit in enumerate(logits)))
        llama._clear_context_state()
        tokens = expected["ids"][0][:8]
        past = llama._eval_tokens(tokens, 0)
        while len(tokens) < len(expected["greedy"]):
            found = lib.llama_get_logits_ith(llama._ctx, -1)
            tokens.append(max(range(len(logits)), key=lambda i: found[i]))
            past = llama._eval_tokens(tokens[-1:], past)
        same = sum(a == b for a, b in zip(tokens, expected["greedy"])) - 8
        report.append(f"logits differ by up to {largest:.1e}, {same} of {len(tokens) - 8} greedy tokens are equal")
    if os.path.exists(path := os.path.join(folder, "tokens.json")):
        cases = load(path)
        same = sum(llama.tokenize(case["text"], True, True) == case["ids"] for case in cases)
        report.append(f"the tokens of {same} of {len(cases)} texts are equal")
    llama.close()
    return "; ".join(report)


def main():
    for path, folder in zip(sys.argv[1::2], sys.argv[2::2]):
        config = load(os.path.join(folder, "config.json"))
        reader = gguf.GGUFReader(path)
        arch = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
        check_tensors(reader, arch, folder, config)
        report = f"{os.path.basename(path)}: {len(reader.fields)} keys, {len(reader.tensors)} tensors"
        if importlib.util.find_spec("llama_cpp_py_sync"):
            report += "; llama.cpp: " + check_by_llama(path, folder)
        print(report)


main()
