// The safetensors reader: valid files, and each kind of invalid file.
#include "sharding/files/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json/value.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "sharding/array/array.h"
#include "sharding/files/json.h"
#include "tests/sharding/expect_error.h"

namespace tessera::safetensors_test {
namespace {

namespace fs = std::filesystem;

// Each test has its own folder.
class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera_safetensors_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name = "model.safetensors") const { return folder_ / name; }

  fs::path write(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
    return path();
  }

  SafetensorsFile open(const std::string& bytes) const { return SafetensorsFile::open(write(bytes)); }

  // The error message without "[safetensors] path: ", or a description of another outcome.
  std::string refusal(const std::string& bytes) const { return refusal_of(write(bytes)); }
  static std::string refusal_of(const fs::path& file) {
    try {
      SafetensorsFile::open(file);
    } catch (const Error& error) {
      const std::string start = "[safetensors] " + file.string() + ": ", text = error.what();
      if (error.kind() != ErrorKind::invalid_file) return "not a invalid_file: " + text;
      return text.starts_with(start) ? text.substr(start.size()) : "no path: " + text;
    }
    return "accepted";
  }

 private:
  fs::path folder_;
};

std::string bytes_of(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

std::string with_length(uint64_t length, const std::string& rest) { return bytes_of(length) + rest; }

std::string file_of(const std::string& header, const std::string& data = "") {
  return with_length(header.size(), header + data);
}

// One entry of the header.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

std::string two_tensors() {
  return file_of("{\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"}," + entry("w", "F32", "[2,1]", "[4,12]") + "," +
                     entry("b", "F16", "[2]", "[0,4]") + "}",
                 std::string("abcd") + bytes_of(1.5f) + bytes_of(-2.0f));
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// --- good files ---

TEST_F(SafetensorsTest, ReadsNamesTypesShapesAndValues) {
  const SafetensorsFile file = open(two_tensors());
  EXPECT_EQ(file.path(), path());
  EXPECT_EQ(file.names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_TRUE(file.contains("w"));
  EXPECT_FALSE(file.contains("__metadata__"));
  EXPECT_EQ(file.info("w").dtype, float32);
  EXPECT_EQ(file.info("w").shape, (Shape{2, 1}));
  EXPECT_EQ(file.info("b").dtype, float16);
  EXPECT_EQ(text(file.bytes("b")), "abcd");
  float w[2] = {};
  file.read("w", w);
  EXPECT_EQ(w[0], 1.5f);
  EXPECT_EQ(w[1], -2.0f);
  EXPECT_EQ(file.array("w").type_string(), "float32[2,1]");
  EXPECT_EQ(file.array("w").to_host<float>(), (std::vector<float>{1.5f, -2.0f}));
}

TEST_F(SafetensorsTest, AnArrayOfBooleansHasZerosAndOnes) {
  const auto file = [&](const std::string& data) {
    return open(file_of("{" + entry("x", "BOOL", "[2]", "[0,2]") + "}", data));
  };
  EXPECT_EQ(file({'\0', '\1'}).array("x").to_host<bool>(), (std::vector<bool>{false, true}));
  EXPECT_THROW(file({'\0', '\2'}).array("x"), Error);
}

TEST_F(SafetensorsTest, ReadsMetadata) {
  EXPECT_EQ(open(two_tensors()).metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"step", "7"}}));
  EXPECT_TRUE(open(file_of("{}")).metadata().empty());
}

TEST_F(SafetensorsTest, ReadsEveryType) {
  const std::vector<std::pair<std::string, DType>> types = {
      {"F64", float64}, {"F32", float32}, {"F16", float16}, {"BF16", bfloat16}, {"I64", int64},
      {"I32", int32},   {"I16", int16},   {"I8", int8},     {"U8", uint8},      {"BOOL", boolean}};
  for (const auto& [name, dtype] : types) {
    const std::string data(static_cast<size_t>(3 * item_size(dtype)), '\1');
    const SafetensorsFile file =
        open(file_of("{" + entry("x", name, "[3]", "[0," + std::to_string(data.size()) + "]") + "}", data));
    EXPECT_EQ(file.info("x").dtype, dtype) << name;
    EXPECT_EQ(text(file.bytes("x")), data) << name;
  }
}

TEST_F(SafetensorsTest, ReadsUnalignedData) {
  for (size_t spaces = 0; spaces < 8; ++spaces) {
    const SafetensorsFile file =
        open(file_of("{" + entry("x", "F64", "[1]", "[0,8]") + "}" + std::string(spaces, ' '), bytes_of(3.25)));
    double x = 0;
    file.read("x", &x);
    EXPECT_EQ(x, 3.25) << spaces;
  }
}

TEST_F(SafetensorsTest, ReadsScalarsAndTensorsWithoutBytes) {
  const SafetensorsFile file =
      open(file_of("{" + entry("z", "F32", "[0]", "[0,0]") + "," + entry("s", "I8", "[]", "[0,1]") + "," +
                       entry("y", "F64", "[4611686018427387904,0]", "[1,1]") + "," +
                       entry("a", "F64", "[3,0,2]", "[1,1]") + "," + entry("t", "I8", "[1]", "[1,2]") + "}",
                   "xy"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"z", "s", "a", "y", "t"}));
  EXPECT_EQ(file.info("s").shape, Shape{});
  EXPECT_EQ(text(file.bytes("s")), "x");
  EXPECT_EQ(text(file.bytes("t")), "y");
  EXPECT_TRUE(file.bytes("a").empty());
  file.read("a", nullptr);
}

TEST_F(SafetensorsTest, ReadsAFileWithoutTensors) { EXPECT_TRUE(open(file_of("{}")).names().empty()); }

TEST_F(SafetensorsTest, ReadsUnicodeAndEscapedNames) {
  const SafetensorsFile file =
      open(file_of("{" + entry("w\u00e4rme.\u6e29\u5ea6", "U8", "[1]", "[0,1]") + "," +
                       entry("a\\\"b\\u00e9", "U8", "[1]", "[1,2]") + "," + entry("", "U8", "[1]", "[2,3]") + "}",
                   "abc"));
  EXPECT_EQ(text(file.bytes("w\u00e4rme.\u6e29\u5ea6")), "a");
  EXPECT_EQ(text(file.bytes("a\"b\u00e9")), "b");
  EXPECT_EQ(text(file.bytes("")), "c");
}

TEST_F(SafetensorsTest, PassesOverOtherFieldsOfAnEntry) {
  EXPECT_TRUE(
      open(file_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":{"a":[1]}}})", "a")).contains("x"));
}

TEST_F(SafetensorsTest, CopiesShareTheFileAndKeepItMapped) {
  auto file = std::make_unique<SafetensorsFile>(open(two_tensors()));
  const SafetensorsFile copy = *file;
  const std::span<const std::byte> bytes = file->bytes("b");
  file.reset();
  fs::remove(path());
  EXPECT_EQ(text(bytes), "abcd");
  EXPECT_EQ(copy.bytes("b").data(), bytes.data());
}

TEST_F(SafetensorsTest, AMovedFileThrows) {
  SafetensorsFile file = open(two_tensors());
  const SafetensorsFile heir = std::move(file);
  const std::function<void()> uses[] = {[&] { file.path(); },        [&] { file.names(); },   [&] { file.metadata(); },
                                        [&] { file.contains("b"); }, [&] { file.info("b"); }, [&] { file.bytes("b"); }};
  for (const auto& use : uses)
    EXPECT_EQ(testing::error_of(ErrorKind::invalid_argument, use),
              "[safetensors] this file was moved into another; use that one.");
  EXPECT_EQ(text(heir.bytes("b")), "abcd");
}

TEST_F(SafetensorsTest, AnUnknownNameIsAnErrorWithTheNamesThereAre) {
  const SafetensorsFile file = open(two_tensors());
  EXPECT_EQ(testing::error_of(ErrorKind::invalid_file, [&] { file.bytes("v"); }),
            "[safetensors] " + path().string() + ": there is no tensor \"v\". Expected one of the 2: b, w.");
}

// --- bad files ---

TEST_F(SafetensorsTest, RefusesAFileCutAnywhere) {
  const std::string good = two_tensors();
  ASSERT_EQ(refusal(good), "accepted");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_TRUE(refusal(good.substr(0, size)).ends_with("Is the file complete, and a safetensors file?") ||
                refusal(good.substr(0, size)).ends_with("Is the file complete?"))
        << size << ": " << refusal(good.substr(0, size));
}

TEST_F(SafetensorsTest, RefusesAFileWithMoreBytes) {
  EXPECT_EQ(refusal(two_tensors() + "x"),
            "the tensors have 12 bytes, the file has 13 bytes of data. Expected as many. Is the file complete?");
}

TEST_F(SafetensorsTest, NeverCrashesOnAChangedByte) {
  const std::string good = two_tensors();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int change : {0x01, 0x10, 0x80, 0xFF}) {
      std::string changed = good;
      changed[i] = static_cast<char>(changed[i] ^ change);
      const std::string message = refusal(changed);
      EXPECT_FALSE(message.starts_with("no path") || message.starts_with("not a invalid_file")) << i << ": " << message;
    }
  }
}

TEST_F(SafetensorsTest, RefusesWhatIsNotAFile) {
  EXPECT_EQ(refusal_of(path("none")), "the file cannot be opened (No such file or directory). Check the path.");
  EXPECT_EQ(refusal_of(path().parent_path()),
            "this is not a regular file. Give the path of one file that ends in .safetensors.");
  EXPECT_EQ(refusal_of(""), "the file cannot be opened (No such file or directory). Check the path.");
}

TEST_F(SafetensorsTest, RefusesBadHeaderLengths) {
  EXPECT_EQ(refusal(""),
            "the file has 0 bytes, expected 8 for the header's length. Is the file complete, and a safetensors file?");
  EXPECT_EQ(refusal(with_length(100000001, "{}")),
            "the header's length is 100000001, expected at most 100000000 bytes. "
            "Is the file complete, and a safetensors file?");
  EXPECT_EQ(refusal(with_length(UINT64_MAX, "{}")),
            "the header's length is 18446744073709551615, expected at most 100000000 bytes. "
            "Is the file complete, and a safetensors file?");
  EXPECT_EQ(refusal(with_length(3, "{}")),
            "the header's length is 3, but only 2 bytes follow. Is the file complete, and a safetensors file?");
  EXPECT_EQ(refusal(with_length(0, "{}")),
            "the header does not begin with '{'. Is the file complete, and a safetensors file?");
  EXPECT_EQ(refusal(with_length(1, "{}")),
            "header: line 1, column 2: the text ends in the middle of a value. Is the file complete?");
}

TEST_F(SafetensorsTest, RefusesHeadersThatAreNotJsonObjects) {
  const std::string no_brace = "the header does not begin with '{'. Is the file complete, and a safetensors file?";
  EXPECT_EQ(refusal(file_of("[]")), no_brace);
  EXPECT_EQ(refusal(file_of(" {}")), no_brace);
  EXPECT_EQ(refusal(file_of("{]")), "header: line 1, column 2: this is not JSON (syntax error). Fix the text there.");
  EXPECT_EQ(refusal(file_of("{\n\"a\":1,}")),
            "header: line 2, column 7: this is not JSON (syntax error). Fix the text there.");
  EXPECT_EQ(refusal(file_of("{} {}")), "header: line 1, column 4: something follows the value. Remove it.");
  EXPECT_TRUE(refusal(file_of("{\"\xff\":1}")).starts_with("header: line 1, column 3: this is not JSON"));
  EXPECT_TRUE(refusal(file_of(std::string("{}\0", 3))).starts_with("header: line 1, column 3: "));
  std::string deep = "{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}";
  EXPECT_TRUE(refusal(file_of(deep)).ends_with("more than 32 levels of nesting. Expected fewer."));
}

TEST_F(SafetensorsTest, RefusesRepeatedNames) {
  const std::string one = entry("w", "U8", "[1]", "[0,1]"), same = entry("\\u0077", "U8", "[1]", "[1,2]");
  EXPECT_EQ(refusal(file_of("{" + one + "," + one + "}", "a")),
            "header: line 1, column 56: the key \"w\" occurs twice in one object. Keep one of them.");
  EXPECT_TRUE(refusal(file_of("{" + one + "," + same + "}", "ab")).ends_with("twice in one object. Keep one of them."));
  EXPECT_TRUE(refusal(file_of(R"({"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "a"))
                  .ends_with("the key \"dtype\" occurs twice in one object. Keep one of them."));
  EXPECT_EQ(refusal(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                            R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                            "xy")),
            "accepted");
}

TEST_F(SafetensorsTest, RefusesTypesItDoesNotKnow) {
  const std::string expected =
      " is not supported. Expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL: convert the tensor.";
  for (const std::string name : {"F8_E9", "U128", "f32", ""})
    EXPECT_EQ(refusal(file_of("{" + entry("w", name, "[1]", "[0,1]") + "}", "a")),
              "tensor \"w\".dtype: the type \"" + name + "\"" + expected);
}

TEST_F(SafetensorsTest, RefusesIncompleteEntries) {
  EXPECT_EQ(refusal(file_of(R"({"w":{}})")), "tensor \"w\": has no \"dtype\".");
  EXPECT_EQ(refusal(file_of(R"({"w":{"dtype":"U8","data_offsets":[0,0]}})")), "tensor \"w\": has no \"shape\".");
  EXPECT_EQ(refusal(file_of(R"({"w":{"dtype":"U8","shape":[0]}})")), "tensor \"w\": has no \"data_offsets\".");
  EXPECT_EQ(refusal(file_of(R"({"w":3})")), "tensor \"w\": 3 given, expected an object.");
  EXPECT_EQ(refusal(file_of(R"({"w":{"dtype":3,"shape":[0],"data_offsets":[0,0]}})")),
            "tensor \"w\".dtype: 3 given, expected a string.");
  EXPECT_EQ(refusal(file_of("{" + entry("w", "U8", "3", "[0,3]") + "}", "abc")),
            "tensor \"w\".shape: 3 given, expected an array.");
  EXPECT_EQ(refusal(file_of("{" + entry("w", "U8", "[3]", "[3]") + "}", "abc")),
            "tensor \"w\".data_offsets: [3] given, expected [begin, end].");
}

TEST_F(SafetensorsTest, RefusesWhatIsNotAWholeNumber) {
  const auto said = [&](const std::string& shape, const std::string& offsets) {
    return refusal(file_of("{" + entry("w", "U8", shape, offsets) + "}", "a"));
  };
  for (const std::string number : {"-1", "9223372036854775808", "\"1\"", "null", "[1]"})
    EXPECT_EQ(said("[" + number + "]", "[0,1]"),
              "tensor \"w\".shape.0: " + number + " given, expected a whole number from 0 on.");
  for (const std::string number : {"1.0", "1e0", "18446744073709551616"})
    EXPECT_TRUE(said("[" + number + "]", "[0,1]").ends_with(" given, expected a whole number from 0 on.")) << number;
  EXPECT_EQ(said("[1]", "[-1,0]"), "tensor \"w\".data_offsets.0: -1 given, expected a whole number from 0 on.");
}

TEST_F(SafetensorsTest, RefusesSizesThatDifferFromTheShape) {
  const auto message = [](const std::string& offsets, const std::string& bytes, const std::string& shape) {
    return "tensor \"w\": data_offsets " + offsets + " do not hold the " + bytes + " bytes of float32 with shape " +
           shape + ". Write the file again.";
  };
  EXPECT_EQ(refusal(file_of("{" + entry("w", "F32", "[2]", "[0,4]") + "}", "abcd")), message("[0, 4]", "8", "(2)"));
  EXPECT_EQ(refusal(file_of("{" + entry("w", "F32", "[]", "[0,8]") + "}", "abcdefgh")), message("[0, 8]", "4", "()"));
  EXPECT_EQ(refusal(file_of("{" + entry("w", "F32", "[0]", "[4,0]") + "}", "abcd")), message("[4, 0]", "0", "(0)"));
}

// Sizes in bytes of tensors of 6 elements.
TEST_F(SafetensorsTest, HasTensorsOfTypesThatNoArrayHas) {
  const std::pair<std::string, int> types[] = {{"F4", 3},   {"F6_E2M3", 5}, {"F8_E4M3", 6}, {"F8_E5M2", 6},
                                               {"U16", 12}, {"U32", 24},    {"U64", 48},    {"C64", 48}};
  for (const auto& [type, size] : types) {
    const std::string end = std::to_string(size), next = std::to_string(size + 1);
    const auto file = open(file_of("{" + entry("w", type, "[2,3]", "[0," + end + "]") + "," +
                                       entry("u", "U8", "[1]", "[" + end + "," + next + "]") + "}",
                                   std::string(static_cast<size_t>(size), 'x') + "a"));
    EXPECT_EQ(text(file.bytes("u")), "a") << type;
    EXPECT_TRUE(file.contains("w"));
    testing::expect_error(ErrorKind::invalid_file, {"\"w\" has elements of " + type + ", expected one of F64 F32"},
                      [&] { file.array("w"); });
    EXPECT_EQ(refusal(file_of("{" + entry("w", type, "[2,3]", "[0,2]") + "}", "ab")),
              "tensor \"w\": data_offsets [0, 2] do not hold the " + end + " bytes of " + type +
                  " with shape (2, 3). Write the file again.");
  }
}

TEST_F(SafetensorsTest, RefusesSizesThatOverflow) {
  for (const std::string shape : {"[4294967296,4294967296]", "[9223372036854775807,2]", "[2305843009213693952]"})
    EXPECT_TRUE(refusal(file_of("{" + entry("w", "F32", shape, "[0,0]") + "}"))
                    .ends_with(" given, expected a shape of at most 2^63 - 1 bytes."))
        << shape;
  EXPECT_NE(refusal(file_of("{" + entry("w", "U8", "[9223372036854775807]", "[0,9223372036854775807]") + "}")),
            "accepted");
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto two = [&](const std::string& a, const std::string& b) {
    return refusal(
        file_of("{" + entry("a", "U8", "[2]", a) + "," + entry("b", "U8", "[2]", b) + "}", std::string(4, 'x')));
  };
  EXPECT_EQ(two("[2,4]", "[0,2]"), "accepted");
  EXPECT_EQ(two("[0,2]", "[1,3]"),
            "tensor \"b\" begins at byte 1 of the data, expected 2: tensors overlap. Write the file again.");
  EXPECT_EQ(two("[0,2]", "[0,2]"),
            "tensor \"b\" begins at byte 0 of the data, expected 2: tensors overlap. Write the file again.");
  EXPECT_EQ(two("[0,2]", "[3,5]"),
            "tensor \"b\" begins at byte 3 of the data, expected 2: there is a hole. Write the file again.");
  EXPECT_EQ(two("[1,3]", "[3,5]"),
            "tensor \"a\" begins at byte 1 of the data, expected 0: there is a hole. Write the file again.");
  EXPECT_EQ(
      refusal(file_of("{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[0]", "[2,2]") + "}", "xxxx")),
      "tensor \"b\" begins at byte 2 of the data, expected 4: tensors overlap. Write the file again.");
}

TEST_F(SafetensorsTest, RefusesMetadataThatIsNotStrings) {
  EXPECT_EQ(refusal(file_of(R"({"__metadata__":[]})")), "__metadata__: [] given, expected an object.");
  EXPECT_EQ(refusal(file_of(R"({"__metadata__":{"step":7}})")), "__metadata__.step: 7 given, expected a string.");
}

TEST_F(SafetensorsTest, RefusesNamesAndShapesThatNoModelHas) {
  const auto of = [&](const std::string& name, int dims) {
    std::string shape = "[";
    for (int i = 0; i < dims; ++i) shape += i ? ",0" : "0";
    return refusal(file_of("{" + entry(name, "U8", shape + "]", "[0,0]") + "}"));
  };
  EXPECT_EQ(of("a", 64), "accepted");
  EXPECT_EQ(of("a", 65), "tensor \"a\".shape: 65 dimensions, expected at most 64.");
  EXPECT_EQ(of(std::string(4096, 'x'), 1), "accepted");
  EXPECT_EQ(of(std::string(4097, 'x'), 1),
            "a name of 4097 bytes, \"" + std::string(60, 'x') + "...\", expected at most 4096. Rename the tensor.");
}

// --- the JSON header -------------------------------------------------------------------------------------------------

TEST_F(SafetensorsTest, JsonFilesThatCannotBeReadAreErrorsWithTheirName) {
  const auto message = [](const fs::path& file) {
    return testing::error_of(ErrorKind::invalid_file, [&] { parse_json_file(file); });
  };
  EXPECT_EQ(message(path("none")),
            "[json] " + path("none").string() + ": it cannot be opened (No such file or directory). Check the path.");
  const fs::path folder = path().parent_path();
  EXPECT_EQ(message(folder), "[json] " + folder.string() + ": this is not a regular file. Check the path.");
  EXPECT_EQ(message(write("")),
            "[json] " + path().string() +
                ": line 1, column 1: the text ends in the middle of a value. Is the file complete?");
  EXPECT_EQ(message(write("{\n  \"a\": tru\n}")),
            "[json] " + path().string() + ": line 2, column 8: this is not JSON (syntax error). Fix the text there.");
  EXPECT_NO_THROW(parse_json_file(write("[1, 2]")));
}

TEST_F(SafetensorsTest, JsonNumbersAreRoundedCorrectly) {
  EXPECT_EQ(parse_json("0.1234567890123456789", "json", "text").as_double(), 0.1234567890123456789);
  EXPECT_EQ(parse_json("1.7976931348623157e308", "json", "text").as_double(), 1.7976931348623157e308);
  EXPECT_EQ(parse_json("9007199254740993.5", "json", "text").as_double(), 9007199254740993.5);
}

}  // namespace
}  // namespace tessera::safetensors_test
