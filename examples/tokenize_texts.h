// The documents that tokenize reads: of JSON lines, of text with a separator, of whole files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/data/datasets.h>

namespace tessera::examples {

// Files whose documents are opened together: one file, or whole text files in a row.
struct TextInput {
  enum class Kind { json_lines, separated, whole };
  Kind kind = Kind::whole;
  std::vector<std::string> paths;
};

// The files below `paths` (data/sources/file_list.h) in their order. Of .jsonl, .jsonl.gz and .jsonl.zst each line is a
// document, its field "text"; any other file is one document, or where there is a separator what lies between lines
// that are the separator (an empty one: between empty lines).
std::vector<TextInput> text_inputs(const std::vector<std::string>& paths, const std::optional<std::string>& separator);

// Returns the input's documents in order, without byte order marks. Separators without a line between them delimit no
// document.
data::Dataset<std::string> texts_of(const TextInput& input, const std::optional<std::string>& separator);

}  // namespace tessera::examples
