// Rows of mapped tensors, with a guard around the map.
#include "data/safetensors_source.h"

#include "data/map_guard.h"
#include "sharding/safetensors.h"

namespace tessera::data::detail {

namespace {

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  fail(ErrorKind::bad_file, "safetensors_rows", path + ": " + what);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

struct SafetensorsRows::Contents {
  SafetensorsFile file;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<MapGuard>> guards;  // one a tensor
  int64_t rows = 0;
};

SafetensorsRows::SafetensorsRows(const std::string& path, const std::vector<std::string>& names) {
  auto contents = std::make_shared<Contents>(Contents{SafetensorsFile::open(path), names, {}});
  if (names.empty()) bad(path, "the record has no arrays, expected a struct of arrays with the tensors' names");
  for (const std::string& name : names) {
    if (!contents->file.contains(name))
      bad(path, "no tensor \"" + name + "\"; it has " + joined(contents->file.names()));
    const Shape& shape = contents->file.info(name).shape;
    if (shape.empty()) bad(path, "\"" + name + "\" is a scalar, expected rows along its first dim");
    if (&name != &names.front() && shape.front() != contents->rows) {
      bad(path, "\"" + name + "\" has " + std::to_string(shape.front()) + " rows and \"" + names.front() + "\" " +
                    std::to_string(contents->rows) + ", expected as many");
    }
    contents->rows = shape.front();
    const auto bytes = contents->file.bytes(name);
    contents->guards.push_back(std::make_unique<MapGuard>(bytes.data(), bytes.size()));
  }
  if (contents->rows == 0) bad(path, "\"" + names.front() + "\" has no rows, expected at least one");
  contents_ = std::move(contents);
}

int64_t SafetensorsRows::size() const { return contents_->rows; }

Array SafetensorsRows::row(size_t tensor, int64_t index) const {
  const std::string& name = contents_->names[tensor];
  const TensorInfo& info = contents_->file.info(name);
  const auto bytes = contents_->file.bytes(name);
  const size_t each = bytes.size() / static_cast<size_t>(contents_->rows);
  const Array row = array_from_bytes(bytes.subspan(static_cast<size_t>(index) * each, each), info.dtype,
                                     Shape(info.shape.begin() + 1, info.shape.end()));
  if (contents_->guards[tensor]->is_broken()) {
    bad(contents_->file.path().string(),
        "the file was cut short while row " + std::to_string(index) + " of \"" + name + "\" was read");
  }
  return row;
}

std::string SafetensorsRows::describe() const {
  std::string text = "safetensors(" + std::to_string(contents_->rows) + " rows of";
  for (const std::string& name : contents_->names) {
    const TensorInfo& info = contents_->file.info(name);
    text += " " + name + " " + std::string(name_of(info.dtype)) + tessera::to_string(info.shape);
  }
  return text + ")";
}

}  // namespace tessera::data::detail
