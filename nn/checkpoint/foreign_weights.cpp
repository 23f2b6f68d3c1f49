// Reads the weights of other libraries by a WeightMap, and reports everything that does not fit.
#include "nn/checkpoint/foreign_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

class Reader {
 public:
  Reader(const SafetensorsFile& file, const std::string& prefix)
      : file_(file), prefix_(prefix.empty() ? "" : prefix + ".") {}

  // Reads the tensor of the first of these names, "a|b", that the file has; absent if it has none.
  Array read(const std::string& names) {
    for (const std::string_view one : tessera::detail::split_text(names, "|"))
      if (const std::string name = prefix_ + std::string(one); file_.contains(name))
        return used_.insert(name), file_.array(name);
    missing.push_back(prefix_ + names);
    return {};
  }
  // Returns the tensors below the prefix that were not read.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const std::string& name : file_.names())
      if (name.starts_with(prefix_) && !used_.contains(name)) names.push_back(name);
    return names;
  }
  std::vector<std::string> missing;

 private:
  const SafetensorsFile& file_;
  std::string prefix_;
  std::set<std::string> used_;
};

// Returns the new value of a leaf, or an absent array after adding a line to `wrong`.
Array converted(Reader& reader, const Leaf& leaf, const WeightRow& row, std::vector<std::string>& wrong) {
  std::vector<Array> tensors;
  for (const std::string& name : row.theirs) tensors.push_back(reader.read(name));
  for (const Array& tensor : tensors)
    if (tensor.is_absent()) return {};
  std::string given;
  try {
    const Array value = row.convert(tensors, leaf.value->shape());
    if (value.shape() == leaf.value->shape())
      return place_parameter_as(astype(value, leaf.value->dtype()), *leaf.value);
    given = value.type_string();
  } catch (const Error& error) {
    given = error.what();
  }
  wrong.push_back(fmt::format("{}: {} gives {}, expected {}", leaf.path, fmt::join(row.theirs, ", "), given,
                              leaf.value->type_string()));
  return {};
}

}  // namespace

void load_weights(const Leaves& ours, const SafetensorsFile& file, const std::string& prefix, const WeightMap& map) {
  Reader reader(file, prefix);
  std::vector<std::string> wrong;
  std::vector<Array> values;
  for (const WeightRow& row : map)
    if (row.ours.empty())
      for (const std::string& name : row.theirs) reader.read(name);
  reader.missing.clear();
  for (const Leaf& leaf : ours) {
    const auto row = std::find_if(map.begin(), map.end(), [&](const WeightRow& r) { return r.ours == leaf.path; });
    if (row == map.end())
      wrong.push_back(leaf.path + ": no row of the map"), values.emplace_back();
    else
      values.push_back(converted(reader, leaf, *row, wrong));
  }
  if (!reader.missing.empty()) wrong.push_back(fmt::format("missing: {}", fmt::join(reader.missing, ", ")));
  if (const auto left = reader.left(); !left.empty())
    wrong.push_back(fmt::format("in no row of the map: {}", fmt::join(left, ", ")));
  if (!wrong.empty())
    fail(ErrorKind::invalid_file, "load_weights",
         "{}: {}. Choose the prefix, the library and the layer's options that the file was made with.",
         file.path().filename().string(), fmt::join(wrong, "; "));
  for (size_t i = 0; i < ours.size(); ++i) *ours[i].value = values[i];
}

}  // namespace tessera::nn::detail
