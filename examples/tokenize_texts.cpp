// Detects kinds of files by name, and joins lines into documents.
#include "examples/tokenize_texts.h"

#include <memory>
#include <string_view>
#include <utility>

#include <tessera/data/sources.h>
#include <tessera/data/sources/json_lines.h>

namespace tessera::examples {
namespace {

bool is_json_lines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz") || path.ends_with(".jsonl.zst");
}

struct LineRange {
  int64_t begin, end;
};

std::vector<LineRange> ranges_between(const data::LineSource& lines, const std::string& separator) {
  std::vector<LineRange> ranges;
  int64_t begin = 0;
  const auto end_at = [&](int64_t end) {
    if (begin < end) ranges.push_back({begin, end});
    begin = end + 1;
  };
  for (int64_t i = 0; i < lines.size(); ++i)
    if (lines[i] == separator) end_at(i);
  end_at(lines.size());
  return ranges;
}

data::Dataset<std::string> separated(const std::string& path, const std::string& separator) {
  const auto lines = data::LineSource::open({path});
  return data::Dataset<LineRange>::from_vector(ranges_between(lines, separator)).map([lines](const LineRange& range) {
    std::string text = lines[range.begin];
    for (int64_t i = range.begin + 1; i < range.end; ++i) text += "\n" + lines[i];
    return text;
  });
}

}  // namespace

std::vector<TextInput> text_inputs(const std::vector<std::string>& paths, const TextOptions& options) {
  using Kind = TextInput::Kind;
  std::vector<TextInput> inputs;
  for (const data::FileEntry& file : data::list_files(paths, {})) {
    const Kind kind = is_json_lines(file.path) ? Kind::json_lines : options.separator ? Kind::separated : Kind::whole;
    if (kind != Kind::whole || inputs.empty() || inputs.back().kind != Kind::whole) inputs.push_back({kind, {}});
    inputs.back().paths.push_back(file.path);
  }
  return inputs;
}

data::Dataset<std::string> texts_of(const TextInput& input, const TextOptions& options) {
  switch (input.kind) {
    case TextInput::Kind::json_lines:
      return data::json_texts(input.paths, options.field);
    case TextInput::Kind::separated:
      return separated(input.paths.front(), *options.separator);
    default:
      return data::documents(input.paths).map([](data::Document document) {
        constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
        if (document.text.starts_with(byte_order_mark)) document.text.erase(0, byte_order_mark.size());
        return std::move(document.text);
      });
  }
}

}  // namespace tessera::examples
