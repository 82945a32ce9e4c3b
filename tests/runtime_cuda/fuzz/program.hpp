// A program of one linear layer with a mask, in a small ring, for tests of its files.
#pragma once

#include <string>

#include "atlasc/interface.hpp"

namespace small {

/// Two inputs [2, 2, 4] at a time, of magnitude 1, with masks; outputs of the same shape, which err by
/// 1e-9.
const atlasc::Interface& interface();

/// weight x + bias, where the mask is 1.
atlasc::Values execute(atlasc::Context& context, atlasc::Values inputs);

/// Writes the arrays `weight` and `bias` that the interface has the digests of.
void write_weights(const std::string& path);

/// The program as a text, as `StoredProgram` and `read_interface` read it.
std::string text();

/// Writes a file of a program with the arrays and a text under a name, "program" or "interface".
void write_program(const std::string& path, const std::string& name, const std::string& text);

/// The inputs `x` and `mask`, `count` of a batch.
std::map<std::string, atlasc::Tensor> inputs(std::size_t count);

}  // namespace small
