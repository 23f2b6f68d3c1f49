// Makes the worst inputs of each reader.
#include "tests/limits/cases.h"

#include <fmt/format.h>

#include <boost/crc.hpp>
#include <boost/json/value.hpp>
#include <filesystem>
#include <optional>
#include <string_view>

#include "data/loader/loader_state.h"
#include "data/sources/json_lines.h"
#include "data/sources/text_source.h"
#include "data/sources/token_files.h"
#include "data/text/tokenizer.h"
#include "nn/checkpoint/checkpoint.h"
#include "nn/checkpoint/hugging_face.h"
#include "nn/checkpoint/manifest.h"
#include "nn/models/config.h"
#include "nn/placement/table.h"
#include "nn/report/measure_hardware.h"
#include "nn/report/profile_data.h"
#include "nn/tree/tree_scalars.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/runtime/heartbeat.h"
#include "sharding/runtime/launcher_environment.h"

namespace tessera::limits_test {
namespace {

namespace fs = std::filesystem;
using data::ScratchFolder;
using Make = std::function<std::string(size_t bytes)>;

// ---- texts

std::string repeated(std::string_view piece, size_t bytes) {
  std::string text;
  text.reserve(bytes + piece.size());
  while (text.size() < bytes) text += piece;
  return text;
}

// item(0), item(1), ... separated by commas.
template <class Item>
std::string listed(size_t bytes, Item item) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) text.append(i ? ", " : "").append(item(i));
  return text;
}

std::string deep(size_t bytes) { return repeated("[", bytes); }

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

// ---- cases of one reader

// A case of a reader that takes text in memory.
template <class Read>
Case of_text(std::string name, Make make, Read read) {
  return {std::move(name),
          [=](const ScratchFolder&, size_t bytes) -> Reading { return [read, text = make(bytes)] { read(text); }; }};
}

// A case of a reader that takes the path of `file` in the folder.
template <class Read>
Case of_file(std::string name, const std::string& file, Make make, Read read) {
  return {std::move(name), [=](const ScratchFolder& folder, size_t bytes) -> Reading {
            return [read, path = folder.write(file, make(bytes))] { read(path); };
          }};
}

// JSON takes at most 33 times its size (SECURITY.md): 24 bytes per value, doubled while an array grows.
void add_json(std::vector<Case>& all) {
  const auto json = [&](const char* name, const Make& items) {
    all.push_back(
        of_text(std::string("Json") + name, items, [](const std::string& text) { parse_json(text, "test", "text"); }));
    all.back().max_megabytes = 33;
  };
  const auto array_of = [](std::string_view item) { return [=](size_t n) { return "[" + repeated(item, n) + "0]"; }; };
  json("Digits", array_of("0,"));
  json("EmptyObjects", array_of("{},"));
  json("SmallArrays", array_of("[0],"));
  json("SmallObjects", array_of(R"({"":0},)"));
  json("EmptyTexts", array_of(R"("",)"));
  json("Keys", [](size_t n) { return "{" + listed(n, [](size_t i) { return fmt::format(R"("{}":0)", i); }) + "}"; });
}

void add_safetensors(std::vector<Case>& all) {
  const auto add = [&](const char* name, const Make& header) {
    const auto file = [=](size_t bytes) {
      const std::string text = header(bytes);
      return little_endian(text.size(), 8) + text;
    };
    all.push_back(of_file(std::string("Safetensors") + name, "model.safetensors", file, [](const std::string& path) {
      const auto tensors = SafetensorsFile::open(path);
      for (const std::string& tensor : tensors.names()) tensors.bytes(tensor);
    }));
  };
  constexpr const char* tensor = R"("{}": {{"dtype": "U8", "shape": [{}], "data_offsets": [0, 0]}})";
  const auto zeros = [](size_t bytes) { return listed(bytes, [](size_t) { return "0"; }); };
  add("LongNameAndManyDims",
      [=](size_t n) { return "{" + fmt::format(fmt::runtime(tensor), repeated("a", n / 2), zeros(n / 2)) + "}"; });
  add("ManyDims", [=](size_t n) { return "{" + fmt::format(fmt::runtime(tensor), "a", zeros(n)) + "}"; });
  add("ManyTensors", [=](size_t n) {
    return "{" + listed(n, [&](size_t i) { return fmt::format(fmt::runtime(tensor), i, "0"); }) + "}";
  });
  add("LongMetadata", [](size_t n) { return R"({"__metadata__": {"a": ")" + repeated("b", n) + R"("}})"; });
  add("ManyMetadata", [](size_t n) {
    return R"({"__metadata__": {)" + listed(n, [](size_t i) { return fmt::format(R"("{}": "")", i); }) + "}}";
  });
  add("Deep", deep);
  add("HugeDims", [=](size_t n) {
    return "{" + listed(n, [&](size_t i) { return fmt::format(fmt::runtime(tensor), i, "9223372036854775807, 2"); }) +
           "}";
  });
  all.push_back(of_file(
      "SafetensorsHugeHeader", "model.safetensors",
      [](size_t n) { return little_endian(99'000'000, 8) + repeated("{", n); },
      [](const std::string& path) { SafetensorsFile::open(path); }));
}

void add_checkpoints(std::vector<Case>& all) {
  const auto manifest = [&](const char* name, const Make& tensors) {
    const auto text = [=](size_t n) {
      return R"({"format": "tessera checkpoint", "version": 1, "step": 1, "chunk_bytes": 1048576, "tensors": {)" +
             tensors(n) + "}}";
    };
    all.push_back(of_text(std::string("Manifest") + name, text,
                          [](const std::string& json) { nn::Manifest::from_json(json, "manifest.json"); }));
  };
  const auto tensor = [](const std::string& name, const std::string& shape, const std::string& axes,
                         const std::string& checksums) {
    return fmt::format(R"("{}": {{"dtype": "float32", "shape": [{}], "axes": {}, "file": "params/a.safetensors", )"
                       R"("crc32c": [{}]}})",
                       name, shape, axes, checksums);
  };
  const auto zeros = [](size_t n) { return listed(n, [](size_t) { return "0"; }); };
  manifest("LongNameAndManyDims", [=](size_t n) { return tensor(repeated("a", n / 2), zeros(n / 2), "null", ""); });
  manifest("ManyTensors",
           [=](size_t n) { return listed(n, [&](size_t i) { return tensor(std::to_string(i), "0", "null", ""); }); });
  manifest("ManyChecksums", [=](size_t n) {
    const size_t count = n / 12;
    return tensor("a", std::to_string(count << 18), "null", listed(n, [](size_t) { return R"("0a1b2c3d")"; }));
  });
  manifest("ManyAxes",
           [=](size_t n) { return tensor("a", "0", "[" + listed(n, [](size_t) { return R"("")"; }) + "]", ""); });
  manifest("Deep", deep);
  // One long name among many short ones: a table is as wide as its longest row.
  const auto checkpoint = [=](size_t n) {
    const std::string named = tensor(repeated("a", n / 2), "0", "null", "");
    return R"({"format": "tessera checkpoint", "version": 1, "step": 1, "chunk_bytes": 1048576, "tensors": {)" + named +
           ", " + listed(n / 2, [&](size_t i) { return tensor(std::to_string(i), "0", "null", ""); }) + "}}";
  };
  all.push_back({"CheckpointLongNameAndManyTensors", [=](const ScratchFolder& folder, size_t bytes) -> Reading {
                   const std::string manifest = checkpoint(bytes);
                   const std::string state = R"({"numbers": {}, "extra": {}, "metrics": {}})";
                   folder.write("manifest.json", manifest), folder.write("state.json", state);
                   folder.write("commit_success.txt", nn::commit_mark(manifest, state));
                   return [path = folder.path()] { nn::describe_checkpoint(path); };
                 }});
  const auto state = [&](const char* name, const Make& text) {
    all.push_back(of_text(std::string("State") + name, text,
                          [](const std::string& json) { nn::SavedState::from_json(json, "state.json"); }));
  };
  state("ManyNumbers", [](size_t n) {
    return R"({"numbers": {)" + listed(n, [](size_t i) { return fmt::format(R"("{}": 0)", i); }) +
           R"(}, "extra": {}, "metrics": {}})";
  });
  state("LongExtra", [](size_t n) {
    return R"({"numbers": {}, "extra": {"a": [)" + listed(n, [](size_t) { return "{}"; }) + R"(]}, "metrics": {}})";
  });
  state("Deep", deep);
  const auto index = [&](const char* name, const Make& text) {
    all.push_back(of_text(std::string("Index") + name, text,
                          [](const std::string& json) { nn::SafetensorsIndex::from_json(json, "index.json"); }));
  };
  index("ManyTensors", [](size_t n) {
    return R"({"metadata": {}, "weight_map": {)" + listed(n, [](size_t i) { return fmt::format(R"("{}": "a")", i); }) +
           "}}";
  });
  index("LongName", [](size_t n) { return R"({"weight_map": {")" + repeated("a", n) + R"(": "a"}})"; });
  const auto scalar = [&](const char* name, const Make& text) {
    all.push_back(of_text(std::string("Scalar") + name, text, [](const std::string& json) {
      double value = 0;
      nn::Scalar{"a", nn::ScalarKind::floating, 8, &value}.set_json(json);
    }));
  };
  scalar("ManyDigits", [](size_t n) { return repeated("1", n); });
  scalar("Long", [](size_t n) { return '"' + repeated("a", n) + '"'; });
}

void add_configs(std::vector<Case>& all) {
  const auto config = [&](const char* name, const char* family, const char* layers, const Make& more) {
    const auto text = [=](size_t n) {
      return fmt::format(R"({{"model_type": "{}", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": {}, )"
                         R"("num_attention_heads": 4, "intermediate_size": 176, {}}})",
                         family, layers, more(n));
    };
    all.push_back(of_text(std::string("Config") + name, text,
                          [](const std::string& json) { nn::config_from_hugging_face(json, "config.json"); }));
  };
  const auto layer_types = [](size_t n) {
    return R"("layer_types": [)" + listed(n, [](size_t) { return R"("full_attention")"; }) + "]";
  };
  config("ManyLayers", "mistral", "1000000000000", [](size_t) { return R"("sliding_window": 8)"; });
  config("ManyLayersOfQwen", "qwen2", "9223372036854775807",
         [](size_t) { return R"("use_sliding_window": true, "sliding_window": 8)"; });
  config("ManyLayerTypes", "gemma2", "50000", layer_types);
  config("ManyFactors", "llama", "2", [](size_t n) {
    return R"("rope_scaling": {"type": "longrope", "long_factor": [1], "short_factor": [)" +
           listed(n, [](size_t) { return "1"; }) + "]}";
  });
  config("LongActivation", "llama", "2", [](size_t n) { return R"("hidden_act": ")" + repeated("a", n) + '"'; });
  config("ManyKeys", "llama", "2",
         [](size_t n) { return listed(n, [](size_t i) { return fmt::format(R"("{}": 0)", i); }); });
  config("LongFamily", repeated("a", 100'000).c_str(), "2", [](size_t) { return R"("a": 0)"; });
}

// A model of one weight, its file, and an adapter of PEFT for it.
struct OneWeight {
  nn::Param kernel;
};

void add_pretrained(std::vector<Case>& all) {
  // A file of float32[1,1] tensors with these names, and of `more`.
  const auto weights = [](const std::vector<std::string>& names, const std::string& more) {
    std::string header = "{" + more;
    for (size_t i = 0; i < names.size(); ++i)
      header += fmt::format(R"({}"{}": {{"dtype": "F32", "shape": [1, 1], "data_offsets": [{}, {}]}})",
                            header.size() > 1 ? ", " : "", names[i], 4 * i, 4 * i + 4);
    return little_endian(header.size() + 1, 8) + header + "}" + std::string(4 * names.size(), '\0');
  };
  const auto load = [&](const char* name, const Make& base, const Make& config, const Make& adapter) {
    all.push_back({name, [=](const ScratchFolder& folder, size_t bytes) -> Reading {
                     const std::vector<std::string> matrices = {"w.lora_A.weight", "w.lora_B.weight"};
                     folder.write("base/model.safetensors", weights({"w.weight"}, base(bytes)));
                     folder.write("adapter/adapter_config.json", config(bytes));
                     folder.write("adapter/adapter_model.safetensors", weights(matrices, adapter(bytes)));
                     return [base = folder.path("base"), adapter = folder.path("adapter")] {
                       OneWeight model{.kernel = {zeros({1, 1}), {"in", "out"}}};
                       nn::load_pretrained(base, {.rows = {{.path = "kernel", .name = "w.weight"}}}, nn::leaves(model),
                                           {}, 0, adapter);
                     };
                   }});
  };
  const auto nothing = [](size_t) { return std::string(); };
  const auto lora = [](size_t) { return std::string(R"({"peft_type": "LORA", "r": 1})"); };
  const auto tensors = [](size_t n) {
    return listed(
        n, [](size_t i) { return fmt::format(R"("{}": {{"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})", i); });
  };
  load("PretrainedWithAdapter", nothing, lora, nothing);
  load("PretrainedManyTensors", tensors, lora, nothing);
  load("AdapterManyTensors", nothing, lora, tensors);
  load("AdapterDeepConfig", nothing, deep, nothing);
  load(
      "AdapterManyKeys", nothing,
      [](size_t n) {
        return R"({"peft_type": "LORA", "r": 1, )" + listed(n, [](size_t i) { return fmt::format(R"("{}": 0)", i); }) +
               "}";
      },
      nothing);
}

// ---- tokenizers

// Encodes `text` and decodes its tokens.
void use(const data::Tokenizer& tokenizer, const std::string& text) { tokenizer.decode(tokenizer.encode(text).ids); }

const std::string few_tokens = R"({"a": 0, "b": 1, "aa": 2, "aaaa": 3, "!": 4, " ": 5})";
const std::string few_merges = R"("a a", "aa aa")";

std::string tokenizer_json(const std::string& more, const std::string& vocabulary = few_tokens,
                           const std::string& merges = few_merges) {
  return "{" + more + R"("model": {"type": "BPE", "vocab": )" + vocabulary + R"(, "merges": [)" + merges + "]}}";
}

std::string normalizers(const std::string& steps) {
  return R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}, ";
}

std::string split(const std::string& regex) {
  return R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + regex + R"("}, "behavior": "Isolated"}, )";
}

void add_tokenizers(std::vector<Case>& all) {
  const auto tokenizer = [&](const char* name, const Make& json, const std::string& text) {
    all.push_back(of_text(std::string("Tokenizer") + name, json,
                          [text](const std::string& file) { use(data::Tokenizer::from_json(file), text); }));
  };
  const auto text_of = [&](const char* name, const std::string& json, const Make& text) {
    all.push_back(of_text(std::string("Tokenize") + name, text,
                          [json](const std::string& read) { use(data::Tokenizer::from_json(json), read); }));
  };
  const std::string few = repeated("a", 60), some = repeated("ab! a", 1000), many = repeated("ab! a", 100'000);
  const std::string grow = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})";
  const auto growing = [=](const char* list) {
    return fmt::format(R"({{"type": "Sequence", "{}": [{}]}})", list, listed(900, [&](size_t) { return grow; }));
  };
  const auto always = [](const std::string& json) { return [json](size_t) { return json; }; };

  tokenizer("EmptyMetaspace", always(tokenizer_json(R"("pre_tokenizer": {"type": "Metaspace", "replacement": ""}, )")),
            some);
  tokenizer("EmptyMetaspaceDecoder", always(tokenizer_json(R"("decoder": {"type": "Metaspace", "replacement": ""}, )")),
            some);
  tokenizer("EmptyStrip",
            always(tokenizer_json(
                R"("decoder": {"type": "Strip", "content": "", "start": 9000000000000000000, "stop": 1}, )")),
            some);
  tokenizer("GrowingReplace", always(tokenizer_json("\"normalizer\": " + growing("normalizers") + ", ")), few);
  tokenizer("GrowingReplaceDecoder", always(tokenizer_json("\"decoder\": " + growing("decoders") + ", ")), few);
  tokenizer(
      "GrowingAddedToken",
      always(tokenizer_json(R"("added_tokens": [{"id": 6, "content": "a1a", "normalized": true}], "normalizer": )" +
                            growing("normalizers") + ", ")),
      few);
  tokenizer(
      "ManyPrepends",
      [](size_t n) {
        return tokenizer_json(
            normalizers(listed(n, [](size_t) { return R"({"type": "Prepend", "prepend": "aaaaaaaaaaaaaaaa"})"; })));
      },
      some);
  tokenizer(
      "LongPrepend",
      [](size_t n) {
        return tokenizer_json(normalizers(R"({"type": "Prepend", "prepend": ")" + repeated("a", n) + R"("})"));
      },
      some);
  tokenizer(
      "ManyReplaces",
      [](size_t n) {
        return tokenizer_json(normalizers(
            listed(n, [](size_t) { return R"({"type": "Replace", "pattern": {"String": "a"}, "content": "a"})"; })));
      },
      some);
  tokenizer(
      "LongReplace",
      [](size_t n) {
        return tokenizer_json(normalizers(R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" +
                                          repeated("b", n) + R"("})"));
      },
      some);
  tokenizer(
      "ManyPatterns",
      [](size_t n) {
        return tokenizer_json(
            R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" +
            listed(n,
                   [](size_t) { return R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated"})"; }) +
            "]}, ");
      },
      few);
  tokenizer("Backtracking", always(tokenizer_json(split("(a+)+!"))), few + "b");
  tokenizer(
      "BacktrackingReplace",
      always(tokenizer_json(normalizers(R"({"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": "a"})"))),
      few + "b");
  tokenizer("NestedCounts", always(tokenizer_json(split("((a{1,1000}){1,1000}){1,1000}!"))), few + "b");
  tokenizer("LookBehind", always(tokenizer_json(split("(?<=a{0,1000})!"))), many);
  tokenizer("LongRegex", [](size_t n) { return tokenizer_json(split(repeated("a|", n) + "b")); }, few);
  tokenizer(
      "DeepRegex", [](size_t n) { return tokenizer_json(split(repeated("(", n / 2) + repeated(")", n / 2))); }, few);
  tokenizer("ManyClasses", [](size_t n) { return tokenizer_json(split(repeated("\\\\p{L}", n))); }, few);
  tokenizer(
      "ManyAddedTokens",
      [](size_t n) {
        return tokenizer_json(
            R"("added_tokens": [)" +
            listed(n * 9 / 10,
                   [](size_t i) { return fmt::format(R"({{"id": {}, "content": "a{}b"}})", i + 6, 10'000'000 + i); }) +
            "], ");
      },
      repeated("a", 100'000));
  tokenizer(
      "LongAddedTokens",
      [](size_t n) {
        const std::string long_token = repeated("a", n / 20);
        return tokenizer_json(
            R"("added_tokens": [)" +
            listed(n * 9 / 10,
                   [&](size_t i) { return fmt::format(R"({{"id": {}, "content": "{}{}"}})", i + 6, long_token, i); }) +
            "], ");
      },
      repeated("a", 100'000));
  tokenizer("HugeId", always(tokenizer_json("", R"({"a": 2147483647})", "")), few);
  tokenizer(
      "ManyTokens",
      [](size_t n) {
        return tokenizer_json("", "{" + listed(n, [](size_t i) { return fmt::format(R"("{}": {})", i, i); }) + "}", "");
      },
      "12");
  tokenizer(
      "LongToken", [](size_t n) { return tokenizer_json("", R"({"a": 0, ")" + repeated("b", n) + R"(": 1})", ""); },
      few);
  tokenizer(
      "ManyMerges",
      [](size_t n) { return tokenizer_json("", few_tokens, listed(n, [](size_t) { return R"(["a", "a"])"; })); }, few);
  tokenizer(
      "ManyIdsOfTemplate",
      [](size_t n) {
        return tokenizer_json(
            R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s"}}], )"
            R"("special_tokens": {"s": {"ids": [)" +
            listed(n, [](size_t) { return "0"; }) + "]}}}, ");
      },
      few);
  tokenizer(
      "ManyUsesOfTemplate",
      [](size_t n) {
        return tokenizer_json(R"("post_processor": {"type": "TemplateProcessing", "single": [)" +
                              listed(n / 2, [](size_t) { return R"({"SpecialToken": {"id": "s"}})"; }) +
                              R"(], "special_tokens": {"s": {"ids": [)" + listed(n / 2, [](size_t) { return "0"; }) +
                              "]}}}, ");
      },
      few);
  tokenizer("Deep", deep, few);

  text_of("OneWord", tokenizer_json(""), [](size_t n) { return repeated("a", n); });
  text_of("ManyWords", tokenizer_json(R"("pre_tokenizer": {"type": "WhitespaceSplit"}, )"),
          [](size_t n) { return repeated("aba bab ", n); });
  text_of("Spaces", tokenizer_json(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "!"}, )"),
          [](size_t n) { return repeated(" ", n); });
  text_of("Compatible",
          tokenizer_json(normalizers(R"({"type": "NFKD"})") + R"("pre_tokenizer": {"type": "WhitespaceSplit"}, )",
                         few_tokens, few_merges),
          [](size_t n) { return repeated("\u1d43", n); });  // a superscript a, which normalizes to an a
  text_of("GPT2Words", tokenizer_json(R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )"),
          [](size_t n) { return repeated("a", n); });
  text_of("ManyMarks", tokenizer_json(normalizers(R"({"type": "NFC"})"), R"({"a": 0, "\u0301": 1})", ""),
          [](size_t n) { return "a" + repeated("\u0301", n); });
  text_of("AddedTokens",
          tokenizer_json(R"("added_tokens": [{"id": 6, "content": "a", "lstrip": true, "rstrip": true}], )"),
          [](size_t n) { return repeated("a ", n); });

  const auto folder = [&](const char* name, const Make& vocabulary, const Make& merges) {
    all.push_back({std::string("Folder") + name, [=](const ScratchFolder& files, size_t bytes) -> Reading {
                     files.write("vocab.json", vocabulary(bytes)), files.write("merges.txt", merges(bytes));
                     return [path = files.path()] { data::Tokenizer::open(path); };
                   }});
  };
  folder("ManyMerges", always("{}"), [](size_t n) { return repeated("a b\n", n); });
  folder("LongMerge", always("{}"), [](size_t n) { return repeated("a", n) + " b"; });
  folder("LongVersion", always("{}"), [](size_t n) { return "#version" + repeated("a", n); });
  folder(
      "ManyTokens",
      [](size_t n) { return "{" + listed(n, [](size_t i) { return fmt::format(R"("{}": {})", i, i); }) + "}"; },
      always("a b"));
}

// ---- texts and their containers

// Bits of a deflate stream (RFC 1951), least significant first; Huffman codes most significant first.
class Bits {
 public:
  void add(unsigned value, int count) {
    for (int i = 0; i < count; ++i) add(value >> i & 1);
  }
  void add_code(unsigned code, int count) {
    for (int i = count; i-- > 0;) add(code >> i & 1);
  }
  std::string bytes() const { return bytes_; }

 private:
  void add(unsigned bit) {
    if (used_ % 8 == 0) bytes_ += '\0';
    bytes_.back() = static_cast<char>(bytes_.back() | bit << used_++ % 8);
  }
  std::string bytes_;
  size_t used_ = 0;
};

constexpr std::string_view gzip_header("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);

// Decompresses to 159 times the size of the file, all `byte`: one literal, then matches of 258 bytes in 13 bits each.
std::string gzip_run(char byte, size_t bytes) {
  Bits bits;
  bits.add(1, 1), bits.add(1, 2);  // the last block, with fixed Huffman codes
  bits.add_code(0x30 + static_cast<unsigned char>(byte), 8);
  for (size_t i = 0; i < bytes * 8 / 13; ++i) bits.add_code(0xc5, 8), bits.add_code(0, 5);
  bits.add_code(0, 7);
  const size_t held = 1 + 258 * (bytes * 8 / 13);
  boost::crc_32_type checksum;
  const std::string piece(size_t{1} << 16, byte);
  for (size_t done = 0; done < held; done += piece.size())
    checksum.process_bytes(piece.data(), std::min(piece.size(), held - done));
  return std::string(gzip_header) + bits.bytes() + little_endian(checksum.checksum(), 4) + little_endian(held, 4);
}

std::string empty_gzip() { return std::string(gzip_header) + std::string("\x03\0\0\0\0\0\0\0\0\0", 10); }

// A Zstandard frame (RFC 8878) without a size or a checksum, with a window of 128 KiB. Each of its blocks repeats one
// byte for 128 KiB.
std::string zstd_run(char byte, size_t bytes) {
  const std::string block = little_endian((128 << 10) << 3 | 1 << 1, 3) + byte;
  return std::string("\x28\xb5\x2f\xfd\0\x38", 6) + repeated(block, bytes) + std::string("\1\0\0", 3);
}

void read_lines(const std::string& path) {
  const auto lines = data::LineSource::open({path});
  for (int64_t i = 0; i < lines.size(); i += 1 + lines.size() / 1000) lines[i], lines.where(i);
}

void read_document(const std::string& path) { data::DocumentSource::open({path})[0]; }

struct Record {
  std::vector<int32_t> numbers;
  std::optional<std::vector<std::string>> words;
};

void read_records(const std::string& path) {
  const auto records = data::json_lines<Record>({path});
  for (int64_t i = 0; i < std::min<int64_t>(records.size(), 100); ++i) records[i];
}

void add_texts(std::vector<Case>& all) {
  const auto lines = [&](const char* name, const std::string& file, const Make& make) {
    all.push_back(of_file(std::string("Lines") + name, file, make, read_lines));
    all.push_back(of_file(std::string("Document") + name, file, make, read_document));
  };
  lines("Empty", "a.txt", [](size_t n) { return repeated("\n", n); });
  lines("Long", "a.txt", [](size_t n) { return repeated("a", n); });
  lines("GzipZeros", "a.gz", [](size_t n) { return gzip_run('\0', n); });
  lines("GzipEmptyLines", "a.gz", [](size_t n) { return gzip_run('\n', n); });
  lines("GzipEmptyMembers", "a.gz", [](size_t n) { return repeated(empty_gzip(), n); });
  lines("ZstdZeros", "a.zst", [](size_t n) { return zstd_run('\0', n); });
  lines("ZstdEmptyLines", "a.zst", [](size_t n) { return zstd_run('\n', n); });
  lines("ZstdEmptyFrames", "a.zst", [](size_t n) { return repeated(zstd_run('\0', 0), n); });
  lines("ZstdHugeWindow", "a.zst",
        [](size_t n) { return std::string("\x28\xb5\x2f\xfd\0\x88", 6) + zstd_run('\0', n).substr(6); });
  const auto records = [&](const char* name, const Make& make) {
    all.push_back(of_file(std::string("JsonLines") + name, "a.jsonl", make, read_records));
  };
  records("ManyNumbers", [](size_t n) { return R"({"numbers": [)" + listed(n, [](size_t) { return "1"; }) + "]}"; });
  records("ManyWords",
          [](size_t n) { return R"({"numbers": [], "words": [)" + listed(n, [](size_t) { return R"("")"; }) + "]}"; });
  records("Deep", deep);
  records("ManyKeys",
          [](size_t n) { return "{" + listed(n, [](size_t i) { return fmt::format(R"("{}": 0)", i); }) + "}"; });
  records("EmptyEnds", [](size_t n) { return R"({"numbers": []})" + repeated("\r\n", n); });

  // Each folder has two links to the next one.
  all.push_back({"FolderOfLinks", [](const ScratchFolder& folder, size_t) -> Reading {
                   folder.write("0/a.txt", "a\n");
                   for (int i = 1; i <= 30; ++i) {
                     const fs::path made = folder.path(std::to_string(i));
                     fs::create_directory(made);
                     for (const char* link : {"left", "right"})
                       fs::create_directory_symlink(folder.path(std::to_string(i - 1)), made / link);
                   }
                   return [path = folder.path("30")] { read_lines(path); };
                 }});
}

void add_tokens(std::vector<Case>& all) {
  const auto open = [](const std::string& path) {
    const auto files = data::TokenFiles::open({path}, {.vocab_size = 50'000});
    std::vector<int32_t> tokens(static_cast<size_t>(files.size()));
    files.read(0, tokens);
  };
  const auto npy = [](const std::string& header) {
    return "\x93NUMPY" + std::string("\2\0", 2) + little_endian(header.size(), 4) + header;
  };
  all.push_back(of_file("TokensLongHeader", "a.npy", [=](size_t n) { return npy(repeated(" ", n)); }, open));
  all.push_back(of_file(
      "TokensManyDims", "a.npy",
      [=](size_t n) { return npy("{'descr': '<u2', 'fortran_order': False, 'shape': (" + repeated("0,", n) + ")}"); },
      open));
  all.push_back(of_file(
      "TokensHugeShape", "a.npy",
      [=](size_t n) {
        return npy("{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775807,)}") + repeated("ab", n);
      },
      open));
  // Megatron's index: the version, the element type, and the numbers of sequences and documents.
  const auto index = [&](const char* name, uint64_t sequences, uint64_t documents, int bytes_of_each) {
    all.push_back({std::string("Tokens") + name, [=](const ScratchFolder& folder, size_t bytes) -> Reading {
                     const std::string numbers(bytes_of_each ? sequences * 12 + documents * 8 : bytes, '\0');
                     folder.write("a.idx", "MMIDIDX" + std::string(2, '\0') + little_endian(1, 8) + '\x8' +
                                               little_endian(sequences, 8) + little_endian(documents, 8) + numbers);
                     return [open, path = folder.write("a.bin", "ab")] { open(path); };
                   }});
  };
  index("HugeIndex", uint64_t{1} << 60, uint64_t{1} << 60, 0);
  index("ManyEmptyDocuments", 50'000, 50'001, 1);
}

void add_states(std::vector<Case>& all) {
  const auto state = [&](const char* name, const Make& text) {
    all.push_back(of_text(std::string("LoaderState") + name, text,
                          [](const std::string& json) { data::LoaderState::from_json(json).to_json(); }));
  };
  const auto stream = [](const std::string& parts) {
    return R"({"global_next_index": 0, "stream": {"epoch": 0, "input": 0, "offset": 0, "since": 0, "parts": [)" +
           parts + "]}}";
  };
  state("ManyParts", [=](size_t n) { return stream(listed(n, [](size_t) { return "null"; })); });
  state("LongDataset",
        [](size_t n) { return R"({"global_next_index": 0, "dataset": ")" + repeated(" | ", n) + R"("})"; });
  state("Deep", [=](size_t n) { return stream(deep(n)); });
  all.push_back(of_file(
      "HardwareManyLinks", "hardware.json",
      [](size_t n) {
        const std::string link = R"({"bytes_per_second": 1, "latency": 0})";
        return R"({"flops_per_second": 1, "link": )" + link + R"(, "links": {)" +
               listed(n, [&](size_t i) { return fmt::format(R"("{}": {})", i, link); }) + "}}";
      },
      [](const std::string& path) { nn::load_hardware(path); }));
  all.push_back(of_text(
      "TableManyRows",
      [](size_t n) {
        return R"({"rows": [)" +
               listed(n,
                      [](size_t i) {
                        return fmt::format(
                            R"({{"path": "{}", "axes": null, "spec": "", "shape": [1], "shard_shape": [1], )"
                            R"("dtype": "float32", "elements": 1, "bytes": 4, "bytes_per_device": 4, )"
                            R"("replicas": 1, "mesh": {{}}, "divided_over": []}})",
                            i);
                      }) +
               "]}";
      },
      [](const std::string& json) { nn::parse_placement_table(json).to_json(); }));
}

void add_messages(std::vector<Case>& all) {
  all.push_back(of_text(
      "HeartbeatLong", [](size_t n) { return "1 2 3 w " + repeated("a", n); },
      [](const std::string& text) { tessera::detail::parse_heartbeat(text); }));
  all.push_back(of_text(
      "LauncherLongNodes", [](size_t n) { return repeated("node[", n); },
      [](const std::string& text) {
        tessera::detail::launch_of([&](const char* name) {
          return std::string_view(name).ends_with("NODELIST") ? text.c_str()
                 : std::string_view(name) == "SLURM_PROCID"   ? "0"
                                                              : "2";
        });
      }));
  all.push_back(of_text(
      "ProfileManySteps",
      [](size_t n) {
        const std::string step =
            R"({"slices": [[0, 1, 0, 0, 0, 0, 0, 0, true, -1, 1]], "transfers": [], "waits": [], "consumers": []})";
        return R"({"process": 0, "clock_ahead": 0, "clock_error": 0, "texts": [""], "steps": [)" +
               listed(n, [&](size_t) { return step; }) + "]}";
      },
      [](const std::string& text) { nn::detail::unpacked(text, 0); }));
  all.push_back(of_text("ProfileDeep", deep, [](const std::string& text) { nn::detail::unpacked(text, 0); }));
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> all;
  add_json(all);
  add_safetensors(all);
  add_checkpoints(all);
  add_configs(all);
  add_pretrained(all);
  add_tokenizers(all);
  add_texts(all);
  add_tokens(all);
  add_states(all);
  add_messages(all);
  return all;
}

}  // namespace tessera::limits_test
