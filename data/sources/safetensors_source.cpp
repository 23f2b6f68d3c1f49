// Reads rows of mapped tensors from a file that is watched for changes.
#include "data/sources/safetensors_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "data/sources/file_watch.h"
#include "data/sources/source.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/files/safetensors.h"

namespace tessera::data::detail {

namespace {

[[noreturn]] void bad_rows(const std::string& path, const std::string& what) {
  fail(ErrorKind::invalid_file, "safetensors_rows", "{}: {}", path, what);
}

}  // namespace

struct SafetensorsRows::Contents {
  Contents(const std::string& path, std::vector<std::string> tensors)
      : watch(path), file(SafetensorsFile::open(path)), names(std::move(tensors)) {}

  FileWatch watch;
  SafetensorsFile file;
  std::vector<std::string> names;
  int64_t rows = 0;
  std::string bytes;  // number of bytes, and a checksum
};

SafetensorsRows::SafetensorsRows(const std::string& path, const std::vector<std::string>& names) {
  auto contents = std::make_shared<Contents>(path, names);
  if (names.empty()) bad_rows(path, "the record has no arrays, expected a struct of arrays with the tensors' names");
  for (const std::string& name : names) {
    if (!contents->file.contains(name)) {
      constexpr size_t max_names = 20;  // a longer list hides the error
      std::vector<std::string> known = contents->file.names();
      const bool has_more = known.size() > max_names;
      known.resize(std::min(known.size(), max_names));
      bad_rows(path,
               fmt::format("no tensor \"{}\"; it has {}{}", name, fmt::join(known, ", "), has_more ? ", ..." : ""));
    }
    const Shape& shape = contents->file.info(name).shape;
    if (shape.empty()) bad_rows(path, fmt::format("\"{}\" is a scalar, expected rows along its first dim", name));
    if (&name != &names.front() && shape.front() != contents->rows)
      bad_rows(path, fmt::format("\"{}\" has {} rows and \"{}\" {}, expected as many", name, shape.front(),
                                 names.front(), contents->rows));
    contents->rows = shape.front();
  }
  if (contents->rows == 0) bad_rows(path, fmt::format("\"{}\" has no rows, expected at least one", names.front()));
  contents->bytes = ByteSource::open({path}).describe();
  contents_ = std::move(contents);
}

int64_t SafetensorsRows::size() const { return tessera::detail::held(contents_, "safetensors_rows", "source").rows; }

Array SafetensorsRows::row(size_t tensor, int64_t index) const {
  const Contents& contents = tessera::detail::held(contents_, "safetensors_rows", "source");
  const std::string& name = contents.names[tensor];
  const TensorInfo& info = contents.file.info(name);
  contents.watch.check();
  const auto bytes = contents.file.bytes(name);
  const size_t each = bytes.size() / static_cast<size_t>(contents.rows);
  const auto row = bytes.subspan(static_cast<size_t>(index) * each, each);
  contents.file.check_values(name, row);
  return array_from_bytes(row, info.dtype, Shape(info.shape.begin() + 1, info.shape.end()));
}

std::string SafetensorsRows::describe() const {
  const Contents& contents = tessera::detail::held(contents_, "safetensors_rows", "source");
  std::string text = fmt::format("{} | safetensors({} rows of", contents.bytes, contents.rows);
  for (const std::string& name : contents.names) {
    const TensorInfo& info = contents.file.info(name);
    text += fmt::format(" {} {}{}", name, name_of(info.dtype), tessera::to_string(info.shape));
  }
  return text + ")";
}

}  // namespace tessera::data::detail
