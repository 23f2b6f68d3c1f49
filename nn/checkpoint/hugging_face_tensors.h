// save_tensors, which passes the tensors of save_pretrained to a writer of another format.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "nn/checkpoint/hugging_face.h"
#include "sharding/files/safetensors_writer.h"

namespace tessera::nn::detail {

// A plan to write tensors. Every process has the same plan:
//   {.order = {"a", "b"}, .identity = "2 tensors", .write = [](const auto& next) { store(next()), store(next()); }}
struct TensorsToWrite {
  std::vector<std::string> order;  // names of the tensors, as `next` returns them
  // Describes the tensors: "2 tensors". If it differs between processes, saving throws "process 0 has 2 tensors, ...".
  std::string identity;
  std::function<void(const std::function<at::Tensor()>& next)> write;  // calls `next` once per tensor
};

// Plans and writes the tensors of a model, with the names and in the layout of Hugging Face. If arrays are on a mesh
// across processes, all processes must call this. Each runs `plan`, process 0 runs `write`, and each holds one
// unsharded tensor at a time. Errors: those of save_pretrained, `plan` and `write`, on all processes.
void save_tensors(const std::filesystem::path& path, const HuggingFaceNames& table, const Leaves& model, int64_t vocab,
                  const std::function<TensorsToWrite(const std::vector<TensorEntry>&)>& plan);

}  // namespace tessera::nn::detail
