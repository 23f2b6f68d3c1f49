// The code of docs/data_streams.md: a program that continues where its last run stopped, and streams of packed rows.
// The texts are those that data.cpp writes.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>
#include <tessera/data/sources.h>
#include <tessera/data/text.h>

using namespace tessera;

void resume() {
  const auto bytes = data::ByteSource::open({"books"}, {.extensions = {".txt"}});
  const auto tokens = data::windows(bytes, 257).shuffle(42).repeat();
  data::Loader loader(tokens, data::token_batch, {.batch_size = 32});

  if (std::ifstream saved("input.json"); saved) {
    const std::string text(std::istreambuf_iterator<char>(saved), {});
    loader.restore(data::LoaderState::from_json(text));
  }
  for (int step = 0; step < 100; ++step) {
    const data::TokenBatch batch = *loader.next();  // int32[32,256] twice: inputs, targets
    if (step == 0) std::cout << batch.inputs.value.type_string() << " from epoch " << loader.progress().epoch << "\n";
  }
  std::ofstream("input.json") << loader.state().to_json();  // the next run continues with batch 100
}

std::vector<int32_t> tokenize(const std::string& text) {
  static const auto tokenizer = data::Tokenizer::bytes();
  return tokenizer.encode(text).ids;
}

void mixed() {
  const auto is_long = [](const std::string& line) { return line.size() > 30; };
  const auto books = data::lines({"books/a.txt"}).filter(is_long).map(tokenize).pack({.length = 65});
  const auto code = data::lines({"books/b.txt"}).map(tokenize).pack({.length = 65});
  const auto rows = data::mix({0.7, 0.3}, books, code).shuffle(100, 1);
  data::Loader loader(rows, data::packed_tokens, {.batch_size = 8});
  std::cout << loader.next()->inputs.value.type_string() << '\n';
}

void in_parts() {
  const auto documents = data::lines({"books"}, {.extensions = {".txt"}}).shuffle(0).repeat();
  const auto rows = data::divided(
      4, documents, [](const auto& part) { return part.map(tokenize).pack({.length = 65}).shuffle(100, 1); });
  data::Loader loader(rows, data::packed_tokens, {.batch_size = 8, .shard = {.index = 0, .count = 2}});
  std::cout << loader.next()->inputs.value.type_string() << '\n';
}

int main() {
  resume();
  mixed();
  in_parts();
}
