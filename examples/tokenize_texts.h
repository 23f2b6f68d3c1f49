// The documents that `tokenize` reads: JSON lines, sections of a text between separators, or whole files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/data/datasets.h>

namespace tessera::examples {

// Files whose documents are opened together: one file, or consecutive whole text files.
struct TextInput {
  enum class Kind { json_lines, separated, whole };
  Kind kind = Kind::whole;
  std::vector<std::string> paths;
};

struct TextOptions {
  std::optional<std::string> separator = std::nullopt;  // a line that ends a document of a text file
  std::string field = "text";                           // the field of JSON lines, as in data::json_texts
};

// Lists the files below `paths` (data/sources/file_list.h) in their order. In .jsonl, .jsonl.gz and .jsonl.zst files,
// each line is a document. Any other file is one document. With a separator, its documents are the sections between
// lines that equal the separator (an empty one: between empty lines).
std::vector<TextInput> text_inputs(const std::vector<std::string>& paths, const TextOptions& options = {});

// Returns the input's documents in order, without byte order marks. Consecutive separators without a line between them
// do not make an empty document.
data::Dataset<std::string> texts_of(const TextInput& input, const TextOptions& options = {});

}  // namespace tessera::examples
