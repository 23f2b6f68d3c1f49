// Prints arrays: the type, then the values in numpy's layout.
#include "sharding/array/print.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <set>

#include "sharding/array/array_impl.h"

namespace tessera {

namespace detail {
namespace {

constexpr int64_t max_printed = 1000, at_each_end = 3;
constexpr size_t line_width = 75;
constexpr int max_digits = 8;

// ---- abbreviated dimensions

bool is_cut(int64_t size, bool summarized) { return summarized && size > 2 * at_each_end; }

at::Tensor ends_only(at::Tensor t) {
  for (int64_t d = 0; d < t.dim(); ++d)
    if (is_cut(t.size(d), true))
      t = at::cat({t.narrow(d, 0, at_each_end), t.narrow(d, t.size(d) - at_each_end, at_each_end)}, d);
  return t;
}

// ---- numbers

// The fewest significant digits, and the power of ten of the first one: "125" with exponent 1 is 12.5.
struct Decimal {
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

// Parses C++'s scientific notation: -1.25e+01.
Decimal parsed(const std::string& text) {
  Decimal d{.negative = text[0] == '-', .digits = {}, .exponent = 0};
  const size_t e = text.find('e');
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') d.digits += c;
  while (d.digits.size() > 1 && d.digits.back() == '0') d.digits.pop_back();
  d.exponent = std::atoi(text.c_str() + e + 1);
  return d;
}

// Returns the shortest decimal that reads back as the same value of the element type.
Decimal shortest(double value, at::ScalarType dtype) {
  char text[64];
  const auto end = [&](auto v) {
    return std::to_chars(text, text + sizeof(text), v, std::chars_format::scientific).ptr;
  };
  if (dtype == at::kDouble) return parsed({text, end(value)});
  if (dtype == at::kFloat) return parsed({text, end(static_cast<float>(value))});
  const auto rounded = [&](double v) {
    return dtype == at::kHalf ? static_cast<float>(at::Half(static_cast<float>(v)))
                              : static_cast<float>(at::BFloat16(static_cast<float>(v)));
  };
  for (int digits = 0;; ++digits) {
    const std::string candidate = fmt::format("{:.{}e}", value, digits);
    if (rounded(std::strtod(candidate.c_str(), nullptr)) == static_cast<float>(value)) return parsed(candidate);
  }
}

// Rounds to this many digits, at least one.
Decimal rounded(const Decimal& d, double value, int digits) {
  if (static_cast<int>(d.digits.size()) <= digits) return d;
  return parsed(fmt::format("{:.{}e}", value, std::max(digits, 1) - 1));
}

struct Parts {
  std::string whole, fraction;
  int exponent = 0;
};

Parts fixed(const Decimal& shortest_digits, double value) {
  const Decimal d = rounded(shortest_digits, value, shortest_digits.exponent + 1 + max_digits);
  std::string all = d.exponent < 0 ? std::string(-d.exponent, '0') + d.digits : d.digits;
  const size_t point = std::max(d.exponent, 0) + 1;
  if (all.size() < point) all.append(point - all.size(), '0');
  return {(d.negative ? "-" : "") + all.substr(0, point), all == "0" ? "" : all.substr(point)};
}

Parts scientific(const Decimal& shortest_digits, double value) {
  const Decimal d = rounded(shortest_digits, value, 1 + max_digits);
  return {(d.negative ? "-" : "") + d.digits.substr(0, 1), d.digits.substr(1), d.exponent};
}

bool spans_much(const std::vector<double>& values) {
  double least = INFINITY, most = 0;
  for (double v : values)
    if (std::isfinite(v) && v != 0) least = std::min(least, std::abs(v)), most = std::max(most, std::abs(v));
  return most > 0 && (most >= 1e8 || least < 1e-4 || most / least > 1000);
}

template <class T>
std::vector<std::string> aligned(const std::vector<T>& values) {
  std::vector<std::string> texts;
  size_t width = 0;
  for (const T& v : values) texts.push_back(fmt::format("{}", v)), width = std::max(width, texts.back().size());
  for (std::string& text : texts) text = fmt::format("{:>{}}", text, width);
  return texts;
}

// Formats all numbers with the same width: integer digits right-aligned, fractions left-aligned (padded with zeros in
// scientific notation).
std::vector<std::string> floats_text(const std::vector<double>& values, at::ScalarType dtype) {
  const bool exponents = spans_much(values);
  std::vector<Parts> parts;
  size_t whole = 0, fraction = 0, exponent = 2;
  for (double v : values) {
    if (!std::isfinite(v)) {
      parts.push_back({std::isnan(v) ? "nan" : v < 0 ? "-inf" : "inf", ""});
      continue;
    }
    parts.push_back(exponents ? scientific(shortest(v, dtype), v) : fixed(shortest(v, dtype), v));
    whole = std::max(whole, parts.back().whole.size()), fraction = std::max(fraction, parts.back().fraction.size());
    exponent = std::max(exponent, std::to_string(std::abs(parts.back().exponent)).size());
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < values.size(); ++i) {
    const Parts& p = parts[i];
    texts.push_back(!std::isfinite(values[i]) ? p.whole
                    : exponents               ? fmt::format("{}.{:0<{}}e{}{:0{}}", p.whole, p.fraction, fraction,
                                              p.exponent < 0 ? '-' : '+', std::abs(p.exponent), exponent)
                                              : fmt::format("{:>{}}.{:<{}}", p.whole, whole, p.fraction, fraction));
  }
  return aligned(texts);
}

template <class T>
std::vector<T> elements(const at::Tensor& t, at::ScalarType dtype) {
  const at::Tensor flat = t.to(at::kCPU, dtype).contiguous();
  const T* begin = static_cast<const T*>(flat.const_data_ptr());
  return {begin, begin + flat.numel()};
}

std::vector<std::string> element_texts(const at::Tensor& t) {
  if (t.is_floating_point()) return floats_text(elements<double>(t, at::kDouble), t.scalar_type());
  if (t.scalar_type() != at::kBool) return aligned(elements<int64_t>(t, at::kLong));
  std::vector<std::string> words;
  for (const int64_t v : elements<int64_t>(t, at::kLong)) words.push_back(v ? "True" : "False");
  return aligned(words);
}

// ---- rows and brackets

class Rows {
 public:
  Rows(at::IntArrayRef shape, bool summarized, std::vector<std::string> texts, int indent)
      : shape_(shape), summarized_(summarized), texts_(std::move(texts)), indent_(indent) {}

  std::string text() { return shape_.empty() ? texts_[0] : of_dim(0); }

 private:
  std::string of_dim(size_t dim) {
    const bool last = dim + 1 == shape_.size();
    const std::string margin(indent_ + dim + 1, ' ');
    const int64_t n = shape_[dim];
    const bool cut = is_cut(n, summarized_);
    std::string text = "[", line;
    const auto add = [&](const std::string& word) {
      if (!line.empty() && margin.size() + line.size() + word.size() > line_width - 1 - dim) {
        while (line.back() == ' ') line.pop_back();
        text += line + '\n' + margin;
        line.clear();
      }
      line += word;
    };
    for (int64_t i = 0; i < (cut ? 2 * at_each_end : n); ++i) {
      const bool end = i + 1 == (cut ? 2 * at_each_end : n);
      const bool gap = cut && i == at_each_end;
      if (last) {
        if (gap) add("..."), line += ", ";
        add(texts_[next_++]), line += end ? "" : ", ";
        continue;
      }
      const std::string separator = ",\n" + std::string(shape_.size() - dim - 2, '\n') + margin;
      if (i) text += separator;
      if (gap) text += "..." + separator;
      text += of_dim(dim + 1);
    }
    return text + line + ']';
  }

  at::IntArrayRef shape_;
  bool summarized_;
  std::vector<std::string> texts_;
  int indent_;
  size_t next_ = 0;
};

}  // namespace

std::string values_text(const at::Tensor& tensor, int indent) {
  at::AutoGradMode off(false);
  const at::Tensor whole = tensor.detach();
  if (whole.numel() == 0) return "[]";
  const bool summarized = whole.numel() > max_printed;
  return Rows(whole.sizes(), summarized, element_texts(summarized ? ends_only(whole) : whole), indent).text();
}

}  // namespace detail

using namespace detail;

namespace {

// Prints the blocks of this process's devices, each block once, for an array of several processes.
std::ostream& print_shards(std::ostream& out, const Array& x) {
  const Mesh mesh(x.impl()->type->mesh);
  out << fmt::format(" on process {} of {}", mesh.process_index(), mesh.process_count());
  std::set<IndexRanges> seen;
  for (const Shard& shard : x.addressable_shards())
    if (seen.insert(shard.index).second)
      out << fmt::format("\n{} on device {}{}", ranges_text(shard.index), shard.device, x.ndim() > 1 ? "\n" : " ")
          << values_text(to_tensor(shard.data));
  return out;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Array& x) {
  const std::string type = x.type_string();
  out << type;
  if (x.is_absent()) return out;
  if (x.is_lazy() && x.size() > max_printed) return out << " a lazy initializer, without values yet";
  if (x.is_committed() && x.impl()->type->mesh->elsewhere)
    return out << " on devices of " << x.impl()->type->mesh->words_of_members();
  if (x.is_committed() && x.sharding().mesh().is_abstract()) return out << " on a mesh without hardware";
  if (x.impl()->type->varying) return out << " different on each device";
  if (x.is_committed() && (x.impl()->type->own() & x.impl()->type->mesh->crossing())) return print_shards(out, x);
  out << (x.ndim() > 1 ? "\n" : " ") << values_text(to_tensor(x));
  if (x.impl()->type->unreduced)
    out << (x.ndim() > 1 ? "\n" : " ") << "(a partial sum over "
        << x.impl()->type->mesh->names(x.impl()->type->unreduced) << ", reduced for printing)";
  return out;
}

}  // namespace tessera
