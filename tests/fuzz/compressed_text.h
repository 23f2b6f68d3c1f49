// Reads a compressed file by lines and as one document.
#pragma once

#include "data/sources/text_source.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

namespace tessera::fuzz {

// Both readers accept the file and agree on its lines, or each throws one Error.
inline void read_compressed(const std::string& name, std::string_view bytes) {
  const std::string path = scratch_file(name, bytes);
  try {
    const std::string text = data::DocumentSource::open({path}, {.check_utf8 = false})[0].text;
    if (text.empty()) return;  // a LineSource throws
    const auto lines = data::LineSource::open({path}, {.check_utf8 = false});
    size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
    for (int64_t i = 0; i < lines.size(); ++i) {
      const std::string line = lines[i];
      if (text.compare(begin, line.size(), line) != 0) std::abort();
      begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
    }
    if (begin != text.size()) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
  }
}

}  // namespace tessera::fuzz
