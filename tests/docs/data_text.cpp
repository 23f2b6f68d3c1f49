// The code of docs/data_text.md: lines of text, tokenized and packed into rows.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <tessera/data/batches.h>
#include <tessera/data/sources.h>
#include <tessera/data/text.h>

using namespace tessera;

void write_texts() {
  std::filesystem::create_directory("texts");
  std::ofstream text("texts/a.txt");
  for (int line = 0; line < 400; ++line) text << "It was line " << line << ".\n";
}

int main() {
  write_texts();
  const auto tokenizer = data::Tokenizer::bytes();  // or Tokenizer::open("Llama-3.2-1B")
  const auto tokenize = [tokenizer](const std::string& line) { return tokenizer.encode(line).ids; };
  const auto documents = data::lines({"texts"}, {.extensions = {".txt"}}).map(tokenize).shuffle(0);
  data::Loader loader(documents.pack({.length = 65}), data::packed_tokens, {.batch_size = 8});
  std::cout << loader.next()->inputs.value.type_string() << '\n';
}
