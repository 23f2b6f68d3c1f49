// Finds the row of a table of names for each array of a model.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "nn/checkpoint/hugging_face.h"
#include "sharding/base/fail.h"

namespace tessera::nn {

namespace {

// Splits layers.12.norm1.scale into layers.#.norm1.scale and 12.
std::pair<std::string, std::string> without_number(const std::string& path) {
  constexpr std::string_view before = "layers.";
  if (!path.starts_with(before)) return {path, ""};
  const size_t end = path.find_first_not_of("0123456789", before.size());
  if (end == before.size() || end == path.npos) return {path, ""};
  return {fmt::format("{}#{}", before, path.substr(end)), path.substr(before.size(), end - before.size())};
}

std::string with_number(std::string_view pattern, const std::string& number) {
  const size_t at = pattern.find('#');
  if (at == pattern.npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), number, pattern.substr(at + 1));
}

}  // namespace

std::vector<HuggingFaceName> hugging_face_names(const HuggingFaceNames& table, const Leaves& model) {
  std::vector<HuggingFaceName> names;
  for (const Leaf& leaf : model) {
    const auto [pattern, number] = without_number(leaf.path);
    const auto row =
        std::find_if(table.rows.begin(), table.rows.end(), [&](const auto& r) { return r.path == pattern; });
    if (leaf.path.find(".lora.") != std::string::npos)
      fail(ErrorKind::invalid_argument, "hugging_face",
           "{}: a LoRA adapter, expected a model without. Call merge_lora first.", leaf.path);
    if (row == table.rows.end())
      fail(ErrorKind::invalid_argument, "hugging_face",
           "{}: this path is not in the map of {}. nn/checkpoint/hugging_face.h lists the fields.", leaf.path,
           table.model_type);
    names.push_back(*row);
    names.back().path = leaf.path, names.back().name = with_number(row->name, number);
  }
  return names;
}

}  // namespace tessera::nn
