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

// The rows of the named tensors of one file.
class SafetensorsRows {
 public:
  // Opens the file and finds the tensors. Errors: as safetensors_rows.
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

// Returns row i of each tensor as record i: a struct whose arrays have the tensors' names ("image.pixels" is the field
// pixels of the field image), each without its first dimension:
//
//   struct Example { NamedArray image{"batch", "pixel"};  NamedArray label{"batch"}; };
//   Loader loader(safetensors_rows<Example>("train.safetensors").shuffle(0), stack, {.batch_size = 32});
//
// The file is memory-mapped; tensors that the struct does not name are ignored. For several files, use concat.
// Errors (invalid_file), which name file and tensor
//   those of SafetensorsFile::open
//   a missing tensor; a scalar; tensors with different numbers of rows; no rows
//   a file that was written to or truncated before a read (its size and change time are checked every few milliseconds)
// Rows that are truncated after a check, or that a failing disk does not return, end the process (SIGBUS) when they are
// read. This holds for every program that maps files. To avoid it, write a new file and rename it to the old one's
// name, or read a copy.
template <class Record>
auto safetensors_rows(const std::string& path) {
  return from_source(detail::SafetensorsRecords<Record>{detail::SafetensorsRows(path, detail::leaf_paths<Record>())});
}

}  // namespace tessera::data
