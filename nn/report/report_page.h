// The empty page of a report, which the build puts together from the files in nn/report.
#pragma once

#include <string_view>

namespace tessera::nn::detail {

// Has "{{data}}" where the data go.
extern const std::string_view report_page;

}  // namespace tessera::nn::detail
