// Encodes a text again and again, for tokenizer.py.
//
//   tokenizer TOKENIZER TEXT      a folder or tokenizer.json, and a UTF-8 file
//
// Reads "text" or "lines" from each line of the input: encodes the text as one string, or each of its lines. Prints the
// seconds of CPU time and the number of tokens.
#include "data/text/tokenizer.h"

#include <time.h>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/files/file.h"

namespace {

double cpu_seconds() {
  struct timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: tokenizer TOKENIZER TEXT\n", 2;
  const auto tokenizer = tessera::data::Tokenizer::open(argv[1]);
  const std::string text = tessera::read_text(argv[2], "tokenizer");
  for (std::string what; std::getline(std::cin, what);) {
    const auto texts = what == "lines" ? lines_of(text) : std::vector<std::string_view>{text};
    std::vector<tessera::data::Encoding> encodings;
    const double begin = cpu_seconds();
    for (const std::string_view one : texts) encodings.push_back(tokenizer.encode(one));
    const double seconds = cpu_seconds() - begin;
    size_t tokens = 0;
    for (const auto& encoding : encodings) tokens += encoding.ids.size();
    std::cout << seconds << " " << tokens << std::endl;
  }
}
