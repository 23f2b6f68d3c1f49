// safetensors_rows: the rows of tensors in safetensors files as records.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "nn/tree/tree.h"

namespace tessera::data {

namespace detail {

// The rows of the tensors of these names in one file.
class SafetensorsRows {
 public:
  // Errors as safetensors_rows.
  SafetensorsRows(const std::string& path, const std::vector<std::string>& names);

  int64_t size() const;
  Array row(size_t tensor, int64_t index) const;
  std::string describe() const;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

template <class Record>
std::vector<std::string> leaf_paths() {
  Record record{};
  std::vector<std::string> paths;
  for (const nn::Leaf& leaf : nn::leaves(record)) paths.push_back(leaf.path);
  return paths;
}

template <class Record>
struct SafetensorsRecords {
  SafetensorsRows rows;
  int64_t size() const { return rows.size(); }
  std::string describe() const { return rows.describe(); }
  Record operator[](int64_t index) const {
    Record record{};
    size_t tensor = 0;
    for (const nn::Leaf& leaf : nn::leaves(record)) *leaf.value = rows.row(tensor++, index);
    return record;
  }
};

}  // namespace detail

// Record i holds row i of each tensor: a struct whose arrays have the tensors' names ("image.pixels" is the field
// pixels of the field image), each without its first dim:
//
//   struct Example { NamedArray image{"batch", "pixel"};  NamedArray label{"batch"}; };
//   Loader loader(safetensors_rows<Example>("train.safetensors").shuffle(0), stack, {.batch_size = 32});
//
// The file is memory-mapped; tensors that the struct does not name are ignored. For several files, use concat.
// Errors (invalid_file), naming file and tensor: as SafetensorsFile::open, a tensor that is missing, a scalar, tensors
// that differ in their number of rows, no rows, and a file that was written to or cut short before a read: it is looked
// at every few milliseconds. Rows that are cut off after a look, or that a failing disk does not give, end the process
// when they are read (SIGBUS), as in every program that maps files: write a new file and rename it to the old one's
// name, or read a copy.
template <class Record>
auto safetensors_rows(const std::string& path) {
  return from_source(detail::SafetensorsRecords<Record>{detail::SafetensorsRows(path, detail::leaf_paths<Record>())});
}

}  // namespace tessera::data
