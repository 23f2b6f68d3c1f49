// Fuzzes JSON lines of a struct: a line is rejected with invalid_file, or its record has no more items than bytes.
#include "data/sources/json_lines.h"
#include "tests/fuzz/scratch_file.h"

namespace {

struct Part {
  std::string name;
  std::vector<uint8_t> bytes;
};

struct Record {
  int32_t id;
  std::optional<double> weight;
  std::vector<Part> parts;
  std::optional<bool> flag;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  std::optional<data::LineSource> lines;
  try {
    lines = data::LineSource::from_string(std::string(fuzz::text_of(bytes, size)), "input");
  } catch (const Error& error) {  // a byte order mark alone has no line
    if (error.kind() != ErrorKind::invalid_file || size > 3) std::abort();
    return 0;
  }
  const data::detail::JsonRecords<Record> records{*lines};
  for (int64_t i = 0; i < records.size(); ++i) {
    try {
      const Record record = records[i];
      size_t items = record.parts.size();
      for (const Part& part : record.parts) items += part.bytes.size();
      if (items > (*lines)[i].size()) std::abort();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_file) std::abort();
    }
  }
  return 0;
}
