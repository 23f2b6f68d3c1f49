// GGUF files: keys and values of each family, tokenizers, rounding, and errors.
#include "nn/models/gguf.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "nn/models/pretrained.h"
#include "sharding/files/file.h"
#include "sharding/files/safetensors.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::gguf_test {
namespace {

namespace fs = std::filesystem;

const fs::path reference = TESSERA_REFERENCE_DIR, script = reference / "check_gguf.py";

struct Tensor {
  Shape shape;
  uint32_t type;
  std::vector<float> values;  // of float32
  std::string bytes;
};

// A reader of the format, independent of the library's writer.
struct Gguf {
  std::map<std::string, std::string> values;  // items of arrays are separated by spaces
  std::map<std::string, Tensor> tensors;

  explicit Gguf(const fs::path& path) : bytes_(read_text(path, "test")) {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(number<uint32_t>(), 3u);
    const auto tensor_count = number<uint64_t>(), value_count = number<uint64_t>();
    for (uint64_t i = 0; i < value_count; ++i) {
      const std::string key = text();
      EXPECT_TRUE(values.emplace(key, value(number<uint32_t>())).second) << key;
    }
    std::vector<std::pair<std::string, uint64_t>> begins;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      begins.emplace_back(text(), 0);
      Tensor& tensor = tensors[begins.back().first];
      for (auto dims = number<uint32_t>(); dims > 0; --dims)
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(number<uint64_t>()));
      tensor.type = number<uint32_t>(), begins.back().second = number<uint64_t>();
    }
    const size_t data = (at_ + 31) / 32 * 32;
    EXPECT_EQ(bytes_.size() % 32, 0u);
    for (const auto& [name, begin] : begins) {
      EXPECT_EQ(begin % 32, 0u) << name;
      Tensor& tensor = tensors[name];
      tensor.bytes =
          bytes_.substr(data + begin, static_cast<size_t>(element_count(tensor.shape)) * (tensor.type ? 2 : 4));
      tensor.values.resize(tensor.bytes.size() / 4);
      std::memcpy(tensor.values.data(), tensor.bytes.data(), tensor.values.size() * 4);
    }
  }

 private:
  static int64_t element_count(const Shape& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  template <class T>
  T number() {
    T result;
    std::memcpy(&result, bytes_.data() + at_, sizeof result);
    at_ += sizeof result;
    return result;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::string value(uint32_t type) {
    if (type == 4) return fmt::format("{}", number<uint32_t>());
    if (type == 5) return fmt::format("{}", number<int32_t>());
    if (type == 6) return fmt::format("{:g}", number<float>());
    if (type == 7) return number<bool>() ? "true" : "false";
    if (type == 8) return text();
    EXPECT_EQ(type, 9u);
    const auto items = number<uint32_t>();
    std::string all;
    for (auto left = number<uint64_t>(); left > 0; --left) all += value(items) + (left > 1 ? " " : "");
    return all;
  }

  std::string bytes_;
  size_t at_ = 0;
};

class GgufFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() /
             (std::string("tessera_gguf_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  // Saves a model of tests/reference/hf and returns the file's path.
  fs::path save(const std::string& name, const GgufOptions& options = {}) const {
    save_gguf(folder / (name + ".gguf"), model_of(name), options);
    return folder / (name + ".gguf");
  }
  static CausalLM model_of(const std::string& name) {
    CausalLM model = from_pretrained(reference / "hf" / name);
    if (name == "gemma2") model.config.attention_scale = {};  // llama.cpp has no other
    return model;
  }
  fs::path folder;
};

// The values of the Hugging Face folder.
std::vector<float> theirs(const std::string& folder, const std::string& name) {
  return SafetensorsFile::open(reference / "hf" / folder / "model.safetensors").array(name).to_host<float>();
}

TEST_F(GgufFile, HasTheKeysOfLlamaCpp) {
  const struct {
    std::string folder, architecture;
    std::map<std::string, std::string> values;
  } rows[] = {{"gpt2",
               "gpt2",
               {{"context_length", "128"}, {"feed_forward_length", "96"}, {"attention.layer_norm_epsilon", "1e-05"}}},
              {"llama3",
               "llama",
               {{"attention.head_count", "6"},
                {"attention.head_count_kv", "2"},
                {"rope.freq_base", "10000"},
                {"rope.dimension_count", "6"},
                {"vocab_size", "101"}}},
              {"llama_biases", "llama", {{"rope.scaling.type", "linear"}, {"rope.scaling.factor", "3"}}},
              {"llama_yarn_options",
               "llama",
               {{"rope.scaling.type", "yarn"},
                {"rope.scaling.original_context_length", "16"},
                {"rope.scaling.yarn_beta_fast", "16"},
                {"rope.scaling.attn_factor", "1.07621"}}},
              {"mistral", "llama", {{"context_length", "7"}}},
              {"qwen2",
               "qwen2",
               {{"block_count", "2"}, {"embedding_length", "24"}, {"attention.layer_norm_rms_epsilon", "1e-06"}}},
              {"qwen3", "qwen3", {{"attention.key_length", "8"}, {"attention.value_length", "8"}}},
              {"gemma2",
               "gemma2",
               {{"attention.sliding_window", "7"}, {"attn_logit_softcapping", "3"}, {"final_logit_softcapping", "2"}}}};
  for (const auto& [name, architecture, expected] : rows) {
    Gguf file(save(name));
    EXPECT_EQ(file.values["general.architecture"], architecture);
    EXPECT_EQ(file.values["general.file_type"], "0");
    EXPECT_EQ(file.values["tokenizer.ggml.model"], "none");
    for (const auto& [key, value] : expected)
      EXPECT_EQ(file.values[architecture + "." + key], value) << name << ' ' << key;
  }
}

TEST_F(GgufFile, HasTheValuesInTheLayoutOfLlamaCpp) {
  Gguf gpt2(save("gpt2")), llama(save("llama3")), gemma(save("gemma2"));
  EXPECT_EQ(gpt2.tensors.size(), 28u);
  EXPECT_FALSE(gpt2.tensors.contains("output.weight"));
  const Tensor& qkv = gpt2.tensors["blk.1.attn_qkv.weight"];
  const std::vector<float> c_attn = theirs("gpt2", "transformer.h.1.attn.c_attn.weight");
  ASSERT_EQ(qkv.shape, (Shape{72, 24}));
  for (size_t i = 0; i < 72; ++i) EXPECT_EQ(qkv.values[i * 24 + 5], c_attn[5 * 72 + i]);

  const Tensor& q = llama.tensors["blk.1.attn_q.weight"];  // six heads of six
  const std::vector<float> q_proj = theirs("llama3", "model.layers.1.self_attn.q_proj.weight");
  ASSERT_EQ(q.shape, (Shape{36, 24}));
  for (size_t head = 0; head < 6; ++head)
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(q.values[(head * 6 + i) * 24], q_proj[(head * 6 + i / 2 + i % 2 * 3) * 24]);
  EXPECT_EQ(llama.tensors["blk.0.attn_v.weight"].values, theirs("llama3", "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_EQ(llama.tensors["rope_freqs.weight"].shape, Shape{3});
  EXPECT_EQ(llama.tensors["rope_freqs.weight"].values.back(), 8) << "the lowest frequency is divided by the factor";

  std::vector<float> norm = theirs("gemma2", "model.layers.0.post_attention_layernorm.weight");
  for (float& value : norm) value += 1;
  EXPECT_EQ(gemma.tensors["blk.0.post_attention_norm.weight"].values, norm);
}

TEST_F(GgufFile, RoundsMatricesAndKeepsVectors) {
  CausalLM model = model_of("llama");
  for (const auto& [dtype, code] : {std::pair(float16, 1u), std::pair(bfloat16, 30u)}) {
    Gguf file(save("llama", {.dtype = dtype}));
    const Tensor& embedding = file.tensors["token_embd.weight"];
    EXPECT_EQ(embedding.type, code);
    EXPECT_EQ(file.tensors["output_norm.weight"].type, 0u);
    EXPECT_EQ(file.values["general.file_type"], code == 1 ? "1" : "32");
    const at::Tensor expected = to_tensor(model.embed.tokens.value).to(static_cast<at::ScalarType>(dtype)).contiguous();
    ASSERT_EQ(embedding.bytes.size(), expected.nbytes());
    EXPECT_EQ(std::memcmp(embedding.bytes.data(), expected.const_data_ptr(), expected.nbytes()), 0);
  }
}

// The id of the first token of a type.
std::string first_of_type(Gguf& file, const std::string& type) {
  std::string types = " " + file.values["tokenizer.ggml.token_type"] + " ";
  const size_t at = types.find(" " + type + " ");
  return at == types.npos
             ? "none"
             : fmt::format("{}", std::count(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(at), ' '));
}

// Saves a small model with each tokenizer of tests/reference/gguf, and returns the path of the file.
fs::path save_with(const std::string& tokenizer, const fs::path& folder) {
  const CausalLM model = CausalLM::init(Key(0), {.vocab_size = 610});
  save_pretrained(folder / tokenizer, model);
  fs::copy_file(reference / "gguf" / tokenizer / "tokens.json", folder / tokenizer / "tokens.json");
  save_gguf(folder / tokenizer / "model.gguf", model, {.tokenizer = reference / "gguf" / tokenizer});
  return folder / tokenizer / "model.gguf";
}

TEST_F(GgufFile, HasTheTokenizer) {
  const struct {
    std::string folder, model, pre, bos, eos, add_bos, padding;
  } rows[] = {{"gpt-2", "gpt2", "gpt-2", "0", "0", "false", "422"},
              {"smaug-bpe", "gpt2", "smaug-bpe", "0", "0", "false", "422"},
              {"llama-bpe", "gpt2", "llama-bpe", "0", "1", "true", "422"},
              {"qwen2", "gpt2", "qwen2", "0", "0", "false", "422"},
              {"smollm", "gpt2", "smollm", "0", "0", "false", "422"},
              {"tekken", "gpt2", "tekken", "0", "1", "true", "422"},
              {"llama", "llama", "default", "1", "2", "true", "600"},
              {"gemma", "llama", "default", "1", "2", "true", "600"}};
  for (const auto& row : rows) {
    Gguf file(save_with(row.folder, folder));
    const auto value = [&](const std::string& key) { return file.values["tokenizer.ggml." + key]; };
    EXPECT_EQ(value("model"), row.model) << row.folder;
    EXPECT_EQ(value("pre"), row.pre) << row.folder;
    EXPECT_EQ(value("bos_token_id"), row.bos) << row.folder;
    EXPECT_EQ(value("eos_token_id"), row.eos) << row.folder;
    EXPECT_EQ(value("add_bos_token"), row.add_bos) << row.folder;
    EXPECT_EQ(first_of_type(file, "5"), row.padding) << row.folder;
    EXPECT_TRUE(value("tokens").ends_with("[PAD609]")) << row.folder;
    EXPECT_EQ(value("merges").empty(), row.model == "llama") << row.folder;
    EXPECT_EQ(value("scores").empty(), row.model != "llama") << row.folder;
  }
  Gguf llama(folder / "llama/model.gguf"), gemma(folder / "gemma/model.gguf");
  EXPECT_EQ(llama.values["tokenizer.ggml.add_space_prefix"], "true");
  EXPECT_EQ(gemma.values["tokenizer.ggml.add_space_prefix"], "false");
  EXPECT_EQ(llama.values["tokenizer.ggml.unknown_token_id"], "0");
  EXPECT_EQ(llama.values["tokenizer.ggml.padding_token_id"], "3");
  EXPECT_EQ(first_of_type(llama, "6"), "4") << "the first byte";
  EXPECT_NE(first_of_type(gemma, "4"), "none");
}

TEST_F(GgufFile, HasTheChatTemplate) {
  const auto saved = [&](const std::string& config, const std::string& jinja = "") {
    fs::copy(reference / "gguf/gpt-2", folder / "chat",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::ofstream(folder / "chat/tokenizer_config.json") << config;
    if (!jinja.empty()) std::ofstream(folder / "chat/chat_template.jinja") << jinja;
    save_gguf(folder / "chat.gguf", CausalLM::init(Key(0), {.vocab_size = 500}), {.tokenizer = folder / "chat"});
    return Gguf(folder / "chat.gguf").values;
  };
  const std::string key = "tokenizer.chat_template";
  EXPECT_EQ(saved(R"({"chat_template": "one"})")[key], "one");
  auto named =
      saved(R"({"chat_template": [{"name": "default", "template": "two"}, {"name": "tool", "template": "3"}]})");
  EXPECT_EQ(named[key], "two");
  EXPECT_EQ(named[key + ".tool"], "3");
  EXPECT_EQ(named["tokenizer.ggml.eos_token_id"], "0") << "known by its name, <|endoftext|>";
  EXPECT_EQ(saved(R"({"chat_template": "one"})", "four")[key], "four");
}

TEST_F(GgufFile, HasNoTextFromOutsideTheFolderOfTheTokenizer) {
  std::ofstream(folder / "secret") << R"({"chat_template": "secret"})";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"}) {
    const fs::path linked = folder / name / "linked";
    fs::create_directories(linked);
    fs::copy(reference / "gguf/gpt-2", linked);
    fs::remove(linked / name);
    fs::create_symlink("../../secret", linked / name);
    testing::expect_error_with(
        ErrorKind::invalid_file, {fmt::format("{}: a link to {}", name, (folder / "secret").string()), "outside"},
        [&] { save_gguf(folder / "x.gguf", CausalLM::init(Key(0), {.vocab_size = 500}), {.tokenizer = linked}); });
  }
}

TEST_F(GgufFile, ReplacesOnlyAGgufFile) {
  save("llama"), save("llama");
  fs::remove(folder / "llama.gguf");
  const auto expect_refused = [&] {
    testing::expect_error_with(ErrorKind::invalid_file, {"llama.gguf: it is there and not a GGUF file. Delete it"},
                               [&] { save("llama"); });
  };
  std::ofstream(folder / "llama.gguf") << "my notes";
  expect_refused();
  EXPECT_EQ(fs::file_size(folder / "llama.gguf"), 8u);
  fs::remove(folder / "llama.gguf"), fs::create_symlink("/dev/null", folder / "llama.gguf");
  expect_refused();
  fs::remove(folder / "llama.gguf"), fs::create_directory(folder / "llama.gguf");
  expect_refused();
}

TEST_F(GgufFile, IsNotWrittenIfLlamaCppComputesSomethingElse) {
  const auto saving = [&](const std::string& name) { return [=, this] { save(name); }; };
  const auto refused = [](const std::string& what) { return "[save_gguf] " + what + " does not support its value."; };
  testing::expect_errors(
      {{ErrorKind::invalid_argument, refused("hidden_act: llama.cpp's architecture llama"), saving("llama_gelu")},
       {ErrorKind::invalid_argument, refused("rope.scaling: llama.cpp's architecture llama"), saving("llama_longrope")},
       {ErrorKind::invalid_argument, refused("attention_bias: llama.cpp's architecture qwen3"), saving("qwen3_biases")},
       {ErrorKind::invalid_argument, refused("attention_scale: llama.cpp's architecture gemma2"),
        saving("gemma2_uncapped")}});
  testing::expect_error_with(ErrorKind::invalid_argument, {"model_type = mixtral, expected gpt2, llama"},
                             saving("mixtral"));
  testing::expect_error_with(ErrorKind::invalid_argument, {"float64 given, expected float16"},
                             [&] { save("llama", {.dtype = float64}); });
  CausalLM model = model_of("llama");
  testing::expect_error_with(ErrorKind::invalid_argument, {"lora.a: a LoRA adapter", "Call merge_lora first."},
                             [&] { save_gguf(folder / "large.gguf", with_lora(Key(0), model)); });
  model.embed.tokens.value = model.embed.tokens.value * 1e6;
  testing::expect_error_with(ErrorKind::invalid_argument,
                             {"model.embed_tokens.weight: float16 cannot hold its values. Give .dtype = bfloat16."},
                             [&] { save_gguf(folder / "large.gguf", model, {.dtype = float16}); });
  EXPECT_FALSE(fs::exists(folder / "large.gguf"));
  EXPECT_FALSE(fs::exists(folder / "large.gguf.partial"));
}

TEST_F(GgufFile, IsNotWrittenWithATokenizerThatLlamaCppAppliesDifferently) {
  const auto saving = [&](const std::string& tokenizer, const std::string& from, const std::string& to) {
    return [=, this] {
      std::string text = read_text(reference / "gguf" / tokenizer / "tokenizer.json", "test");
      ASSERT_NE(text.find(from), text.npos) << from;
      text.replace(text.find(from), from.size(), to);
      std::ofstream(folder / "tokenizer.json") << text;
      save_gguf(folder / "x.gguf", CausalLM::init(Key(0), {.vocab_size = 610}), {.tokenizer = folder});
    };
  };
  const auto expect = [&](std::initializer_list<std::string> words, const auto& call) {
    testing::expect_error_with(ErrorKind::invalid_file, words, call);
  };
  expect({"tokenizer.json.pre_tokenizer: llama.cpp has no such splits"}, saving("llama-bpe", "{1,3}", "{1,4}"));
  expect({"tokenizer.json.pre_tokenizer: llama.cpp has no such step."},
         saving("gpt-2", "\"add_prefix_space\":false", "\"add_prefix_space\":true"));
  expect({"tokenizer.json.normalizer: llama.cpp has no such step."}, saving("qwen2", "\"NFC\"", "\"NFKC\""));
  expect({"tokenizer.json.added_tokens.0.lstrip: llama.cpp has no such option."},
         saving("gpt-2", "\"lstrip\":false", "\"lstrip\":true"));
  expect({"tokenizer.json.post_processor"}, saving("llama", "TemplateProcessing", "RobertaProcessing"));
  expect({"tokenizer.json: has no known end-of-text token. Add a tokenizer_config.json with \"eos_token\"."},
         saving("gpt-2", "<|endoftext|>", "<|over|>"));
  expect({"tokenizer.json.model.type: \"WordPiece\" given", "BPE"}, saving("gpt-2", "\"BPE\"", "\"WordPiece\""));
  expect({"tokenizer.json.model.merges: not all merges to \"", "You can export without a tokenizer."},
         saving("llama", "\"merges\":[", "\"merges\":[[\"o\",\"r\"],"));
  expect({"tokenizer.json.pre_tokenizer: no step of the type ByteLevel"},
         saving("qwen2", "\"ByteLevel\"", "\"Digits\",\"individual_digits\":true"));
  expect({"tokenizer.json.model.vocab.", ": 3 given, which is the id of \""}, saving("gpt-2", "\":2,", "\":3,"));
  const std::string vocabulary = "\"vocab\":{", added = "\"added_tokens\":[", steps = "\"post_processor\":{";
  expect({"tokenizer.json.model.merges: a token of 513 bytes given, expected at most 512"},
         saving("llama", vocabulary, vocabulary + '"' + std::string(513, 'a') + "\":609,"));
  expect({"tokenizer.json.added_tokens.0.content: a token of 600 bytes given, expected at most 512"},
         saving("llama", added, added + R"({"id": 609, "content": ")" + std::string(600, 'a') + "\"},"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += "{},";
  expect({"tokenizer.json.post_processor: 65 steps given, expected at most 64"},
         saving("gpt-2", steps,
                steps + R"("type":"Sequence","processors":[)" + many.substr(0, many.size() - 1) + "]},\"other\":{"));
  for (const char* name : {"tokenizers.json", "nothing"})  // not the tokenizer.json next to it
    expect({name, "cannot be opened"}, [&] {
      save_gguf(folder / "x.gguf", CausalLM::init(Key(0), {.vocab_size = 610}), {.tokenizer = folder / name});
    });
  expect({"x.gguf"}, [&] { save_gguf(folder / "no/x.gguf", CausalLM::init(Key(0), {})); });
}

TEST_F(GgufFile, IsReadByThePackageOfLlamaCpp) {
  const char* given = std::getenv("TESSERA_PYTHON");
  const std::string python = given ? given : "python3";
  if (std::system((python + " -c 'import gguf, safetensors' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << python << " has no packages gguf and safetensors (TESSERA_PYTHON)";
  std::string command = python + " " + script.string();
  for (const char* name : {"gpt2", "llama", "llama3", "llama_biases", "llama_yarn", "mistral_whole", "qwen2",
                           "qwen2_tied", "qwen3", "gemma2"})
    command += " " + save(name).string() + " " + (reference / "hf" / name).string();
  for (const auto& tokenizer : fs::directory_iterator(reference / "gguf")) {
    const std::string name = tokenizer.path().filename().string();
    command += " " + save_with(name, folder).string() + " " + (folder / name).string();
  }
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace
}  // namespace tessera::nn::gguf_test
