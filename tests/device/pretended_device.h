// The name of a device that LibTorch takes for an accelerator; a program that asks for it has it.
#pragma once

namespace tessera::testing {

// "pretended": pretended_device.cpp says what it is.
const char* pretended_device();

}  // namespace tessera::testing
