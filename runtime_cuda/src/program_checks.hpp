// What is refused of the file of a program. Python's reader (atlasc/bundle/program_file.py) refuses the
// same files in the same words.
#pragma once

#include <string>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

[[noreturn]] void refuse_program(const TensorFile& file, const std::string& why);

/// Refuse (Error) inputs and outputs that no compiler writes.
void require_sound(const TensorFile& file, const Interface& interface);

}  // namespace atlasc
